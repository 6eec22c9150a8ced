"""A test run for human eyes: failures first, expected beside actual, project frames, how to run one again."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator

import msgspec

from ratchet.checks import Target
from ratchet.checks.commands import having
from ratchet.checks.registry import runner
from ratchet.core.packet import nor, title, unsaid
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
from ratchet.surfaces.values import beside, short, tame

_FAILURES_MAX = 20
_OUTPUT_LINES = 12
_BRIEF_MAX = 80
_BRIEF_CHARS = 160


_HINTS = {
    ReportStatus.TIMEOUT: "--timeout S, or timeout_s and silence_s of [test] in ratchet.toml, give it longer",
    ReportStatus.UNKNOWN: "where it can write JUnit XML, TAP or JSON, name the file: [test] report in ratchet.toml",
}


def view(outcome: Outcome, paint: Paint, *, forgiven: bool = False, top: str = ".") -> Iterator[str]:
    """`forgiven`: what failed is known, and was said to be no reason against it. `top` is the way to the folder."""
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
            yield f"{paint(Tone.WARN, '~')} {test.id} is flaky: it failed before on this same tree"
    yield from _parts(report, paint)
    for note in report.notes:
        yield f"{paint(Tone.WARN, '!')} {note}"
    if report.output and not _is_explained(report):
        said = [line for line in tame(report.output).splitlines() if line.strip()]
        yield from (paint(Tone.DIM, f"  | {short(line)}") for line in said[-_OUTPUT_LINES:])
    if hint := _HINTS.get(report.status):
        yield paint(Tone.DIM, f"  hint: {hint}")
    yield from _delta(outcome)
    yield _summary(report, outcome.known, paint, forgiven=forgiven)


def _briefly(red: list[TestResult], paint: Paint) -> Iterator[str]:
    """Many failures mostly have few causes: of the later ones the names, and what each says first."""
    for test in red[:_BRIEF_MAX]:
        failure = test.failure or Failure()
        head = ": ".join(filter(None, (failure.type, *gist(failure)[:1])))
        line = tame(f"{title(test)}  {head}".rstrip()).replace("\n", "\\n")
        yield f"{paint(Tone.BAD, '✘')} {line if len(line) <= _BRIEF_CHARS else f'{line[:_BRIEF_CHARS]} …'}"
    if len(red) > _BRIEF_MAX:
        yield f"… and {len(red) - _BRIEF_MAX} more failures (--json has them all)"
    if red:
        yield ""


def _is_explained(report: Report) -> bool:
    """Whether what is told of the tests says it all; of a crash only its place does, else the runner's last words."""
    if report.status is ReportStatus.INTERRUPTED:
        return True
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
        said = tame(f"{kind}: {message}").strip(": \n").splitlines()
        yield from (f"    {short(line)}".rstrip() for line in said[:_OUTPUT_LINES])
        yield ""


def _trouble(error: Diagnostic, report: Report) -> str:
    return "does not compile" if error in report.compile_errors else trouble(error, report)


def _tamed(test: TestResult) -> TestResult:
    """As it may be shown: what a test says must not do anything to the terminal."""
    failure = test.failure or Failure()
    return msgspec.structs.replace(
        test,
        id=tame(test.id),
        name=tame(test.name),
        stdout=tame(test.stdout),
        stderr=tame(test.stderr),
        failure=msgspec.structs.replace(
            failure,
            type=tame(failure.type),
            message=tame(failure.message),
            expected=None if failure.expected is None else tame(failure.expected),
            actual=None if failure.actual is None else tame(failure.actual),
            diff=tame(failure.diff),
        ),
    )


def _failure(test: TestResult, outcome: Outcome, paint: Paint, top: str) -> Iterator[str]:
    shown = _tamed(test)
    failure = shown.failure or Failure()
    mark = "known" if test.id in outcome.known else "flaky" if test.id in outcome.flaky else ""
    name = title(shown).replace("\n", "\\n")
    yield f"{paint(Tone.BAD, '✘')} {name}{f'  ({mark})' if mark else ''}"
    head, *rest = gist(failure) or [""]
    yield f"    {short(': '.join(filter(None, (failure.type, head))))}"
    yield from (f"    {short(line)}" for line in rest[:_OUTPUT_LINES])
    yield from (f"    {line}" for line in _values(failure, paint))
    yield from (paint(Tone.DIM, f"    at {place}") for place in _places(failure))
    for name, said in (("stdout", shown.stdout), ("stderr", shown.stderr)):
        if lines := unsaid(said, failure):
            yield paint(Tone.DIM, f"    {name}:")
            yield from (paint(Tone.DIM, f"      | {short(line)}") for line in lines[-_OUTPUT_LINES:])
    if command := again(test, outcome.targets, top=top):
        yield paint(Tone.DIM, f"    again: {command}")
    yield ""


def _places(failure: Failure) -> Iterator[str]:
    """The innermost first. Columns are not told, so two frames may look the same."""
    if not failure.frames and failure.file:
        yield f"{failure.file}{f':{failure.line}' if failure.line else ''}"
    rows = [f"{frame.file}:{frame.line}{f' in {frame.function}' if frame.function else ''}" for frame in failure.frames]
    yield from list(dict.fromkeys(reversed(rows)))[:4]


def _values(failure: Failure, paint: Paint) -> Iterator[str]:
    expected, actual = wanted(failure), failure.actual
    if expected is None and actual is None:
        yield from failure.diff.splitlines() if failure.diff not in failure.message else ()
        return
    yield from beside(expected, actual, paint)


def again(test: TestResult, targets: list[Target], *, top: str = ".") -> str:
    """The plain command that runs this test alone, from where `top` leads to the folder that was tested."""
    named = [target for target in targets if target.has(test)] or targets[:1]
    if not named:
        return ""
    target = named[0]
    prefix = "" if target.root == "." else f"{target.root}/"
    own = _own(test, prefix)
    said = runner(target.runner).again(having(target, own)[0], own)
    words = said[2] if said[:2] == ["sh", "-c"] else shlex.join(said)  # the first is a line for a shell already
    place = os.path.normpath(f"{top}/{target.root}")
    return words if place == "." else f"(cd {shlex.quote(place)} && {words})"


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
    red = {test.id for test in outcome.report.tests if test.status in RED}
    rows = {
        "newly failing": [*delta.new_failures, *red.intersection(delta.added)],
        "still failing": delta.still_failing,
        "fixed": delta.fixed,
        "gone": delta.missing,
        "now skipped": delta.silenced,
        "renamed": [new for _, new in delta.renamed],
    }
    said = [f"{len(ids)} {what}" for what, ids in rows.items() if ids]
    if said:
        yield f"since last time: {', '.join(said)}"


def _summary(report: Report, known: list[str], paint: Paint, *, forgiven: bool) -> str:
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
    tone = Tone.GOOD if forgiven or report.status is ReportStatus.PASSED else Tone.BAD
    hung = ", ".join(test.id for test in report.tests if _is_lost(test, report))
    return f"{paint(tone, report.status.upper())}  {counts} in {report.duration_s:.1f} s" + (
        f"; stopped in {hung}" if hung else "; nothing that was not known" if forgiven else ""
    )


def _counted(count: int, name: str) -> str:
    return f"{count} {re.sub('(error|file)s', lambda found: found[1], name) if count == 1 else name}"


def _is_lost(test: TestResult, report: Report) -> bool:
    # One that took its worker along did not hold up a run that was stopped later.
    kinds = ("Hung",) if report.status is ReportStatus.TIMEOUT else ("Hung", "Crashed")
    return test.status is TestStatus.ERROR and test.failure is not None and test.failure.type in kinds
