"""Parses Cucumber's json formatter, in all languages, and behave's: features of scenarios of steps.

A scenario is one test with the status of its worst step. Undefined, ambiguous and pending steps fail Cucumber's run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, distinct, lenient_json, recover
from ratchet.core.report import Failure, TestResult, TestStatus

_WORST = ("failed", "error", "hook_error", "cleanup_error", "ambiguous", "undefined", "pending", "pending_warn")
_IDLE = ("skipped", "untested", "unknown")
_HOOKS = {"Before": "setup", "After": "teardown"}  # JavaScript lists them among the steps
_UNTESTED = "untested"
_FEATURE_LINE = re.compile(r"(?m)^\s*(?:at )?\S*\.feature:\d+.*\n?")
_STACK = re.compile(r"\n\s+at |\n\.?/\S+:\d+:in |\nTraceback |\n\s*Captured ")
_NS = 1e-9


class CucumberStep(msgspec.Struct, kw_only=True):
    """A step of a scenario, or a hook, which has no line."""

    status: str
    text: str
    line: int = 0
    message: str = ""
    duration_s: float = 0.0
    phase: str = "call"


def parse(stream: BinaryIO) -> Parsed:
    """Identify each scenario by its location, as Cucumber selects it: `features/a.feature:12`."""
    features, whole = lenient_json.rows(stream, mark="elements")
    tests: list[TestResult] = []
    for feature in features:
        for test, is_row in _scenarios(feature):
            _add(tests, test, is_row=is_row)
    return Parsed(tests=distinct(tests), ended=whole, partial=bool(features) and not whole)


def _add(tests: list[TestResult], test: TestResult, *, is_row: bool) -> None:
    """Add a scenario: Ruby reports every attempt, while rows of an outline may share a location but are separate
    tests."""
    last = tests[-1] if tests else None
    if last and last.id == test.id and last.failure and not is_row:
        tests[-1] = msgspec.structs.replace(test, attempts=last.attempts + 1)
    else:
        tests.append(test)


def _scenarios(feature: lenient_json.Table) -> Iterator[tuple[TestResult, bool]]:
    """Yield the scenarios; a background reported separately belongs to the scenario after it."""
    before: list[CucumberStep] = []
    uri = lenient_json.text(feature, "uri") or lenient_json.text(feature, "location").rpartition(":")[0]
    uri = re.sub("^file:(?://)?", "", uri)
    for element in lenient_json.tables(feature, "elements"):
        steps = [*before, *_steps(element)]
        steps += _untold(element, steps)
        if element.get("type") == "background":
            # behave's background is only a declaration: the scenarios contain its steps.
            before = [step for step in steps if step.status not in ("", _UNTESTED)]
            continue
        before = []
        line = lenient_json.whole(element, "line") or _line(lenient_json.text(element, "location"))
        name = lenient_json.text(element, "name")
        place = f"{uri}:{line}" if uri and line else ""
        test_id = place or lenient_json.text(element, "id") or name
        test = scenario(test_id, name, [lenient_json.text(feature, "name")], (uri, line), steps)
        yield test, "Outline" in lenient_json.text(element, "keyword")


def _steps(element: lenient_json.Table) -> Iterator[CucumberStep]:
    for phase, key in (("setup", "before"), ("call", "steps"), ("teardown", "after")):
        for row in lenient_json.tables(element, key):
            yield from _around(row, "before")
            yield _step(row, _HOOKS.get(lenient_json.text(row, "keyword"), phase) if row.get("hidden") else phase)
            yield from _around(row, "after")


def _untold(element: lenient_json.Table, steps: list[CucumberStep]) -> list[CucumberStep]:
    """Report a failed hook, which behave reveals only by the status of the scenario."""
    hook_step = CucumberStep(
        status=lenient_json.text(element, "status"), text=lenient_json.text(element, "name"), phase="setup"
    )
    return [hook_step] if hook_step.status in _WORST and not any(step.status in _WORST for step in steps) else []


def _around(step: lenient_json.Table, key: str) -> Iterator[CucumberStep]:
    """Return the hooks of a step."""
    for row in lenient_json.tables(step, key):
        yield _step(row, "setup" if key == "before" else "teardown")


def _step(row: lenient_json.Table, phase: str) -> CucumberStep:
    result = lenient_json.table(row, "result")
    took = result.get("duration")
    return CucumberStep(
        status=lenient_json.text(result, "status").lower(),
        text=f"{lenient_json.text(row, 'keyword').strip()} {lenient_json.text(row, 'name')}".strip(),
        line=lenient_json.whole(row, "line") or _line(lenient_json.text(row, "location")),
        message=lenient_json.text(result, "error_message") or "\n".join(lenient_json.texts(result, "error_message")),
        # behave counts seconds, all others nanoseconds.
        duration_s=float(took) if isinstance(took, float) and took < 1e5 else _nanoseconds(took),
        phase=phase,
    )


def _nanoseconds(took: object) -> float:
    return took * _NS if isinstance(took, (int, float)) and 0 <= took < 1e15 else 0.0


def _line(location: str) -> int:
    digits = location.rpartition(":")[2]
    return int(digits) if digits.isdecimal() and len(digits) < 10 else 0


def scenario(test_id: str, name: str, suite: list[str], at: tuple[str, int], steps: list[CucumberStep]) -> TestResult:
    """Build the result; a scenario without steps passes, as in Cucumber."""
    worst = min(steps, key=_badness) if steps else None
    is_listed = bool(steps) and all(step.status in ("", *_IDLE) for step in steps)
    status = TestStatus.SKIPPED if is_listed else _status(worst.status if worst else "passed")
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


def _badness(step: CucumberStep) -> int:
    """Order steps by their status; one without a known status is worse than one that was not run."""
    if step.status == "passed":
        return len(_WORST) + len(_IDLE) + 1
    words = (*_WORST, "", *_IDLE)
    return words.index(step.status if step.status in words else "")


def _status(word: str) -> TestStatus:
    if word in _IDLE:
        return TestStatus.SKIPPED
    if word == "passed":
        return TestStatus.PASSED
    return TestStatus.FAILED if word == "failed" else TestStatus.ERROR


def _failure(step: CucumberStep, at: tuple[str, int]) -> Failure:
    """Return where the code failed, else the failed step; the path through the feature file is not a stack."""
    text = _FEATURE_LINE.sub("", step.message).strip()
    head = _STACK.split(text, maxsplit=1)[0].strip()
    message = head if step.status == "failed" and head else f"{step.status}: {step.text}\n{head}".strip()
    found = recover.failure(text, message=message)
    if found.type:
        bare = re.sub(rf"^{re.escape(found.type)}(?: \[\w+\])?: ", "", found.message)
        found = msgspec.structs.replace(found, message=bare)
    if found.file and found.line:
        return found
    return msgspec.structs.replace(found, file=at[0], line=step.line or at[1])
