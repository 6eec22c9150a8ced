"""mocha's json reporter. Hooks that fail are errors of the phase they belong to, not tests of their own standing."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, distinct, loose, recover
from ratchet.core.report import Failure, TestResult, TestStatus

_HOOK = re.compile(r'^"(before|after)(?: each| all)?" hook')


def parse(stream: BinaryIO) -> Parsed:
    """The tests in the order they ran. Whatever the tests print before the document is skipped."""
    document, whole = loose.document(stream, mark="stats")
    stats = loose.table(document, "stats")
    is_mochas = not {"tests", "passes", "failures"}.isdisjoint(stats)
    lists = {
        TestStatus.PASSED: loose.tables(document, "passes"),
        TestStatus.FAILED: loose.tables(document, "failures"),
        TestStatus.SKIPPED: loose.tables(document, "pending"),
    }
    return Parsed(
        tests=distinct(_in_order(document, lists)),
        reported=_reported(stats),
        ended=whole and is_mochas,
        partial=is_mochas and not whole,
    )


def _in_order(document: loose.Table, lists: dict[TestStatus, list[loose.Table]]) -> list[TestResult]:
    """The tests as `tests` has them, those of one title in the order of their lists; hooks that failed come last."""
    waiting: dict[tuple[str, str], list[TestResult]] = {}
    for status, rows in lists.items():
        for row in rows:
            waiting.setdefault(_key(row), []).append(_test(row, status))
    found = []
    for row in loose.tables(document, "tests"):
        known = waiting.get(_key(row))
        found.append(known.pop(0) if known else _test(row, TestStatus.ERROR))
    return [*found, *(test for tests in waiting.values() for test in tests)]


def _reported(stats: loose.Table) -> dict[str, int]:
    words = {"tests": "tests", "passes": "passed", "failures": "failed", "pending": "skipped"}
    return {word: loose.whole(stats, key) for key, word in words.items() if key in stats}


def _key(row: loose.Table) -> tuple[str, str]:
    return loose.text(row, "file"), loose.text(row, "fullTitle")


def _test(row: loose.Table, status: TestStatus) -> TestResult:
    title, full, file = loose.text(row, "title"), loose.text(row, "fullTitle"), loose.text(row, "file")
    phase = hook_phase(title)
    err = loose.table(row, "err")
    failure = _failure(err) if status in {TestStatus.FAILED, TestStatus.ERROR} else None
    above = full.removesuffix(title).strip()
    return TestResult(
        id=f"{file}::{full}" if file else full,
        name=title,
        suite=[above] if above else [],
        file=file,
        line=failure.line if failure and failure.file == file else 0,
        status=TestStatus.ERROR if phase and failure else status,
        duration_s=round(loose.number(row, "duration") / 1000, 6),
        phase=phase or "call",
        attempts=1 + loose.whole(row, "currentRetry"),
        failure=failure,
    )


def hook_phase(title: str) -> str:
    """The phase that a hook with this title belongs to; of a test, none."""
    hook = _HOOK.match(title)
    return {"before": "setup", "after": "teardown"}[hook.group(1)] if hook else ""


def _failure(err: loose.Table) -> Failure:
    stack = loose.text(err, "stack")
    head = stack.partition(":")[0].partition(" ")[0]
    return recover.failure(
        stack,
        message=loose.text(err, "message"),
        type=loose.text(err, "name") or (head if head.isidentifier() else ""),
        expected=loose.shown_in(err, "expected"),
        actual=loose.shown_in(err, "actual"),
        operator=loose.text(err, "operator"),
    )
