"""Cucumber's json formatter, in every language that has one, and behave's: features of scenarios of steps.

A scenario is one test, and it is what its worst step is. What is undefined, ambiguous or pending fails Cucumber's run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, distinct, loose, recover
from ratchet.core.report import Failure, TestResult, TestStatus

_WORST = ("failed", "error", "hook_error", "cleanup_error", "ambiguous", "undefined", "pending", "pending_warn")
_IDLE = ("skipped", "untested", "unknown")
_HOOKS = {"Before": "setup", "After": "teardown"}  # JavaScript's has them among the steps
_UNTOLD = "untested"
_FEATURE_LINE = re.compile(r"(?m)^\s*(?:at )?\S*\.feature:\d+.*\n?")
_STACK = re.compile(r"\n\s+at |\n\.?/\S+:\d+:in |\nTraceback |\n\s*Captured ")
_NS = 1e-9


class Step(msgspec.Struct, kw_only=True):
    """What was done for a scenario: a line of it, or a hook, which has none."""

    status: str
    text: str
    line: int = 0
    said: str = ""
    duration_s: float = 0.0
    phase: str = "call"


def parse(stream: BinaryIO) -> Parsed:
    """Each scenario by its place, which is how Cucumber is asked for it: `features/a.feature:12`."""
    features, whole = loose.rows(stream, mark="elements")
    tests: list[TestResult] = []
    for feature in features:
        for test, is_row in _scenarios(feature):
            _add(tests, test, is_row=is_row)
    return Parsed(tests=distinct(tests), ended=whole, partial=bool(features) and not whole)


def _add(tests: list[TestResult], test: TestResult, *, is_row: bool) -> None:
    """Ruby's tells every attempt. The rows of an outline may have one place, too, but they are tests of their own."""
    last = tests[-1] if tests else None
    if last and last.id == test.id and last.failure and not is_row:
        tests[-1] = msgspec.structs.replace(test, attempts=last.attempts + 1)
    else:
        tests.append(test)


def _scenarios(feature: loose.Table) -> Iterator[tuple[TestResult, bool]]:
    """A background that is told by itself belongs to the scenario after it."""
    before: list[Step] = []
    uri = loose.text(feature, "uri") or loose.text(feature, "location").rpartition(":")[0]
    uri = re.sub("^file:(?://)?", "", uri)
    for element in loose.tables(feature, "elements"):
        steps = [*before, *_steps(element)]
        steps += _untold(element, steps)
        if element.get("type") == "background":
            # behave's is no more than how it is written: the scenarios have its steps.
            before = [step for step in steps if step.status != _UNTOLD]
            continue
        before = []
        line = loose.whole(element, "line") or _line(loose.text(element, "location"))
        name = loose.text(element, "name")
        place = f"{uri}:{line}" if uri and line else ""
        test_id = place or loose.text(element, "id") or name
        test = scenario(test_id, name, [loose.text(feature, "name")], (uri, line), steps)
        yield test, "Outline" in loose.text(element, "keyword")


def _steps(element: loose.Table) -> Iterator[Step]:
    for phase, key in (("setup", "before"), ("call", "steps"), ("teardown", "after")):
        for row in loose.tables(element, key):
            yield from _around(row, "before")
            yield _step(row, _HOOKS.get(loose.text(row, "keyword"), phase) if row.get("hidden") else phase)
            yield from _around(row, "after")


def _untold(element: loose.Table, steps: list[Step]) -> list[Step]:
    """behave tells of a hook that failed only by what became of the scenario."""
    told = Step(status=loose.text(element, "status"), text=loose.text(element, "name"), phase="setup")
    return [told] if told.status in _WORST and not any(step.status in _WORST for step in steps) else []


def _around(step: loose.Table, key: str) -> Iterator[Step]:
    """Hooks of a step of their own."""
    for row in loose.tables(step, key):
        yield _step(row, "setup" if key == "before" else "teardown")


def _step(row: loose.Table, phase: str) -> Step:
    result = loose.table(row, "result")
    took = result.get("duration")
    return Step(
        status=loose.text(result, "status").lower() or _UNTOLD,
        text=f"{loose.text(row, 'keyword').strip()} {loose.text(row, 'name')}".strip(),
        line=loose.whole(row, "line") or _line(loose.text(row, "location")),
        said=loose.text(result, "error_message") or "\n".join(loose.texts(result, "error_message")),
        # behave counts seconds, everybody else nanoseconds.
        duration_s=float(took) if isinstance(took, float) and took < 1e5 else _nanoseconds(took),
        phase=phase,
    )


def _nanoseconds(took: object) -> float:
    return took * _NS if isinstance(took, (int, float)) and 0 <= took < 1e15 else 0.0


def _line(location: str) -> int:
    digits = location.rpartition(":")[2]
    return int(digits) if digits.isdecimal() and len(digits) < 10 else 0


def scenario(test_id: str, name: str, suite: list[str], at: tuple[str, int], steps: list[Step]) -> TestResult:
    """A scenario without steps passes, as it does in Cucumber."""
    worst = min(steps, key=_badness) if steps else None
    status = _status(worst.status if worst else "passed")
    red = status in (TestStatus.FAILED, TestStatus.ERROR)
    return TestResult(
        id=test_id,
        name=name,
        suite=[part for part in suite if part],
        file=at[0],
        line=at[1],
        status=status,
        duration_s=round(sum(step.duration_s for step in steps), 6),
        phase=worst.phase if worst and red else "call",
        failure=_failure(worst, at) if worst and red else None,
    )


def _badness(step: Step) -> int:
    words = (*_WORST, *_IDLE)
    return words.index(step.status) if step.status in words else len(words)


def _status(word: str) -> TestStatus:
    if word in _IDLE:
        return TestStatus.SKIPPED
    if word not in _WORST:
        return TestStatus.PASSED
    return TestStatus.FAILED if word == "failed" else TestStatus.ERROR


def _failure(step: Step, at: tuple[str, int]) -> Failure:
    """Where the code failed, else the step that did; the way through the feature itself is no stack."""
    said = _FEATURE_LINE.sub("", step.said).strip()
    head = _STACK.split(said, maxsplit=1)[0].strip()
    message = head if step.status == "failed" and head else f"{step.status}: {step.text}\n{head}".strip()
    found = recover.failure(said, message=message)
    if found.type:
        bare = re.sub(rf"^{re.escape(found.type)}(?: \[\w+\])?: ", "", found.message)
        found = msgspec.structs.replace(found, message=bare)
    if found.file and found.line:
        return found
    return msgspec.structs.replace(found, file=at[0], line=step.line or at[1])
