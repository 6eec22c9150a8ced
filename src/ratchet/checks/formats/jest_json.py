"""jest's `--json`, the same document from vitest's json reporter, and what jest tells its own reporters."""

from __future__ import annotations

from typing import BinaryIO

from ratchet.checks.formats import Parsed, compiler, distinct, loose, recover
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
    """Every test of every file; a file that could not be loaded is a collection error, which jest does not count."""
    document, whole = loose.document(stream, mark="testResults")
    files = loose.tables(document, "testResults")
    return Parsed(
        tests=distinct([_test(file, row) for file in files for row in _rows(file)]),
        collection_errors=[_broken(file) for file in files if _failed_to_load(file)],
        reported=_reported(document),
        ended=whole,
        partial=bool(document) and not whole,
        notes=["jest was interrupted"] if document.get("wasInterrupted") is True else [],
    )


def _reported(document: loose.Table) -> dict[str, int]:
    reported = {word: loose.whole(document, key) for key, word in _REPORTED.items() if key in document}
    if {"tests", "passed", "failed"} <= reported.keys() and reported["tests"] == reported["passed"] + reported[
        "failed"
    ]:
        # vitest before 1.0 took for passed whatever had not failed.
        return {word: reported[word] for word in ("tests", "failed")}
    return reported


def _rows(file: loose.Table) -> list[loose.Table]:
    return loose.tables(file, "assertionResults") or loose.tables(file, "testResults")


def _path(file: loose.Table) -> str:
    return loose.text(file, "name") or loose.text(file, "testFilePath")


def _test(file: loose.Table, row: loose.Table) -> TestResult:
    status = _STATUS.get(loose.text(row, "status"), TestStatus.ERROR)
    failure = _failure(row) if status in {TestStatus.FAILED, TestStatus.ERROR} else None
    path = _path(file)
    name = loose.text(row, "title")
    return TestResult(
        id=f"{path}::{loose.text(row, 'fullName') or name}",
        name=name,
        suite=[title for title in loose.texts(row, "ancestorTitles") if title],
        file=path,
        line=loose.whole(loose.table(row, "location"), "line"),
        status=status,
        duration_s=round(loose.number(row, "duration") / 1000, 6),
        attempts=max(1, loose.whole(row, "invocations")),
        failure=failure,
    )


def _failure(row: loose.Table) -> Failure:
    details = next(iter(loose.tables(row, "failureDetails")), {})
    matcher = loose.table(details, "matcherResult") or loose.table(loose.table(details, "error"), "matcherResult")
    source = matcher or details
    body = "\n\n".join(loose.texts(row, "failureMessages"))
    message, _, _ = body.partition("\n    at ")
    given = "expected" in source and "actual" in source
    return recover.failure(
        body,
        message=message.removeprefix("Error: ").strip(),
        type=_type(body),
        expected=loose.shown(source["expected"]) if given else None,
        actual=loose.shown(source["actual"]) if given else None,
        operator=loose.text(matcher, "name") or loose.text(details, "operator"),
    )


def _type(body: str) -> str:
    head = body.partition(":")[0]
    return head.partition(" ")[0] if head.partition(" ")[0].isidentifier() and "Error" in head else ""


def _failed_to_load(file: loose.Table) -> bool:
    if "testFilePath" in file:
        return bool(_thrown(file)) or (not _rows(file) and bool(loose.text(file, "failureMessage")))
    return file.get("status") == "failed" and not _rows(file) and "message" in file


def _thrown(file: loose.Table) -> str:
    return loose.text(file, "testExecError") or loose.text(loose.table(file, "testExecError"), "message")


def _broken(file: loose.Table) -> Diagnostic:
    message = loose.text(file, "message") or loose.text(file, "failureMessage") or _thrown(file)
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
