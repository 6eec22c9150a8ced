"""Runs targets in a folder and reads the results from a channel that the project's code does not own."""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from ratchet.checks.detect.commands import number_commands, split_by_command
from ratchet.checks.detect.project import Project
from ratchet.checks.detect.registry import runner
from ratchet.checks.detect.set_up import missing_set_up
from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import LaunchStep, Runner, RunOutput, Session, Target
from ratchet.checks.run.environment import FIXED
from ratchet.checks.run.missing_tests import check_default_files, is_selected
from ratchet.checks.run.path_redirect import SourceTree
from ratchet.checks.run.report_paths import relative_paths
from ratchet.checks.run.sides import with_sides
from ratchet.checks.run.test_fingerprints import with_fingerprints
from ratchet.checks.runners import compiler, find_upward
from ratchet.core.report import (
    INTERRUPT,
    RED,
    Report,
    ReportStatus,
    TestResult,
    TestStatus,
    add_running_tests,
    conclude,
    count_totals,
    load_errors,
    merge_commands,
    merge_targets,
)
from ratchet.process.spawn import ProcessResult, ProgramMissing, path_in_namespace, tidy
from ratchet.tree_files import (
    is_source,
    is_source_folder,
    links_may_lead,
    make_temporary_folder,
    remove_folder,
    remove_inside,
)

T = TypeVar("T")
COMMAND = "command"
_TAIL_BYTES = 8_000
_KEPT_HEAD, _KEPT_TAIL = 1 << 20, 3 << 20


class RunCommand(Protocol):
    """Runs the command of a step: `supervise`, or something faster with the same result."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        output: Path,
        errors: Path | None = None,
        timeout_s: float,
        silence_s: float | None = None,
        activity: Sequence[Path] = (),
        writable: Sequence[Path] = (),
    ) -> Awaitable[ProcessResult]: ...


async def run_supervised(argv: Sequence[str], **how: Any) -> ProcessResult:
    from ratchet.process.supervise import supervise  # noqa: PLC0415 — brings the event loop, which takes long to load

    return await supervise(argv, **how)


async def _off_loop(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call a function beside the event loop, if there is one: what hostile tests have written may take long to read."""
    asyncio = sys.modules.get("asyncio")
    try:
        asyncio.get_running_loop() if asyncio else None
    except RuntimeError:
        asyncio = None
    if asyncio is None:
        return function(*args, **kwargs)
    answer: T = await asyncio.to_thread(function, *args, **kwargs)
    return answer


def _empty(folder: Path) -> None:
    for name in os.listdir(folder):  # noqa: PTH208 — names only
        remove_inside(folder, name)


