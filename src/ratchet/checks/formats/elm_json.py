"""Parses the JSON lines of elm-test."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, distinct, lenient_json, recover
from ratchet.checks.formats.text import lines
from ratchet.core.report import TestResult, TestStatus

SIGN = re.compile(rb'"testCompleted"')

_STATUSES = {"pass": TestStatus.PASSED, "fail": TestStatus.FAILED, "todo": TestStatus.TODO}


def parse(stream: BinaryIO) -> Parsed:
    tests: list[TestResult] = []
    reported: dict[str, int] = {}
    for line in lines(stream):
        row = lenient_json.row(line)
        if row.get("event") == "testCompleted":
            tests.append(_test(row))
        elif row.get("event") == "runComplete":
            counts = {"passed": row.get("passed"), "failed": row.get("failed")}
            reported = {word: int(n) for word, n in counts.items() if isinstance(n, str | int) and str(n).isdecimal()}
    return Parsed(tests=distinct(tests), reported=reported, ended=bool(reported), partial=bool(tests) and not reported)


def _test(row: lenient_json.Table) -> TestResult:
    labels = lenient_json.texts(row, "labels")
    status = _STATUSES.get(lenient_json.text(row, "status"), TestStatus.ERROR)
    first = next(iter(lenient_json.tables(row, "failures")), {})
    reason = lenient_json.table(first, "reason")
    data = lenient_json.table(reason, "data")
    message = lenient_json.text(first, "message") or lenient_json.text(reason, "type")
    failure = recover.failure(
        "",
        message=message or "failed",
        expected=lenient_json.shown_in(data, "expected"),
        actual=lenient_json.shown_in(data, "actual"),
    )
    return TestResult(
        id=" > ".join(labels),
        name=labels[-1] if labels else "",
        suite=labels[:-1],
        status=status,
        failure=failure if status in (TestStatus.FAILED, TestStatus.ERROR) else None,
    )
