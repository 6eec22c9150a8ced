"""Parses the own XML of NUnit (2 and 3) and xUnit.net (1 to 3), written by their consoles; `dotnet test` writes TRX."""

from __future__ import annotations

import re
from collections import Counter
from typing import BinaryIO

from ratchet.checks.formats import Parsed, distinct, recover
from ratchet.checks.formats.text import HeadAndTail, clip, strip_control_characters
from ratchet.checks.formats.xml import XmlReader
from ratchet.core.report import Diagnostic, Failure, TestResult, TestStatus

_TEXTS = {"message", "stack-trace", "reason", "output"}
_ALLURE = "name"  # Allure 1 has the same elements, but names in separate elements
_ROOTS = {"test-run", "test-results", "assemblies", "assembly"}
_SKIPPED = ("skip", "ignored", "inconclusive", "explicit", "cancel", "pending")  # prefixes of its names
_EXCEPTION = re.compile(r"^((?:\w+\.)+\w*Exception) ?:")


def parse(stream: BinaryIO) -> Parsed:
    """Identify each case by its full name with arguments."""
    handler = _DotNet()
    reader = XmlReader(handler)
    reader.read(stream)
    return handler.parsed(reader.fault)


class _DotNet:
    reader: XmlReader

    def __init__(self) -> None:
        self.rewind()

    def rewind(self) -> None:
        """Restart: there are no checkpoints, so an error restarts the document."""
        self.tests: list[TestResult] = []
        self.broken: list[Diagnostic] = []
        self.reported: Counter[str] = Counter()
        self.case: dict[str, str] | None = None
        self.outside: dict[str, str] | None = None
        self.kind, self.failed = "", False
        self.texts: dict[str, HeadAndTail] = {}
        self.path: list[str] = []
        self.suite = ""
        self.closed = False
        self.counted = False

    def start(self, name: str, attributes: dict[str, str], /) -> None:
        self.path.append(name)
        if name in _ROOTS or (name == "test-suite" and len(self.path) == 1):
            self._counts(name, attributes)
        elif name == "test-case" or (name == "test" and "assembly" in self.path):
            self.case, self.texts, self.kind, self.failed = attributes, {}, "", False
        elif (name == "error" and "assembly" in self.path) or _is_unrunnable(attributes):
            self.outside, self.texts, self.kind = attributes, {}, ""
        elif name == "failure":
            self.kind, self.failed = attributes.get("exception-type", ""), True
        elif self._is_text(name):
            self.reader.listen()

    def _is_text(self, name: str) -> bool:
        if name == _ALLURE:
            return self.path[-2:] in (["test-case", _ALLURE], [self.path[0], _ALLURE])
        return name in _TEXTS and (self.case is not None or self.outside is not None)

    def text(self, data: str, /) -> None:
        # NUnit 3 reports each assertion and repeats it in the failure.
        if self.path and self.path[-1] == _ALLURE:
            self._name(data)
        elif self.path and self.path[-1] in _TEXTS and "assertion" not in self.path:
            inside = "reason" if "reason" in self.path else self.path[-1]
            self.texts.setdefault(inside, HeadAndTail()).add(data)

    def _name(self, data: str) -> None:
        if self.case is None:
            self.suite += data
        elif "fullname" not in self.case:
            self.case["name"] = self.case.get("name", "") + data

    def end(self, name: str, /) -> None:
        if self.path:
            self.path.pop()
        if name in _TEXTS or name == _ALLURE:
            self.reader.listen("reason" in self.path)
        elif name in ("test-case", "test") and self.case is not None:
            self._finish(self.case)
            self.case = None
        elif self.outside is not None and name in ("error", "properties", "reason", "failure", "test-suite"):
            self._add_outside(self.outside)
        elif (name in _ROOTS or name.endswith("test-suite")) and not self.path:
            # Maven and others have assemblies too.
            self.closed = name != "assembly" or self.counted

    def _text_of(self, name: str) -> str:
        return strip_control_characters(self.texts[name].text()).strip("\r\n ") if name in self.texts else ""

    def _counts(self, name: str, attributes: dict[str, str]) -> None:
        """Return the totals: NUnit 2 counts the tests that ran, and its other counts overlap."""
        words = {"total": "tests", "passed": "passed", "failed": "failed", "skipped": "skipped"}
        if name == "test-results":
            words = {"failures": "failed", "errors": "errors", "invalid": "errors"}
        elif name in ("test-run", "test-suite"):
            words |= {"inconclusive": "skipped"}
        for key, word in words.items():
            if attributes.get(key, "").isdecimal():
                self.counted = True
                self.reported[word] += int(attributes[key][:9])

    def _finish(self, case: dict[str, str]) -> None:
        status = _status(case, failed=self.failed)
        red = status in (TestStatus.FAILED, TestStatus.ERROR)
        group = case.get("classname") or case.get("type", "") or strip_control_characters(self.suite).strip()
        full = case.get("fullname") or case.get("name", "")
        own = full if not group or full.startswith(group) else f"{group}.{full}"
        failure = self._failure() if red else None
        self.tests.append(
            TestResult(
                id=own,
                name=own.removeprefix(f"{group}.") if group else own,
                suite=[group] if group else [],
                status=status,
                file=failure.file if failure else "",
                duration_s=_seconds(case.get("duration") or case.get("time") or ""),
                reason="" if red else self._text_of("reason") or self._text_of("message"),
                failure=failure,
                stdout=clip(self._text_of("output"), 8 << 10) if red else "",
            )
        )

    def _failure(self) -> Failure:
        message = _unescaped(self._text_of("message") or self._text_of("reason"))
        found = _EXCEPTION.match(message)
        return recover.failure(
            _unescaped(self._text_of("stack-trace")),
            message=message,
            type=self.kind or (found.group(1) if found else ""),
        )

    def _add_outside(self, outside: dict[str, str]) -> None:
        """Report errors outside of cases: an assembly that could not run, a fixture that failed to clean up."""
        message = self._text_of("message") or self._text_of("reason")
        if message:
            file = outside.get("fullname") or outside.get("name", "")
            self.broken.append(Diagnostic(file=file, type=self.kind or "Invalid", message=message, tool="dotnet"))
            self.outside = None

    def parsed(self, fault: str) -> Parsed:
        return Parsed(
            tests=distinct(self.tests),
            collection_errors=self.broken,
            reported=dict(self.reported),
            ended=self.closed,
            partial=bool(fault) or not self.closed,
            running=[self.case.get("fullname") or self.case.get("name", "")] if self.case else [],
        )


