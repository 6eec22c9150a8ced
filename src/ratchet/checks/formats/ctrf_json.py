"""Parses the Common Test Report Format, written by `ratchet test --ctrf` and by others."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, distinct, lenient_json, recover
from ratchet.core.report import RED, Failure, TestResult, TestStatus

_STATUS = {
    "passed": TestStatus.PASSED,
    "failed": TestStatus.FAILED,
    "skipped": TestStatus.SKIPPED,
    "pending": TestStatus.TODO,
}
# The writer's own status, where it says more.
_RAW = {
    "xfailed": TestStatus.XFAILED,
    "xpassed": TestStatus.XPASSED,
    "todo": TestStatus.TODO,
    "error": TestStatus.ERROR,
    "broken": TestStatus.ERROR,
}
_WITHIN = re.compile(r"\s+[>\u203a]\s+")


def parse(stream: BinaryIO) -> Parsed:
    """Parse the report. Names are ids only in our own reports; others are distinguished by their suites."""
    document, whole = lenient_json.document(stream, mark="results")
    results = lenient_json.table(document, "results")
    is_ours = "notes" in lenient_json.table(results, "extra")
    return Parsed(
        tests=distinct([_test(row, is_ours) for row in lenient_json.tables(results, "tests")]),
        reported=_reported(lenient_json.table(results, "summary")),
        ended=whole and "summary" in results,
        partial=bool(results) and not whole,
    )


def _reported(summary: lenient_json.Table) -> dict[str, int]:
    """Merge the three counts for tests that neither passed nor failed."""
    counts = {name: lenient_json.whole(summary, name) for name in ("tests", "passed", "failed") if name in summary}
    quiet = [lenient_json.whole(summary, name) for name in ("skipped", "pending", "other")]
    return counts | ({"skipped": sum(quiet)} if "skipped" in summary else {})


def _test(row: lenient_json.Table, is_ours: bool) -> TestResult:
    name, suite, file = lenient_json.text(row, "name"), _suite(row), lenient_json.text(row, "filePath")
    status = _status(row)
    red = status in RED
    return TestResult(
        id=name if is_ours or (file and name.startswith(file)) else " > ".join([*suite, name]),
        name=name,
        suite=suite,
        file=file,
        line=lenient_json.whole(row, "line"),
        status=status,
        duration_s=round(lenient_json.number(row, "duration") / 1000, 6),
        reason=_reason(row) if status in (TestStatus.SKIPPED, TestStatus.TODO, TestStatus.XFAILED) else "",
        attempts=lenient_json.whole(row, "retries") + 1,
        failure=_failure(row) if red else None,
        stdout="\n".join(lenient_json.texts(row, "stdout")) if red else "",
        stderr="\n".join(lenient_json.texts(row, "stderr")) if red else "",
    )


def _suite(row: lenient_json.Table) -> list[str]:
    """Return the suites: an array since version 1, before that one string with separators."""
    found = lenient_json.texts(row, "suite") or _WITHIN.split(lenient_json.text(row, "suite"))
    return [part for part in found if part]


def _status(row: lenient_json.Table) -> TestStatus:
    stated = _STATUS.get(lenient_json.text(row, "status"), TestStatus.SKIPPED)
    raw = _RAW.get(lenient_json.text(row, "rawStatus").lower(), stated)
    # A raw status may refine the result but never turns a failure into a pass.
    return raw if (raw in RED) == (stated in RED) else stated


def _reason(row: lenient_json.Table) -> str:
    unclear = lenient_json.text(row, "rawStatus") or "other"
    return lenient_json.text(row, "message") or (unclear if lenient_json.text(row, "status") not in _STATUS else "")


def _failure(row: lenient_json.Table) -> Failure:
    extra = lenient_json.table(row, "extra")
    return recover.failure(
        lenient_json.text(row, "trace"),
        message=lenient_json.text(row, "message") or lenient_json.text(row, "rawStatus") or "failed",
        type=lenient_json.text(extra, "type"),
        expected=lenient_json.text(extra, "expected") if isinstance(extra.get("expected"), str) else None,
        actual=lenient_json.text(extra, "actual") if isinstance(extra.get("actual"), str) else None,
    )
