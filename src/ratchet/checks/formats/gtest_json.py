"""Parses GoogleTest's `--gtest_output=json`."""

from __future__ import annotations

from typing import BinaryIO

from ratchet.checks.formats import Parsed, lenient_json, recover
from ratchet.core.report import Failure, TestResult, TestStatus


def parse(stream: BinaryIO) -> Parsed:
    """Return the tests as `Suite.Test`, as `--gtest_filter` accepts them. Disabled tests are skipped."""
    document, whole = lenient_json.document(stream, mark="testsuites")
    rows = [
        (suite, test)
        for suite in lenient_json.tables(document, "testsuites")
        for test in lenient_json.tables(suite, "testsuite")
    ]
    words = {"tests": "tests", "failures": "failed", "errors": "errors", "disabled": "skipped"}
    return Parsed(
        tests=[_test(suite, test) for suite, test in rows],
        reported={word: lenient_json.whole(document, key) for key, word in words.items() if key in document},
        ended=whole,
        partial=bool(document) and not whole,
    )


def _test(suite: lenient_json.Table, row: lenient_json.Table) -> TestResult:
    group = lenient_json.text(row, "classname") or lenient_json.text(suite, "name")
    name = lenient_json.text(row, "name")
    found = lenient_json.tables(row, "failures")
    status = _status(row, bool(found))
    return TestResult(
        id=f"{group}.{name}",
        name=name,
        suite=[group],
        file=lenient_json.text(row, "file"),
        line=lenient_json.whole(row, "line"),
        status=status,
        duration_s=_seconds(lenient_json.text(row, "time")),
        reason=_reason(row) if status is TestStatus.SKIPPED else "",
        failure=_failure(row, found) if found else None,
    )


def _status(row: lenient_json.Table, failed: bool) -> TestStatus:
    if failed:
        return TestStatus.FAILED
    words = [lenient_json.text(row, key).upper() for key in ("status", "result") if key in row]
    if not words or not {"NOTRUN", "SKIPPED", "SUPPRESSED"}.isdisjoint(words):
        return TestStatus.SKIPPED  # without a word it was only listed
    return TestStatus.PASSED if {"RUN", "COMPLETED"}.issuperset(words) else TestStatus.ERROR


def _failure(row: lenient_json.Table, found: list[lenient_json.Table]) -> Failure:
    """Build the failure: an exception has no location of its own, so the test's is used."""
    first = lenient_json.text(found[0], "failure")
    place, _, message = first.partition("\n")
    more = [lenient_json.text(other, "failure") for other in found[1:]]
    file, _, line = place.rpartition(":")
    known = bool(file) and line.isdecimal() and len(line) < 10
    return recover.failure(
        "\n\n".join([message, *more]),
        message=message.strip() or first,
        file=file if known else lenient_json.text(row, "file"),
        line=int(line) if known else lenient_json.whole(row, "line"),
    )


def _reason(row: lenient_json.Table) -> str:
    if row.get("status") == "NOTRUN":
        return "disabled"
    text = next((lenient_json.text(found, "message") for found in lenient_json.tables(row, "skipped")), "")
    return text.partition("\n")[2].strip() or text.strip()


def _seconds(text: str) -> float:
    try:
        value = float(text.removesuffix("s") or 0)
    except ValueError:
        return 0.0
    return value if 0 <= value < 1e9 else 0.0
