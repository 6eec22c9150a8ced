"""Parses the JSON report of mochawesome, a reporter for mocha."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from ratchet.checks.formats import Parsed, distinct, lenient_json, recover
from ratchet.core.report import TestResult, TestStatus

SIGN = re.compile(rb'"results"')


def parse(stream: BinaryIO) -> Parsed:
    document, whole = lenient_json.document(stream, mark="results")
    stats = lenient_json.table(document, "stats")
    tests = [test for root in lenient_json.tables(document, "results") for test in _walk(root, [], "")]
    words = {"tests": "tests", "passes": "passed", "failures": "failed"}
    return Parsed(
        tests=distinct(tests),
        reported={word: lenient_json.whole(stats, key) for key, word in words.items() if key in stats},
        ended=whole and "testsRegistered" in stats,
        partial=bool(document) and not whole,
    )


_MAX_DEPTH = 100


def _walk(suite: lenient_json.Table, above: list[str], file: str) -> Iterator[TestResult]:
    path = [*above, title] if (title := lenient_json.text(suite, "title")) else above
    own = lenient_json.text(suite, "file").lstrip("/")
    file = own if own and own != "nofile" else file
    for row in lenient_json.tables(suite, "tests"):
        yield _test(row, path, file)
    for inner in lenient_json.tables(suite, "suites") if len(above) < _MAX_DEPTH else ():
        yield from _walk(inner, path, file)


def _test(row: lenient_json.Table, path: list[str], file: str) -> TestResult:
    status = TestStatus.FAILED if row.get("fail") else TestStatus.PASSED if row.get("pass") else TestStatus.SKIPPED
    error, full = lenient_json.table(row, "err"), lenient_json.text(row, "fullTitle") or lenient_json.text(row, "title")
    return TestResult(
        id=f"{file}::{full}" if file else full,
        name=lenient_json.text(row, "title"),
        suite=path,
        status=status,
        file=file,
        duration_s=lenient_json.number(row, "duration") / 1000,
        failure=recover.failure(
            "\n".join([lenient_json.text(error, "estack"), _as_mocha_diff(lenient_json.text(error, "diff"))]),
            message=lenient_json.text(error, "message").strip(),
            type=recover.error_type(lenient_json.text(error, "message")),
        )
        if status is TestStatus.FAILED
        else None,
    )


def _as_mocha_diff(diff: str) -> str:
    """Add mocha's diff header: in both, plus marks the expected value."""
    return f"+ expected - actual\n\n{diff}" if diff else ""
