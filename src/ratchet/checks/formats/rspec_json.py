"""RSpec's json formatter. After a load error it runs nothing, and says why only in prose."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, compiler, loose, recover
from ratchet.checks.formats.recover import places
from ratchet.checks.formats.text import clip
from ratchet.core.report import Diagnostic, Failure, TestResult, TestStatus

_LOADING = re.compile(r"An error occurred while loading (\S+?)\.?\s*$", re.M)


def parse(stream: BinaryIO) -> Parsed:
    document, whole = loose.document(stream, mark="examples")
    summary = loose.table(document, "summary")
    return Parsed(
        tests=[_test(row) for row in loose.tables(document, "examples")],
        collection_errors=_outside(document, summary),
        reported=_reported(summary),
        ended=whole and bool(summary),
        partial=bool(document) and not whole,
    )


def _outside(document: loose.Table, summary: loose.Table) -> list[Diagnostic]:
    """What went wrong beside the examples; some versions only count it."""
    texts = loose.texts(document, "messages")
    found = [error for text in texts for error in _broken(text)]
    count = loose.whole(summary, "errors_outside_of_examples_count")
    if found or not count:
        return found
    message = "\n".join(texts).strip() or f"{count} errors occurred outside of examples"
    return [Diagnostic(message=clip(message, 4000), tool="rspec")]


def _reported(summary: loose.Table) -> dict[str, int]:
    words = {"example_count": "tests", "failure_count": "failed", "pending_count": "skipped"}
    return {word: loose.whole(summary, key) for key, word in words.items() if key in summary}


def _test(row: loose.Table) -> TestResult:
    exception = loose.table(row, "exception")
    status = _status(loose.text(row, "status"), loose.text(row, "pending_message"))
    failure = _failure(exception) if status is TestStatus.FAILED else None
    file, name = loose.text(row, "file_path").removeprefix("./"), loose.text(row, "description")
    above = loose.text(row, "full_description").removesuffix(name).strip()
    return TestResult(
        id=loose.text(row, "id") or f"{file}:{loose.whole(row, 'line_number')}",
        name=name,
        suite=[above] if above else [],
        file=file,
        line=loose.whole(row, "line_number"),
        status=status,
        duration_s=loose.number(row, "run_time"),
        reason=loose.text(row, "pending_message"),
        failure=failure,
    )


def _status(word: str, why: str) -> TestStatus:
    if word == "pending":
        return TestStatus.TODO if why == "Not yet implemented" else TestStatus.SKIPPED
    return TestStatus.PASSED if word == "passed" else TestStatus.FAILED


def _failure(exception: loose.Table) -> Failure:
    return recover.failure(
        "\n".join(loose.texts(exception, "backtrace")),
        message=loose.text(exception, "message").strip("\n"),
        type=loose.text(exception, "class"),
    )


def _broken(text: str) -> list[Diagnostic]:
    found = _LOADING.search(text)
    if not found:
        return []
    place = next(iter(compiler.diagnostics(text)), None) or places.location(text)
    return [
        Diagnostic(
            file=place.file if place else found.group(1).removeprefix("./"),
            line=place.line if place else 0,
            type=next((kind for row in text.splitlines()[1:] if (kind := recover.error_type(row))), ""),
            message=clip(text.partition("\n# ")[0].strip(), 4000),
            tool="rspec",
        )
    ]
