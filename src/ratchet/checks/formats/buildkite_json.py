"""Parses the JSON of Buildkite's test collectors: an array of results from any runner."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, distinct, lenient_json, recover
from ratchet.core.report import RED, Failure, TestResult, TestStatus

_STATUS = {
    "passed": TestStatus.PASSED,
    "failed": TestStatus.FAILED,
    "skipped": TestStatus.SKIPPED,
    "pending": TestStatus.SKIPPED,
}
_PLACE = re.compile(r"^(?:\./)?(?P<file>.+?)(?::(?P<line>\d{1,9}))?$")
_ERROR_LINE = re.compile(r"(?m)^E {3,}(.*)$")


def parse(stream: BinaryIO) -> Parsed:
    """Identify each test by scope and name. There are no totals."""
    rows, whole = lenient_json.rows(stream, mark="history")
    rows = [row for row in rows if "name" in row and ("result" in row or "scope" in row)]
    tests = distinct([_test(row) for row in rows])
    return Parsed(tests=tests, ended=whole and bool(rows), partial=bool(rows) and not whole)


def _test(row: lenient_json.Table) -> TestResult:
    scope, name, own = (
        lenient_json.text(row, "scope"),
        lenient_json.text(row, "name"),
        lenient_json.text(row, "file_name"),
    )
    found = _PLACE.match(lenient_json.text(row, "location") or own)
    file, line = (found["file"], int(found["line"] or 0)) if found else ("", 0)
    status = _STATUS.get(lenient_json.text(row, "result"), TestStatus.ERROR)
    # pytest's collector uses file and classes as the scope and counts lines from 0.
    is_pytest = own.endswith(".py") and f"{scope}::".startswith(f"{own}::")
    above = scope.split("::")[1:] if is_pytest else [scope] if scope and scope != own else []
    inside = ("::" if is_pytest else " ").join([*above, name])
    return TestResult(
        id=f"{file}::{inside}" if file else inside,
        name=name,
        suite=above,
        status=status,
        file=file,
        line=line + is_pytest,
        duration_s=lenient_json.number(lenient_json.table(row, "history"), "duration"),
        failure=_failure(row) if status in RED else None,
    )


def _failure(row: lenient_json.Table) -> Failure:
    reason, more = lenient_json.text(row, "failure_reason"), lenient_json.tables(row, "failure_expanded")
    message = "\n".join(_ERROR_LINE.findall(reason)) or reason.strip()
    body = [
        reason,
        *(line for part in more for key in ("expanded", "backtrace") for line in lenient_json.texts(part, key)),
    ]
    return recover.failure(
        "\n".join(body), message=message or f"its result is {lenient_json.text(row, 'result') or 'unknown'}"
    )
