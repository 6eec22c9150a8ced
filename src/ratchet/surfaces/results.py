"""A test run for human eyes: failures first, expected beside actual, project frames, how to run one again."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from ratchet.checks import Target
from ratchet.checks.commands import having
from ratchet.checks.formats.text import plain
from ratchet.checks.registry import runner
from ratchet.core.packet import around_difference, nor, title
from ratchet.core.report import (
    RED,
    Diagnostic,
    Failure,
    Report,
    ReportStatus,
    TestResult,
    TestStatus,
    broken,
    gist,
    is_beside,
    trouble,
    wanted,
)
from ratchet.suite import Outcome
from ratchet.surfaces.paint import Paint, Tone

_FAILURES_MAX = 20
_OUTPUT_LINES = 12
_VALUE_CHARS = 20_000
_BESIDE_CHARS = 160
_LINE_CHARS = 400
_DIFF_LINES = 40


def view(outcome: Outcome, paint: Paint) -> Iterator[str]:
    report = outcome.report
    if outcome.idle:
        yield from report.notes
        return
    yield from _broken(report, paint)
    red = [test for test in report.tests if test.status in RED]
    for test in red[:_FAILURES_MAX]:
        yield from _failure(test, outcome, paint)
    if len(red) > _FAILURES_MAX:
        yield f"… and {len(red) - _FAILURES_MAX} more failures (--json has them all)\n"
    for test in report.tests:
        if test.id in outcome.flaky and test.status not in RED:
            yield f"{paint(Tone.WARN, '~')} {test.id} is flaky: it failed before on this same tree"
    yield from _parts(report, paint)
    for note in report.notes:
        yield f"{paint(Tone.WARN, '!')} {note}"
    if report.output and not _is_explained(report):
        said = [line for line in _tame(report.output).splitlines() if line.strip()]
        yield from (paint(Tone.DIM, f"  | {_short(line)}") for line in said[-_OUTPUT_LINES:])
    yield from _delta(outcome)
    yield _summary(report, outcome.known, paint)


def _is_explained(report: Report) -> bool:
    """Whether what is told of the tests says it all; of a crash only its place does, else the runner's last words."""
    if report.status is ReportStatus.CRASHED:
        return any(test.failure and test.failure.frames for test in report.tests if test.id in report.running)
    unknown = report.status is ReportStatus.NO_TESTS and bool(report.notes)
    return unknown or any(test.status in RED for test in report.tests) or bool(broken(report))


def _broken(report: Report, paint: Paint) -> Iterator[str]:
    """What is broken for all of them is told once: one module that does not load takes many test files along."""
    alike: dict[tuple[str, str, str], list[Diagnostic]] = {}
    for error in broken(report):
        alike.setdefault((_trouble(error, report), error.type, error.message), []).append(error)
    for (what, kind, message), (error, *others) in alike.items():
        place = ":".join(str(part) for part in (error.file, error.line, error.column) if part)
        yield f"{paint(Tone.BAD, '✘')} {place or 'the run'} {what}{nor(others)}"
        said = _tame(f"{kind}: {message}").strip(": \n").splitlines()
        yield from (f"    {_short(line)}".rstrip() for line in said[:_OUTPUT_LINES])
        yield ""


def _trouble(error: Diagnostic, report: Report) -> str:
    return "does not compile" if error in report.compile_errors else trouble(error, report)


# What moves a terminal's cursor, rings or hides; colours of our own are put on afterwards.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def _tame(text: str) -> str:
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], plain(text))


def _tamed(test: TestResult) -> TestResult:
    """As it may be shown: what a test says must not do anything to the terminal."""
    failure = test.failure or Failure()
    return msgspec.structs.replace(
        test,
        id=_tame(test.id),
        name=_tame(test.name),
        stdout=_tame(test.stdout),
        stderr=_tame(test.stderr),
        failure=msgspec.structs.replace(
            failure,
            type=_tame(failure.type),
            message=_tame(failure.message),
            expected=None if failure.expected is None else _tame(failure.expected),
            actual=None if failure.actual is None else _tame(failure.actual),
            diff=_tame(failure.diff),
        ),
    )


