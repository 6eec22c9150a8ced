"""Parses the JSON report of TestCafe."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, distinct, lenient_json, recover
from ratchet.core.report import TestResult, TestStatus

SIGN = re.compile(rb'"fixtures"')


def parse(stream: BinaryIO) -> Parsed:
    document, whole = lenient_json.document(stream, mark="fixtures")
    rows = [
        (fixture, row)
        for fixture in lenient_json.tables(document, "fixtures")
        for row in lenient_json.tables(fixture, "tests")
    ]
    words = {"total": "tests", "passed": "passed", "skipped": "skipped"}
    return Parsed(
        tests=distinct([_test(fixture, row) for fixture, row in rows if "errs" in row]),
        reported={word: lenient_json.whole(document, key) for key, word in words.items() if key in document},
        ended=whole and "userAgents" in document,
        partial=bool(document) and not whole,
    )


def _test(fixture: lenient_json.Table, row: lenient_json.Table) -> TestResult:
    errors = lenient_json.texts(row, "errs")
    file, above, name = (
        lenient_json.text(fixture, "path").removeprefix("./"),
        lenient_json.text(fixture, "name"),
        lenient_json.text(row, "name"),
    )
    status = TestStatus.SKIPPED if row.get("skipped") else TestStatus.FAILED if errors else TestStatus.PASSED
    return TestResult(
        id=f"{file}::{above} {name}" if file else f"{above} {name}",
        name=name,
        suite=[above],
        status=status,
        file=file,
        duration_s=lenient_json.number(row, "durationMs") / 1000,
        failure=recover.failure("\n\n".join(errors), message=errors[0].partition("\n\n")[0]) if errors else None,
        attempts=2 if row.get("unstable") and not errors else 1,
    )
