"""What Buildkite's test collectors write and its Test Engine takes, from any runner: an array of results."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, distinct, loose, recover
from ratchet.core.report import RED, Failure, TestResult, TestStatus

_STATUS = {
    "passed": TestStatus.PASSED,
    "failed": TestStatus.FAILED,
    "skipped": TestStatus.SKIPPED,
    "pending": TestStatus.SKIPPED,
}
_PLACE = re.compile(r"^(?:\./)?(?P<file>.+?)(?::(?P<line>\d{1,9}))?$")
_TOLD = re.compile(r"(?m)^E {3,}(.*)$")


def parse(stream: BinaryIO) -> Parsed:
    """Each test by its scope and its name. It has no counts."""
    rows, whole = loose.rows(stream, mark="history")
    rows = [row for row in rows if "name" in row and ("result" in row or "scope" in row)]
    tests = distinct([_test(row) for row in rows])
    return Parsed(tests=tests, ended=whole and bool(rows), partial=bool(rows) and not whole)


def _test(row: loose.Table) -> TestResult:
    scope, name, own = loose.text(row, "scope"), loose.text(row, "name"), loose.text(row, "file_name")
    found = _PLACE.match(loose.text(row, "location") or own)
    file, line = (found["file"], int(found["line"] or 0)) if found else ("", 0)
    status = _STATUS.get(loose.text(row, "result"), TestStatus.ERROR)
    # pytest's collector has file and classes as the scope, and counts lines from 0.
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
        duration_s=loose.number(loose.table(row, "history"), "duration"),
        failure=_failure(row) if status in RED else None,
    )


def _failure(row: loose.Table) -> Failure:
    reason, more = loose.text(row, "failure_reason"), loose.tables(row, "failure_expanded")
    told = "\n".join(_TOLD.findall(reason)) or reason.strip()
    body = [reason, *(line for part in more for key in ("expanded", "backtrace") for line in loose.texts(part, key))]
    return recover.failure("\n".join(body), message=told or f"its result is {loose.text(row, 'result') or 'not told'}")
