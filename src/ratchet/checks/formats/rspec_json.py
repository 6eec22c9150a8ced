"""Parses RSpec's json formatter. After a load error it runs nothing and gives the reason only as text."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, compiler, lenient_json, recover
from ratchet.checks.formats.recover import locations
from ratchet.checks.formats.text import clip
from ratchet.core.report import Diagnostic, Failure, TestResult, TestStatus

_LOADING = re.compile(r"An error occurred while loading (\S+?)\.?\s*$", re.M)


def parse(stream: BinaryIO) -> Parsed:
    document, whole = lenient_json.document(stream, mark="examples")
    summary = lenient_json.table(document, "summary")
    return Parsed(
        tests=[_test(row) for row in lenient_json.tables(document, "examples")],
        collection_errors=_outside(document, summary),
        reported=_reported(summary),
        ended=whole and bool(summary),
        partial=bool(document) and not whole,
    )


def _outside(document: lenient_json.Table, summary: lenient_json.Table) -> list[Diagnostic]:
    """Return errors outside of examples; some versions only count them."""
    texts = lenient_json.texts(document, "messages")
    found = [error for text in texts for error in _broken(text)]
    count = lenient_json.whole(summary, "errors_outside_of_examples_count")
    if found or not count:
        return found
    message = "\n".join(texts).strip() or f"{count} errors occurred outside of examples"
    return [Diagnostic(message=clip(message, 4000), tool="rspec")]


def _reported(summary: lenient_json.Table) -> dict[str, int]:
    words = {"example_count": "tests", "failure_count": "failed", "pending_count": "skipped"}
    return {word: lenient_json.whole(summary, key) for key, word in words.items() if key in summary}


def _test(row: lenient_json.Table) -> TestResult:
    exception = lenient_json.table(row, "exception")
    status = _status(lenient_json.text(row, "status"), lenient_json.text(row, "pending_message"))
    failure = _failure(exception) if status is TestStatus.FAILED else None
    file, name = lenient_json.text(row, "file_path").removeprefix("./"), lenient_json.text(row, "description")
    above = lenient_json.text(row, "full_description").removesuffix(name).strip()
    return TestResult(
        id=lenient_json.text(row, "id") or f"{file}:{lenient_json.whole(row, 'line_number')}",
        name=name,
        suite=[above] if above else [],
        file=file,
        line=lenient_json.whole(row, "line_number"),
        status=status,
        duration_s=lenient_json.number(row, "run_time"),
        reason=lenient_json.text(row, "pending_message"),
        failure=failure,
    )


def _status(word: str, why: str) -> TestStatus:
    if word == "pending":
        return TestStatus.TODO if why == "Not yet implemented" else TestStatus.SKIPPED
    return TestStatus.PASSED if word == "passed" else TestStatus.FAILED


def _failure(exception: lenient_json.Table) -> Failure:
    return recover.failure(
        "\n".join(lenient_json.texts(exception, "backtrace")),
        message=lenient_json.text(exception, "message").strip("\n"),
        type=lenient_json.text(exception, "class"),
    )


def _broken(text: str) -> list[Diagnostic]:
    found = _LOADING.search(text)
    if not found:
        return []
    place = next(iter(compiler.diagnostics(text)), None) or locations.location(text)
    return [
        Diagnostic(
            file=place.file if place else found.group(1).removeprefix("./"),
            line=place.line if place else 0,
            type=next((kind for row in text.splitlines()[1:] if (kind := recover.error_type(row))), ""),
            message=clip(text.partition("\n# ")[0].strip(), 4000),
            tool="rspec",
        )
    ]
