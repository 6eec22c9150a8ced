"""Parses a foreign log, usually of a CI system, into one report: by the best matching format, else as plain text.

The report says what failed there. Only a run of our own shows whether it fails here too.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, distinct
from ratchet.checks.formats.text import as_utf8, lines, strip_colours, strip_control_characters
from ratchet.checks.run.log_prefixes import strip_prefixes
from ratchet.core.report import (
    RED,
    Failure,
    Report,
    ReportStatus,
    TestResult,
    TestStatus,
    Totals,
    count_totals,
    disagreements,
    reported_totals,
)
from ratchet.tree_files import open_source

LOG_MAX_BYTES = 64 << 20
_END_BYTES = 1 << 20
_TAIL_CHARS = 8_000
PLAIN_LOG = "log"  # name of the runner if failures were only found in plain text
_WITHIN = " \u203a "  # jest reports a failure twice: in its list and by its full name
_DOCUMENTS = (
    "junit", "trx", "jest_json", "mocha_json", "rspec_json", "playwright_json", "gtest_json", "catch2_xml",
    "doctest_xml", "dotnet_xml", "cpp_xml", "cucumber_json", "ctrf_json", "allure_json", "buildkite_json",
    "xcresult_json", "bazel_events", "open_test_xml", "ginkgo_json", "karma_json",
    "testcafe_json", "mochawesome_json", "elm_json", "pytest_report_json", "pytest_log_json", "robot_xml", "testng_xml",
    "fpcunit_xml", "mbunit_xml", "android_xml", "gtester_xml",
)  # fmt: skip
_FORMATS = (
    *_DOCUMENTS, "tap", "go_json", "go_text", "cargo", "dart_json", "teamcity", "minitest", "exunit", "gleam", "zig",
    "dune", "nim", "cabal", "automake", "common_test", "cucumber_messages", "swift_events", "console", "mocha_text",
)  # fmt: skip
_ENDLESS = {"nim", "dune"}  # formats without an end marker
# Failed tests in plain text: pytest, unittest, go, jest/vitest/mocha lists, ctest, deno, others.
_NAMED = (
    re.compile(r"^(?:FAILED|ERROR) (?P<id>\S+::\S.*?)(?: - (?P<why>.*))?$"),
    re.compile(r"^(?:FAIL|ERROR): (?P<id>\S+ \(\S+\))$"),
    re.compile(r"^\s*--- FAIL: (?P<id>\S+) \("),
    re.compile(
        r"^\s*[\u2715\u2717\u00d7\u2716] (?!\s*\d+:\d+ |\d+ problems? \(|.* \(skipped\)$)"  # linters print crosses too
        r"(?P<id>.+?)(?: \(?\d+ ?m?s\)?)?$"
    ),
    re.compile(r"^\s*\u25cf (?P<id>\S.* \u203a .*\S)$"),
    re.compile(r"^\s*\d+ - (?P<id>\S+) \((?P<why>Failed|Timeout|SEGFAULT|Not Run)\)"),
    re.compile(r"^(?P<id>\S.*?) => (?P<why>(?:\./|file:///)\S+\.[cm]?[jt]sx?:\d+:\d+)$"),
    re.compile(r"^rspec (?P<id>\./\S+) # (?P<why>.*)$"),
    re.compile(r"^\[ERROR\]\s+(?P<id>[\w$.]+[.#]\w+):\d+ (?P<why>.*)$"),
)
_FIRST = frozenset("FE-[r0123456789\u2715\u2717\u00d7\u2716\u25cf")  # first characters of all these patterns but one


def parse_ci_log(content: bytes) -> Report:
    """Parse a log. The status is `unknown` if nothing is certain; then only the last lines are reported."""
    clean = strip_prefixes(strip_colours(as_utf8(content[-LOG_MAX_BYTES:])))
    read = _read(clean)
    name, parsed = _best(clean, read)
    is_counted = name in _DOCUMENTS and parsed.ended and not _entries(parsed)
    totals = reported_totals(parsed.reported) if is_counted else count_totals(parsed.tests)
    denied = _disagreements(parsed) if name == "console" else _doubts(name, parsed)
    status = (
        ReportStatus.INCONSISTENT
        if name == "console" and denied
        else _status(parsed, totals, is_counted=is_counted, doubts=denied)
    )
    also = {} if name in _DOCUMENTS and _is_structured(clean) else dict(_other_failures(name, read))
    tests = distinct([*parsed.tests, *(test for more in also.values() for test in more)])
    is_known = name in _FORMATS and (parsed.tests or is_counted)
    return Report(
        runner=f"log of {' and '.join([name, *also])}" if is_known else PLAIN_LOG,
        status=ReportStatus.FAILED if also and status is ReportStatus.PASSED else status,
        totals=count_totals(tests) if also else totals,
        reported={} if also else parsed.reported,
        tests=tests,
        collection_errors=parsed.collection_errors,
        compile_errors=parsed.compile_errors,
        notes=denied if status is ReportStatus.INCONSISTENT else [],
        output=_tail(strip_control_characters(clean[-_END_BYTES:].decode("utf-8", "replace"))),
    )


def read_log_tail(path: Path) -> bytes:
    """Read the last `LOG_MAX_BYTES` of a log."""
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - LOG_MAX_BYTES))
        return stream.read(LOG_MAX_BYTES)


def _disagreements(parsed: Parsed) -> list[str]:
    return disagreements(
        count_totals(parsed.tests), parsed.reported, len(parsed.collection_errors + parsed.compile_errors)
    )


def _doubts(name: str, parsed: Parsed) -> list[str]:
    """Return why the log does not prove that all tests passed, though none of them failed."""
    if parsed.notes:
        return parsed.notes
    if parsed.partial and name in _DOCUMENTS:
        return ["damaged: only a part could be read"]
    return [] if parsed.ended and name not in _ENDLESS else ["no end marker: the log may be incomplete"]


def _status(parsed: Parsed, totals: Totals, *, is_counted: bool, doubts: list[str]) -> ReportStatus:
    if _failures(parsed) or (is_counted and (totals.failed or totals.errors)):
        return ReportStatus.FAILED
    if is_counted and not totals.tests:
        return ReportStatus.NO_TESTS
    if not totals.tests:
        return ReportStatus.UNKNOWN
    # A document that counts failures it does not show is damaged or was cut.
    red = parsed.reported.get("failed", 0) + parsed.reported.get("errors", 0)
    # Some runners count each attempt of a test that finally passed.
    is_denied = is_counted or red > sum(test.attempts - 1 for test in parsed.tests)
    return ReportStatus.INCONSISTENT if is_denied or doubts else ReportStatus.PASSED


def _other_failures(name: str, read: dict[str, Parsed]) -> Iterator[tuple[str, list[TestResult]]]:
    """Yield failures that other runners report in the same log. Each must have reached its own end, because lines of
    one runner look like another's. Plain-text failures are added only if the main format did not reach its end."""
    common = Counter(
        word for each in read.values() for test in each.tests if test.status in RED for word in _words(test)
    )
    known = _KnownTests(common)
    known.add(test for test in read[name].tests if test.status in RED)
    rivals = [other for other in read if other not in (name, "text") and read[other].ended]
    for other in (*rivals, *(["text"] if name != "text" and not read[name].ended else [])):
        fresh = [test for test in read[other].tests if test.status in RED and test not in known]
        known.add(fresh)
        if fresh:
            yield other, fresh