def run_without_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, without an event loop."""
    try:
        work.send(None)
    except StopIteration as done:
        answer: T = done.value
        return answer
    raise AssertionError("it waits, and there is no event loop")


class TestRun(msgspec.Struct, frozen=True, kw_only=True):
    """Runs every target and merges the reports. Implements `SuiteRunner`.

    `only` maps the name of a target to the tests to run; if it is not empty, other targets are skipped. `channel_dir`
    is used for all results in place of a new temporary folder each. `origin` is the tree in which the targets
    were detected, if another one is run.
    """

    targets: list[Target]
    timeout_s: float
    silence_s: float | None = None
    env: dict[str, str]
    only: dict[str, list[TestResult]] = {}
    channel_dir: str = ""
    origin: SourceTree | None = None
    run_command: RunCommand = run_supervised
    reporter_blocked: bool = False

    def environment(self, folder: Path, env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a command in the folder, without paths into the developer's tree."""
        return self.origin.redirect(env, self.targets, folder) if self.origin else dict(env)

    async def run(self, folder: Path, *, log: Path, env: Mapping[str, str] | None = None) -> Report:
        tests = msgspec.structs.replace(self, env={**self.env, **env}) if env else self
        return merge_targets(await tests.run_each(folder, log=log))

    def tool_digests(self, folder: Path) -> dict[str, str]:
        from ratchet.checks.run import tool_digests as tools  # noqa: PLC0415 — not needed to run tests

        return tools.tool_digests(self.targets, folder)

    async def run_each(self, folder: Path, *, log: Path) -> list[Report]:
        """Return one report for each target. Targets run in sequence: parallel suites would distort each other's
        durations."""
        wanted = [target for target in self.targets if not self.only or target.name in self.only]
        reports: list[Report] = []
        with links_may_lead(folder):
            for target in wanted:
                began = log.stat().st_size if log.exists() else 0
                reports.append(await self._target(target, folder, log))
                truncate_log(log, began)
                if reports[-1].status is ReportStatus.INTERRUPTED:
                    break
        return reports

    async def _target(self, target: Target, folder: Path, log: Path) -> Report:
        """Run all commands of a target and merge their reports."""
        reports: list[Report] = []
        for command, tests in split_by_command(target, self.only.get(target.name, [])):
            report = await self._only(target, tests)._run(command, folder, log)
            reports.append(number_commands(report, target, tests))
            # The build belongs to the first command: without it the others cannot run.
            if reports[-1].status is ReportStatus.INTERRUPTED or (target.builds and not reports[-1].tests):
                break
        return merge_commands(reports)

    def _top(self, folder: Path) -> Path:
        """Return the folder that people set up: the developer's own, if the tests run in a copy."""
        return self.origin.root if self.origin else folder

    async def _run(self, target: Target, folder: Path, log: Path) -> Report:
        how = runner(target.runner)
        if not is_source_folder(folder, target.root):
            return _error_report(target, f"there is no folder {target.root}: it is gone, or a link out of the tree")
        async with self._channel() as private:
            session = Session(
                folder=folder / target.root,
                private=private,
                nonce=secrets.token_hex(16),
                env=FIXED | self.environment(folder, self.env) | {"PWD": path_in_namespace(str(folder / target.root))},
                only=self.only.get(target.name, []),
                reporter_blocked=self.reporter_blocked,
            )
            building = [
                LaunchStep(argv=_with_local_program(words, session.folder), needs_success=True)
                for words in target.builds
            ]
            steps = [*building, *_requiring(building, await _off_loop(how.launch, target, session))]
            log.touch(mode=0o600)
            began = log.stat().st_size
            try:
                finished = await self._steps(steps, session, log)
            except ProgramMissing as error:
                return _error_report(
                    target, f"{error.message.strip()}; {error.hint}{missing_set_up(target, self._top(folder))}"
                )
            if unbuilt := _build_failure(target, building, finished, log=log, began=began):
                return unbuilt
            if not session.private.exists():
                return _channel_removed_report(target, finished[-1], _end_of(log, began))
            ends = finished[len(building) :]
            report = await _off_loop(_conclude, target, how, session, ends, log=log, began=began)
            output = _tail(session, steps, log, began) if report.status is not ReportStatus.PASSED else ""
            if _REPORTER_BLOCKED in output and not self.reporter_blocked and not report.tests:
                return _note_blocked_reporter(
                    await msgspec.structs.replace(self, reporter_blocked=True)._run(target, folder, log)
                )
            if absent := _missing_dependency(report, output):
                return _error_report(
                    target, f"{absent}; install what is missing{missing_set_up(target, self._top(folder))}", output
                )
            if (found := _tests_to_run_instead(how, report, output, session.only)) is not None:
                again = await self._only(target, found)._run(target, folder, log)
                return _only_selected(again, session.only)
            if rest := _target_without_broken_files(how, target, report, session):
                return _merge_load_errors(await self._run(rest, folder, log), report)
            if report.running:
                report = _with_crash_location(report, how.crash_output(output), session.folder)
            if not session.only:
                report = check_default_files(report, target, Project(session.folder))
            return msgspec.structs.replace(report, output=output) if output else report

    @asynccontextmanager
    async def _channel(self) -> AsyncIterator[Path]:
        """Yield an empty folder that the tests may write. They cannot replace it: they cannot write what it is in."""
        if self.channel_dir:
            await _off_loop(_empty, Path(self.channel_dir))
            yield Path(self.channel_dir)
            return
        place = make_temporary_folder("ratchet-channel-")
        try:
            (private := place / "channel").mkdir(mode=0o700)
            yield private
        finally:
            await _off_loop(remove_folder, place)

    def _only(self, target: Target, tests: list[TestResult]) -> TestRun:
        return msgspec.structs.replace(self, only=self.only | {target.name: tests})

    async def _steps(self, steps: list[LaunchStep], session: Session, log: Path) -> list[ProcessResult]:
        done: list[ProcessResult] = []
        left_s = self.timeout_s
        for step in steps:
            if step.needs_success and any(finished.exit_code for finished in done):
                break
            finished = await self.run_command(
                step.argv,
                cwd=session.folder,
                env=session.env | step.env,
                output=session.private / step.channel if step.channel else log,
                errors=log,
                timeout_s=left_s,
                silence_s=self.silence_s,
                activity=[session.private],
                writable=[session.private],
            )
            await _off_loop(tidy, session.private)
            done.append(finished)
            left_s -= finished.duration_s
            if finished.timed_out or finished.silent or finished.interrupted or left_s <= 0:
                break
        return done


