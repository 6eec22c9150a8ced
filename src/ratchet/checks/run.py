"""Run targets in a folder and read the results from a channel the project's code does not own."""

from __future__ import annotations

import re
import secrets
import tempfile
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from ratchet.checks import Results, Runner, Session, Step, Target
from ratchet.checks.bodies import with_bodies
from ratchet.checks.commands import marked, shared
from ratchet.checks.editable import Origin
from ratchet.checks.environment import FIXED
from ratchet.checks.formats import Parsed
from ratchet.checks.inventory import complete, is_one_of
from ratchet.checks.paths import relative
from ratchet.checks.project import Project
from ratchet.checks.registry import runner
from ratchet.checks.runners import compiler, upward
from ratchet.core.report import (
    INTERRUPT,
    RED,
    Report,
    ReportStatus,
    TestResult,
    TestStatus,
    broken,
    conclude,
    merge,
    names_running,
    together,
    totals_of,
)
from ratchet.process import Finished, ProgramMissing

T = TypeVar("T")
COMMAND = "command"
_TAIL_BYTES = 8_000
_KEPT_HEAD, _KEPT_TAIL = 1 << 20, 3 << 20


class Perform(Protocol):
    """How a step's command is run: `supervise`, or something that is quicker and gives the same."""

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
        signs: Sequence[Path] = (),
        writable: Sequence[Path] = (),
    ) -> Awaitable[Finished]: ...


async def awaited(argv: Sequence[str], **how: Any) -> Finished:
    from ratchet.supervision import supervise  # noqa: PLC0415 — brings the event loop, which takes long to load

    return await supervise(argv, **how)


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The answer of a coroutine that has nothing to wait for, because what it awaits is done when it is asked for."""
    try:
        work.send(None)
    except StopIteration as done:
        answer: T = done.value
        return answer
    raise AssertionError("it waits, and there is no event loop")


class TestRun(msgspec.Struct, frozen=True, kw_only=True):
    """Satisfies `Checks`: every target is run, and the report is theirs together.

    `only` maps a target's name to the tests to run; a target that is not in it is left out, unless it is empty.
    `channels` is where the private folders are made, the system's temporary folder when empty. `origin` is the tree
    that the targets were found in, where another one is run.
    """

    targets: list[Target]
    timeout_s: float
    silence_s: float | None = None
    env: dict[str, str]
    only: dict[str, list[TestResult]] = {}
    channels: str = ""
    origin: Origin | None = None
    perform: Perform = awaited

    def surroundings(self, folder: Path, env: Mapping[str, str]) -> dict[str, str]:
        """The environment of a command in the folder: nothing in it leads back to the developer's tree."""
        return self.origin.led(env, self.targets, folder) if self.origin else dict(env)

    async def run(self, folder: Path, *, log: Path, env: Mapping[str, str] | None = None) -> Report:
        tests = msgspec.structs.replace(self, env={**self.env, **env}) if env else self
        return merge(await tests.run_each(folder, log=log))

    def tools(self, folder: Path) -> dict[str, str]:
        from ratchet.checks import tools  # noqa: PLC0415 — who only runs tests does not ask

        return tools.digests(self.targets, folder)

    async def run_each(self, folder: Path, *, log: Path) -> list[Report]:
        """One report for each target, one after the other: two suites at once would spoil each other's clocks."""
        wanted = [target for target in self.targets if not self.only or target.name in self.only]
        reports: list[Report] = []
        for target in wanted:
            began = log.stat().st_size if log.exists() else 0
            reports.append(await self._target(target, folder, log))
            shorten(log, began)
            if reports[-1].status is ReportStatus.INTERRUPTED:
                break
        return reports

    async def _target(self, target: Target, folder: Path, log: Path) -> Report:
        """All that is to run of a target, as one report."""
        reports: list[Report] = []
        for command, tests in shared(target, self.only.get(target.name, [])):
            report = await self._only(target, tests)._run(command, folder, log)
            reports.append(marked(report, target, tests))
            # What was not built for the first command is not there for the others.
            if reports[-1].status is ReportStatus.INTERRUPTED or (target.builds and not reports[-1].tests):
                break
        return together(reports)

    async def _run(self, target: Target, folder: Path, log: Path) -> Report:
        how = runner(target.runner)
        with tempfile.TemporaryDirectory(prefix="ratchet-channel-", dir=self.channels or None) as private:
            session = Session(
                folder=folder / target.root,
                private=Path(private),
                nonce=secrets.token_hex(16),
                env=FIXED | self.surroundings(folder, self.env) | {"PWD": str(folder / target.root)},
                only=self.only.get(target.name, []),
            )
            building = [Step(argv=_program(words, session.folder), needs=True) for words in target.builds]
            steps = [*building, *_after(building, how.launch(target, session))]
            log.touch(mode=0o600)
            began = log.stat().st_size
            try:
                finished = await self._steps(steps, session, log)
            except ProgramMissing as error:
                return _cannot(target, f"{error.message.strip()}; {error.hint}{_prepared(target)}")
            if unbuilt := _unbuilt(target, building, finished, log=log, began=began):
                return unbuilt
            if not session.private.exists():
                return _robbed(target, finished[-1], _end_of(log, began))
            report = _conclude(target, how, session, finished[len(building) :], log=log, began=began)
            said = _tail(session, steps, log, began) if report.status is not ReportStatus.PASSED else ""
            if absent := _absent(report, said):
                return _cannot(target, f"{absent}; install what is missing{_prepared(target)}", said)
            if (found := _found(how, report, said, session.only)) is not None:
                again = await self._only(target, found)._run(target, folder, log)
                return _of_those(again, session.only)
            if rest := _loadable(how, target, report, session):
                return _with_unloaded(await self._run(rest, folder, log), report)
            report = _placed(report, said, session.folder) if report.running else report
            if not session.only:
                report = complete(report, target, Project(session.folder))
            return msgspec.structs.replace(report, output=said) if said else report

    def _only(self, target: Target, tests: list[TestResult]) -> TestRun:
        return msgspec.structs.replace(self, only=self.only | {target.name: tests})

    async def _steps(self, steps: list[Step], session: Session, log: Path) -> list[Finished]:
        done: list[Finished] = []
        left_s = self.timeout_s
        for step in steps:
            if step.needs and any(finished.exit_code for finished in done):
                break
            finished = await self.perform(
                step.argv,
                cwd=session.folder,
                env=session.env | step.env,
                output=session.private / step.channel if step.channel else log,
                errors=log,
                timeout_s=left_s,
                silence_s=self.silence_s,
                signs=[session.private],
                writable=[session.private],
            )
            done.append(finished)
            left_s -= finished.duration_s
            if finished.timed_out or finished.silent or finished.interrupted or left_s <= 0:
                break
        return done