def _words(test: TestResult) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", f"{test.id} {test.name} {' '.join(test.suite)} {test.file}"))


class _KnownTests:
    """Failures, to be found under other names: runners print one test in several forms, of which one has all words of
    the other. Only those that share a rare word are compared, and not more of them than `_ALIKE_MAX`."""

    def __init__(self, common: Counter[str]) -> None:
        self._common = common
        self._with_word: dict[str, list[frozenset[str]]] = {}
        self._with_rarest: dict[str, list[frozenset[str]]] = {}

    def add(self, tests: Iterable[TestResult]) -> None:
        for words in filter(None, map(_words, tests)):
            self._with_rarest.setdefault(self._rarest(words), []).append(words)
            for word in words:
                self._with_word.setdefault(word, []).append(words)

    def __contains__(self, test: TestResult) -> bool:
        words = _words(test)
        if not words:
            return bool(self._with_word)
        larger = self._with_word.get(self._rarest(words), [])[:_ALIKE_MAX]
        smaller = (other for word in words for other in self._with_rarest.get(word, [])[:_ALIKE_MAX])
        return any(words <= other for other in larger) or any(words >= other for other in smaller)

    def _rarest(self, words: frozenset[str]) -> str:
        return min(words, key=lambda word: (self._common[word], word))


