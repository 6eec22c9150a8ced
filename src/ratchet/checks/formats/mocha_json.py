"""Parses mocha's json reporter. Failed hooks are errors of their phase."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, distinct, lenient_json, recover
from ratchet.core.report import Failure, TestResult, TestStatus

_HOOK = re.compile(r'^"(before|after)(?: each| all)?" hook')


def parse(stream: BinaryIO) -> Parsed:
    """Return the tests in the order they ran. Output before the document is skipped."""
    document, whole = lenient_json.document(stream, mark="stats")
    stats = lenient_json.table(document, "stats")
    is_mochas = not {"tests", "passes", "failures"}.isdisjoint(stats)
    lists = {
        TestStatus.PASSED: lenient_json.tables(document, "passes"),
        TestStatus.FAILED: lenient_json.tables(document, "failures"),
        TestStatus.SKIPPED: lenient_json.tables(document, "pending"),
    }
    return Parsed(
        tests=distinct(_in_order(document, lists)),
        reported=_reported(stats),
        ended=whole and is_mochas,
        partial=is_mochas and not whole,
    )


def _in_order(document: lenient_json.Table, lists: dict[TestStatus, list[lenient_json.Table]]) -> list[TestResult]:
    """Return the tests in the order of `tests`, those of one title in the order of their lists; failed hooks come
    last."""
    waiting: dict[tuple[str, str], list[TestResult]] = {}
    for status, rows in lists.items():
        for row in rows:
            waiting.setdefault(_key(row), []).append(_test(row, status))
    found = []
    for row in lenient_json.tables(document, "tests"):
        known = waiting.get(_key(row))
        found.append(known.pop(0) if known else _test(row, TestStatus.ERROR))
    return [*found, *(test for tests in waiting.values() for test in tests)]


def _reported(stats: lenient_json.Table) -> dict[str, int]:
    words = {"tests": "tests", "passes": "passed", "failures": "failed", "pending": "skipped"}
    return {word: lenient_json.whole(stats, key) for key, word in words.items() if key in stats}


def _key(row: lenient_json.Table) -> tuple[str, str]:
    return lenient_json.text(row, "file"), lenient_json.text(row, "fullTitle")


def _test(row: lenient_json.Table, status: TestStatus) -> TestResult:
    title, full, file = (
        lenient_json.text(row, "title"),
        lenient_json.text(row, "fullTitle"),
        lenient_json.text(row, "file"),
    )
    phase = hook_phase(title)
    err = lenient_json.table(row, "err")
    failure = _failure(err) if status in {TestStatus.FAILED, TestStatus.ERROR} else None
    above = full.removesuffix(title).strip()
    return TestResult(
        id=f"{file}::{full}" if file else full,
        name=title,
        suite=[above] if above else [],
        file=file,
        line=failure.line if failure and failure.file == file else 0,
        status=TestStatus.ERROR if phase and failure else status,
        duration_s=round(lenient_json.number(row, "duration") / 1000, 6),
        phase=phase or "call",
        attempts=1 + lenient_json.whole(row, "currentRetry"),
        failure=failure,
    )


def hook_phase(title: str) -> str:
    """Return the phase of a hook with this title; empty for a test."""
    hook = _HOOK.match(title)
    return {"before": "setup", "after": "teardown"}[hook.group(1)] if hook else ""


def _failure(err: lenient_json.Table) -> Failure:
    stack = lenient_json.text(err, "stack")
    head = stack.partition(":")[0].partition(" ")[0]
    return recover.failure(
        stack,
        message=lenient_json.text(err, "message"),
        type=lenient_json.text(err, "name") or (head if head.isidentifier() else ""),
        expected=lenient_json.shown_in(err, "expected"),
        actual=lenient_json.shown_in(err, "actual"),
        operator=lenient_json.text(err, "operator"),
    )
