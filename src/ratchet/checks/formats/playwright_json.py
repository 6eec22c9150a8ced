"""Playwright's json reporter: suites of specs, each run once in every project and retried on its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from ratchet.checks.formats import Parsed, distinct, loose, recover
from ratchet.checks.formats.text import clip, plain
from ratchet.core.report import Diagnostic, Failure, TestResult, TestStatus

_DEPTH = 50


def parse(stream: BinaryIO) -> Parsed:
    """One record for each test in each project. A test that passed on a retry passed, in so many attempts."""
    document, whole = loose.document(stream, mark="suites")
    stats = loose.table(document, "stats")
    tests = [_test(path, spec, test) for path, spec, test in _walk(document, [], 0)]
    return Parsed(
        tests=distinct(tests),
        collection_errors=[_broken(error) for error in loose.tables(document, "errors")],
        reported=_reported(stats),
        # Versions before 1.40 have no statistics; whoever writes a whole document has come to its end.
        ended=whole and ("stats" in document or "config" in document),
        partial=bool(document) and not whole,
    )


def _reported(stats: loose.Table) -> dict[str, int]:
    """Playwright counts as expected what fails as it should, and has no word for all tests."""
    if not stats:
        return {}
    counts = {key: loose.whole(stats, key) for key in ("expected", "flaky", "unexpected", "skipped")}
    return {"tests": sum(counts.values()), "failed": counts["unexpected"], "skipped": counts["skipped"]}


def _walk(node: loose.Table, path: list[str], depth: int) -> Iterator[tuple[list[str], loose.Table, loose.Table]]:
    for suite in loose.tables(node, "suites") if depth < _DEPTH else []:
        title = loose.text(suite, "title")
        below = path if title == loose.text(suite, "file") or not title else [*path, title]
        for spec in loose.tables(suite, "specs"):
            for test in loose.tables(spec, "tests"):
                yield below, spec, test
        yield from _walk(suite, below, depth + 1)


def _test(path: list[str], spec: loose.Table, test: loose.Table) -> TestResult:
    results = loose.tables(test, "results")
    last = results[-1] if results else {}
    status = _status(test, last)
    file, project = loose.text(spec, "file"), loose.text(test, "projectName")
    title = " > ".join([*path, loose.text(spec, "title")])
    return TestResult(
        id=f"[{project}] {file}::{title}" if project else f"{file}::{title}",
        name=loose.text(spec, "title"),
        suite=[*([project] if project else []), *path],
        file=file,
        line=loose.whole(spec, "line"),
        status=status,
        duration_s=round(sum(loose.number(result, "duration") for result in results) / 1000, 6),
        reason=_reason(test) if status in {TestStatus.SKIPPED, TestStatus.XFAILED} else "",
        attempts=max(1, len(results)),
        failure=_failure(last, test) if status is TestStatus.FAILED else None,
        stdout=_output(last, "stdout") if status is TestStatus.FAILED else "",
        stderr=_output(last, "stderr") if status is TestStatus.FAILED else "",
    )


def _status(test: loose.Table, last: loose.Table) -> TestStatus:
    overall, wanted = test.get("status"), test.get("expectedStatus")
    if overall == "skipped" or last.get("status") == "skipped":
        return TestStatus.SKIPPED
    if overall == "expected":
        return TestStatus.XFAILED if wanted == "failed" else TestStatus.PASSED
    return TestStatus.PASSED if overall == "flaky" else TestStatus.FAILED


def _reason(test: loose.Table) -> str:
    notes = loose.tables(test, "annotations")
    return next((found for note in notes if (found := loose.text(note, "description"))), "")


def _failure(last: loose.Table, test: loose.Table) -> Failure:
    error = loose.table(last, "error") or next(iter(loose.tables(last, "errors")), {})
    if not error and test.get("expectedStatus") == "failed":
        return Failure(message="expected to fail, but passed")
    at = loose.table(error, "location")
    # What was thrown may be no error, but any value.
    message = loose.text(error, "message") or loose.text(error, "value") or str(last.get("status", ""))
    return recover.failure(
        loose.text(error, "stack"),
        message=message.removeprefix("Error: "),
        file=loose.text(at, "file"),
        line=loose.whole(at, "line"),
    )


def _output(result: loose.Table, key: str) -> str:
    return clip(plain("".join(loose.text(piece, "text") for piece in loose.tables(result, key))), 8 << 10)


def _broken(error: loose.Table) -> Diagnostic:
    at = loose.table(error, "location")
    message = loose.text(error, "message")
    found = recover.failure(loose.text(error, "stack"), message=message)
    return Diagnostic(
        file=loose.text(at, "file") or found.file,
        line=loose.whole(at, "line") or found.line,
        column=loose.whole(at, "column"),
        type=found.type,
        message=message,
        tool="playwright",
    )
