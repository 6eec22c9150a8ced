"""Prints a test run: failures first with expected and actual values, project frames and a rerun command."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from ratchet.app.tests import TestOutcome
from ratchet.checks.detect.rerun import rerun_command
from ratchet.core.packet import output_beyond_failure, same_error_in, test_title
from ratchet.core.report import (
    RED,
    Diagnostic,
    Failure,
    Report,
    ReportStatus,
    TestResult,
    TestStatus,
    error_summary,
    expected_text,
    has_results,
    load_errors,
    message_lines,
)
from ratchet.interfaces.terminal.colour import Paint, Tone
from ratchet.interfaces.terminal.value_diff import beside, escape_control, short

_FAILURES_MAX = 20
_OUTPUT_LINES = 12
_BRIEF_MAX = 80
_BRIEF_CHARS = 160


_HINTS = {
    ReportStatus.TIMEOUT: "raise the limit with --timeout S, or timeout_s and silence_s in [test] of ratchet.toml",
    ReportStatus.UNKNOWN: "if the runner writes JUnit XML, TAP or JSON, set [test] report in ratchet.toml to the file",
}


def view(outcome: TestOutcome, paint: Paint, *, forgiven: bool = False, top: str = ".") -> Iterator[str]:
    """Yield the lines of the report. `forgiven`: all failures are in the baseline; `top`: path to the tested folder."""
    report = outcome.report
    if outcome.idle:
        yield from report.notes
        return
    yield from _broken(report, paint)
    red = [test for test in report.tests if test.status in RED]
    for test in red[:_FAILURES_MAX]:
        yield from _failure(test, outcome, paint, top)
    yield from _briefly(red[_FAILURES_MAX:], paint)
    for test in report.tests:
        if test.id in outcome.flaky and test.status not in RED:
            yield f"{paint(Tone.WARN, '~')} {test.id} is flaky: it failed before on the same tree"
    yield from _parts(report, paint)
    for note in report.notes:
        yield f"{paint(Tone.WARN, '!')} {note}"
    if report.output and not _is_explained(report):
        lines = [line for line in escape_control(report.output).splitlines() if line.strip()]
        yield from (paint(Tone.DIM, f"  | {short(line)}") for line in lines[-_OUTPUT_LINES:])
    if hint := _HINTS.get(report.status):
        yield paint(Tone.DIM, f"  hint: {hint}")
    yield from _delta(outcome)
    yield _summary(report, outcome.known, paint, forgiven=forgiven)


def _briefly(red: list[TestResult], paint: Paint) -> Iterator[str]:
    """List the remaining failures with one line each: many failures usually share few causes."""
    for test in red[:_BRIEF_MAX]:
        failure = test.failure or Failure()
        head = ": ".join(filter(None, (failure.type, *message_lines(failure)[:1])))
        line = escape_control(f"{test_title(test)}  {head}".rstrip()).replace("\n", "\\n")
        yield f"{paint(Tone.BAD, '✘')} {line if len(line) <= _BRIEF_CHARS else f'{line[:_BRIEF_CHARS]} …'}"
    if len(red) > _BRIEF_MAX:
        yield f"… and {len(red) - _BRIEF_MAX} more failures (--json lists all)"
    if red:
        yield ""


def _is_explained(report: Report) -> bool:
    """Return whether the test results explain the outcome; if not, the runner's last output is shown."""
    if report.status is ReportStatus.INTERRUPTED:
        return True
    if report.status is ReportStatus.CRASHED:
        return any(test.failure and test.failure.frames for test in report.tests if test.id in report.running)
    unknown = report.status is ReportStatus.NO_TESTS and bool(report.notes)
    return unknown or any(test.status in RED for test in report.tests) or bool(load_errors(report))


def _broken(report: Report, paint: Paint) -> Iterator[str]:
    """Print load errors grouped by message: one broken module affects many test files."""
    alike: dict[tuple[str, str, str], list[Diagnostic]] = {}
    for error in load_errors(report):
        alike.setdefault((_trouble(error, report), error.type, error.message), []).append(error)
    for (what, kind, message), (error, *others) in alike.items():
        place = ":".join(str(part) for part in (error.file, error.line, error.column) if part)
        yield f"{paint(Tone.BAD, '✘')} {place or 'the run'} {what}{same_error_in(others)}"
        lines = escape_control(f"{kind}: {message}").strip(": \n").splitlines()
        yield from (f"    {short(line)}".rstrip() for line in lines[:_OUTPUT_LINES])
        yield ""


def _trouble(error: Diagnostic, report: Report) -> str:
    return "does not compile" if error in report.compile_errors else error_summary(error, report)