def _with_local_program(words: list[str], folder: Path) -> list[str]:
    """Use the project's own copy of the program, if there is one."""
    at = next((n for n, word in enumerate(words) if word != "env" and "=" not in word), 0)
    found = find_upward(folder, f"node_modules/.bin/{words[at]}")
    return [*words[:at], str(found) if found else words[at], *words[at + 1 :]]


def _requiring(building: list[LaunchStep], steps: list[LaunchStep]) -> list[LaunchStep]:
    return [msgspec.structs.replace(step, needs_success=True) for step in steps] if building else steps


def _build_failure(
    target: Target, building: list[LaunchStep], finished: list[ProcessResult], *, log: Path, began: int
) -> Report | None:
    """Return a report of the failed build, or None: without the build there is nothing to test."""
    last = finished[-1]
    if len(finished) > len(building) or not building or not (last.exit_code or last.timed_out or last.silent):
        return None
    with log.open("rb") as stream:
        stream.seek(began)
        errors = compiler(stream).compile_errors
    note = f"`{' '.join(target.builds[len(finished) - 1])}` exited with {last.exit_code} before any test ran"
    return Report(
        runner=target.runner,
        root=target.root,
        command=target.command,
        status=ReportStatus.FAILED if errors else ReportStatus.ERROR,
        exit_code=last.exit_code,
        duration_s=round(sum(each.duration_s for each in finished), 3),
        compile_errors=errors,
        notes=[note],
        output=_end_of(log, began),
    )


def _conclude(
    target: Target, how: Runner, session: Session, finished: list[ProcessResult], *, log: Path, began: int
) -> Report:
    results = RunOutput(
        folder=session.folder,
        private=session.private,
        log=log,
        log_offset=began,
        nonce=session.nonce,
        exit_codes=[each.exit_code for each in finished],
        stopped=any(each.timed_out or each.silent or each.interrupted for each in finished),
    )
    parsed = relative_paths(how.parse(results), session.folder)
    parsed = _replace_tests(parsed, how.filter_results(parsed.tests, session.only))
    why = "silence" if any(each.silent for each in finished) else "timeout"
    why = INTERRUPT if any(each.interrupted for each in finished) else why
    report = conclude(
        runner=target.runner,
        root=target.root,
        command=target.command,
        exit_code=results.exit_code,
        timed_out=why if results.stopped else "",
        duration_s=round(sum(each.duration_s for each in finished), 3),
        tests=with_fingerprints(with_sides(parsed.tests, session.folder), session.folder),
        collection_errors=parsed.collection_errors,
        compile_errors=parsed.compile_errors,
        reported=parsed.reported,
        ended=parsed.ended,
        partial=parsed.partial,
        notes=parsed.notes,
        running=parsed.running,
    )
    if (
        report.status is ReportStatus.CRASHED
        and how.name == COMMAND
        and not parsed.running
        and not results.killed_by_signal
    ):
        if parsed.compile_errors and results.exit_code and not parsed.tests:
            return msgspec.structs.replace(report, status=ReportStatus.FAILED, notes=parsed.notes)
        note = f"no reliable results in the output; exit code {results.exit_code}"
        return msgspec.structs.replace(report, status=ReportStatus.UNKNOWN, notes=[*report.notes, note])
    return _with_locations(add_running_tests(report, parsed.places), how, session.folder)


def _with_locations(report: Report, how: Runner, folder: Path) -> Report:
    """Add source locations to tests that never finished, if the runner can derive them from the names."""
    if not report.running:
        return report
    lost = {name for name in report.running if name}
    tests = [how.locate(test, folder) if test.id in lost and not test.file else test for test in report.tests]
    return msgspec.structs.replace(report, tests=tests)


def _tests_to_run_instead(how: Runner, report: Report, output: str, asked: list[TestResult]) -> list[TestResult] | None:
    """Return the tests to run if the runner ran nothing because it does not know some of the selected ones: the others,
    and the whole file of a test that once had that name. Empty: run everything. None: do not run again."""
    if report.tests or not asked:
        return None
    unfound = how.unknown_tests(output, asked)
    rest = [test for test in asked if test not in unfound]
    around = [_file_of(test) for test in unfound if "::" in test.id and test.status is not TestStatus.TODO]
    if not unfound or not (rest or around):
        return None
    return [] if any(not test.id for test in around) else [*rest, *around]


