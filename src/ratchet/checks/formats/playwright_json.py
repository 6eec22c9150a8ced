"""Parses Playwright's json reporter: suites of specs, each run in every project and retried separately."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from ratchet.checks.formats import Parsed, distinct, lenient_json, recover
from ratchet.checks.formats.text import clip, strip_control_characters
from ratchet.core.report import Diagnostic, Failure, TestResult, TestStatus

_DEPTH = 50


def parse(stream: BinaryIO) -> Parsed:
    """Return one result for each test and project. A test that passed on a retry passed, with its number of
    attempts."""
    document, whole = lenient_json.document(stream, mark="suites")
    stats = lenient_json.table(document, "stats")
    tests = [_test(path, spec, test) for path, spec, test in _walk(document, [], 0)]
    return Parsed(
        tests=distinct(tests),
        collection_errors=[_broken(error) for error in lenient_json.tables(document, "errors")],
        reported=_reported(stats),
        # Versions before 1.40 have no statistics; a complete document means the run ended.
        ended=whole and ("stats" in document or "config" in document),
        partial=bool(document) and not whole,
    )


def _reported(stats: lenient_json.Table) -> dict[str, int]:
    """Convert the totals: Playwright counts expected failures as expected and has no total."""
    if not stats:
        return {}
    counts = {key: lenient_json.whole(stats, key) for key in ("expected", "flaky", "unexpected", "skipped")}
    return {"tests": sum(counts.values()), "failed": counts["unexpected"], "skipped": counts["skipped"]}


def _walk(
    node: lenient_json.Table, path: list[str], depth: int
) -> Iterator[tuple[list[str], lenient_json.Table, lenient_json.Table]]:
    for suite in lenient_json.tables(node, "suites") if depth < _DEPTH else []:
        title = lenient_json.text(suite, "title")
        below = path if title == lenient_json.text(suite, "file") or not title else [*path, title]
        for spec in lenient_json.tables(suite, "specs"):
            for test in lenient_json.tables(spec, "tests"):
                yield below, spec, test
        yield from _walk(suite, below, depth + 1)


def _test(path: list[str], spec: lenient_json.Table, test: lenient_json.Table) -> TestResult:
    results = lenient_json.tables(test, "results")
    last = results[-1] if results else {}
    status = _status(test, last)
    file, project = lenient_json.text(spec, "file"), lenient_json.text(test, "projectName")
    title = " > ".join([*path, lenient_json.text(spec, "title")])
    return TestResult(
        id=f"[{project}] {file}::{title}" if project else f"{file}::{title}",
        name=lenient_json.text(spec, "title"),
        suite=[*([project] if project else []), *path],
        file=file,
        line=lenient_json.whole(spec, "line"),
        status=status,
        duration_s=round(sum(lenient_json.number(result, "duration") for result in results) / 1000, 6),
        reason=_reason(test) if status in {TestStatus.SKIPPED, TestStatus.XFAILED} else "",
        attempts=max(1, len(results)),
        failure=_failure(last, test) if status is TestStatus.FAILED else None,
        stdout=_output(last, "stdout") if status is TestStatus.FAILED else "",
        stderr=_output(last, "stderr") if status is TestStatus.FAILED else "",
    )


def _status(test: lenient_json.Table, last: lenient_json.Table) -> TestStatus:
    overall, wanted = test.get("status"), test.get("expectedStatus")
    if overall == "skipped" or last.get("status") == "skipped":
        return TestStatus.SKIPPED
    if overall == "expected":
        return TestStatus.XFAILED if wanted == "failed" else TestStatus.PASSED
    return TestStatus.PASSED if overall == "flaky" else TestStatus.FAILED


def _reason(test: lenient_json.Table) -> str:
    notes = lenient_json.tables(test, "annotations")
    return next((found for note in notes if (found := lenient_json.text(note, "description"))), "")


def _failure(last: lenient_json.Table, test: lenient_json.Table) -> Failure:
    error = lenient_json.table(last, "error") or next(iter(lenient_json.tables(last, "errors")), {})
    if not error and test.get("expectedStatus") == "failed":
        return Failure(message="expected to fail, but passed")
    at = lenient_json.table(error, "location")
    # Any value may be thrown, not only an error.
    message = lenient_json.text(error, "message") or lenient_json.text(error, "value") or str(last.get("status", ""))
    return recover.failure(
        lenient_json.text(error, "stack"),
        message=message.removeprefix("Error: "),
        file=lenient_json.text(at, "file"),
        line=lenient_json.whole(at, "line"),
    )


def _output(result: lenient_json.Table, key: str) -> str:
    return clip(
        strip_control_characters(
            "".join(lenient_json.text(piece, "text") for piece in lenient_json.tables(result, key))
        ),
        8 << 10,
    )


def _broken(error: lenient_json.Table) -> Diagnostic:
    at = lenient_json.table(error, "location")
    message = lenient_json.text(error, "message")
    found = recover.failure(lenient_json.text(error, "stack"), message=message)
    return Diagnostic(
        file=lenient_json.text(at, "file") or found.file,
        line=lenient_json.whole(at, "line") or found.line,
        column=lenient_json.whole(at, "column"),
        type=found.type,
        message=message,
        tool="playwright",
    )
