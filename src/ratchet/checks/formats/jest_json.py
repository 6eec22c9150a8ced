"""Parses jest's `--json`, the same document from vitest, and the data of jest's reporters."""

from __future__ import annotations

from typing import BinaryIO

from ratchet.checks.formats import Parsed, compiler, distinct, lenient_json, recover
from ratchet.checks.formats.text import clip
from ratchet.core.report import Diagnostic, Failure, TestResult, TestStatus

_STATUS = {
    "passed": TestStatus.PASSED,
    "failed": TestStatus.FAILED,
    "pending": TestStatus.SKIPPED,
    "skipped": TestStatus.SKIPPED,
    "disabled": TestStatus.SKIPPED,
    "todo": TestStatus.TODO,
}
_REPORTED = {
    "numTotalTests": "tests",
    "numPassedTests": "passed",
    "numFailedTests": "failed",
    "numPendingTests": "skipped",
    "numTodoTests": "todo",
}


def parse(stream: BinaryIO) -> Parsed:
    """Return the tests of all files; a file that failed to load is a collection error, which jest does not count."""
    document, whole = lenient_json.document(stream, mark="testResults")
    files = lenient_json.tables(document, "testResults")
    return Parsed(
        tests=distinct([_test(file, row) for file in files for row in _rows(file)]),
        collection_errors=[_broken(file) for file in files if _failed_to_load(file)],
        reported=_reported(document),
        ended=whole,
        partial=bool(document) and not whole,
        notes=["jest was interrupted"] if document.get("wasInterrupted") is True else [],
    )


def _reported(document: lenient_json.Table) -> dict[str, int]:
    reported = {word: lenient_json.whole(document, key) for key, word in _REPORTED.items() if key in document}
    if {"tests", "passed", "failed"} <= reported.keys() and reported["tests"] == reported["passed"] + reported[
        "failed"
    ]:
        # vitest before 1.0 reported everything that had not failed as passed.
        return {word: reported[word] for word in ("tests", "failed")}
    return reported


def _rows(file: lenient_json.Table) -> list[lenient_json.Table]:
    return lenient_json.tables(file, "assertionResults") or lenient_json.tables(file, "testResults")


def _path(file: lenient_json.Table) -> str:
    return lenient_json.text(file, "name") or lenient_json.text(file, "testFilePath")


def _test(file: lenient_json.Table, row: lenient_json.Table) -> TestResult:
    status = _STATUS.get(lenient_json.text(row, "status"), TestStatus.ERROR)
    failure = _failure(row) if status in {TestStatus.FAILED, TestStatus.ERROR} else None
    path = _path(file)
    name = lenient_json.text(row, "title")
    return TestResult(
        id=f"{path}::{lenient_json.text(row, 'fullName') or name}",
        name=name,
        suite=[title for title in lenient_json.texts(row, "ancestorTitles") if title],
        file=path,
        line=lenient_json.whole(lenient_json.table(row, "location"), "line"),
        status=status,
        duration_s=round(lenient_json.number(row, "duration") / 1000, 6),
        attempts=max(1, lenient_json.whole(row, "invocations")),
        failure=failure,
    )


def _failure(row: lenient_json.Table) -> Failure:
    details = next(iter(lenient_json.tables(row, "failureDetails")), {})
    matcher = lenient_json.table(details, "matcherResult") or lenient_json.table(
        lenient_json.table(details, "error"), "matcherResult"
    )
    source = matcher or details
    body = "\n\n".join(lenient_json.texts(row, "failureMessages"))
    message, _, _ = body.partition("\n    at ")
    given = "expected" in source and "actual" in source
    return recover.failure(
        body,
        message=message.removeprefix("Error: ").strip(),
        type=_type(body),
        expected=lenient_json.shown(source["expected"]) if given else None,
        actual=lenient_json.shown(source["actual"]) if given else None,
        operator=lenient_json.text(matcher, "name") or lenient_json.text(details, "operator"),
    )


def _type(body: str) -> str:
    head = body.partition(":")[0]
    return head.partition(" ")[0] if head.partition(" ")[0].isidentifier() and "Error" in head else ""


def _failed_to_load(file: lenient_json.Table) -> bool:
    if "testFilePath" in file:
        return bool(_thrown(file)) or (not _rows(file) and bool(lenient_json.text(file, "failureMessage")))
    return file.get("status") == "failed" and not _rows(file) and "message" in file


def _thrown(file: lenient_json.Table) -> str:
    return lenient_json.text(file, "testExecError") or lenient_json.text(
        lenient_json.table(file, "testExecError"), "message"
    )


def _broken(file: lenient_json.Table) -> Diagnostic:
    message = lenient_json.text(file, "message") or lenient_json.text(file, "failureMessage") or _thrown(file)
    found = next(iter(compiler.diagnostics(message)), None)
    at = recover.failure(message)
    return Diagnostic(
        file=_path(file) or (found.file if found else ""),
        line=found.line if found else at.line if at.file == _path(file) else 0,
        column=found.column if found else 0,
        type=found.type if found else at.type,
        message=clip(found.message if found and found.type else message.strip(), 4000),
        tool="jest",
    )
