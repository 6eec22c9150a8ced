"""The command `test`: find the tests of any folder, run them, and say in one report what happened."""

from __future__ import annotations

import argparse
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
from ratchet.checks import Target
from ratchet.checks.detect import left_out
from ratchet.checks.run import at_once
from ratchet.core.report import RED, Report, ReportStatus, broken
from ratchet.errors import NoTests, UsageError
from ratchet.process import Finished, attend
from ratchet.suite import SAY_HOW, Choice, Outcome, Suite
from ratchet.surfaces.cli.common import Arguments, Command, number, say, show, show_json
from ratchet.surfaces.ticker import ticking

if TYPE_CHECKING:
    from ratchet.core.compare import Delta

_EXIT = """exit codes: 0 all tests passed, or --failed or --affected left none to run; 1 something failed;
2 no tests, or a wrong call; 3 the tests cannot be run; 130 interrupted, with the results up to then"""


def test(arguments: Arguments) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # who cancels a job says it so
    suite = open_suite(arguments)
    if arguments.detect:
        return _detect(suite, as_json=arguments.json)
    choice = Choice(
        ids=[_from_top(name, suite.folder) for name in arguments.tests],
        failed=arguments.failed,
        affected=arguments.affected or bool(arguments.since),
        since=arguments.since or "HEAD",
        isolated=arguments.isolated,
        ref=arguments.ref,
        rerun_failures=arguments.rerun_failures,
    )
    for path in filter(None, (arguments.junit, arguments.ctrf)):
        _check_writable(path)
    began_ms = round(time.time() * 1000)
    try:
        outcome = at_once(suite.run(choice, timeout_s=arguments.timeout, perform=_attended))
    except NoTests as error:
        if arguments.json:
            _show_report(Report(runner="none", status=ReportStatus.NO_TESTS, notes=[error.message]))
        raise
    if arguments.save_baseline:
        outcome = msgspec.structs.replace(outcome, known=suite.save_baseline(outcome.report))
        say(f"{len(outcome.known)} failures are known from now on")
    if arguments.github:
        _annotate(outcome, suite.inside, as_json=arguments.json)
    code = exit_code(outcome, forgive=arguments.baseline or arguments.save_baseline)
    forgiven = code == 0 and outcome.report.status is ReportStatus.FAILED
    _print(outcome, arguments, forgiven=forgiven, top=_way_to(suite.folder))
    _export(outcome, arguments, began_ms, suite)  # last: a disk that is full by now takes nothing that was found
    return code


async def _attended(argv: Sequence[str], **how: Any) -> Finished:
    """Who is interrupted is still told what was found until then; the tests are stopped, and a second time all is."""
    began = time.monotonic()
    try:
        with ticking(how["errors"]):
            return attend(argv, **how, meanwhile=_load_the_rest)
    except KeyboardInterrupt:
        return Finished(exit_code=-signal.SIGINT, duration_s=round(time.monotonic() - began, 3), interrupted=True)


def _load_the_rest() -> None:
    """While the tests start: what is needed when they have ended."""
    import_module("ratchet.core.compare")
    import_module("ratchet.surfaces.results")


def open_suite(arguments: Arguments) -> Suite:
    folder = arguments.repo.resolve()  # as git names it, which knows nothing of the links that lead here
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", hint="check the path")
    root = next((place for place in (folder, *folder.parents) if (place / config.FILE).exists()), folder)
    return Suite(root, config.load(root, flags=arguments.set).config)


def exit_code(outcome: Outcome, *, forgive: bool = False) -> int:
    """`forgive`: failures of the baseline do not count."""
    report = outcome.report
    if report.status is ReportStatus.PASSED or outcome.idle:
        return 0
    if report.status is ReportStatus.INTERRUPTED:
        return 130
    if report.status is ReportStatus.NO_TESTS:
        return 2
    red = any(test.status in RED for test in report.tests) or bool(broken(report))
    if report.status is ReportStatus.ERROR and not red:
        return 3
    known_only = forgive and report.status is ReportStatus.FAILED and not outcome.new_red and not broken(report)
    return 0 if known_only else 1


def _detect(suite: Suite, *, as_json: bool) -> int:
    targets = suite.targets()
    if as_json:
        show_json(targets)
    for target in targets if not as_json else []:
        show(f"{target.name} ({target.language or 'any language'}): {target.why}")
        for what, words in _rows(target):
            show(f"  {what + ':':<7} {words or '-'}")
    if not as_json and not suite.config.test.command:
        for path, why in left_out(suite.folder).items():
            show(f"left out: {path} ({why})")
    if not targets:
        say(f"no tests were found in {suite.folder}")
        say(f"  hint: {SAY_HOW}")
    return 0 if targets else 2


def _rows(target: Target) -> Iterator[tuple[str, str]]:
    if target.root != ".":
        yield "in", target.root
    yield from (("first", shlex.join(words)) for words in target.builds)
    yield from (("run", shlex.join(words)) for words in [target.command, *target.also])
    if target.report:
        yield "report", target.report
    yield "tests", " ".join(target.tests)
    yield "source", " ".join(target.sources)
    if target.setup:
        yield "set-up", " && ".join(target.setup)


