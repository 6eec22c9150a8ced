"""A log somebody else made, a CI's mostly, as one report: by the format that knows most of it, else by its text.

It says what failed there. Whether it fails here too, our own run finds out.
"""

from __future__ import annotations

import io
import re
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed
from ratchet.checks.formats.text import plain
from ratchet.core.report import (
    RED,
    Failure,
    Report,
    ReportStatus,
    TestResult,
    TestStatus,
    Totals,
    disagreements,
    totals_of,
    totals_reported,
)

LOG_MAX_BYTES = 64 << 20
_END_BYTES = 1 << 20
_TAIL_CHARS = 8_000
PLAIN_LOG = "log"  # the runner's name where failures were only named, in text
_WITHIN = " \u203a "  # jest tells a failure twice: in its list, and by its whole name
_DOCUMENTS = (
    "junit", "trx", "jest_json", "mocha_json", "rspec_json", "playwright_json", "gtest_json", "catch2_xml",
    "doctest_xml", "dotnet_xml", "cpp_xml", "cucumber_json", "ctrf_json", "allure_json", "other_json", "other_xml",
)  # fmt: skip
_FORMATS = (
    *_DOCUMENTS, "tap", "go_json", "go_text", "cargo", "dart_json", "teamcity", "minitest", "exunit", "gleam", "zig",
    "nim", "cucumber_messages", "console", "mocha_text",
)  # fmt: skip
# What CI systems put before every line.
_STAMP = re.compile(
    rb"^(?:[^\t\n]{1,100}\t[^\t\n]{1,100}\t)?\xef?\xbb?\xbf?(?:\[?\d{4}-\d\d-\d\dT[\d:.]+Z?\]?) ?", re.M
)
# How runners name a failed test in plain text: pytest, unittest, go, jest/vitest/mocha lists, ctest, deno, others.
_NAMED = (
    re.compile(r"^(?:FAILED|ERROR) (?P<id>\S+::\S.*?)(?: - (?P<why>.*))?$"),
    re.compile(r"^(?:FAIL|ERROR): (?P<id>\S+ \(\S+\))$"),
    re.compile(r"^\s*--- FAIL: (?P<id>\S+) \("),
    re.compile(r"^\s*[\u2715\u2717\u00d7\u2716] (?P<id>.+?)(?: \(?\d+ ?m?s\)?)?$"),
    re.compile(r"^\s*\u25cf (?P<id>\S.* \u203a .*\S)$"),
    re.compile(r"^\s*\d+ - (?P<id>\S+) \((?P<why>Failed|Timeout|SEGFAULT|Not Run)\)"),
    re.compile(r"^(?P<id>\S.*?) => (?P<why>(?:\./|file:///)\S+\.[cm]?[jt]sx?:\d+:\d+)$"),
    re.compile(r"^rspec (?P<id>\./\S+) # (?P<why>.*)$"),
    re.compile(r"^\[ERROR\]\s+(?P<id>[\w$.]+[.#]\w+):\d+ (?P<why>.*)$"),
)


def read_log(content: bytes) -> Report:
    """`unknown` when nothing in it is beyond doubt: then its last lines are all that can be told."""
    clean = _STAMP.sub(b"", content[-LOG_MAX_BYTES:])
    name, parsed = _best(clean)
    is_counted = name in _DOCUMENTS and parsed.ended and not _found(parsed)
    totals = totals_reported(parsed.reported) if is_counted else totals_of(parsed.tests)
    return Report(
        runner=f"log of {name}" if name in _FORMATS and (parsed.tests or is_counted) else PLAIN_LOG,
        status=ReportStatus.INCONSISTENT
        if name == "console" and _denied(parsed)
        else _status(parsed, totals, is_counted=is_counted),
        totals=totals,
        reported=parsed.reported,
        tests=parsed.tests,
        collection_errors=parsed.collection_errors,
        compile_errors=parsed.compile_errors,
        notes=_denied(parsed) if name == "console" else [],
        output=_last_words(plain(clean[-_END_BYTES:].decode("utf-8", "replace"))),
    )


def _denied(parsed: Parsed) -> list[str]:
    return disagreements(
        totals_of(parsed.tests), parsed.reported, len(parsed.collection_errors + parsed.compile_errors)
    )