_ALIKE_MAX = 50


def parse_report_file(path: Path) -> Parsed | None:
    """Parse a report file of any known format; None if no format matches."""
    with open_source(path.parent, path.name) as stream:
        begins = as_utf8(stream.read(1000)).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    read = {name: _parse_file(name, path) for name in _FORMATS if name.endswith(_ENDINGS.get(begins, ("",)))}
    # Prefer complete results: a complete document of one format may look like a fragment of another.
    known = {name: parsed for name, parsed in read.items() if _entries(parsed) or any(parsed.reported.values())}
    whole = {name: parsed for name, parsed in known.items() if parsed.ended} or known
    return whole[_most_informative(whole)] if whole else None


_ENDINGS = {b"<": ("junit", "trx", "_xml"), b"{": ("json", "events", "messages"), b"[": ("json",)}


def _parse_file(name: str, path: Path) -> Parsed:
    with open_source(path.parent, path.name) as stream:
        wide = stream.read(2) in (b"\xff\xfe", b"\xfe\xff")
        stream.seek(0)
        return _parse(name, io.BytesIO(as_utf8(stream.read(LOG_MAX_BYTES))) if wide else stream)


def _most_informative(read: dict[str, Parsed]) -> str:
    return max(read, key=lambda name: (_failures(read[name]), _entries(read[name]), len(read[name].reported)))


def _read(content: bytes) -> dict[str, Parsed]:
    """Run every parser whose sign occurs in the log; searching for the sign is much cheaper than parsing."""
    read = {name: _parse(name, io.BytesIO(content)) if _has_sign(name, content) else Parsed() for name in _FORMATS}
    unknown = _parse("unknown", io.BytesIO(content))
    return read | {"text": msgspec.structs.replace(unknown, tests=unknown.tests or _failures_in_text(content))}


def _has_sign(name: str, content: bytes) -> bool:
    sign: re.Pattern[bytes] | None = getattr(_module(name), "SIGN", None)
    return sign is None or bool(sign.search(content))


def _best(content: bytes, read: dict[str, Parsed]) -> tuple[str, Parsed]:
    """Choose the parser that found most failures: a line of one runner may look like a passed test of another. An
    unknown log has its compiler errors.

    In a file that is one document, output of tests inside of it is not treated as a log.
    """
    whole = (
        {name: parsed for name, parsed in read.items() if _is_document(name, parsed)} if _is_structured(content) else {}
    )
    known = {name: parsed for name, parsed in whole.items() if _entries(parsed)} or whole or read
    # A test list with a summary is not mistaken for another runner's log, but a mocha log of failures alone may be
    # complete.
    listed = read["console"]
    is_list = listed.ended or (listed.reported and not read["mocha_text"].ended)
    name = "console" if known is read and is_list else _most_informative(known)
    return name, known[name]


def _is_structured(content: bytes) -> bool:
    return content[:1000].lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"<", b"{", b"[")


def _is_document(name: str, parsed: Parsed) -> bool:
    return name in _DOCUMENTS and parsed.ended


def _failures(parsed: Parsed) -> int:
    broken = len(parsed.collection_errors) + len(parsed.compile_errors)
    return broken + sum(test.status in RED for test in parsed.tests)


def _entries(parsed: Parsed) -> int:
    return len(parsed.tests) + len(parsed.collection_errors) + len(parsed.compile_errors)


def _module(name: str) -> ModuleType:
    return import_module(f"ratchet.checks.formats.{name}")


def _parse(name: str, stream: BinaryIO) -> Parsed:
    parsed: Parsed = _module(name).parse(stream)
    return parsed


def _tail(text: str) -> str:
    """Return the last lines up to where the CI system reports a failed step; its cleanup afterwards says nothing."""
    before, error, after = text.rpartition("##[error]")
    return f"{before}{error}{after.partition(chr(10))[0] if error else after}"[-_TAIL_CHARS:]


def _failures_in_text(content: bytes) -> list[TestResult]:
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