def _program(words: list[str], folder: Path) -> list[str]:
    """With the project's own copy of the program."""
    at = next((n for n, word in enumerate(words) if word != "env" and "=" not in word), 0)
    found = upward(folder, f"node_modules/.bin/{words[at]}")
    return [*words[:at], str(found) if found else words[at], *words[at + 1 :]]


def _after(building: list[Step], steps: list[Step]) -> list[Step]:
    return [msgspec.structs.replace(step, needs=True) for step in steps] if building else steps


def _unbuilt(target: Target, building: list[Step], finished: list[Finished], *, log: Path, began: int) -> Report | None:
    """What was not built could not be tested: the errors of the build are all there is to tell."""
    last = finished[-1]
    if len(finished) > len(building) or not building or not (last.exit_code or last.timed_out or last.silent):
        return None
    with log.open("rb") as stream:
        stream.seek(began)
        errors = compiler(stream).compile_errors
    note = f"`{' '.join(target.builds[len(finished) - 1])}` ended with {last.exit_code}, before any test was run"
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
    target: Target, how: Runner, session: Session, finished: list[Finished], *, log: Path, began: int
) -> Report:
    results = Results(
        folder=session.folder,
        private=session.private,
        log=log,
        began=began,
        nonce=session.nonce,
        exit_codes=[each.exit_code for each in finished],
        stopped=any(each.timed_out or each.silent or each.interrupted for each in finished),
    )
    parsed = relative(how.parse(results), session.folder)
    if asked := getattr(how, "asked", None):
        parsed = _only_asked(parsed, asked(parsed.tests, session.only))
    why = "silence" if any(each.silent for each in finished) else "timeout"
    why = INTERRUPT if any(each.interrupted for each in finished) else why
    report = conclude(
        runner=target.runner,
        root=target.root,
        command=target.command,
        exit_code=results.exit_code,
        timed_out=why if results.stopped else "",
        duration_s=round(sum(each.duration_s for each in finished), 3),
        tests=with_bodies(parsed.tests, session.folder),
        collection_errors=parsed.collection_errors,
        compile_errors=parsed.compile_errors,
        reported=parsed.reported,
        ended=parsed.ended,
        partial=parsed.partial,
        notes=parsed.notes,
        running=parsed.running,
    )
    if report.status is ReportStatus.CRASHED and how.name == COMMAND and not parsed.running and not results.signal:
        if parsed.compile_errors and results.exit_code and not parsed.tests:
            return msgspec.structs.replace(report, status=ReportStatus.FAILED, notes=parsed.notes)
        note = f"what it printed holds no results that could be trusted; it ended with {results.exit_code}"
        return msgspec.structs.replace(report, status=ReportStatus.UNKNOWN, notes=[*report.notes, note])
    return _located(names_running(report, parsed.places), how, session.folder)


