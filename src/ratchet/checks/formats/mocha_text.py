"""Parses the console output of mocha and Cypress: the number of passed tests, then the failures with their titles."""

from __future__ import annotations

import re
from collections import Counter
from textwrap import dedent
from typing import BinaryIO

from ratchet.checks.formats import Parsed, distinct, recover
from ratchet.checks.formats.mocha_json import hook_phase
from ratchet.checks.formats.text import HeadAndTail, lines
from ratchet.core.report import TestResult, TestStatus

_SUM = re.compile(r"^ {2}(?P<count>\d{1,9}) (?P<word>passing|failing|pending)(?: \(\d+m?s?\))?$")
_WORDS = {"passing": "passed", "failing": "failed", "pending": "skipped"}
_ITEM = re.compile(r"^ {2}\d{1,6}\) (?P<title>\S.*)$")
_CALL = re.compile(r"^ {6,}at ")
_MOST_TITLES = 50
# Text after the message: a diff or the stack.
_BELOW = re.compile(r"^\s*(?:\+ expected - actual|at .*:\d+:\d+\)?)\s*$", re.M)

SIGN = re.compile(rb"  \d{1,9} (?:passing|failing)")


def parse(stream: BinaryIO) -> Parsed:
    """Return the failed tests. Names of other tests cannot be distinguished from other output."""
    reader = _Mocha()
    for line in lines(stream):
        reader.line(line)
    return reader.parsed()


class _Mocha:
    def __init__(self) -> None:
        self.tests: list[TestResult] = []
        self.reported: Counter[str] = Counter()
        self.is_list = False
        self.titles: list[str] = []
        self.body: HeadAndTail | None = None
        self.in_stack = False

    def line(self, line: str) -> None:
        if match := _SUM.match(line):
            self._settle()
            self.reported[_WORDS[match["word"]]] += int(match["count"])
            self.is_list = match["word"] == "failing"
        elif self.is_list and (match := _ITEM.match(line)):
            self._settle()
            self.titles = [match["title"]]
        elif self.titles and self.body is None and self._is_title(line):
            self.titles.append(line.strip())
        elif self.titles:
            self._take_line(line)

    def _is_title(self, line: str) -> bool:
        """Return whether the row is a nested title: each level is indented by two columns."""
        begin = len(line) - len(line.lstrip(" "))
        return begin == 5 + 2 * len(self.titles) and len(self.titles) < _MOST_TITLES

    def _take_line(self, line: str) -> None:
        if self.in_stack and line and not line.startswith("     "):
            self._settle()
            self.is_list = False
            return
        self.in_stack = bool(_CALL.match(line))
        self.body = self.body or HeadAndTail()
        self.body.add(line + "\n")

    def _settle(self) -> None:
        if self.titles and self.body:
            *above, last = self.titles
            self.tests.append(_test(above, last.removesuffix(":"), self.body.text()))
        self.titles, self.body, self.in_stack = [], None, False

    def parsed(self) -> Parsed:
        self._settle()
        described, counted = len(self.tests), self.reported["failed"]
        return Parsed(
            tests=distinct(self.tests),
            reported=dict(self.reported) if self.reported.total() else {},
            ended="passed" in self.reported,
            partial=True,
            notes=[f"the summary says {counted} failures, {described} are described"] if counted != described else [],
        )


def _test(above: list[str], title: str, body: str) -> TestResult:
    found, phase = _BELOW.search(body), hook_phase(title)
    failure = recover.failure(dedent(body), message=dedent(body[: found.start()] if found else body).strip())
    return TestResult(
        id=" ".join([*above, title]),
        name=title,
        suite=[" ".join(above)] if above else [],
        status=TestStatus.ERROR if phase else TestStatus.FAILED,
        phase=phase or "call",
        file=failure.file,
        failure=failure,
    )
