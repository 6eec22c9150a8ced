"""A test run for human eyes: failures first, expected beside actual, project frames, how to run one again."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterator

from ratchet.checks import Target
from ratchet.checks.formats.text import plain
from ratchet.checks.registry import runner
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
    wanted,
)
from ratchet.suite import Outcome
from ratchet.surfaces.paint import Paint, Tone

_FAILURES_MAX = 20
_OUTPUT_LINES = 12
_ALIKE_MAX = 3
_VALUE_CHARS = 2_000


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
        said = [line for line in plain(report.output).splitlines() if line.strip()]
        yield from (paint(Tone.DIM, f"  | {line}") for line in said[-_OUTPUT_LINES:])
    yield from _delta(outcome)
    yield _summary(report, paint)


def _is_explained(report: Report) -> bool:
    """Whether what is told of the tests says it all; of a crash only its place does, else the runner's last words."""
    if report.status is ReportStatus.CRASHED:
        return any(test.failure and test.failure.file for test in report.tests if test.id in report.running)
    unknown = report.status is ReportStatus.NO_TESTS and bool(report.notes)
    return unknown or any(test.status in RED for test in report.tests) or bool(broken(report))


def _broken(report: Report, paint: Paint) -> Iterator[str]:
    """What is broken for all of them is told once: one module that does not load takes many test files along."""
    alike: dict[tuple[str, str, str], list[Diagnostic]] = {}
    for error in broken(report):
        alike.setdefault((_trouble(error, report), error.type, error.message), []).append(error)
    for (trouble, kind, message), (error, *others) in alike.items():
        place = ":".join(str(part) for part in (error.file, error.line, error.column) if part)
        yield f"{paint(Tone.BAD, '✘')} {place or 'the run'} {trouble}{_nor(others)}"
        said = f"{kind}: {message}".strip(": \n").splitlines()
        yield from (f"    {line}".rstrip() for line in said[:_OUTPUT_LINES])
        yield ""


def _nor(others: list[Diagnostic]) -> str:
    files = list(dict.fromkeys(error.file for error in others))
    more = f" and {len(files) - _ALIKE_MAX} more" if len(files) > _ALIKE_MAX else ""
    return f"; the same for {', '.join(files[:_ALIKE_MAX])}{more}" if files else ""


def _trouble(error: Diagnostic, report: Report) -> str:
    """A file whose tests have results was loaded: what is told of it happened beside them."""
    if error in report.compile_errors:
        return "does not compile"
    return "went wrong outside of its tests" if _is_beside(error, report) else "does not load"


def _is_beside(error: Diagnostic, report: Report) -> bool:
    return not error.file or any(test.file == error.file for test in report.tests)


def _failure(test: TestResult, outcome: Outcome, paint: Paint) -> Iterator[str]:
    failure = test.failure or Failure()
    mark = "known" if test.id in outcome.known else "flaky" if test.id in outcome.flaky else ""
    yield f"{paint(Tone.BAD, '✘')} {test.id}{f'  ({mark})' if mark else ''}"
    head, *rest = gist(failure) or [""]
    yield f"    {': '.join(filter(None, (failure.type, head)))}"
    yield from (f"    {line}" for line in rest[:_OUTPUT_LINES])
    yield from (f"    {line}" for line in _values(failure, paint))
    for frame in reversed(failure.frames[-4:]):
        yield paint(Tone.DIM, f"    at {frame.file}:{frame.line}{f' in {frame.function}' if frame.function else ''}")
    if not failure.frames and failure.file:
        yield paint(Tone.DIM, f"    at {failure.file}{f':{failure.line}' if failure.line else ''}")
    for name, said in (("stdout", test.stdout), ("stderr", test.stderr)):
        if said.strip():
            yield paint(Tone.DIM, f"    {name}:")
            yield from (paint(Tone.DIM, f"      | {line}") for line in said.strip().splitlines()[-_OUTPUT_LINES:])
    if command := again(test, outcome.targets):
        yield paint(Tone.DIM, f"    again: {command}")
    yield ""


def _values(failure: Failure, paint: Paint) -> Iterator[str]:
    expected, actual = wanted(failure), failure.actual
    if expected is None and actual is None:
        yield from failure.diff.splitlines() if failure.diff not in failure.message else ()
        return
    long = "\n" in f"{expected}{actual}" or len(f"{expected}{actual}") > 160
    if long and expected is not None and actual is not None:
        yield from _diff(expected[:_VALUE_CHARS], actual[:_VALUE_CHARS], paint)
        return
    if expected is not None:
        yield f"expected: {paint(Tone.GOOD, expected)}"
    if actual is not None:
        yield f"actual:   {paint(Tone.BAD, actual)}"


def _diff(expected: str, actual: str, paint: Paint) -> Iterator[str]:
    yield f"{paint(Tone.GOOD, '- expected')}  {paint(Tone.BAD, '+ actual')}"
    tones = {"-": Tone.GOOD, "+": Tone.BAD}
    rows = difflib.ndiff(expected.splitlines(), actual.splitlines())
    yield from (paint(tones.get(row[0], Tone.DIM), row.rstrip("\n")) for row in rows)


def again(test: TestResult, targets: list[Target]) -> str:
    """The plain command that runs this test alone."""
    named = [target for target in targets if target.name == test.target] or targets[:1]
    if not named:
        return ""
    target = named[0]
    prefix = "" if target.root == "." else f"{target.root}/"
    own = _own(test, prefix)
    said = runner(target.runner).again(target, own)
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
    )


def _parts(report: Report, paint: Paint) -> Iterator[str]:
    for part in report.parts:
        tone = Tone.GOOD if part.status is ReportStatus.PASSED else Tone.BAD
        name = part.runner if part.root == "." else f"{part.runner} in {part.root}"
        yield f"{paint(tone, part.status):<10} {name}: {part.totals.passed} of {part.totals.tests} passed"


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


def _summary(report: Report, paint: Paint) -> str:
    totals, outside = report.totals, report.collection_errors
    beside = sum(_is_beside(error, report) for error in outside)
    named = {
        "failed": totals.failed,
        "errors": totals.errors,
        "passed": totals.passed,
        "skipped": totals.skipped,
        "expected to fail": totals.xfailed,
        "unexpectedly passed": totals.xpassed,
        "to do": totals.todo,
        "files not compiled": len({error.file for error in report.compile_errors}),
        "files not loaded": len(outside) - beside,
        "errors outside of tests": beside,
    }
    counts = ", ".join(f"{count} {name}" for name, count in named.items() if count) or "no tests"
    tone = Tone.GOOD if report.status is ReportStatus.PASSED else Tone.BAD
    hung = ", ".join(test.id for test in report.tests if _is_lost(test))
    return f"{paint(tone, report.status.upper())}  {counts} in {report.duration_s:.1f} s" + (
        f"; stopped in {hung}" if hung else ""
    )


def _is_lost(test: TestResult) -> bool:
    return test.status is TestStatus.ERROR and test.failure is not None and test.failure.type in ("Hung", "Crashed")
