"""The Common Test Report Format: ours, as `ratchet test --ctrf` writes it, and everybody else's."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, distinct, loose, recover
from ratchet.core.report import RED, Failure, TestResult, TestStatus

_STATUS = {
    "passed": TestStatus.PASSED,
    "failed": TestStatus.FAILED,
    "skipped": TestStatus.SKIPPED,
    "pending": TestStatus.TODO,
}
# What the writer called it itself, where that says more.
_RAW = {
    "xfailed": TestStatus.XFAILED,
    "xpassed": TestStatus.XPASSED,
    "todo": TestStatus.TODO,
    "error": TestStatus.ERROR,
    "broken": TestStatus.ERROR,
}
_WITHIN = re.compile(r"\s+[>\u203a]\s+")


def parse(stream: BinaryIO) -> Parsed:
    """Names are ids only in ours: those of others are told apart by their suites."""
    document, whole = loose.document(stream, mark="results")
    results = loose.table(document, "results")
    is_ours = "notes" in loose.table(results, "extra")
    return Parsed(
        tests=distinct([_test(row, is_ours) for row in loose.tables(results, "tests")]),
        reported=_reported(loose.table(results, "summary")),
        ended=whole and "summary" in results,
        partial=bool(results) and not whole,
    )


def _reported(summary: loose.Table) -> dict[str, int]:
    """What is neither passed nor failed is counted under three names there."""
    counts = {name: loose.whole(summary, name) for name in ("tests", "passed", "failed") if name in summary}
    quiet = [loose.whole(summary, name) for name in ("skipped", "pending", "other")]
    return counts | ({"skipped": sum(quiet)} if "skipped" in summary else {})


def _test(row: loose.Table, is_ours: bool) -> TestResult:
    name, suite, file = loose.text(row, "name"), _suite(row), loose.text(row, "filePath")
    status = _status(row)
    red = status in RED
    return TestResult(
        id=name if is_ours or (file and name.startswith(file)) else " > ".join([*suite, name]),
        name=name,
        suite=suite,
        file=file,
        line=loose.whole(row, "line"),
        status=status,
        duration_s=round(loose.number(row, "duration") / 1000, 6),
        reason=_reason(row) if status in (TestStatus.SKIPPED, TestStatus.TODO, TestStatus.XFAILED) else "",
        attempts=loose.whole(row, "retries") + 1,
        failure=_failure(row) if red else None,
        stdout="\n".join(loose.texts(row, "stdout")) if red else "",
        stderr="\n".join(loose.texts(row, "stderr")) if red else "",
    )


def _suite(row: loose.Table) -> list[str]:
    """An array since version 1, one string with signs between the names before."""
    found = loose.texts(row, "suite") or _WITHIN.split(loose.text(row, "suite"))
    return [part for part in found if part]


def _status(row: loose.Table) -> TestStatus:
    said = _STATUS.get(loose.text(row, "status"), TestStatus.SKIPPED)
    raw = _RAW.get(loose.text(row, "rawStatus").lower(), said)
    # A raw word makes it plainer, but never makes green what is red.
    return raw if (raw in RED) == (said in RED) else said


def _reason(row: loose.Table) -> str:
    unclear = loose.text(row, "rawStatus") or "other"
    return loose.text(row, "message") or (unclear if loose.text(row, "status") not in _STATUS else "")


def _failure(row: loose.Table) -> Failure:
    extra = loose.table(row, "extra")
    return recover.failure(
        loose.text(row, "trace"),
        message=loose.text(row, "message") or loose.text(row, "rawStatus") or "failed",
        type=loose.text(extra, "type"),
        expected=loose.text(extra, "expected") if isinstance(extra.get("expected"), str) else None,
        actual=loose.text(extra, "actual") if isinstance(extra.get("actual"), str) else None,
    )
