"""Parses the internal stream of bats: TAP with lines `suite FILE` and `begin NUMBER NAME`.

Tests print into the same stream, so a result counts only with the number and name of a test that has begun.
"""

from __future__ import annotations

import re
from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, distinct, recover
from ratchet.checks.formats.text import HeadAndTail, lines
from ratchet.core.report import Diagnostic, TestResult, TestStatus

_BEGIN = re.compile(r"^begin (?P<number>\d{1,9}) (?P<name>.*)$")
_POINT = re.compile(r"^(?P<not>not )?ok (?P<number>\d{1,9}) (?P<rest>.*)$")
_PLAN = re.compile(r"^1\.\.(?P<last>\d{1,9})$")
_END = re.compile(r"^(?: in (?P<ms>\d{1,9})ms)?(?: # (?P<skip>skip)\b ?(?P<reason>.*))?$")
_HOOK = re.compile(r"^(?P<name>setup_file|teardown_file|setup_suite|teardown_suite) failed\b")

# A file that bash cannot parse is reported as a failed setup.
_SYNTAX = re.compile(r"^(?P<file>[^\n:]+): line (?P<line>\d{1,9}): (?P<message>(?:syntax error|unexpected EOF)[^\n]*)")


def parse(stream: BinaryIO) -> Parsed:
    """Return the tests as `file::test`. A failure of a whole file is a test of its own, as in bats."""
    reader = _Bats()
    for line in lines(stream):
        reader.line(line)
    return reader.parsed()


class _Bats:
    def __init__(self) -> None:
        self.file = ""
        self.plan: int | None = None
        self.begun: dict[str, tuple[str, str]] = {}
        self.tests: list[TestResult] = []
        self.body: HeadAndTail | None = None
        self.broken: list[Diagnostic] = []
        self.hooks = 0

    def line(self, line: str) -> None:
        if line.startswith("#"):
            if self.body:
                self.body.add(line[1:].removeprefix(" ") + "\n")
        elif line.startswith("suite "):
            self._settle()
            self.file = line[6:]
        elif match := _BEGIN.match(line):
            self._settle()
            self.begun[match.group("number")] = (self.file, match.group("name"))
        elif match := _POINT.match(line):
            self._point(match)
        elif self.plan is None and (match := _PLAN.match(line)):
            self.plan = int(match.group("last"))

    def _point(self, match: re.Match[str]) -> None:
        file, name = self.begun.get(match.group("number"), ("", ""))
        rest = match.group("rest")
        end = _END.match(rest[len(name) :]) if name and rest.startswith(name) else None
        if end:
            del self.begun[match.group("number")]
            self._take(file, name, good=not match.group("not"), end=end)
        elif match.group("not") and (hook := _HOOK.match(rest)):
            self.hooks += 1
            self._take(self.file, hook.group("name"), good=False, phase="setup" if "setup" in rest else "teardown")

    def _take(self, file: str, name: str, *, good: bool, end: re.Match[str] | None = None, phase: str = "call") -> None:
        self._settle()
        red = TestStatus.FAILED if phase == "call" else TestStatus.ERROR
        skipped = bool(end and end.group("skip"))
        self.tests.append(
            TestResult(
                id=f"{file}::{name}",
                name=name,
                file=file,
                status=TestStatus.SKIPPED if skipped else TestStatus.PASSED if good else red,
                duration_s=int(end.group("ms") or 0) / 1000 if end else 0.0,
                phase=phase,
                reason=(end.group("reason") or "") if end else "",
            )
        )
        self.body = None if good else HeadAndTail()

    def _settle(self) -> None:
        """Finish a failed test, whose output follows its line."""
        if self.body and self.tests[-1].status is not TestStatus.SKIPPED:
            output = self.body.text().strip("\n")
            if self.tests[-1].phase == "setup" and (match := _SYNTAX.match(output)):
                self.tests.pop()
                self.broken.append(_unloaded(match))
                self.body = None
                return
            failure = recover.failure(output, message=output or "failed")
            self.tests[-1] = msgspec.structs.replace(self.tests[-1], failure=failure)
        self.body = None

    def parsed(self) -> Parsed:
        self._settle()
        running = [f"{file}::{name}" for file, name in self.begun.values()]
        # A file whose setup failed skips its tests, and its teardown exceeds the plan.
        short = self.plan is not None and len(self.tests) != self.plan and not self.hooks and not running
        return Parsed(
            tests=distinct(self.tests),
            collection_errors=self.broken,
            ended=self.plan is not None and not running and (len(self.tests) >= self.plan or bool(self.hooks)),
            partial=bool(running),
            notes=[f"the plan says {self.plan} tests, {len(self.tests)} ran"] if short else [],
            running=running,
        )


def _unloaded(match: re.Match[str]) -> Diagnostic:
    return Diagnostic(
        file=match.group("file"),
        line=int(match.group("line")),
        type="SyntaxError",
        message=match.group("message"),
        tool="bash",
    )
