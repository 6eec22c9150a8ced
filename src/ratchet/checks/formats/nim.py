"""Nim's unittest: `[OK]`, `[FAILED]` and `[SKIPPED]` lines; what a test says stands before its line. It has no end."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, compiler, recover
from ratchet.checks.formats.text import Ends, lines
from ratchet.core.report import Failure, TestResult, TestStatus

_TEST = re.compile(r"^\s*\[(?P<word>OK|FAILED|SKIPPED)\] (?P<name>.+)$")
_SUITE = re.compile(r"^\s*\[Suite\] (?P<name>.+)$")
_RAISED = re.compile(r"Unhandled exception: (?P<message>.*?) \[(?P<type>\w+)\]")
_TRACE = re.compile(r"^(?P<file>\S+\.nim)\((?P<line>\d{1,9})\) ", re.M)
_STATUS = {"OK": TestStatus.PASSED, "FAILED": TestStatus.FAILED, "SKIPPED": TestStatus.SKIPPED}


def parse(stream: BinaryIO) -> Parsed:
    """Named as the runner takes them, `suite::test`. The text never says that it is complete."""
    tests: list[TestResult] = []
    suite, body, scan = "", Ends(), compiler.Scan()
    for line in lines(stream):
        if match := _SUITE.match(line):
            suite, body = match.group("name"), Ends()
        elif match := _TEST.match(line):
            tests.append(_test(suite, match, body.text()))
            body = Ends()
        elif not scan.line(line):
            body.add(line + "\n")
    return Parsed(tests=tests, compile_errors=scan.found, ended=bool(tests or scan.found))


def _test(suite: str, match: re.Match[str], body: str) -> TestResult:
    name, status = match.group("name"), _STATUS[match.group("word")]
    failure = _failure(body) if status is TestStatus.FAILED else None
    return TestResult(
        id=f"{suite}::{name}" if suite else name,
        name=name,
        suite=[suite] if suite else [],
        status=status,
        file=failure.file if failure else "",
        failure=failure,
    )


def _failure(body: str) -> Failure:
    raised = _RAISED.search(body)
    if not raised:
        return recover.failure(body, message=body.strip())
    trace = _TRACE.search(body)
    return recover.failure(
        body,
        message=raised.group("message"),
        type=raised.group("type"),
        file=trace.group("file") if trace else "",
        line=int(trace.group("line")) if trace else 0,
    )