_UNLOADED_MAX = 5  # limit on the runs made to find the files that load


def _target_without_broken_files(how: Runner, target: Target, report: Report, session: Session) -> Target | None:
    """Return the target without files that fail to load and keep all others from running, if the runner can exclude
    them."""
    files = {error.file for error in report.collection_errors}
    if report.tests or report.running or not 0 < len(files) <= _UNLOADED_MAX:
        return None
    rest = how.exclude_files(target, sorted(files), session.only)
    known = all(file and is_source(session.folder, file) for file in files)
    return rest if known and rest and len(rest.command) - len(target.command) < 2 * _UNLOADED_MAX else None


def _merge_load_errors(rest: Report, first: Report) -> Report:
    """Merge the results of the files that load with the errors of those that do not."""
    if not rest.tests and not rest.running:
        return first
    errors = [
        *first.collection_errors,
        *(error for error in rest.collection_errors if error not in first.collection_errors),
    ]
    status = ReportStatus.FAILED if rest.status in (ReportStatus.PASSED, ReportStatus.FAILED) else rest.status
    return msgspec.structs.replace(
        rest,
        command=first.command,
        collection_errors=errors,
        status=status,
        exit_code=first.exit_code,
        duration_s=round(first.duration_s + rest.duration_s, 3),
        output=first.output or rest.output,
    )


def _file_of(test: TestResult) -> TestResult:
    file = test.id.partition("::")[0].strip("./") and test.id.partition("::")[0]
    return TestResult(id=file, file=file, status=TestStatus.TODO)


def _only_selected(report: Report, asked: list[TestResult]) -> Report:
    """Keep only selected tests: others ran because the runner could not exclude them and must not fail the run."""
    names = [test.id for test in asked]
    kept = [test for test in report.tests if is_selected(test.id, names)]
    if len(kept) == len(report.tests) or report.status not in (ReportStatus.PASSED, ReportStatus.FAILED):
        return report
    red = any(test.status in RED for test in kept) or load_errors(report)
    status = ReportStatus.FAILED if red else ReportStatus.PASSED if kept else ReportStatus.NO_TESTS
    return msgspec.structs.replace(report, tests=kept, totals=count_totals(kept), status=status)


# Python prints this when it is terminated with our reporter loaded.
_STACK = "Stack (most recent call first):"


def _with_crash_location(report: Report, output: str, folder: Path) -> Report:
    """Set the failure location of tests that never finished: of a single one where the runner died or hung, according
    to its output; else where the test is defined."""
    lost = [test for test in report.tests if test.id in report.running and test.failure and not test.failure.line]
    tail = output if report.status is ReportStatus.CRASHED else output.rpartition(_STACK)[2] if _STACK in output else ""
    if len(report.running) == 1:
        lost = [_at_last_call(test, tail, folder) for test in lost]
    by_id = {test.id: _where_written(test) for test in lost}
    return msgspec.structs.replace(report, tests=[by_id.get(test.id, test) for test in report.tests])


def _at_last_call(test: TestResult, output: str, folder: Path) -> TestResult:
    from ratchet.checks.formats.recover import stacks  # noqa: PLC0415 — many patterns, seldom needed

    assert test.failure
    known = msgspec.structs.replace(test.failure, frames=stacks.frames(output), file="")
    (placed,) = relative_paths(Parsed(tests=[msgspec.structs.replace(test, failure=known)]), folder).tests
    return placed if placed.failure and placed.failure.frames else test


def _where_written(test: TestResult) -> TestResult:
    if not test.failure or test.failure.line or not test.line:
        return test
    return msgspec.structs.replace(test, failure=msgspec.structs.replace(test.failure, file=test.file, line=test.line))


def _replace_tests(parsed: Parsed, kept: list[TestResult]) -> Parsed:
    """Replace the tests and reduce the runner's own counts by the number of removed ones."""
    gone = len(parsed.tests) - len(kept)
    lower = {
        name: max(0, count - gone) for name, count in parsed.reported.items() if gone and name in ("tests", "skipped")
    }
    return msgspec.structs.replace(parsed, tests=kept, reported=parsed.reported | lower)


# Some projects, and commands run by tox and make, set PYTHONPATH and thereby remove our entry.
_REPORTER_BLOCKED = "No module named '_ratchet_pytest'"


