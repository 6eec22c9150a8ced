"""Parses the JSON lines written by pytest-reportlog."""

from __future__ import annotations

import re
from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, distinct, lenient_json
from ratchet.checks.formats.pytest_report_json import STATUSES, failure_of_crash, result_of_node
from ratchet.checks.formats.text import clip, lines
from ratchet.core.report import Diagnostic, TestResult, TestStatus

SIGN = re.compile(rb'"\$report_type"')


def parse(stream: BinaryIO) -> Parsed:
    """Merge the three reports of a test (setup, call, teardown): the worst one decides."""
    tests: dict[str, TestResult] = {}
    broken: list[Diagnostic] = []
    ended = False
    for line in lines(stream):
        row = lenient_json.row(line)
        kind = row.get("$report_type")
        ended = ended or kind == "SessionFinish"
        if kind == "TestReport":
            _phase(row, tests)
        elif kind == "CollectReport" and row.get("outcome") == "failed":
            text = lenient_json.text(row, "longrepr")
            broken.append(Diagnostic(file=lenient_json.text(row, "nodeid"), message=clip(text, 4000), tool="pytest"))
    return Parsed(tests=distinct(list(tests.values())), collection_errors=broken, ended=ended, partial=not ended)


def _phase(row: lenient_json.Table, tests: dict[str, TestResult]) -> None:
    node, phase, outcome = (
        lenient_json.text(row, "nodeid"),
        lenient_json.text(row, "when"),
        lenient_json.text(row, "outcome"),
    )
    known = tests.get(node)
    status = _phase_status(outcome, phase, expected="wasxfail" in row)
    if known and status in (TestStatus.PASSED, known.status):
        return
    place = row.get("location")
    line = place[1] if isinstance(place, list) and len(place) > 1 and isinstance(place[1], int) else 0
    test = result_of_node(node, status, line, phase if outcome == "failed" else "call")
    if status in (TestStatus.FAILED, TestStatus.ERROR):
        longrepr = lenient_json.table(row, "longrepr")
        failure = failure_of_crash(_rendered(row, longrepr), lenient_json.table(longrepr, "reprcrash"))
        test = msgspec.structs.replace(test, failure=failure)
    tests[node] = test


def _phase_status(outcome: str, phase: str, *, expected: bool) -> TestStatus:
    if expected:
        return TestStatus.XFAILED if outcome == "skipped" else TestStatus.XPASSED
    status = STATUSES.get(outcome, TestStatus.ERROR)
    return TestStatus.ERROR if status is TestStatus.FAILED and phase != "call" else status


def _rendered(row: lenient_json.Table, longrepr: lenient_json.Table) -> str:
    """Render the traceback as pytest prints it: the lines of each entry, then its location."""
    rows: list[str] = []
    for entry in lenient_json.tables(lenient_json.table(longrepr, "reprtraceback"), "reprentries"):
        data = lenient_json.table(entry, "data")
        place = lenient_json.table(data, "reprfileloc")
        rows += lenient_json.texts(data, "lines")
        where = f"{lenient_json.text(place, 'path')}:{lenient_json.whole(place, 'lineno')}"
        rows.append(f"{where}: {lenient_json.text(place, 'message')}")
    return "\n".join(rows) or lenient_json.text(row, "longrepr")