def _status(parsed: Parsed, totals: Totals, *, is_counted: bool) -> ReportStatus:
    if _red(parsed) or (is_counted and (totals.failed or totals.errors)):
        return ReportStatus.FAILED
    if is_counted and not totals.tests:
        return ReportStatus.NO_TESTS
    if not totals.tests:
        return ReportStatus.UNKNOWN
    # A document that counts what it does not show is torn, or somebody cut it.
    red = parsed.reported.get("failed", 0) + parsed.reported.get("errors", 0)
    # Some count each attempt of a test that passed in the end.
    is_denied = is_counted or red > sum(test.attempts - 1 for test in parsed.tests)
    return ReportStatus.INCONSISTENT if is_denied else ReportStatus.PASSED


def read_document(path: Path) -> Parsed | None:
    """A file that a runner left as its report, in whatever format; None when nothing in it is known."""
    with path.open("rb") as stream:
        begins = stream.read(1000).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    read = {name: _opened(name, path) for name in _FORMATS if name.endswith(_ENDINGS.get(begins, ("",)))}
    # Whole ones first: what one format says in full may be a fragment to another.
    known = {name: parsed for name, parsed in read.items() if _found(parsed) or any(parsed.reported.values())}
    whole = {name: parsed for name, parsed in known.items() if parsed.ended} or known
    return whole[_fullest(whole)] if whole else None


_ENDINGS = {b"<": ("junit", "trx", "_xml"), b"{": ("json", "events", "messages"), b"[": ("json",)}


def _opened(name: str, path: Path) -> Parsed:
    with path.open("rb") as stream:
        return _parse(name, stream)


def _fullest(read: dict[str, Parsed]) -> str:
    return max(read, key=lambda name: (_red(read[name]), _found(read[name]), len(read[name].reported)))


def _best(content: bytes) -> tuple[str, Parsed]:
    """Every parser reads it; the one that found most failures knows it best, for that is what the log is about: a line
    of one runner may look like a passing test of another. The unknown log has its compiler errors.

    Of a file that is one document through and through, what a test printed inside it is no log.
    """
    read = {name: _parse(name, io.BytesIO(content)) for name in _FORMATS}
    unknown = _parse("unknown", io.BytesIO(content))
    read["text"] = msgspec.structs.replace(unknown, tests=unknown.tests or _named(content))
    whole = {name: parsed for name, parsed in read.items() if _is_document(name, parsed)} if _begins(content) else {}
    known = {name: parsed for name, parsed in whole.items() if _found(parsed)} or whole or read
    # A list of tests with a summary is no other runner's log that looks like it; but its failures alone may be whole.
    listed = read["console"]
    is_list = listed.ended or (listed.reported and not read["mocha_text"].ended)
    name = "console" if known is read and is_list else _fullest(known)
    return name, known[name]


def _begins(content: bytes) -> bool:
    return content[:1000].lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"<", b"{", b"[")


def _is_document(name: str, parsed: Parsed) -> bool:
    return name in _DOCUMENTS and parsed.ended


def _red(parsed: Parsed) -> int:
    broken = len(parsed.collection_errors) + len(parsed.compile_errors)
    return broken + sum(test.status in RED for test in parsed.tests)


def _found(parsed: Parsed) -> int:
    return len(parsed.tests) + len(parsed.collection_errors) + len(parsed.compile_errors)


def _parse(name: str, stream: BinaryIO) -> Parsed:
    parsed: Parsed = import_module(f"ratchet.checks.formats.{name}").parse(stream)
    return parsed


def _last_words(text: str) -> str:
    """The last lines up to where the CI itself says that a step failed; what it tidies up afterwards says nothing."""
    before, error, after = text.rpartition("##[error]")
    return f"{before}{error}{after.partition(chr(10))[0] if error else after}"[-_TAIL_CHARS:]


def _named(content: bytes) -> list[TestResult]:
    found: dict[str, TestResult] = {}
    for line in content.decode("utf-8", "replace").splitlines():
        text = plain(line)[:400].rstrip()
        for match in filter(None, (pattern.match(text) for pattern in _NAMED)):
            why = match.groupdict().get("why") or ""
            result = TestResult(id=match["id"], status=TestStatus.FAILED, failure=Failure(message=why))
            found.setdefault(result.id, result)
    whole = {name.rsplit(_WITHIN, 1)[-1] for name in found if _WITHIN in name}
    return [result for name, result in found.items() if name not in whole]
