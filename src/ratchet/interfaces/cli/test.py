"""The command `test`: detects and runs the tests of a folder and prints one report."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ratchet import config
from ratchet.app.tests import NO_TESTS_HINT, Suite, TestOutcome, TestSelection
from ratchet.checks.detect.targets import excluded_folders
from ratchet.checks.protocol import Target
from ratchet.checks.run.executor import run_without_loop
from ratchet.core.report import RED, Report, ReportStatus, load_errors
from ratchet.errors import NoTests, UsageError
from ratchet.interfaces.cli.common import (
    PATH,
    Arguments,
    NumberBetween,
    PassthroughCommand,
    argument,
    flag,
    option,
    print_data,
    print_json,
    print_note,
)
from ratchet.interfaces.terminal.progress_line import progress_line
from ratchet.process.spawn import ProcessResult, run_process
from ratchet.tree_files import links_may_lead
from ratchet.workspace.git.project_root import settings_root

if TYPE_CHECKING:
    from ratchet.core.compare import Delta

_EXIT = """Exit codes: 0 all tests passed, or --failed/--affected selected none;
1 tests failed; 2 no tests found, or usage error; 3 the tests cannot be run;
130 interrupted (results so far are printed)"""


def test(arguments: Arguments) -> int:
    with links_may_lead(Path("/")):  # a person's own tree, and tests that run as that person
        return _test(arguments)


def _test(arguments: Arguments) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # CI systems cancel jobs with SIGTERM
    suite = open_suite(arguments)
    if arguments.detect:
        return _detect(suite, as_json=arguments.json)
    choice = TestSelection(
        ids=[_from_top(name, suite.folder) for name in arguments.tests],
        failed=arguments.failed,
        affected=arguments.affected or bool(arguments.since),
        since=arguments.since or "HEAD",
        isolated=arguments.isolated,
        ref=arguments.ref,
        rerun_failures=arguments.rerun_failures,
        keyword=arguments.keyword,
        stop=arguments.stop,
        args=arguments.args,
    )
    for path in filter(None, (arguments.junit, arguments.ctrf)):
        _check_writable(path)
    began_ms = round(time.time() * 1000)
    try:
        outcome = run_without_loop(suite.run(choice, timeout_s=arguments.timeout, perform=_run_interruptible))
    except NoTests as error:
        if arguments.json:
            _show_report(Report(runner="none", status=ReportStatus.NO_TESTS, notes=[error.message]))
        raise
    if arguments.save_baseline:
        outcome = msgspec.structs.replace(outcome, known=suite.save_baseline(outcome.report))
        print_note(f"{len(outcome.known)} failures saved as known")
    if arguments.github:
        _annotate(outcome, suite.inside, as_json=arguments.json)
    code = exit_code(outcome, forgive=arguments.baseline or arguments.save_baseline)
    forgiven = code == 0 and outcome.report.status is ReportStatus.FAILED
    _print(outcome, arguments, forgiven=forgiven, folder=suite.folder)
    _export(outcome, arguments, began_ms, suite)  # last, so that a full disk does not lose the printed results
    return code


async def _run_interruptible(argv: Sequence[str], **how: Any) -> ProcessResult:
    """Run the tests; on Ctrl-C stop them and report the results so far, on a second Ctrl-C exit at once."""
    began = time.monotonic()
    try:
        with progress_line(how["errors"]):
            return run_process(argv, **how, on_start=_preload_modules)
    except KeyboardInterrupt:
        return ProcessResult(exit_code=-signal.SIGINT, duration_s=round(time.monotonic() - began, 3), interrupted=True)


def _preload_modules() -> None:
    """Import the reporting modules while the tests start."""
    import_module("ratchet.core.compare")
    import_module("ratchet.interfaces.terminal.test_results")


def open_suite(arguments: Arguments) -> Suite:
    folder = arguments.repo.resolve()  # resolve symlinks, as git does
    root = settings_root(folder)
    return Suite(root, config.load(root, flags=arguments.set).config)


def exit_code(outcome: TestOutcome, *, forgive: bool = False) -> int:
    """Return the exit code; with `forgive`, failures in the baseline do not count."""
    report = outcome.report
    if report.status is ReportStatus.PASSED or outcome.idle:
        return 0
    if report.status is ReportStatus.INTERRUPTED:
        return 130
    if report.status is ReportStatus.NO_TESTS:
        return 2
    red = any(test.status in RED for test in report.tests) or bool(load_errors(report))
    if report.status is ReportStatus.ERROR and not red:
        return 3
    known_only = forgive and report.status is ReportStatus.FAILED and not outcome.new_red and not load_errors(report)
    return 0 if known_only else 1


def _detect(suite: Suite, *, as_json: bool) -> int:
    targets = suite.targets()
    if as_json:
        print_json(targets)
    for target in targets if not as_json else []:
        print_data(f"{target.name} ({target.language or 'any language'}): {target.why}")
        for what, words in _rows(target, suite.folder):
            print_data(f"  {what + ':':<7} {words or '-'}")
    if not as_json and not suite.config.test.command:
        for path, why in excluded_folders(suite.folder).items():
            print_data(f"skipped: {path} ({why})")
    if not targets:
        print_note(f"no tests found in {suite.folder}")
        print_note(f"  hint: {NO_TESTS_HINT}")
    return 0 if targets else 2


def _rows(target: Target, folder: Path) -> Iterator[tuple[str, str]]:
    from ratchet.checks.detect.set_up import python_reason, set_up_commands  # noqa: PLC0415 — only for --detect

    if target.root != ".":
        yield "in", target.root
    yield from (("first", shlex.join(words)) for words in target.builds)
    yield from (("run", shlex.join(words)) for words in [target.command, *target.also])
    if target.report:
        yield "report", target.report
    if target.language == "python" and "python" in Path(target.command[0]).name:
        yield "python", python_reason(target.command[0], folder)
    yield "tests", " ".join(target.tests)
    yield "source", " ".join(target.sources)
    if target.setup:
        yield "set-up", " && ".join(set_up_commands(target, folder))


def _annotate(outcome: TestOutcome, inside: str, *, as_json: bool) -> None:
    from ratchet.core import exports  # noqa: PLC0415 — see `_export`

    for line in exports.github(outcome.report, inside=inside):
        (print_note if as_json else print_data)(line)  # GitHub reads both streams; with --json stdout holds only JSON


def _check_writable(path: Path) -> None:
    """Check before the tests run, which may take minutes."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        why = "it is a folder" if path.is_dir() else f"no such folder: {path.parent}"
        raise UsageError(f"cannot write {path}: {why}", hint="give a file in an existing folder")


