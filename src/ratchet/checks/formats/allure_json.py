"""Allure's results: one object for every attempt at a test, each a file of its own; here, all of them in one stream.

Their order and what stands between them are of no account: `cat allure-results/*-result.json` will do.
"""

from __future__ import annotations

from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, distinct, loose, recover
from ratchet.core.report import RED, Failure, TestResult, TestStatus

_STATUS = {"passed": TestStatus.PASSED, "failed": TestStatus.FAILED, "skipped": TestStatus.SKIPPED}
_SUITES = ("parentSuite", "suite", "subSuite")


def parse(stream: BinaryIO) -> Parsed:
    """Each test by its full name and its parameters. Of several attempts the last one counts."""
    rows, whole = loose.rows(stream, mark="uuid")
    results = [row for row in rows if "status" in row and "name" in row]
    attempts: dict[str, list[loose.Table]] = {}
    for row in sorted(results, key=lambda row: _long(row, "start")):
        attempts.setdefault(loose.text(row, "historyId") or loose.text(row, "uuid"), []).append(row)
    tests = [msgspec.structs.replace(_test(each[-1]), attempts=len(each)) for each in attempts.values()]
    return Parsed(tests=distinct(tests), ended=whole and bool(results), partial=bool(results) and not whole)


def _long(row: loose.Table, key: str) -> float:
    """A time since 1970 in milliseconds is more than a count may be."""
    value = row.get(key)
    return float(value) if isinstance(value, (int, float)) and 0 <= value < 1e15 else 0.0


def _test(row: loose.Table) -> TestResult:
    labels = {loose.text(label, "name"): loose.text(label, "value") for label in loose.tables(row, "labels")}
    name = loose.text(row, "name")
    details = loose.table(row, "statusDetails")
    status = _STATUS.get(loose.text(row, "status"), TestStatus.ERROR)
    # pytest's writer has no other word for it.
    if status is TestStatus.SKIPPED and loose.text(details, "message").startswith("XFAIL "):
        status = TestStatus.XFAILED
    return TestResult(
        id=_id(row, labels),
        name=name,
        suite=[labels[key] for key in _SUITES if labels.get(key)],
        status=status,
        duration_s=round(max(0.0, _long(row, "stop") - _long(row, "start")) / 1000, 6),
        reason="" if status in RED else loose.text(details, "message").partition("\n\n")[0].removeprefix("XFAIL "),
        failure=_failure(details, loose.text(row, "status")) if status in RED else None,
    )


def _id(row: loose.Table, labels: dict[str, str]) -> str:
    full = loose.text(row, "fullName") or ".".join(filter(None, [labels.get("testClass"), labels.get("testMethod")]))
    given = [loose.text(each, "value") for each in loose.tables(row, "parameters") if not each.get("excluded")]
    return (full or loose.text(row, "name")) + (f"[{', '.join(given)}]" if given else "")


def _failure(details: loose.Table, word: str) -> Failure:
    message, trace = loose.text(details, "message"), loose.text(details, "trace")
    return recover.failure(trace, message=message or ("" if trace else f"its status is {word or 'not told'}"))
