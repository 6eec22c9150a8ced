"""Parses gleeunit's output: failures are named, passed tests are dots, so only failures and totals are known."""

# One pattern, one line.

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, compiler, recover
from ratchet.checks.formats.text import HeadAndTail, lines
from ratchet.core.report import TestResult, TestStatus

_SUM = re.compile(r"^(?P<n>\d{1,9}) (?P<word>tests?|passed)(?:, (?P<f>\d{1,9}) failures?)?$")
_BEGIN = re.compile(
    r"^(?:\d+\) )?(?P<kind>assert|let assert|panic|todo|\w+) (?P<file>\S+\.(?:gleam|erl|mjs)):(?P<line>\d{1,9})$"
)
_TEST = re.compile(r"^ *test: (?P<name>\S+)$")
_OLD = re.compile(r"^(?:Failures:|\s+\d+\) (?P<name>[\w.@/]+?)(?:: (?P<kind>.*))?)$")
_FIELD = re.compile(r"^ *(?P<key>code|left|right|info|value|expected|got): (?P<value>.*)$")

SIGN = re.compile(rb"test: |Failures:")


def parse(stream: BinaryIO) -> Parsed:
    """Return the failed tests and the totals. Other tests have no names in this output."""
    reader = _Gleam()
    for line in lines(stream):
        reader.line(line)
    return reader.parsed()


class _Gleam:
    def __init__(self) -> None:
        self.tests: list[TestResult] = []
        self.reported: dict[str, int] = {}
        self.scan = compiler.CompilerScan()
        self.name = ""
        self.at = ("", 0)
        self.kind = ""
        self.fields: dict[str, str] = {}
        self.body = HeadAndTail()
        self.is_list = False

    def line(self, line: str) -> None:
        if match := _SUM.match(line):
            self._settle()
            self._sum(match)
        elif match := _BEGIN.match(line):
            self._settle()
            self.at = (match.group("file"), int(match.group("line")))
            self.kind = match.group("kind")
        elif self.at[0] and (match := _TEST.match(line)):
            self.name = match.group("name")
        elif match := _OLD.match(line):
            self._old(match)
        elif self.name or self.at[0]:
            self._inside(line)
        elif not self.reported:
            self.scan.line(line)

    def _old(self, match: re.Match[str]) -> None:
        """Parse the old format, numbered below a headline; other runners number their failures too."""
        if not match.group("name"):
            self.is_list = True
        elif self.is_list and "." in match.group("name"):
            self._settle()
            self.name, self.kind = match.group("name"), match.group("kind") or ""

    def _inside(self, line: str) -> None:
        self.body.add(line + "\n")
        if match := _FIELD.match(line):
            self.fields.setdefault(match.group("key"), match.group("value").strip())

    def _sum(self, match: re.Match[str]) -> None:
        failed, count = int(match.group("f") or 0), int(match.group("n"))
        total = count + failed if match.group("word") == "passed" else count
        self.reported = {"tests": total, "failed": failed, "passed": max(0, total - failed)}

    def _settle(self) -> None:
        if self.name:
            fields = self.fields
            failure = recover.failure(
                self.body.text(),
                message=fields.get("info", "") or self.kind,
                type=self.kind,
                file=self.at[0],
                line=self.at[1],
                expected=fields.get("right", fields.get("expected")),
                actual=fields.get("left", fields.get("got")),
            )
            status = TestStatus.FAILED
            test = TestResult(id=self.name, name=self.name, status=status, file=failure.file, failure=failure)
            self.tests.append(test)
        self.name, self.at, self.kind, self.fields, self.body = "", ("", 0), "", {}, HeadAndTail()

    def parsed(self) -> Parsed:
        self._settle()
        described = len(self.tests)
        wrong = bool(self.reported) and self.reported["failed"] != described
        return Parsed(
            tests=self.tests,
            compile_errors=self.scan.found,
            reported=self.reported,
            ended=bool(self.reported) or bool(self.scan.found),
            partial=True,
            notes=[f"the summary says {self.reported['failed']} failures, {described} are described"] if wrong else [],
        )