def _export(outcome: TestOutcome, arguments: Arguments, began_ms: int, suite: Suite) -> None:
    if not (arguments.junit or arguments.ctrf):
        return
    from ratchet.core import exports  # noqa: PLC0415 — imports the XML library

    if arguments.junit:
        _write(suite, arguments.junit, exports.junit(outcome.report).encode())
    if arguments.ctrf:
        table = exports.ctrf(outcome.report, start_ms=began_ms, stop_ms=round(time.time() * 1000))
        _write(suite, arguments.ctrf, msgspec.json.format(msgspec.json.encode(table), indent=2))


def _write(suite: Suite, path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", hint="check the path") from error
    suite.note_export(path)


def _from_top(name: str, folder: Path) -> str:
    """Convert a test id to the form used in reports, with its file relative to the tested folder."""
    if not name or name.startswith("-"):
        hint = "options for the test runner go after --: ratchet test -- OPTIONS"
        raise UsageError(f"{name!r} is not a test id", hint=hint)
    file, colons, rest = name.partition("::")
    if os.path.exists(folder / file) and not Path(file).is_absolute():  # noqa: PTH110 — Path.exists raises when the name is too long
        return f"{os.path.normpath(file)}{colons}{rest}" if file.startswith("./") else name
    found = Path(os.path.realpath(file))
    inside = os.path.exists(file) and found.is_relative_to(folder)  # noqa: PTH110
    return f"{found.relative_to(folder).as_posix()}{colons}{rest}" if inside else name


def _shortest_path(folder: Path) -> str:
    """Return the path relative to the current directory if one contains the other, else absolute."""
    here = Path.cwd()
    return os.path.relpath(folder, here) if here.is_relative_to(folder) or folder.is_relative_to(here) else str(folder)


def _print(outcome: TestOutcome, arguments: Arguments, *, forgiven: bool, folder: Path) -> None:
    from ratchet.checks.detect.rerun import rerun_command  # noqa: PLC0415
    from ratchet.core.packet import packet  # noqa: PLC0415 — see `_load_the_rest`
    from ratchet.interfaces.terminal.colour import painter  # noqa: PLC0415
    from ratchet.interfaces.terminal.test_results import view  # noqa: PLC0415

    top = _shortest_path(folder)
    if arguments.json:
        _show_report(outcome.report, outcome.delta, outcome.known, outcome.flaky)
    elif arguments.packet:
        text = packet(
            outcome.report,
            delta=outcome.delta,
            flaky=outcome.flaky,
            known=outcome.known,
            changed=outcome.changed,
            again=lambda test: rerun_command(test, outcome.targets, top=top),
            whole=_rerun_command(arguments),
        )
        print_data(text)
    else:
        for line in view(outcome, painter(colour=sys.stdout.isatty()), forgiven=forgiven, top=top):
            print_data(line)
        _note_set_up(outcome, folder)


def _note_set_up(outcome: TestOutcome, folder: Path) -> None:
    if outcome.report.status is ReportStatus.PASSED:
        return
    from ratchet.checks.detect.set_up import build_advice, is_not_set_up, set_up_advice  # noqa: PLC0415 — only for failures

    targets = _failed_targets(outcome)
    if is_not_set_up(outcome.report):
        text = "\n".join([outcome.report.output, *outcome.report.notes])
        for line in set_up_advice(targets, folder).splitlines():
            if line.removeprefix("set up the project: ") not in text:
                print_note(f"hint: {line}")
    elif advice := build_advice(outcome.report, targets, folder):
        print_note(f"hint: {advice}")


def _failed_targets(outcome: TestOutcome) -> list[Target]:
    """Return the targets whose files failed or did not load; all of them if no file is named."""
    report = outcome.report
    files = [error.file for error in load_errors(report)] + [test.file for test in report.tests if test.status in RED]
    named = [target for target in outcome.targets if any(_is_below(file, target.root) for file in files if file)]
    return named or outcome.targets


def _is_below(file: str, root: str) -> bool:
    return root == "." or file.startswith(f"{root}/")


def _show_report(
    report: Report, delta: Delta | None = None, known: Sequence[str] = (), flaky: Sequence[str] = ()
) -> None:
    from ratchet.core.compare import with_comparison  # noqa: PLC0415 — see `_load_the_rest`

    print_json(with_comparison(report, delta, list(known), list(flaky)))


def _rerun_command(arguments: Arguments) -> str:
    """Return the command that prints the full report of the same tests."""
    words = ["ratchet", "test", "--json", *(["--isolated"] if arguments.isolated else []), *arguments.tests]
    return shlex.join(words + (["--ref", arguments.ref] if arguments.ref else []))


_SECONDS = NumberBetween(0.001, 1e9, float)
COMMANDS = (
    PassthroughCommand(
        "test",
        "detect and run the tests of a folder, in any language",
        test,
        argument("tests", nargs=-1, metavar="[TESTID]...", help="run only these tests (ids as in the report)"),
        flag("--detect", help="print the detected test runners and why, without running them"),
        flag("--failed", help="run only tests that failed last time (all tests if the last run crashed)"),
        flag("--affected", help="run only tests affected by uncommitted changes"),
        option("--since", default="", metavar="REV", help="run only tests affected by changes since this revision"),
        option(
            "--rerun-failures",
            type=NumberBetween(0, 100),
            default=0,
            metavar="N",
            help="rerun failures up to N times to detect flaky tests",
        ),
        flag(
            "--isolated",
            help="run in a fresh workspace that includes uncommitted changes; leaves this folder and .git unchanged",
        ),
        option("--ref", default="", metavar="REV", help="run in a fresh workspace at this revision"),
        option(
            "-k", "keyword", default="", metavar="EXPR", help="run only tests whose name matches, as the runner matches"
        ),
        flag("-x", "stop", help="stop at the first failure"),
        option("--timeout", type=_SECONDS, metavar="S", help="time limit in seconds"),
        option("--junit", type=PATH, metavar="FILE", help="write a JUnit XML report"),
        option("--ctrf", type=PATH, metavar="FILE", help="write a report in Common Test Report Format (CTRF)"),
        flag("--github", help="also print GitHub annotations"),
        flag("--packet", help="print the failure report that an agent receives"),
        flag("--save-baseline", help="save the current failures as known"),
        flag("--baseline", help="do not fail the run for failures saved by --save-baseline"),
        more=_EXIT,
    ),
)