def _located(report: Report, how: Runner, folder: Path) -> Report:
    """Those that never ended with where they are written, where the runner's names give it away."""
    if not report.running or not (located := getattr(how, "located", None)):
        return report
    lost = {name for name in report.running if name}
    tests = [located(test, folder) if test.id in lost and not test.file else test for test in report.tests]
    return msgspec.structs.replace(report, tests=tests)


def _found(how: Runner, report: Report, said: str, asked: list[TestResult]) -> list[TestResult] | None:
    """What to run in place of what was asked for, if the runner ran nothing because it does not know some of it: the
    rest, and around a test that it once named so all of its file; empty for everything, None for nothing."""
    if report.tests or not asked or not (strange := getattr(how, "strange", None)):
        return None
    unfound = strange(said, asked)
    rest = [test for test in asked if test not in unfound]
    around = [_around(test) for test in unfound if "::" in test.id and test.status is not TestStatus.TODO]
    if not unfound or not (rest or around):
        return None
    return [] if any(not test.id for test in around) else [*rest, *around]


_UNLOADED_MAX = 5  # as many runs are made at most to find those that load


def _loadable(how: Runner, target: Target, report: Report, session: Session) -> Target | None:
    """What is left to run where a file that does not load kept all others from running, and can be left out."""
    without, files = getattr(how, "without", None), {error.file for error in report.collection_errors}
    if not without or report.tests or report.running or not 0 < len(files) <= _UNLOADED_MAX:
        return None
    rest: Target | None = without(target, sorted(files), session.only)
    known = all(file and (session.folder / file).is_file() for file in files)
    return rest if known and rest and len(rest.command) - len(target.command) < 2 * _UNLOADED_MAX else None


def _with_unloaded(rest: Report, first: Report) -> Report:
    """The results of those that do load, and what is known of the others."""
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


def _around(test: TestResult) -> TestResult:
    file = test.id.partition("::")[0].strip("./") and test.id.partition("::")[0]
    return TestResult(id=file, file=file, status=TestStatus.TODO)


def _of_those(report: Report, asked: list[TestResult]) -> Report:
    """Without what was run only because it lies around. It cannot fail a run in which it was not asked for."""
    names = [test.id for test in asked]
    kept = [test for test in report.tests if is_one_of(test.id, names)]
    if len(kept) == len(report.tests) or report.status not in (ReportStatus.PASSED, ReportStatus.FAILED):
        return report
    red = any(test.status in RED for test in kept) or broken(report)
    status = ReportStatus.FAILED if red else ReportStatus.PASSED if kept else ReportStatus.NO_TESTS
    return msgspec.structs.replace(report, tests=kept, totals=totals_of(kept), status=status)


# What Python prints when it is told to end and our reporter is in it.
_STACK = "Stack (most recent call first):"