def _failure(test: TestResult, outcome: Outcome, paint: Paint) -> Iterator[str]:
    shown = _tamed(test)
    failure = shown.failure or Failure()
    mark = "known" if test.id in outcome.known else "flaky" if test.id in outcome.flaky else ""
    name = title(shown).replace("\n", "\\n")
    yield f"{paint(Tone.BAD, '✘')} {name}{f'  ({mark})' if mark else ''}"
    head, *rest = gist(failure) or [""]
    yield f"    {_short(': '.join(filter(None, (failure.type, head))))}"
    yield from (f"    {_short(line)}" for line in rest[:_OUTPUT_LINES])
    yield from (f"    {line}" for line in _values(failure, paint))
    yield from (paint(Tone.DIM, f"    at {place}") for place in _places(failure))
    for name, said in (("stdout", shown.stdout), ("stderr", shown.stderr)):
        if lines := _unsaid(said, failure):
            yield paint(Tone.DIM, f"    {name}:")
            yield from (paint(Tone.DIM, f"      | {_short(line)}") for line in lines[-_OUTPUT_LINES:])
    if command := again(test, outcome.targets):
        yield paint(Tone.DIM, f"    again: {command}")
    yield ""


def _short(line: str) -> str:
    return line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]} … ({len(line)} characters)"


def _places(failure: Failure) -> Iterator[str]:
    """The innermost first. Columns are not told, so two frames may look the same."""
    if not failure.frames and failure.file:
        yield f"{failure.file}{f':{failure.line}' if failure.line else ''}"
    rows = [f"{frame.file}:{frame.line}{f' in {frame.function}' if frame.function else ''}" for frame in failure.frames]
    yield from list(dict.fromkeys(reversed(rows)))[:4]


def _unsaid(said: str, failure: Failure) -> list[str]:
    """The lines of an output, unless they only repeat the message, as Go's do."""
    lines = said.strip().splitlines()
    known = [line.strip() for line in failure.message.splitlines() if line.strip()]
    return lines if any(not any(part in line for part in known) for line in lines if line.strip()) else []


def _values(failure: Failure, paint: Paint) -> Iterator[str]:
    expected, actual = wanted(failure), failure.actual
    if expected is None and actual is None:
        yield from failure.diff.splitlines() if failure.diff not in failure.message else ()
        return
    if expected is not None and actual is not None and len(f"{expected}{actual}") > _BESIDE_CHARS:
        expected, actual = _lines_of(expected), _lines_of(actual)
    if expected is not None and actual is not None and "\n" in expected + actual:
        yield from _diff(expected[:_VALUE_CHARS], actual[:_VALUE_CHARS], paint)
        return
    if expected is not None and actual is not None:
        expected, actual = around_difference(expected, actual, _LINE_CHARS)
    if expected is not None:
        yield f"expected: {paint(Tone.GOOD, expected)}"
    if actual is not None:
        yield f"actual:   {paint(Tone.BAD, actual)}"


def _lines_of(value: str) -> str:
    """A text as Python writes it in one line, in its own lines: only so a difference can be seen."""
    if "\\n" not in value or value[:1] not in "'\"" or len(value) > _VALUE_CHARS:
        return value
    from ast import literal_eval  # noqa: PLC0415 — seldom needed

    with suppress(ValueError, SyntaxError):
        text = literal_eval(value)
        return _tame(text) if isinstance(text, str) else value
    return value