def _annotate(outcome: Outcome, inside: str, *, as_json: bool) -> None:
    from ratchet.core import exports  # noqa: PLC0415 — see `_export`

    for line in exports.github(outcome.report, inside=inside):
        (say if as_json else show)(line)  # GitHub reads both streams; JSON must have its own to itself


def _check_writable(path: Path) -> None:
    """Before tests run for minutes."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        why = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise UsageError(f"{path} cannot be written: {why}", hint="name a file in a folder that is there")


def _export(outcome: Outcome, arguments: Arguments, began_ms: int, suite: Suite) -> None:
    if not (arguments.junit or arguments.ctrf):
        return
    from ratchet.core import exports  # noqa: PLC0415 — brings half of the XML library along

    if arguments.junit:
        _write(suite, arguments.junit, exports.junit(outcome.report).encode())
    if arguments.ctrf:
        table = exports.ctrf(outcome.report, start_ms=began_ms, stop_ms=round(time.time() * 1000))
        _write(suite, arguments.ctrf, msgspec.json.format(msgspec.json.encode(table), indent=2))


def _write(suite: Suite, path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", hint="check the path") from error
    suite.wrote(path)


def _from_top(name: str, folder: Path) -> str:
    """As a report names it: its file from the folder that is tested, which may be above here, or elsewhere."""
    if not name or name.startswith("-"):
        hint = "options of a runner's own go into its configuration, or into [test] command"
        raise UsageError(f"{name!r} is no test", hint=hint)
    file, colons, rest = name.partition("::")
    if os.path.exists(folder / file) and not Path(file).is_absolute():  # noqa: PTH110 — also where the name is too long
        return f"{os.path.normpath(file)}{colons}{rest}" if file.startswith("./") else name
    found = Path(os.path.realpath(file))
    inside = os.path.exists(file) and found.is_relative_to(folder)  # noqa: PTH110
    return f"{found.relative_to(folder).as_posix()}{colons}{rest}" if inside else name


def _way_to(folder: Path) -> str:
    """As short as it can be said: from here, unless that leads far up."""
    here = Path.cwd()
    return os.path.relpath(folder, here) if here.is_relative_to(folder) or folder.is_relative_to(here) else str(folder)


def _print(outcome: Outcome, arguments: Arguments, *, forgiven: bool, top: str) -> None:
    from ratchet.core.packet import packet  # noqa: PLC0415 — see `_load_the_rest`
    from ratchet.surfaces.paint import painter  # noqa: PLC0415
    from ratchet.surfaces.results import again, view  # noqa: PLC0415

    if arguments.json:
        _show_report(outcome.report, outcome.delta, outcome.known, outcome.flaky)
    elif arguments.packet:
        told = packet(
            outcome.report,
            delta=outcome.delta,
            flaky=outcome.flaky,
            known=outcome.known,
            changed=outcome.changed,
            again=lambda test: again(test, outcome.targets, top=top),
            whole=_whole(arguments),
        )
        show(told)
    else:
        for line in view(outcome, painter(colour=sys.stdout.isatty()), forgiven=forgiven, top=top):
            show(line)


def _show_report(
    report: Report, delta: Delta | None = None, known: Sequence[str] = (), flaky: Sequence[str] = ()
) -> None:
    from ratchet.core.compare import compared  # noqa: PLC0415 — see `_load_the_rest`

    show_json(compared(report, delta, list(known), list(flaky)))


def _whole(arguments: Arguments) -> str:
    """What was run is asked for again: a file of ours is nobody's to read."""
    words = ["ratchet", "test", "--json", *(["--isolated"] if arguments.isolated else []), *arguments.tests]
    return shlex.join(words + (["--ref", arguments.ref] if arguments.ref else []))


def _declare(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("tests", nargs="*", metavar="TESTID", help="only these tests, by the ids a report names them with")
    add("--detect", action="store_true", help="say which runners were found and why, and run nothing")
    add("--failed", action="store_true", help="only what failed last time; everything after a run that crashed")
    add("--affected", action="store_true", help="only the tests that the uncommitted changes can reach")
    add("--since", default="", metavar="REV", help="the changes since this revision; implies --affected")
    add(
        "--rerun-failures",
        type=number(0, 100),
        default=0,
        metavar="N",
        help="run failures again up to N times to tell flaky",
    )
    add(
        "--isolated",
        action="store_true",
        help="in a fresh workspace with the uncommitted changes; nothing changes here, nor in .git",
    )
    add("--ref", default="", metavar="REV", help="in a fresh workspace at this revision")
    add("--timeout", type=number(0.001, 1e9, float), metavar="S", help="stop the run after so many seconds")
    add("--junit", type=Path, metavar="FILE", help="write JUnit XML")
    add("--ctrf", type=Path, metavar="FILE", help="write the Common Test Report Format")
    add("--github", action="store_true", help="print GitHub annotations too")
    add("--packet", action="store_true", help="print what an agent would be told")
    add("--save-baseline", action="store_true", help="remember the failures as known")
    add("--baseline", action="store_true", help="failures known from --save-baseline do not make the answer no")


COMMANDS = (
    Command(
        name="test",
        help="find the tests of any folder, run them, and say in one report what happened",
        handle=test,
        declare=_declare,
        more=_EXIT,
    ),
)
