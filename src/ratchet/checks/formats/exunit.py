"""Parses ExUnit's text, best with `--trace`, which names every test. Without it only failures have names."""

# One pattern, one line.
# ruff: noqa: E501

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, compiler, recover
from ratchet.checks.formats.text import PROSE_LIMIT, HeadAndTail, lines
from ratchet.core.report import Failure, TestResult, TestStatus

_MODULE = re.compile(r"^(?P<name>[A-Z][\w.]*) \[(?P<file>\S+)\]$")
_TEST = re.compile(
    r"\* (?P<name>(?:test|doctest|property|feature) .+?) \((?P<how>[\d.]+ms|skipped|excluded)\)(?: \[L#(?P<line>\d{1,9})\])?$"
)
_FAILURE = re.compile(r"^ {1,4}\d+\) (?P<name>.+) \((?P<module>[A-Z][\w.]*)\)$")
_SUM = re.compile(
    r"^(?:\d+ (?:doctests?|properties|property|features?), )*(?P<n>\d{1,9}) tests?, (?P<f>\d{1,9}) failures?(?P<rest>.*)$"
)
_MORE = re.compile(r"(\d{1,9}) (skipped|excluded|invalid)")

SIGN = re.compile(rb"\* (?:test|doctest|property|feature) |\d\) [^\n]+ \([A-Z][\w.]*\)")


def parse(stream: BinaryIO) -> Parsed:
    """Return the tests as `Module: test name`. The summary is the end."""
    reader = _ExUnit()
    for line in lines(stream, limit=PROSE_LIMIT):
        reader.line(line)
    return reader.parsed()


class _ExUnit:
    def __init__(self) -> None:
        self.tests: dict[str, TestResult] = {}
        self.module, self.file = "", ""
        self.failing: tuple[str, str] | None = None
        self.body = HeadAndTail()
        self.reported: dict[str, int] = {}
        self.scan = compiler.CompilerScan()

    def line(self, line: str) -> None:
        if match := _FAILURE.match(line):
            self._settle()
            self.failing, self.body = (match.group("module"), match.group("name")), HeadAndTail()
        elif self.failing and (line.startswith("     ") or not line.strip()):
            self.body.add(line[5:] + "\n")
        else:
            self._settle()
            self._other(line)

    def _other(self, line: str) -> None:
        if match := _MODULE.match(line):
            self.module, self.file = match.group("name"), match.group("file")
        elif match := _TEST.search(line):
            self._traced(match)
        elif match := _SUM.match(line):
            self._sum(match)
        elif not self.reported:
            self.scan.line(line)

    def _traced(self, match: re.Match[str]) -> None:
        how, name = match.group("how"), match.group("name")
        self._put(
            TestResult(
                id=f"{self.module}: {name}",
                name=name,
                suite=[self.module],
                file=self.file,
                line=int(match.group("line") or 0),
                status=TestStatus.PASSED if how.endswith("ms") else TestStatus.SKIPPED,
                duration_s=_seconds(how),
            )
        )

    def _put(self, test: TestResult) -> None:
        self.tests[test.id] = test

    def _settle(self) -> None:
        """Finish a failure: its description overrides the line that named the test."""
        if not self.failing:
            return
        (module, name), self.failing = self.failing, None
        place, _, body = self.body.text().partition("\n")
        file, _, line = place.strip().rpartition(":")
        known = self.tests.get(f"{module}: {name}")
        self._put(
            TestResult(
                id=f"{module}: {name}",
                name=name,
                suite=[module],
                file=file,
                line=int(line) if line.isdecimal() and len(line) < 10 else 0,
                status=TestStatus.FAILED,
                duration_s=known.duration_s if known else 0.0,
                failure=_failure(body),
            )
        )

    def _sum(self, match: re.Match[str]) -> None:
        self.reported = {"tests": int(match.group("n")), "failed": int(match.group("f"))}
        for count, word in _MORE.findall(match.group("rest")):
            self.reported["errors" if word == "invalid" else "skipped"] = int(count)

    def parsed(self) -> Parsed:
        self._settle()
        tests = list(self.tests.values())
        return Parsed(
            tests=tests,
            compile_errors=self.scan.found,
            reported=self.reported,
            ended=bool(self.reported) or bool(self.scan.found),
            partial=len(tests) != self.reported.get("tests", -1),
        )


def _failure(body: str) -> Failure:
    raised = re.search(r"^\*\* \((?P<type>[\w.]+)\) (?P<message>.*)$", body, re.M)
    head = body.partition("\nstacktrace:")[0].strip()
    return recover.failure(
        body,
        message=raised.group("message") if raised else head,
        type=raised.group("type") if raised else "ExUnit.AssertionError",
    )


def _seconds(text: str) -> float:
    try:
        return round(float(text.removesuffix("ms")) / 1000, 6)
    except ValueError:
        return 0.0
