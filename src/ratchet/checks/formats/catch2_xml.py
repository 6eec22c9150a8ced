"""Parses Catch2's own XML (v2 and v3), with expressions as written and as evaluated. doctest's parser extends it."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, recover
from ratchet.checks.formats.text import HeadAndTail, strip_control_characters
from ratchet.checks.formats.xml import XmlReader
from ratchet.core.report import Failure, TestResult, TestStatus

_TEXTS = {"Original", "Expanded", "Exception", "Failure", "FatalErrorCondition", "Message", "Text", "Skip"}
_SECTIONS = {"Section", "SubCase"}
_COMPARED = re.compile(r"^(?P<a>.+?) (?P<op>==|!=|<=|>=|<|>) (?P<e>.+)$", re.S)


def parse(stream: BinaryIO) -> Parsed:
    """Return one result for each test case, named as `./test NAME` accepts it."""
    return read(Catch2(), stream)


def read(handler: Catch2, stream: BinaryIO) -> Parsed:
    reader = XmlReader(handler)
    reader.read(stream)
    return handler.parsed(reader.fault)


class Catch2:
    """Handles the document: one open case and its first failed check."""

    reader: XmlReader
    roots: tuple[str, ...] = ("Catch", "Catch2TestRun")
    totals = "OverallResultsCases"

    def __init__(self) -> None:
        self.rewind()

    def rewind(self) -> None:
        """Restart: there are no checkpoints, so an error restarts the document."""
        self.tests: list[TestResult] = []
        self.reported: dict[str, int] = {}
        self.case: dict[str, str] | None = None
        self.result: dict[str, str] = {}
        self.check: dict[str, str] = {}
        self.sections: list[str] = []
        self.group = ""
        self.words: dict[str, HeadAndTail] = {}
        self.failure: Failure | None = None
        self.reason = ""
        self.listening = ""
        self.begun = self.closed = False

    def start(self, name: str, attributes: dict[str, str], /) -> None:
        # Boost.Test and QtTest have elements of the same names.
        if not self.begun:
            self.begun = name in self.roots
        elif name == "TestCase":
            self.case, self.result, self.failure, self.reason = attributes, {}, None, ""
            self.sections, self.words = [], {}
        elif name in _SECTIONS:
            self.sections.append(attributes.get("name", ""))
        elif name == "Expression":
            self.check, self.words = attributes, {}
        elif name in _TEXTS and self.case is not None:
            self._listen(name, attributes)
        elif name in {"OverallResult", "OverallResultsAsserts"} and self.case is not None:
            self.result = attributes
        elif name == self.totals:
            self._totals(attributes)
        elif name in {"Group", "TestSuite"}:
            self.group = attributes.get("name", "") if name == "TestSuite" else ""

    def _listen(self, name: str, attributes: dict[str, str]) -> None:
        if name not in {"Original", "Expanded", "Text"}:
            self.check = attributes
            self.words = {}
        self.listening = name
        self.words.setdefault(name, HeadAndTail())
        self.reader.listen()

    def text(self, data: str, /) -> None:
        if self.listening:
            self.words.setdefault(self.listening, HeadAndTail()).add(data)

    def end(self, name: str, /) -> None:
        if name == self.listening:
            self.listening = ""
            self.reader.listen(False)
        if name == "TestCase":
            self._finish()
        elif name in _SECTIONS and self.sections:
            self.sections.pop()
        elif name == "Expression" and self.check.get("success") == "false":
            self._keep(self._expression())
        elif name in {"Exception", "Failure", "FatalErrorCondition"} or (name == "Message" and self._is_error()):
            self._keep(self._text_failure(name))
        elif name == "Skip":
            self.reason = self._word("Skip")
        elif name in self.roots:
            self.closed = True

    def _is_error(self) -> bool:
        return "ERROR" in self.check.get("type", "")

    def _keep(self, failure: Failure) -> None:
        self.failure = self.failure or failure

    def _word(self, name: str) -> str:
        return strip_control_characters(self.words[name].text()).strip() if name in self.words else ""

    def _expression(self) -> Failure:
        original, expanded = self._word("Original"), self._word("Expanded")
        compared = _COMPARED.match(expanded)
        return Failure(
            type=self.check.get("type", ""),
            message=self._within(f"{original}\nwith expansion: {expanded}"),
            expected=compared.group("e").strip() if compared else None,
            actual=compared.group("a").strip() if compared else None,
            operator=compared.group("op") if compared else "",
            file=self.check.get("filename", ""),
            line=_line(self.check),
        )

    def _text_failure(self, name: str) -> Failure:
        text = self._word("Text") or self._word(name)
        at = self.check if "filename" in self.check else self.case or {}
        return recover.failure("", message=self._within(text), type=name, file=at.get("filename", ""), line=_line(at))

    def _within(self, message: str) -> str:
        return f"[{' / '.join(self.sections)}] {message}" if self.sections else message

    def status(self) -> TestStatus:
        case, good = self.case or {}, self.result.get("success") == "true"
        if self.failure and good and ("!mayfail" in case.get("tags", "") or "!shouldfail" in case.get("tags", "")):
            return TestStatus.XFAILED
        if self.result.get("skips", "0") != "0" and not self.failure:
            return TestStatus.SKIPPED
        return TestStatus.PASSED if good else TestStatus.FAILED

    def _finish(self) -> None:
        case = self.case
        if case is None:
            return
        status = self.status()
        failed = status is TestStatus.FAILED
        name = case.get("name", "")
        self.tests.append(
            TestResult(
                id=name,
                name=name,
                suite=[self.group] if self.group else [],
                file=case.get("filename", ""),
                line=_line(case),
                status=status,
                duration_s=_seconds(self.result),
                reason=self.reason,
                failure=(self.failure or Failure(message="failed")) if failed else None,
            )
        )
        self.case = None

    def _totals(self, attributes: dict[str, str]) -> None:
        words = {"successes": "passed", "failures": "failed", "expectedFailures": "xfailed", "skips": "skipped"}
        for key, word in words.items():
            if attributes.get(key, "").isdecimal():
                self.reported[word] = int(attributes[key][:9])

    def parsed(self, fault: str) -> Parsed:
        return Parsed(
            tests=self.tests,
            reported=self.reported,
            ended=self.closed,
            partial=bool(fault) or not self.closed,
            running=[self.case.get("name", "")] if self.case else [],
        )


def _line(attributes: dict[str, str]) -> int:
    digits = attributes.get("line", "")
    return int(digits) if digits.isdecimal() and len(digits) < 10 else 0


def _seconds(attributes: dict[str, str]) -> float:
    text = attributes.get("durationInSeconds") or attributes.get("duration") or "0"
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if 0 <= value < 1e9 else 0.0