def _placed(report: Report, said: str, folder: Path) -> Report:
    """The one test that the runner died or hung in with where it did, if the last words of the runner say so; else with
    where it is written."""
    lost = [test for test in report.tests if test.id in report.running and test.failure and not test.failure.line]
    told = said if report.status is ReportStatus.CRASHED else said.rpartition(_STACK)[2] if _STACK in said else ""
    if len(report.running) == 1:
        lost = [_at_last_call(test, told, folder) for test in lost]
    by_id = {test.id: _where_written(test) for test in lost}
    return msgspec.structs.replace(report, tests=[by_id.get(test.id, test) for test in report.tests])


def _at_last_call(test: TestResult, said: str, folder: Path) -> TestResult:
    from ratchet.checks.formats.recover import stacks  # noqa: PLC0415 — many patterns, seldom needed

    assert test.failure
    known = msgspec.structs.replace(test.failure, frames=stacks.frames(said), file="")
    (placed,) = relative(Parsed(tests=[msgspec.structs.replace(test, failure=known)]), folder).tests
    return placed if placed.failure and placed.failure.frames else test


def _where_written(test: TestResult) -> TestResult:
    if not test.failure or test.failure.line or not test.line:
        return test
    return msgspec.structs.replace(test, failure=msgspec.structs.replace(test.failure, file=test.file, line=test.line))


def _only_asked(parsed: Parsed, kept: list[TestResult]) -> Parsed:
    """With these tests; the others are not in the runner's own counts either, if it counted them."""
    gone = len(parsed.tests) - len(kept)
    lower = {
        name: max(0, count - gone) for name, count in parsed.reported.items() if gone and name in ("tests", "skipped")
    }
    return msgspec.structs.replace(parsed, tests=kept, reported=parsed.reported | lower)


def _prepared(target: Target) -> str:
    """A runner that is not there is mostly a project that was not set up."""
    return f", or set the project up first: {' && '.join(target.setup)}" if target.setup else ""


# How a program that was found says that something it needs was not.
_ABSENT = re.compile(
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
    r"|error: failed to get `.+` as a dependency of .*|error: no matching package (?:named )?.* found"
    r"|\S*: no required module provides package .*|go: .*: dial tcp: lookup .*"
    r"|\[ERROR\] .*(?:Could not resolve dependencies|could not be resolved|Could not transfer artifact).*"
    r"|make: \*\*\* No rule to make target 'check'.*"
    r"|> Could not resolve all (?:files|artifacts|dependencies) .*"
    r")$"
)


def _absent(report: Report, said: str) -> str:
    """What is not installed, if that is why nothing ran."""
    idle = not report.tests and not report.collection_errors and not report.compile_errors and report.exit_code
    found = _ABSENT.search(said) if idle and report.status is not ReportStatus.TIMEOUT else None
    if not found:
        return ""
    if name := found.group("shell") or found.group("gem"):
        return f"{name} is not there"
    return str(next(filter(None, found.groups())))


def _cannot(target: Target, why: str, said: str = "") -> Report:
    return Report(
        runner=target.runner,
        root=target.root,
        command=target.command,
        status=ReportStatus.ERROR,
        notes=[why],
        output=said,
    )


def _robbed(target: Target, last: Finished, said: str) -> Report:
    why = "what it wrote its results to was removed while it ran"
    cut = last.timed_out or last.silent
    status = ReportStatus.INTERRUPTED if last.interrupted else ReportStatus.TIMEOUT if cut else ReportStatus.CRASHED
    return msgspec.structs.replace(_cannot(target, why, said), status=status, exit_code=last.exit_code)


def _tail(session: Session, steps: list[Step], log: Path, began: int) -> str:
    """The end of what the runner printed; of a channel only when there is nothing else, for it has been read."""
    text = _end_of(log, began)
    channels = [session.private / step.channel for step in steps if step.channel]
    return text or "".join(_end_of(channel, 0) for channel in channels if channel.exists())


def _end_of(path: Path, began: int) -> str:
    with path.open("rb") as file:
        file.seek(max(began, path.stat().st_size - _TAIL_BYTES))
        return file.read().decode(errors="replace")


def shorten(log: Path, began: int) -> None:
    """Of a flood beginning and end stay: it has been read, and would lie there until the next run."""
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