def _tamed(test: TestResult) -> TestResult:
    """Return a copy without terminal control characters."""
    failure = test.failure or Failure()
    return msgspec.structs.replace(
        test,
        id=escape_control(test.id),
        name=escape_control(test.name),
        stdout=escape_control(test.stdout),
        stderr=escape_control(test.stderr),
        failure=msgspec.structs.replace(
            failure,
            type=escape_control(failure.type),
            message=escape_control(failure.message),
            expected=None if failure.expected is None else escape_control(failure.expected),
            actual=None if failure.actual is None else escape_control(failure.actual),
            diff=escape_control(failure.diff),
        ),
    )


def _failure(test: TestResult, outcome: TestOutcome, paint: Paint, top: str) -> Iterator[str]:
    shown = _tamed(test)
    failure = shown.failure or Failure()
    mark = "known" if test.id in outcome.known else "flaky" if test.id in outcome.flaky else ""
    name = test_title(shown).replace("\n", "\\n")
    yield f"{paint(Tone.BAD, '✘')} {name}{f'  ({mark})' if mark else ''}"
    head, *rest = message_lines(failure) or [""]
    yield f"    {short(': '.join(filter(None, (failure.type, head))))}"
    yield from (f"    {short(line)}" for line in rest[:_OUTPUT_LINES])
    yield from (f"    {line}" for line in _values(failure, paint))
    yield from (paint(Tone.DIM, f"    at {place}") for place in _places(failure))
    for name, output in (("stdout", shown.stdout), ("stderr", shown.stderr)):
        if lines := output_beyond_failure(output, failure):
            yield paint(Tone.DIM, f"    {name}:")
            yield from (paint(Tone.DIM, f"      | {short(line)}") for line in lines[-_OUTPUT_LINES:])
    if command := rerun_command(test, outcome.targets, top=top):
        yield paint(Tone.DIM, f"    rerun: {command}")
    yield ""


def _places(failure: Failure) -> Iterator[str]:
    """List up to four frames, innermost first, without duplicates."""
    if not failure.frames and failure.file:
        yield f"{failure.file}{f':{failure.line}' if failure.line else ''}"
    rows = [f"{frame.file}:{frame.line}{f' in {frame.function}' if frame.function else ''}" for frame in failure.frames]
    yield from list(dict.fromkeys(reversed(rows)))[:4]


def _values(failure: Failure, paint: Paint) -> Iterator[str]:
    expected, actual = expected_text(failure), failure.actual
    if expected is None and actual is None:
        yield from failure.diff.splitlines() if failure.diff not in failure.message else ()
        return
    yield from beside(expected, actual, paint)


def _parts(report: Report, paint: Paint) -> Iterator[str]:
    for part in report.parts:
        tone = Tone.GOOD if part.status is ReportStatus.PASSED else Tone.BAD
        name = part.runner if part.root == "." else f"{part.runner} in {part.root}"
        yield f"{paint(tone, f'{part.status:<12}')} {name}: {part.totals.passed} of {part.totals.tests} passed"


def _delta(outcome: TestOutcome) -> Iterator[str]:
    delta = outcome.delta
    if delta is None:
        return
    red = {test.id for test in outcome.report.tests if test.status in RED}
    rows = {
        "newly failing": [*delta.new_failures, *red.intersection(delta.added)],
        "still failing": delta.still_failing,
        "fixed": delta.fixed,
        "removed": delta.missing,
        "now skipped": delta.silenced,
        "renamed": [new for _, new in delta.renamed],
    }
    counts = [f"{len(ids)} {what}" for what, ids in rows.items() if ids]
    if counts:
        yield f"since the last run: {', '.join(counts)}"


def _summary(report: Report, known: list[str], paint: Paint, *, forgiven: bool) -> str:
    totals, outside = report.totals, report.collection_errors
    old = sum(test.status in RED and test.id in known for test in report.tests)
    beside = sum(has_results(error, report) for error in outside)
    named = {
        "failed": totals.failed,
        "errors": totals.errors,
        "known": old,
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
    tone = Tone.GOOD if forgiven or report.status is ReportStatus.PASSED else Tone.BAD
    hung = ", ".join(test.id for test in report.tests if _is_lost(test, report))
    return f"{paint(tone, report.status.upper())}  {counts} in {report.duration_s:.1f} s" + (
        f"; stopped in {hung}" if hung else "; no new failures" if forgiven else ""
    )


def _counted(count: int, name: str) -> str:
    return f"{count} {re.sub('(error|file)s', lambda found: found[1], name) if count == 1 else name}"


def _is_lost(test: TestResult, report: Report) -> bool:
    # After a timeout only hung tests stopped the run; a test that crashed its worker did not.
    kinds = ("Hung",) if report.status is ReportStatus.TIMEOUT else ("Hung", "Crashed")
    return test.status is TestStatus.ERROR and test.failure is not None and test.failure.type in kinds
