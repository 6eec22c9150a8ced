"""GoogleTest's `--gtest_output=json`."""

from __future__ import annotations

from typing import BinaryIO

from ratchet.checks.formats import Parsed, loose, recover
from ratchet.core.report import Failure, TestResult, TestStatus


def parse(stream: BinaryIO) -> Parsed:
    """Every test as `Suite.Test`, what `--gtest_filter` takes. Disabled tests are skipped ones."""
    document, whole = loose.document(stream, mark="testsuites")
    rows = [
        (suite, test) for suite in loose.tables(document, "testsuites") for test in loose.tables(suite, "testsuite")
    ]
    words = {"tests": "tests", "failures": "failed", "errors": "errors", "disabled": "skipped"}
    return Parsed(
        tests=[_test(suite, test) for suite, test in rows],
        reported={word: loose.whole(document, key) for key, word in words.items() if key in document},
        ended=whole,
        partial=bool(document) and not whole,
    )


def _test(suite: loose.Table, row: loose.Table) -> TestResult:
    group = loose.text(row, "classname") or loose.text(suite, "name")
    name = loose.text(row, "name")
    found = loose.tables(row, "failures")
    status = _status(row, bool(found))
    return TestResult(
        id=f"{group}.{name}",
        name=name,
        suite=[group],
        file=loose.text(row, "file"),
        line=loose.whole(row, "line"),
        status=status,
        duration_s=_seconds(loose.text(row, "time")),
        reason=_reason(row) if status is TestStatus.SKIPPED else "",
        failure=_failure(row, found) if found else None,
    )


def _status(row: loose.Table, failed: bool) -> TestStatus:
    if failed:
        return TestStatus.FAILED
    skipped = row.get("status") == "NOTRUN" or row.get("result") in {"SKIPPED", "SUPPRESSED"}
    return TestStatus.SKIPPED if skipped else TestStatus.PASSED


def _failure(row: loose.Table, found: list[loose.Table]) -> Failure:
    """An exception has no place of its own: the test has."""
    first = loose.text(found[0], "failure")
    place, _, message = first.partition("\n")
    more = [loose.text(other, "failure") for other in found[1:]]
    file, _, line = place.rpartition(":")
    known = bool(file) and line.isdecimal() and len(line) < 10
    return recover.failure(
        "\n\n".join([message, *more]),
        message=message.strip() or first,
        file=file if known else loose.text(row, "file"),
        line=int(line) if known else loose.whole(row, "line"),
    )


def _reason(row: loose.Table) -> str:
    if row.get("status") == "NOTRUN":
        return "disabled"
    text = next((loose.text(found, "message") for found in loose.tables(row, "skipped")), "")
    return text.partition("\n")[2].strip() or text.strip()


def _seconds(text: str) -> float:
    try:
        value = float(text.removesuffix("s") or 0)
    except ValueError:
        return 0.0
    return value if 0 <= value < 1e9 else 0.0
