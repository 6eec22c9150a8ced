"""Parses Allure results: one object for each attempt, normally in separate files, here in one stream.

Their order and what is between them do not matter: `cat allure-results/*-result.json` works.
"""

from __future__ import annotations

from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, distinct, lenient_json, recover
from ratchet.core.report import RED, Failure, TestResult, TestStatus

_STATUS = {"passed": TestStatus.PASSED, "failed": TestStatus.FAILED, "skipped": TestStatus.SKIPPED}
_SUITES = ("parentSuite", "suite", "subSuite")


def parse(stream: BinaryIO) -> Parsed:
    """Identify each test by its full name and parameters. Of several attempts the last one counts."""
    rows, whole = lenient_json.rows(stream, mark="uuid")
    results = [row for row in rows if "status" in row and "name" in row]
    attempts: dict[str, list[lenient_json.Table]] = {}
    for row in sorted(results, key=lambda row: _long(row, "start")):
        attempts.setdefault(lenient_json.text(row, "historyId") or lenient_json.text(row, "uuid"), []).append(row)
    tests = [msgspec.structs.replace(_test(each[-1]), attempts=len(each)) for each in attempts.values()]
    return Parsed(tests=distinct(tests), ended=whole and bool(results), partial=bool(results) and not whole)


def _long(row: lenient_json.Table, key: str) -> float:
    """Read milliseconds since 1970, which exceed the limit for counts."""
    value = row.get(key)
    return float(value) if isinstance(value, (int, float)) and 0 <= value < 1e15 else 0.0


def _test(row: lenient_json.Table) -> TestResult:
    labels = {
        lenient_json.text(label, "name"): lenient_json.text(label, "value")
        for label in lenient_json.tables(row, "labels")
    }
    name = lenient_json.text(row, "name")
    details = lenient_json.table(row, "statusDetails")
    status = _STATUS.get(lenient_json.text(row, "status"), TestStatus.ERROR)
    # pytest's writer has no other word for it.
    if status is TestStatus.SKIPPED and lenient_json.text(details, "message").startswith("XFAIL "):
        status = TestStatus.XFAILED
    return TestResult(
        id=_id(row, labels),
        name=name,
        suite=[labels[key] for key in _SUITES if labels.get(key)],
        status=status,
        duration_s=round(max(0.0, _long(row, "stop") - _long(row, "start")) / 1000, 6),
        reason=""
        if status in RED
        else lenient_json.text(details, "message").partition("\n\n")[0].removeprefix("XFAIL "),
        failure=_failure(details, lenient_json.text(row, "status")) if status in RED else None,
    )


def _id(row: lenient_json.Table, labels: dict[str, str]) -> str:
    full = lenient_json.text(row, "fullName") or ".".join(
        filter(None, [labels.get("testClass"), labels.get("testMethod")])
    )
    given = [
        lenient_json.text(each, "value") for each in lenient_json.tables(row, "parameters") if not each.get("excluded")
    ]
    return (full or lenient_json.text(row, "name")) + (f"[{', '.join(given)}]" if given else "")


def _failure(details: lenient_json.Table, word: str) -> Failure:
    message, trace = lenient_json.text(details, "message"), lenient_json.text(details, "trace")
    return recover.failure(trace, message=message or ("" if trace else f"its status is {word or 'unknown'}"))
