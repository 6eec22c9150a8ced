"""Parses the JSON report of Ginkgo (Go)."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, distinct, lenient_json, recover
from ratchet.core.report import Diagnostic, Failure, TestResult, TestStatus

SIGN = re.compile(rb'"SpecReports"')

_STATUSES = {
    "passed": TestStatus.PASSED,
    "failed": TestStatus.FAILED,
    "skipped": TestStatus.SKIPPED,
    "pending": TestStatus.SKIPPED,
}


def parse(stream: BinaryIO) -> Parsed:
    suites, whole = lenient_json.rows(stream, mark="SpecReports")
    suites = [suite for suite in suites if "SuitePath" in suite]
    nodes = [(suite, row) for suite in suites for row in lenient_json.tables(suite, "SpecReports")]
    reasons = [(suite, why) for suite in suites for why in lenient_json.texts(suite, "SpecialSuiteFailureReasons")]
    around = [
        Diagnostic(file=lenient_json.text(suite, "SuitePath"), message=why, tool="ginkgo")
        for suite, why in reasons
        # For a suite with failed specs the reason only repeats that they failed.
        if lenient_json.text(suite, "SuitePath") and not _has_failed(suite)
    ]
    tests = [_spec(suite, row) for suite, row in nodes if row.get("LeafNodeType") == "It"]
    hooks = [_spec(suite, row) for suite, row in nodes if row.get("LeafNodeType") != "It" and "Failure" in row]
    return Parsed(
        tests=distinct([*tests, *hooks]), collection_errors=around, ended=whole and bool(suites), partial=not whole
    )


def _has_failed(suite: lenient_json.Table) -> bool:
    return any("Failure" in row and row.get("State") != "skipped" for row in lenient_json.tables(suite, "SpecReports"))


def _spec(suite: lenient_json.Table, row: lenient_json.Table) -> TestResult:
    above = [text for text in lenient_json.texts(row, "ContainerHierarchyTexts") if text]
    name = lenient_json.text(row, "LeafNodeText") or f"[{lenient_json.text(row, 'LeafNodeType')}]"
    status = _STATUSES.get(lenient_json.text(row, "State"), TestStatus.ERROR)
    failure, place = lenient_json.table(row, "Failure"), lenient_json.table(row, "LeafNodeLocation")
    return TestResult(
        id=" ".join([lenient_json.text(suite, "SuiteDescription"), *above, name]).strip(),
        name=name,
        suite=[lenient_json.text(suite, "SuiteDescription"), *above],
        status=status,
        file=lenient_json.text(place, "FileName"),
        line=lenient_json.whole(place, "LineNumber"),
        duration_s=round(lenient_json.whole(row, "RunTime") / 1e9, 6),
        reason=lenient_json.text(failure, "Message") if status is TestStatus.SKIPPED else "",
        failure=_failure(failure) if status in (TestStatus.FAILED, TestStatus.ERROR) else None,
        attempts=max(1, lenient_json.whole(row, "NumAttempts")),
    )


def _failure(failure: lenient_json.Table) -> Failure:
    at, panic = lenient_json.table(failure, "Location"), lenient_json.text(failure, "ForwardedPanic")
    return recover.failure(
        lenient_json.text(at, "FullStackTrace"),
        message="\n".join(part for part in (lenient_json.text(failure, "Message"), panic) if part),
        type="panic" if panic else "",
        file=lenient_json.text(at, "FileName"),
        line=lenient_json.whole(at, "LineNumber"),
    )
