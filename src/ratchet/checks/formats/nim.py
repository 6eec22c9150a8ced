"""Parses Nim's unittest: lines `[OK]`, `[FAILED]` and `[SKIPPED]`, each after the test's output. There is no end
marker.

`nimble` names each file around them. A file that only asserts is one test, and its exit status is the result.
"""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, compiler, recover
from ratchet.checks.formats.text import PROSE_LIMIT, HeadAndTail, lines
from ratchet.core.report import Failure, TestResult, TestStatus

_TEST = re.compile(r"^\s*\[(?P<word>OK|FAILED|SKIPPED)\] (?P<name>.+)$")
_SUITE = re.compile(r"^\s*\[Suite\] (?P<name>.+)$")
_RAISED = re.compile(r"Unhandled exception: (?P<message>.*?) \[(?P<type>\w+)\]")
_TRACE = re.compile(r"^(?P<file>\S+\.nim)\((?P<line>\d{1,9})\) ", re.M)
_FILE = re.compile(r"^\s*Compiling (?P<file>\S+) \(from package .+\) using \w+ backend$")
_OVER = re.compile(r"^\s*(?:(?P<good>Success): Execution finished|Error: Execution failed with exit code \d+)$")
_DIED = re.compile(
    r"Error: unhandled exception: (?:(?P<file>\S+\.nim)\((?P<line>\d{1,9}), \d+\) )?(?P<message>.*?) +\[(?P<type>\w+)\]"
)
_STATUS = {"OK": TestStatus.PASSED, "FAILED": TestStatus.FAILED, "SKIPPED": TestStatus.SKIPPED}

SIGN = re.compile(rb"\[(?:OK|FAILED|SKIPPED)\] |\(from package ")


def parse(stream: BinaryIO) -> Parsed:
    """Return the tests as `suite::test`, as the runner accepts them. The output never shows that it is complete."""
    tests: list[TestResult] = []
    suite, file, before, body, scan = "", "", 0, HeadAndTail(), compiler.CompilerScan()
    for line in lines(stream, limit=PROSE_LIMIT):
        if match := _FILE.match(line):
            suite, file, before, body = "", f"{match.group('file').removesuffix('.nim')}.nim", len(tests), HeadAndTail()
        elif match := _SUITE.match(line):
            suite, body = match.group("name"), HeadAndTail()
        elif match := _TEST.match(line):
            tests.append(_test(suite, file, match, body.text()))
            body = HeadAndTail()
        elif file and (match := _OVER.match(line)):
            tests += _whole(file, tests[before:], body.text(), good=bool(match.group("good")), broken=bool(scan.found))
            file = ""
        elif _DIED.search(line) or not scan.line(line):
            body.add(line + "\n")
    return Parsed(tests=tests, compile_errors=scan.found, ended=bool(tests or scan.found))


def _whole(file: str, inner: list[TestResult], body: str, *, good: bool, broken: bool) -> list[TestResult]:
    """Return the file as a test, if it has none of its own or if it failed and none of them did."""
    reported = inner if good else [test for test in inner if test.failure]
    if reported or broken:
        return []
    died = _DIED.search(body)
    failure = recover.failure(
        body,
        message=died.group("message") if died else body.strip(),
        type=died.group("type") if died else "",
        file=(died.group("file") or "") if died else "",
        line=int(died.group("line") or 0) if died else 0,
    )
    status = TestStatus.PASSED if good else TestStatus.FAILED
    return [TestResult(id=file, name=file, file=file, status=status, failure=None if good else failure)]


def _test(suite: str, file: str, match: re.Match[str], body: str) -> TestResult:
    name, status = match.group("name"), _STATUS[match.group("word")]
    failure = _failure(body) if status is TestStatus.FAILED else None
    return TestResult(
        id=f"{suite}::{name}" if suite else name,
        name=name,
        suite=[suite] if suite else [],
        status=status,
        file=(failure.file if failure else "") or file,
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
