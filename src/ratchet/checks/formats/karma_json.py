"""Parses the JSON report of Karma (JavaScript in browsers)."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, distinct, lenient_json, recover
from ratchet.core.report import Diagnostic, TestResult, TestStatus

SIGN = re.compile(rb'"browsers"')


def parse(stream: BinaryIO) -> Parsed:
    document, whole = lenient_json.document(stream, mark="browsers")
    browsers, results = lenient_json.table(document, "browsers"), lenient_json.table(document, "result")
    several = len(results) > 1
    tests = [
        _test(lenient_json.text(lenient_json.table(browsers, key), "name") if several else "", row)
        for key in results
        for row in lenient_json.tables(results, key)
    ]
    summary = lenient_json.table(document, "summary")
    words = {"success": "passed", "failed": "failed", "skipped": "skipped"}
    return Parsed(
        tests=distinct(tests),
        collection_errors=[] if tests else _load_errors(browsers),
        reported={word: lenient_json.whole(summary, key) for key, word in words.items() if key in summary},
        ended=whole and bool(results),
        partial=bool(document) and not whole,
    )


def _test(browser: str, row: lenient_json.Table) -> TestResult:
    above, name = lenient_json.texts(row, "suite"), lenient_json.text(row, "description")
    is_skipped = bool(row.get("skipped") or row.get("pending") or row.get("disabled"))
    status = TestStatus.SKIPPED if is_skipped else TestStatus.PASSED if row.get("success") else TestStatus.FAILED
    log = "\n".join(lenient_json.texts(row, "log"))
    return TestResult(
        id=" ".join([*([f"[{browser}]"] if browser else []), *above, name]),
        name=name,
        suite=above,
        status=status,
        duration_s=lenient_json.number(row, "time") / 1000,
        failure=recover.failure(_without_server(log), message=log.partition("\n    at ")[0])
        if status is TestStatus.FAILED
        else None,
    )


def _without_server(text: str) -> str:
    """Strip the address of Karma's server and the modification time from file names."""
    return _SERVER_URL.sub(r"\1\2", text)


_SERVER_URL = re.compile(r"https?://[^/\s]+/(?:base/|absolute)?([^\s?()]+?)(?:\?\w*)?(:\d+:\d+)")


def _load_errors(browsers: lenient_json.Table) -> list[Diagnostic]:
    errors = [lenient_json.text(lenient_json.table(browsers, key), "error") for key in browsers]
    return [Diagnostic(message=error, tool="karma") for error in errors if error]
