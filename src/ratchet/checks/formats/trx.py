"""Parses TRX, the result file of `dotnet test`: xUnit, NUnit and MSTest."""

from __future__ import annotations

import re
from collections import Counter
from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, recover
from ratchet.checks.formats.text import TAIL_LIMIT, HeadAndTail, clip, strip_control_characters
from ratchet.checks.formats.xml import XmlReader
from ratchet.core.report import RED, Failure, TestResult, TestStatus

_OUTCOME = {
    "Passed": TestStatus.PASSED,
    "Failed": TestStatus.FAILED,
    "NotExecuted": TestStatus.SKIPPED,
    "Inconclusive": TestStatus.SKIPPED,
    "Pending": TestStatus.SKIPPED,
    "Warning": TestStatus.PASSED,
    "Completed": TestStatus.PASSED,
}
_COUNTS = {"total": "tests", "passed": "passed", "failed": "failed", "error": "errors", "notExecuted": "skipped"}
# Each kind of test has its own element with the same content.
_RESULTS = {
    "UnitTestResult", "TestResultAggregation", "TestResult", "GenericTestResult", "ManualTestResult", "WebTestResult",
    "LoadTestResult",
}  # fmt: skip
_TEXTS = {"Message", "StackTrace", "StdOut", "StdErr", "Text"}
_ABOUT_TESTS = re.compile(r"\[xUnit\.net [\d:.]+\] .* \[FAIL\]$|Exit code indicates failure: ")
_DURATION = re.compile(r"^(\d{1,4}):(\d{1,2}):(\d{1,2}(?:\.\d{1,9})?)$")


def parse(stream: BinaryIO) -> Parsed:
    """Identify each result by its full name. A data-driven test counts by its rows, not by the test that contains
    them."""
    handler = _Trx()
    reader = XmlReader(handler)
    reader.read(stream)
    return handler.parsed(reader.fault)


class _Result:
    def __init__(self, attributes: dict[str, str]) -> None:
        self.attributes = attributes
        self.texts: dict[str, HeadAndTail] = {}
        self.rows = 0

    def text(self, name: str) -> str:
        return strip_control_characters(self.texts[name].text()).strip("\r\n") if name in self.texts else ""


class _Trx:
    reader: XmlReader

    def __init__(self) -> None:
        self.rewind()

    def rewind(self) -> None:
        """Restart: there are no checkpoints, so an error restarts the document."""
        self.tests: list[TestResult] = []
        self.keys: list[str] = []
        self.holders: Counter[str] = Counter()
        self.methods: dict[str, str] = {}
        self.reported: dict[str, int] = {}
        self.open: list[_Result] = []
        self.listening = ""
        self.unit = ""
        self.run_infos: list[str] = []
        self.info: HeadAndTail | None = None
        self.closed = False

    def start(self, name: str, attributes: dict[str, str], /) -> None:
        if name in _RESULTS and (name != "TestResult" or "testName" in attributes):
            if self.open:
                self.open[-1].rows += 1
            self.open.append(_Result(attributes))
        elif name in _TEXTS and (self.open or self.info):
            self.listening = name
            self.reader.listen()
        elif name == "UnitTest":
            self.unit = attributes.get("id", "")
        elif name == "TestMethod" and self.unit:
            self.methods[self.unit] = attributes.get("className", "").partition(",")[0]
        elif name == "Counters":
            self._counters(attributes)
        elif name == "RunInfo":
            self.info = HeadAndTail() if attributes.get("outcome") in {"Error", "Failed"} else None

    def end(self, name: str, /) -> None:
        if name in _RESULTS and self.open:
            self._finish(self.open.pop())
        elif name == self.listening:
            self.listening = ""
            self.reader.listen(False)
        elif name == "RunInfo" and self.info:
            self.run_infos.append(clip(strip_control_characters(self.info.text()).strip(), 1000))
            self.info = None
        elif name == "TestRun":
            self.closed = True

    def text(self, data: str, /) -> None:
        if self.open and self.listening:
            self.open[-1].texts.setdefault(self.listening, HeadAndTail()).add(data)
        elif self.info:
            self.info.add(data)

    def _counters(self, attributes: dict[str, str]) -> None:
        for key, word in _COUNTS.items():
            if attributes.get(key, "").isdecimal():
                self.reported[word] = int(attributes[key][:9])

    def _finish(self, result: _Result) -> None:
        attributes = result.attributes
        status = _OUTCOME.get(attributes.get("outcome", ""), TestStatus.ERROR)
        if result.rows:
            self.holders["tests"] += 1
            self.holders[status.value] += 1
            return
        failure = _failure(result) if status in {TestStatus.FAILED, TestStatus.ERROR} else None
        name = attributes.get("testName", "")
        self.keys.append(attributes.get("testId", ""))
        self.tests.append(
            TestResult(
                id=name,
                name=name,
                status=status,
                file=failure.file if failure else "",
                duration_s=_seconds(attributes.get("duration", "")),
                reason=result.text("Message") if status is TestStatus.SKIPPED else "",
                failure=failure,
                stdout=result.text("StdOut")[-TAIL_LIMIT:] if failure else "",
                stderr=result.text("StdErr")[-TAIL_LIMIT:] if failure else "",
            )
        )

    def parsed(self, fault: str) -> Parsed:
        return Parsed(
            tests=[self._named(test, key) for test, key in zip(self.tests, self.keys, strict=True)],
            reported=self._reported(),
            ended=self.closed and not self.open,
            partial=bool(fault) or not self.closed,
            notes=self._notes(),
            running=[result.attributes.get("testName", "") for result in self.open],
        )

    def _reported(self) -> dict[str, int]:
        """Correct the totals: some summaries count a test with rows besides its rows."""
        if self.reported.get("tests") != len(self.tests) + self.holders["tests"]:
            return self.reported
        return {word: max(0, count - self.holders[word]) for word, count in self.reported.items()}

    def _notes(self) -> list[str]:
        """Return messages of the run itself, except that some tests failed."""
        red = any(test.status in RED for test in self.tests)
        return [info for info in self.run_infos if not (red and _ABOUT_TESTS.match(info))]

    def _named(self, test: TestResult, key: str) -> TestResult:
        """Add the class: MSTest gives only the method, and the definitions, which come later, name the class."""
        group = self.methods.get(key, "")
        if not group:
            return test
        full = test.name if test.name.startswith(group) else f"{group}.{test.name}"
        return msgspec.structs.replace(test, id=full, suite=[group])


def _failure(result: _Result) -> Failure:
    message = result.text("Message")
    found = re.match(r"^(?:Test method \S+ threw exception:\s*)?((?:\w+\.)+\w*Exception) ?:", message)
    return recover.failure(result.text("StackTrace"), message=message, type=found.group(1) if found else "")


def _seconds(text: str) -> float:
    found = _DURATION.match(text)
    if not found:
        return 0.0
    hours, minutes, seconds = found.groups()
    return round(int(hours) * 3600 + int(minutes) * 60 + float(seconds), 6)
