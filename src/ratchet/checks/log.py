"""A log somebody else made, a CI's mostly, as one report: by the format that knows most of it, else by its text.

It says what failed there. Whether it fails here too, our own run finds out.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, distinct
from ratchet.checks.formats.text import as_utf8, lines, plain, uncoloured
from ratchet.checks.stamps import unstamped
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
    "doctest_xml", "dotnet_xml", "cpp_xml", "cucumber_json", "ctrf_json", "allure_json", "buildkite_json",
    "xcresult_json", "bazel_events", "open_test_xml", "other_json", "other_xml",
)  # fmt: skip
_FORMATS = (
    *_DOCUMENTS, "tap", "go_json", "go_text", "cargo", "dart_json", "teamcity", "minitest", "exunit", "gleam", "zig",
    "dune", "nim", "cabal", "automake", "common_test", "cucumber_messages", "swift_events", "console", "mocha_text",
)  # fmt: skip
_ENDLESS = {"nim", "dune"}  # nothing in them says that all is told
# How runners name a failed test in plain text: pytest, unittest, go, jest/vitest/mocha lists, ctest, deno, others.
_NAMED = (
    re.compile(r"^(?:FAILED|ERROR) (?P<id>\S+::\S.*?)(?: - (?P<why>.*))?$"),
    re.compile(r"^(?:FAIL|ERROR): (?P<id>\S+ \(\S+\))$"),
    re.compile(r"^\s*--- FAIL: (?P<id>\S+) \("),
    re.compile(
        r"^\s*[\u2715\u2717\u00d7\u2716] (?!\s*\d+:\d+ |\d+ problems? \(|.* \(skipped\)$)"  # linters have crosses too
        r"(?P<id>.+?)(?: \(?\d+ ?m?s\)?)?$"
    ),
    re.compile(r"^\s*\u25cf (?P<id>\S.* \u203a .*\S)$"),
    re.compile(r"^\s*\d+ - (?P<id>\S+) \((?P<why>Failed|Timeout|SEGFAULT|Not Run)\)"),
    re.compile(r"^(?P<id>\S.*?) => (?P<why>(?:\./|file:///)\S+\.[cm]?[jt]sx?:\d+:\d+)$"),
    re.compile(r"^rspec (?P<id>\./\S+) # (?P<why>.*)$"),
    re.compile(r"^\[ERROR\]\s+(?P<id>[\w$.]+[.#]\w+):\d+ (?P<why>.*)$"),
)
_FIRST = frozenset("FE-[r0123456789\u2715\u2717\u00d7\u2716\u25cf")  # with which all of these but one begin


def read_log(content: bytes) -> Report:
    """`unknown` when nothing in it is beyond doubt: then its last lines are all that can be told."""
    clean = unstamped(uncoloured(as_utf8(content[-LOG_MAX_BYTES:])))
    read = _read(clean)
    name, parsed = _best(clean, read)
    is_counted = name in _DOCUMENTS and parsed.ended and not _found(parsed)
    totals = totals_reported(parsed.reported) if is_counted else totals_of(parsed.tests)
    denied = _denied(parsed) if name == "console" else _doubts(name, parsed)
    status = (
        ReportStatus.INCONSISTENT
        if name == "console" and denied
        else _status(parsed, totals, is_counted=is_counted, doubts=denied)
    )
    also = {} if name in _DOCUMENTS and _begins(clean) else dict(_others(name, read))
    tests = distinct([*parsed.tests, *(test for more in also.values() for test in more)])
    is_known = name in _FORMATS and (parsed.tests or is_counted)
    return Report(
        runner=f"log of {' and '.join([name, *also])}" if is_known else PLAIN_LOG,
        status=ReportStatus.FAILED if also and status is ReportStatus.PASSED else status,
        totals=totals_of(tests) if also else totals,
        reported={} if also else parsed.reported,
        tests=tests,
        collection_errors=parsed.collection_errors,
        compile_errors=parsed.compile_errors,
        notes=denied if status is ReportStatus.INCONSISTENT else [],
        output=_last_words(plain(clean[-_END_BYTES:].decode("utf-8", "replace"))),
    )


def read_end(path: Path) -> bytes:
    """As much of a log as is read."""
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - LOG_MAX_BYTES))
        return stream.read(LOG_MAX_BYTES)


def _denied(parsed: Parsed) -> list[str]:
    return disagreements(
        totals_of(parsed.tests), parsed.reported, len(parsed.collection_errors + parsed.compile_errors)
    )


def _doubts(name: str, parsed: Parsed) -> list[str]:
    """Why nobody can tell from it that all passed, though nothing in it failed."""
    if parsed.notes:
        return parsed.notes
    if parsed.partial and name in _DOCUMENTS:
        return ["it is damaged: only a part could be read"]
    return [] if parsed.ended and name not in _ENDLESS else ["nothing in it says that it is all there is"]


def _status(parsed: Parsed, totals: Totals, *, is_counted: bool, doubts: list[str]) -> ReportStatus:
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
    return ReportStatus.INCONSISTENT if is_denied or doubts else ReportStatus.PASSED


def _others(name: str, read: dict[str, Parsed]) -> Iterator[tuple[str, list[TestResult]]]:
    """What other runners of the same log say that failed. Each must have reached an end of its own, for lines of one
    look like another's; of mere names in the text there is more where the first of them did not reach its end."""
    known = [_words(test) for test in read[name].tests if test.status in RED]
    rivals = [other for other in read if other not in (name, "text") and read[other].ended]
    for other in (*rivals, *(["text"] if name != "text" and not read[name].ended else [])):
        fresh = [test for test in read[other].tests if test.status in RED and not _is_among(_words(test), known)]
        known += map(_words, fresh)
        if fresh:
            yield other, fresh


