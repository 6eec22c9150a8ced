"""Parses the output of Automake's `make check`: a line for each test, and a summary for each folder."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, compiler, distinct
from ratchet.checks.formats.text import lines
from ratchet.core.report import Failure, TestResult, TestStatus

_FOLDER = re.compile(r"^\w*make(?:\[\d+\])?: (?P<how>Entering|Leaving) directory [`'](?P<path>[^']+)'$")
_TEST = re.compile(r"^(?P<word>PASS|FAIL|SKIP|XFAIL|XPASS|ERROR): (?P<name>\S.*)$")
_SUM = re.compile(r"^# (?P<word>TOTAL|PASS|FAIL|SKIP|XFAIL|XPASS|ERROR): +(?P<n>\d{1,9})$")
_STATUS = {
    "PASS": TestStatus.PASSED,
    "FAIL": TestStatus.FAILED,
    "SKIP": TestStatus.SKIPPED,
    "XFAIL": TestStatus.XFAILED,
    "XPASS": TestStatus.FAILED,  # fails the run
    "ERROR": TestStatus.ERROR,
}
_WORDS = {"TOTAL": "tests", "PASS": "passed", "SKIP": "skipped", "XFAIL": "xfailed", "ERROR": "errors"}

SIGN = re.compile(rb"# TOTAL: ")  # other runners begin lines with `FAIL: ` too


def parse(stream: BinaryIO) -> Parsed:
    """Return every test with its folder as the suite. The output has ended when a summary counts all of them."""
    reader = _Automake()
    for line in lines(stream):
        reader.line(line)
    return reader.parsed()


class _Automake:
    def __init__(self) -> None:
        self.tests: list[TestResult] = []
        self.folders: list[str] = []
        self.reported: dict[str, int] = {}
        self.scan = compiler.CompilerScan()

    def line(self, line: str) -> None:
        if match := _FOLDER.match(line):
            self._move(match)
        elif match := _TEST.match(line):
            self._test(match.group("word"), match.group("name"))
        elif match := _SUM.match(line):
            word = _WORDS.get(match.group("word"), "failed")
            self.reported[word] = self.reported.get(word, 0) + int(match.group("n"))
        else:
            self.scan.line(line)

    def _move(self, match: re.Match[str]) -> None:
        if match.group("how") == "Entering":
            self.folders = [*self.folders[-50:], match.group("path")]
        elif self.folders:
            self.folders = self.folders[:-1]

    def _test(self, word: str, name: str) -> None:
        status, folder = _STATUS[word], self.folders[-1] if self.folders else ""
        message = "it passed, and was expected to fail" if word == "XPASS" else "its log says no more"
        failure = Failure(message=message) if status in (TestStatus.FAILED, TestStatus.ERROR) else None
        full = f"{folder}/{name}" if folder else name
        self.tests.append(TestResult(full, status, name=name, suite=[folder] if folder else [], failure=failure))

    def parsed(self) -> Parsed:
        counted = self.reported.get("tests", 0)
        return Parsed(
            tests=distinct(self.tests),
            compile_errors=[] if self.tests else self.scan.found,
            reported=self.reported,
            ended=counted >= len(self.tests) > 0 or bool(not self.tests and self.scan.found),
            partial=counted < len(self.tests),
        )
