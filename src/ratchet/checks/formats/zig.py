"""Parses `zig test`: a numbered line for each test, its output, a trace, and a summary at the end."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, compiler, recover
from ratchet.checks.formats.text import HeadAndTail, lines
from ratchet.core.report import Failure, TestResult, TestStatus

_TEST = re.compile(r"^(?P<n>\d{1,9})/(?P<all>\d{1,9}) (?P<name>.+?)\.\.\.(?P<rest>.*)$")
_WORD = re.compile(r"(?P<word>OK|SKIP|FAIL)(?: \((?P<why>\w+)\))?$")
_SUM = re.compile(r"^(?P<p>\d{1,9}) passed; (?P<s>\d{1,9}) skipped; (?P<f>\d{1,9}) failed\.$")
_ALL = re.compile(r"^All (?P<p>\d{1,9}) tests? passed\.$")
_STATUS = {"OK": TestStatus.PASSED, "SKIP": TestStatus.SKIPPED, "FAIL": TestStatus.FAILED}

SIGN = re.compile(rb"\d/\d{1,9} [^\n]*\.\.\.")


def parse(stream: BinaryIO) -> Parsed:
    """Return every test that the runner names. The summary is the end; without it the run was interrupted."""
    reader = _Zig()
    for line in lines(stream):
        reader.line(line)
    return reader.parsed()


class _Zig:
    def __init__(self) -> None:
        self.tests: list[TestResult] = []
        self.name = ""
        self.verdict: tuple[str, str] | None = None
        self.body = HeadAndTail()
        self.announced = 0
        self.reported: dict[str, int] = {}
        self.scan = compiler.CompilerScan()

    def line(self, line: str) -> None:
        if match := _TEST.match(line):
            self._settle()
            self.announced = int(match.group("all"))
            self.name, self.body = match.group("name"), HeadAndTail()
            self._rest(match.group("rest"))
        elif match := _SUM.match(line) or _ALL.match(line):
            self._settle()
            counts = match.groupdict()
            self.reported = {"passed": int(counts["p"])}
            self.reported |= {"skipped": int(counts.get("s") or 0), "failed": int(counts.get("f") or 0)}
        elif self.name:
            self._rest(line)
        elif not self.reported:
            self.scan.line(line)

    def _rest(self, text: str) -> None:
        """Read the verdict, which may follow at once, after the test's output, or lines later; a trace follows it."""
        match = _WORD.search(text) if self.verdict is None else None
        if match:
            self.verdict = (match.group("word"), match.group("why") or "")
            text = text[: match.start()]
        if text:
            self.body.add(text + "\n")

    def _settle(self) -> None:
        if self.name and self.verdict:
            word, why = self.verdict
            failure = _failure(self.body.text(), why) if word == "FAIL" else None
            file = failure.file if failure else ""
            self.tests.append(
                TestResult(id=self.name, name=self.name, status=_STATUS[word], file=file, failure=failure)
            )
            self.name, self.verdict = "", None

    def parsed(self) -> Parsed:
        running = [self.name] if self.name and not self.verdict else []
        self._settle()
        short = bool(self.reported) and self.announced > len(self.tests)
        return Parsed(
            tests=self.tests,
            compile_errors=self.scan.found,
            reported=self.reported,
            ended=bool(self.reported) or (not self.tests and bool(self.scan.found)),
            partial=bool(self.tests or running) and not self.reported,
            notes=[f"{self.announced} tests were announced, {len(self.tests)} reported"] if short else [],
            running=running,
        )


def _failure(body: str, why: str) -> Failure:
    output = body.partition("\n/")[0].strip()
    message = output if output and not output.startswith("/") else f"error: {why}"
    return recover.failure(body, message=message, type=why)