def _words(test: TestResult) -> set[str]:
    return set(re.findall(r"\w+", f"{test.id} {test.name} {' '.join(test.suite)} {test.file}"))


def _is_among(words: set[str], known: list[set[str]]) -> bool:
    """Whether it is one of them under another name: each runner's lines are named in more ways than one."""
    return any(words <= other or words >= other for other in known)


def read_document(path: Path) -> Parsed | None:
    """A file that a runner left as its report, in whatever format; None when nothing in it is known."""
    with path.open("rb") as stream:
        begins = as_utf8(stream.read(1000)).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    read = {name: _opened(name, path) for name in _FORMATS if name.endswith(_ENDINGS.get(begins, ("",)))}
    # Whole ones first: what one format says in full may be a fragment to another.
    known = {name: parsed for name, parsed in read.items() if _found(parsed) or any(parsed.reported.values())}
    whole = {name: parsed for name, parsed in known.items() if parsed.ended} or known
    return whole[_fullest(whole)] if whole else None


_ENDINGS = {b"<": ("junit", "trx", "_xml"), b"{": ("json", "events", "messages"), b"[": ("json",)}


def _opened(name: str, path: Path) -> Parsed:
    with path.open("rb") as stream:
        wide = stream.read(2) in (b"\xff\xfe", b"\xfe\xff")
        stream.seek(0)
        return _parse(name, io.BytesIO(as_utf8(stream.read(LOG_MAX_BYTES))) if wide else stream)


def _fullest(read: dict[str, Parsed]) -> str:
    return max(read, key=lambda name: (_red(read[name]), _found(read[name]), len(read[name].reported)))


def _read(content: bytes) -> dict[str, Parsed]:
    """What every parser makes of it whose sign stands in it somewhere; to look for a sign is nothing beside reading."""
    read = {name: _parse(name, io.BytesIO(content)) if _may_be(name, content) else Parsed() for name in _FORMATS}
    unknown = _parse("unknown", io.BytesIO(content))
    return read | {"text": msgspec.structs.replace(unknown, tests=unknown.tests or _named(content))}


def _may_be(name: str, content: bytes) -> bool:
    sign: re.Pattern[bytes] | None = getattr(_module(name), "SIGN", None)
    return sign is None or bool(sign.search(content))


def _best(content: bytes, read: dict[str, Parsed]) -> tuple[str, Parsed]:
    """Who found most failures knows it best, for that is what the log is about: a line of one runner may look like a
    passing test of another. The unknown log has its compiler errors.

    Of a file that is one document through and through, what a test printed inside it is no log.
    """
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


def _module(name: str) -> ModuleType:
    return import_module(f"ratchet.checks.formats.{name}")


def _parse(name: str, stream: BinaryIO) -> Parsed:
    parsed: Parsed = _module(name).parse(stream)
    return parsed


def _last_words(text: str) -> str:
    """The last lines up to where the CI itself says that a step failed; what it tidies up afterwards says nothing."""
    before, error, after = text.rpartition("##[error]")
    return f"{before}{error}{after.partition(chr(10))[0] if error else after}"[-_TAIL_CHARS:]


def _named(content: bytes) -> list[TestResult]:
    found: dict[str, TestResult] = {}
    for line in lines(io.BytesIO(content)):
        text = line[:400].rstrip()
        if text.lstrip()[:1] not in _FIRST and " => " not in text:
            continue
        for match in filter(None, (pattern.match(text) for pattern in _NAMED)):
            why = match.groupdict().get("why") or ""
            result = TestResult(id=match["id"], status=TestStatus.FAILED, failure=Failure(message=why))
            found.setdefault(result.id, result)
    whole = {name.rsplit(_WITHIN, 1)[-1] for name in found if _WITHIN in name}
    return [result for name, result in found.items() if name not in whole]