def _note_blocked_reporter(report: Report) -> Report:
    note = "PYTHONPATH is overwritten, so our reporter is not loaded: results are from pytest's JUnit file"
    return msgspec.structs.replace(report, notes=[*report.notes, note])


# Messages by which an installed program reports a missing dependency.
_MISSING_DEPENDENCY = re.compile(
    r"(?m)^\S*python\S*: (?P<module>No module named [\w.]+)$"
    r"|^\S.*: error: (?P<option>unrecognized arguments: .+)$|^ERROR: (?P<plugin>Missing required plugins: .+)$"
    r"|^(?:ERROR: |ImportError: )(?P<import>Error importing plugin .+)$"
    r"|^(?:error: )?(?P<command>no such (?:sub)?command: [`'\w-]+)"
    r"|^(?:/bin/)?(?:ba|da)?sh: (?:line )?\d+: (?P<shell>[\w./-]+): (?:command )?not found$"
    r"|^rake aborted!\n(?P<rake>LoadError: cannot load such file -- \S+)$"
    r"|^bundler: command not found: (?P<gem>\S+)$"
    r"|: (?P<bundle>Could not find gem '\S+' in .+?)\.? \(Bundler::GemNotFound\)$"
    r"|^(?P<needs>"
    r"Could not find .+ in (?:any of the sources|locally installed gems).*"
    r"|Could not find Hex, which is needed .*|Unchecked dependencies for environment \w+:"
    r"|error: failed to get `.+` as a dependency of .*|error: no matching package (?:named .* )?found"
    r"|Cannot open (?:bootstrap script|file) \"\S*vendor/autoload\.php\"\.?"
    r"|\S*: no required module provides package .*|go: .*: dial tcp: lookup .*"
    r"|\[(?:ERROR|FATAL)\] .*"
    r"(?:Could not resolve dependencies|could not be resolved|Could not transfer artifact|Non-resolvable \w+ POM).*"
    r"|.*Prompt: No local packages\.json found.*"
    r"|make: \*\*\* No rule to make target 'check'.*"
    r"|> Could not resolve all (?:files|artifacts|dependencies) .*"
    r")$"
)


def _missing_dependency(report: Report, output: str) -> str:
    """Return the missing dependency if it is the reason why nothing ran."""
    idle = not report.tests and not report.collection_errors and not report.compile_errors and report.exit_code
    found = _MISSING_DEPENDENCY.search(output) if idle and report.status is not ReportStatus.TIMEOUT else None
    if not found:
        return ""
    if name := found.group("shell") or found.group("gem"):
        return f"{name} is not installed"
    return str(next(filter(None, found.groups())))


def _error_report(target: Target, why: str, output: str = "") -> Report:
    return Report(
        runner=target.runner,
        root=target.root,
        command=target.command,
        status=ReportStatus.ERROR,
        notes=[why],
        output=output,
    )


def _channel_removed_report(target: Target, last: ProcessResult, output: str) -> Report:
    why = "the result channel was removed during the run"
    cut = last.timed_out or last.silent
    status = ReportStatus.INTERRUPTED if last.interrupted else ReportStatus.TIMEOUT if cut else ReportStatus.CRASHED
    return msgspec.structs.replace(_error_report(target, why, output), status=status, exit_code=last.exit_code)


def _tail(session: Session, steps: list[LaunchStep], log: Path, began: int) -> str:
    """Return the end of the runner's output; of a channel only if there is nothing else, because it has been parsed."""
    text = _end_of(log, began)
    channels = [session.private / step.channel for step in steps if step.channel]
    return text or "".join(_end_of(channel, 0) for channel in channels if channel.exists())


def _end_of(path: Path, began: int) -> str:
    with path.open("rb") as file:
        file.seek(max(began, path.stat().st_size - _TAIL_BYTES))
        return file.read().decode(errors="replace")


def truncate_log(log: Path, began: int) -> None:
    """Keep only the beginning and end of a huge log: it has been parsed, and would occupy the disk until the next
    run."""
    size = log.stat().st_size if log.exists() else 0
    left_out = size - began - _KEPT_HEAD - _KEPT_TAIL
    if left_out <= 0:
        return
    with log.open("r+b") as file:
        file.seek(size - _KEPT_TAIL)
        tail = file.read(_KEPT_TAIL)
        file.seek(began + _KEPT_HEAD)
        file.write(f"\n[ratchet left out {left_out} bytes here]\n".encode() + tail)
        file.truncate()
