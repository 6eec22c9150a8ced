"""Parses Minitest's text, best with `--verbose`, which names every test. Without it passed tests have no name."""

from __future__ import annotations

import re
from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, recover
from ratchet.checks.formats.text import HeadAndTail, lines
from ratchet.core.report import Failure, TestResult, TestStatus

_VERBOSE = re.compile(r"^(?P<name>[^\s#]+#.+) = (?P<s>[\d.]{1,12}) s = (?P<sign>[.FES])$")
_HEAD = re.compile(r"^ +\d+\) (?P<kind>Failure|Error|Skipped):$")
_NAME = re.compile(r"^(?P<name>[^\s#]+#.+?)(?: \[(?P<file>[^][]+?):(?P<line>\d{1,9})\])?:$")
_SUM = re.compile(
    r"^(?P<tests>\d{1,9}) (?:runs|tests), \d+ assertions, (?P<failed>\d{1,9}) failures, (?P<errors>\d{1,9}) errors, "
    r"(?P<skipped>\d{1,9}) skips$"
)
_SIGNS = {".": TestStatus.PASSED, "F": TestStatus.FAILED, "E": TestStatus.ERROR, "S": TestStatus.SKIPPED}
_KINDS = {"Failure": TestStatus.FAILED, "Error": TestStatus.ERROR, "Skipped": TestStatus.SKIPPED}

SIGN = re.compile(rb" s = [.FES]|\d\) (?:Failure|Error|Skipped):")


def parse(stream: BinaryIO) -> Parsed:
    """Return the tests as `Class#test`, as `--name` accepts them. The summary is the end."""
    reader = _Minitest()
    for line in lines(stream):
        reader.line(line)
    return reader.parsed()


class _Minitest:
    def __init__(self) -> None:
        self.tests: dict[str, TestResult] = {}
        self.kind = ""
        self.at: re.Match[str] | None = None
        self.body = HeadAndTail()
        self.reported: dict[str, int] = {}

    def line(self, line: str) -> None:
        if match := _SUM.match(line):
            self._settle()
            self.reported = {word: int(count) for word, count in match.groupdict().items()}
        elif match := _VERBOSE.match(line):
            self._add(match.group("name"), _SIGNS[match.group("sign")], duration_s=_seconds(match.group("s")))
        elif match := _HEAD.match(line):
            self._settle()
            self.kind, self.at, self.body = match.group("kind"), None, HeadAndTail()
        elif self.kind and self.at is None:
            self.at = _NAME.match(line)
        elif self.at:
            self.body.add(line + "\n")

    def _add(self, name: str, status: TestStatus, *, duration_s: float = 0.0) -> None:
        group, _, method = name.partition("#")
        self.tests[name] = TestResult(id=name, name=method, suite=[group], status=status, duration_s=duration_s)

    def _settle(self) -> None:
        kind, at, self.kind, self.at = self.kind, self.at, "", None
        if not at:
            return
        name, status, body = at.group("name"), _KINDS[kind], self.body.text().strip("\n")
        if name not in self.tests:
            self._add(name, status)
        failure = None if status is TestStatus.SKIPPED else _failure(at, body)
        self.tests[name] = msgspec.structs.replace(
            self.tests[name],
            status=status,
            file=(failure.file if failure else at.group("file")) or "",
            reason=body if status is TestStatus.SKIPPED else "",
            failure=failure,
        )

    def parsed(self) -> Parsed:
        self._settle()
        return Parsed(
            tests=list(self.tests.values()),
            reported=self.reported,
            ended=bool(self.reported),
            partial=len(self.tests) != self.reported.get("tests", -1),
        )


def _failure(at: re.Match[str], body: str) -> Failure:
    kind, found, rest = body.partition(": ")
    raised = bool(found) and re.fullmatch(r"[A-Z][\w:]*", kind) is not None and not at.group("file")
    return recover.failure(
        body,
        message=rest.partition("\n    ")[0].strip() if raised else body,
        type=kind if raised else "Minitest::Assertion",
        file=at.group("file") or "",
        line=int(at.group("line") or 0),
    )


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