def _diff(expected: str, actual: str, paint: Paint) -> Iterator[str]:
    """What differs, with a few lines around it."""
    yield f"{paint(Tone.GOOD, '- expected')}  {paint(Tone.BAD, '+ actual')}"
    tones = {"-": Tone.GOOD, "+": Tone.BAD}
    rows = list(difflib.unified_diff(expected.splitlines(), actual.splitlines(), n=2, lineterm=""))[2:]
    if not rows:  # they end differently, or beyond what is looked at
        one, other = around_difference(repr(expected), repr(actual), _LINE_CHARS)
        rows = [f"-{one}", f"+{other}"]
    rows = rows[1:] if rows[0].startswith(("@@ -1,", "@@ -1 ", "@@ -0")) else rows
    for row in rows[:_DIFF_LINES]:
        yield paint(tones.get(row[0], Tone.DIM), "  …" if row.startswith("@@") else _short(f"{row[0]} {row[1:]}"))
    if len(rows) > _DIFF_LINES:
        yield paint(Tone.DIM, f"  … {len(rows) - _DIFF_LINES} more lines")


def again(test: TestResult, targets: list[Target]) -> str:
    """The plain command that runs this test alone."""
    named = [target for target in targets if target.has(test)] or targets[:1]
    if not named:
        return ""
    target = named[0]
    prefix = "" if target.root == "." else f"{target.root}/"
    own = _own(test, prefix)
    said = runner(target.runner).again(having(target, own)[0], own)
    words = said[2] if said[:2] == ["sh", "-c"] else shlex.join(said)  # the first is a line for a shell already
    return words if target.root == "." else f"(cd {shlex.quote(target.root)} && {words})"


def _own(test: TestResult, prefix: str) -> TestResult:
    return TestResult(
        id=test.id.removeprefix(prefix),
        status=test.status,
        name=test.name,
        suite=test.suite,
        file=test.file.removeprefix(prefix),
        line=test.line,
        target=test.target,
    )


def _parts(report: Report, paint: Paint) -> Iterator[str]:
    for part in report.parts:
        tone = Tone.GOOD if part.status is ReportStatus.PASSED else Tone.BAD
        name = part.runner if part.root == "." else f"{part.runner} in {part.root}"
        yield f"{paint(tone, f'{part.status:<12}')} {name}: {part.totals.passed} of {part.totals.tests} passed"


def _delta(outcome: Outcome) -> Iterator[str]:
    delta = outcome.delta
    if delta is None:
        return
    rows = {
        "newly failing": delta.new_failures,
        "still failing": delta.still_failing,
        "fixed": delta.fixed,
        "gone": delta.missing,
        "now skipped": delta.silenced,
        "renamed": [new for _, new in delta.renamed],
    }
    said = [f"{len(ids)} {what}" for what, ids in rows.items() if ids]
    if said:
        yield f"since last time: {', '.join(said)}"


def _summary(report: Report, known: list[str], paint: Paint) -> str:
    totals, outside = report.totals, report.collection_errors
    old = sum(test.status in RED and test.id in known for test in report.tests)
    beside = sum(is_beside(error, report) for error in outside)
    named = {
        "failed": totals.failed,
        "errors": totals.errors,
        "of them known": old,
        "passed": totals.passed,
        "skipped": totals.skipped,
        "expected to fail": totals.xfailed,
        "unexpectedly passed": totals.xpassed,
        "to do": totals.todo,
        "files not compiled": len({error.file for error in report.compile_errors}),
        "files not loaded": len(outside) - beside,
        "errors outside of tests": beside,
    }
    counts = ", ".join(_counted(count, name) for name, count in named.items() if count) or "no tests"
    tone = Tone.GOOD if report.status is ReportStatus.PASSED else Tone.BAD
    hung = ", ".join(test.id for test in report.tests if _is_lost(test, report))
    return f"{paint(tone, report.status.upper())}  {counts} in {report.duration_s:.1f} s" + (
        f"; stopped in {hung}" if hung else ""
    )


def _counted(count: int, name: str) -> str:
    return f"{count} {re.sub('(error|file)s', lambda found: found[1], name) if count == 1 else name}"


def _is_lost(test: TestResult, report: Report) -> bool:
    # One that took its worker along did not hold up a run that was stopped later.
    kinds = ("Hung",) if report.status is ReportStatus.TIMEOUT else ("Hung", "Crashed")
    return test.status is TestStatus.ERROR and test.failure is not None and test.failure.type in kinds
