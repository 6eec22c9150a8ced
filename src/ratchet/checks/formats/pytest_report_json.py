"""Parses the document written by pytest-json-report."""

from __future__ import annotations

import re
from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, distinct, lenient_json, recover
from ratchet.checks.formats.text import clip, first_line
from ratchet.core.report import Diagnostic, Failure, TestResult, TestStatus

SIGN = re.compile(rb'"exitcode"')

STATUSES = {
    "passed": TestStatus.PASSED,
    "failed": TestStatus.FAILED,
    "error": TestStatus.ERROR,
    "skipped": TestStatus.SKIPPED,
    "xfailed": TestStatus.XFAILED,
    "xpassed": TestStatus.XPASSED,
}


def parse(stream: BinaryIO) -> Parsed:
    document, whole = lenient_json.document(stream, mark="exitcode")
    rows = [row for row in lenient_json.tables(document, "tests") if "nodeid" in row]
    broken = [
        Diagnostic(
            file=lenient_json.text(row, "nodeid"), message=clip(lenient_json.text(row, "longrepr"), 4000), tool="pytest"
        )
        for row in lenient_json.tables(document, "collectors")
        if row.get("outcome") == "failed"
    ]
    return Parsed(
        tests=distinct([_test(row) for row in rows]),
        collection_errors=broken,
        ended=whole and "summary" in document and "created" in document,
        partial=bool(document) and not whole,
    )


def _test(row: lenient_json.Table) -> TestResult:
    steps = {phase: lenient_json.table(row, phase) for phase in ("setup", "call", "teardown") if row.get(phase)}
    phase = next((phase for phase, step in steps.items() if step.get("outcome") == "failed"), "call")
    step, status = steps.get(phase, {}), STATUSES.get(lenient_json.text(row, "outcome"), TestStatus.ERROR)
    crash = lenient_json.table(step, "crash")
    test = result_of_node(lenient_json.text(row, "nodeid"), status, lenient_json.whole(row, "lineno"), phase)
    if status not in (TestStatus.FAILED, TestStatus.ERROR):
        return test
    failure = failure_of_crash(lenient_json.text(step, "longrepr"), crash)
    return msgspec.structs.replace(test, failure=failure, duration_s=lenient_json.number(step, "duration"))


def result_of_node(node: str, status: TestStatus, line: int, phase: str = "call") -> TestResult:
    """Build a result from a node id and a zero-based line number."""
    file, _, inside = node.partition("::")
    *classes, name = inside.split("::") if inside else [node]
    return TestResult(id=node, name=name, suite=[file, *classes], status=status, file=file, line=line + 1, phase=phase)


def failure_of_crash(text: str, crash: lenient_json.Table) -> Failure:
    """Build a failure from the printed traceback and pytest's `crash` entry."""
    return recover.failure(
        text,
        message=lenient_json.text(crash, "message") or first_line(text),
        file=lenient_json.text(crash, "path"),
        line=lenient_json.whole(crash, "lineno"),
    )