_LINE_END = re.compile(r"(?:\\r)?\\n(?=\s*(?:Expected|Actual|at |\u2193|\u2191|\())|\\r\\n")


def _unescaped(text: str) -> str:
    """Decode line ends, which xUnit.net escapes as two characters."""
    return _LINE_END.sub("\n", text) if "\\n" in text and "\n" not in text else text


def _is_unrunnable(suite: dict[str, str]) -> bool:
    """Return whether an assembly has no cases; an invalid fixture is reported by its cases."""
    return suite.get("label") == "Invalid" and suite.get("type") == "Assembly"


def _status(case: dict[str, str], *, failed: bool) -> TestStatus:
    word = (case.get("result") or case.get("status") or "").lower()
    if not word:  # early NUnit 2 has two attributes instead of one, or none
        if failed or case.get("success", "").lower() == "false":
            return TestStatus.FAILED
        ran = case.get("executed", case.get("success", "")).lower() == "true"
        return TestStatus.PASSED if ran else TestStatus.SKIPPED  # NUnit's `--explore` lists tests without a result
    if word.startswith(_SKIPPED) or word == "notrun":
        return TestStatus.SKIPPED
    if word.startswith(("pass", "success", "warning")):
        return TestStatus.PASSED
    is_error = word == "error" or case.get("label") == "Error"
    return TestStatus.ERROR if is_error or not word.startswith("fail") else TestStatus.FAILED


def _seconds(text: str) -> float:
    try:
        value = float(text.replace(",", "."))
    except ValueError:
        return 0.0
    return value if 0 <= value < 1e9 else 0.0
