"""Parses `dune test`: the output of Alcotest, and of verbose OUnit, of one program after the other.

For any other program only its failure is known: it is one test with the program's name. There is no end marker.
"""

from __future__ import annotations

import re
from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, compiler, distinct, recover
from ratchet.checks.formats.text import HeadAndTail, lines
from ratchet.core.report import Failure, TestResult, TestStatus

_PROGRAM = re.compile(r"^ *(?P<name>\S+) alias (?P<folder>\S*?)/?runtest(?: \((?P<end>exit \d+|got signal \w+)\))?$")
_SUITE = re.compile(r"^Testing [`'](?P<name>.*)'\.$")
_ROW = re.compile(r"^[> ] \[(?P<word>OK|FAIL|SKIP)\] +(?P<group>\S.*?) +(?P<index>\d+)   (?P<name>.*?)\.?$")
_BOX = re.compile(r"^│ \[FAIL\] +(?P<group>\S.*?) +(?P<index>\d+)   .*│$")
_ALCOTEST_END = re.compile(
    r"^(?:Test Successful|(?P<failed>\d{1,9}) failures?!) in [\d.]+s\. (?P<tests>\d{1,9}) tests? run\.$"
)
_OUNIT = re.compile(r"^\d{4}-\d\d-\d\dT\S+ \S+ [A-Z]: (?P<output>.*)$")
_OUNIT_TEST = re.compile(
    r"^(?:Test (?P<run>.+) (?P<word>is successful|has failed|exited with an error|timed out)\b.*"
    r"|(?P<left>Skip|TODO) test (?P<name>\S+): (?P<reason>.*?)\.?)$"
)
_OUNIT_SUM = re.compile(r"^(?P<word>Cases|Errors|Failures|Skip|Todo): (?P<n>\d{1,9})\.$")
_CALLED = re.compile(r'(?:Raised at|Called from) .* in file "(?P<file>[^"]+)", line (?P<line>\d{1,9}), ')
_UNCAUGHT = re.compile(
    r'^Fatal error: exception (?:File "(?P<file>[^"]+)", line (?P<line>\d{1,9}), [^:]*: )?(?P<message>.*)$', re.M
)
_ALCOTEST_VALUES = re.compile(r"^ *Expected: `(?P<expected>.*?)'\n *Received: `(?P<actual>.*?)'$", re.M | re.S)
_STATUS = {"OK": TestStatus.PASSED, "FAIL": TestStatus.FAILED, "SKIP": TestStatus.SKIPPED}
_WORDS = {
    "is successful": TestStatus.PASSED,
    "has failed": TestStatus.FAILED,
    "exited with an error": TestStatus.ERROR,
    "timed out": TestStatus.ERROR,
}
_SUMS = {"Cases": "tests", "Errors": "errors", "Failures": "failed", "Skip": "skipped", "Todo": "failed"}

SIGN = re.compile(rb" alias \S*runtest|\btests? run\.|^Cases: \d", re.M)


def parse(stream: BinaryIO) -> Parsed:
    """Name the tests `suite::group > test` for Alcotest, and as OUnit names them."""
    reader = _Dune()
    for line in lines(stream):
        reader.line(line)
    return reader.parsed()


class _Dune:
    def __init__(self) -> None:
        self.scan = compiler.CompilerScan()
        self.tests: list[TestResult] = []
        self.reported: dict[str, int] = {}
        self.begun: dict[str, None] = {}
        self.cut: list[str] = []
        self.rows: dict[tuple[str, str], int] = {}
        self.body: HeadAndTail | None = None
        self._program("", "", "")

    def _program(self, name: str, folder: str, end: str) -> None:
        self.file = f"{folder}/{name}.ml".lstrip("/") if name else ""
        self.program, self.end, self.before = name, end, len(self.tests)
        self.suite, self.summary, self.output = "", False, HeadAndTail()

    def line(self, line: str) -> None:
        if match := _PROGRAM.match(line):
            self._close()
            self._program(match["name"], match["folder"], match["end"] or "")
        elif match := _SUITE.match(line):
            self.suite, self.rows = match["name"], {}
        elif match := _OUNIT.match(line):
            self._ounit(match["output"])
        elif self.suite:
            self._alcotest(line)
        else:
            self.output.add(f"{line}\n")
            self.scan.line(line)

    def _alcotest(self, line: str) -> None:
        if match := _ROW.match(line):
            self.rows[match["group"], match["index"]] = len(self.tests)
            self._take(f"{self.suite}::{match['group']} > {match['name']}", match["name"], _STATUS[match["word"]])
        elif match := _BOX.match(line):
            self._settle()
            self.at, self.body = self.rows.get((match["group"], match["index"]), -1), HeadAndTail()
        elif match := _ALCOTEST_END.match(line):
            self._settle()
            self._count({"tests": int(match["tests"]), "failed": int(match["failed"] or 0)})
            self.suite = ""
        elif self.body:
            self.body.add(f"{line}\n")

    def _take(self, name: str, own: str, status: TestStatus, reason: str = "", failure: Failure | None = None) -> None:
        self.tests.append(TestResult(id=name, name=own, status=status, file=self.file, reason=reason, failure=failure))

    def _count(self, sums: dict[str, int]) -> None:
        self.reported = {key: self.reported.get(key, 0) + sums.get(key, 0) for key in {*self.reported, *sums}}

    def _settle(self) -> None:
        """Finish a failed Alcotest test, whose details follow in a box after all tests."""
        if self.body and 0 <= self.at < len(self.tests):
            output = self.body.text().partition("\nLogs saved to ")[0].strip("\n┘└─┌┐ ")
            failure = _failure(output, _ALCOTEST_VALUES.search(output))
            self.tests[self.at] = msgspec.structs.replace(self.tests[self.at], failure=failure)
        self.body = None

    def _ounit(self, text: str) -> None:
        if text == "Summary:":
            self.summary = True
        elif text.startswith("Start test "):
            self.begun[text[11:].rstrip(".")] = None
        elif text.startswith("End test "):
            self.begun.pop(text[9:].rstrip("."), None)
        elif self.summary and (match := _OUNIT_TEST.match(text)):
            self._close_ounit()
            status = _WORDS.get(match["word"] or "", TestStatus.SKIPPED)
            name, reason = match["run"] or match["name"], match["reason"] or ""
            # OUnit treats a todo as a failure.
            todo = Failure(type="TODO", message=reason) if match["left"] == "TODO" else None
            status = TestStatus.FAILED if todo else status
            self._take(name, name.rpartition(":")[2], status, reason="" if todo else reason, failure=todo)
            self.body = HeadAndTail() if match["run"] and status is not TestStatus.PASSED else None
        elif self.summary and (match := _OUNIT_SUM.match(text)):
            self._close_ounit()
            self._count({_SUMS[match["word"]]: int(match["n"])} if match["word"] in _SUMS else {})
        elif self.body:
            self.body.add(f"{text}\n")

    def _close_ounit(self) -> None:
        if self.body:
            name = self.tests[-1].id
            output = self.body.text().replace(f" in test {name}.", "").strip()
            self.tests[-1] = msgspec.structs.replace(self.tests[-1], failure=_failure(output, None))
        self.body = None

    def _close(self) -> None:
        self._settle() if self.suite else self._close_ounit()
        self.cut += [self.suite] if self.suite else []
        if self.program and self.end and len(self.tests) == self.before and not self.begun:
            self._take(self.program, self.program, TestStatus.FAILED, failure=_died(self.output.text(), self.end))
            self._count({"tests": 1, "failed": 1})

    def parsed(self) -> Parsed:
        self._close()
        running = [*self.cut, *self.begun]
        # OUnit refers to its own logs in the form of a compiler error.
        broken = [error for error in self.scan.found if not error.file.endswith(".log")]
        return Parsed(
            tests=distinct(self.tests),
            compile_errors=broken,
            reported=self.reported,
            ended=bool(self.tests or broken) and not running,
            partial=bool(running),
            running=running,
        )


def _failure(text: str, values: re.Match[str] | None) -> Failure:
    """Build the failure. The library's own frames are on the stack; `relative_paths` drops those outside the
    project."""
    places = [
        match for match in _CALLED.finditer(text) if not re.match(r"src/(?:lib/ounit|alcotest)|stdlib", match["file"])
    ]
    message = text.partition("\nRaised at ")[0].partition("\n          Raised at ")[0].strip()
    found = recover.failure(
        message,
        message=message,
        file=places[0]["file"] if places else "",
        line=int(places[0]["line"]) if places else 0,
        expected=values["expected"] if values else None,
        actual=values["actual"] if values else None,
    )
    return found if places else msgspec.structs.replace(found, file="", line=0, frames=[])


def _died(text: str, end: str) -> Failure:
    uncaught = _UNCAUGHT.search(text)
    if not uncaught:
        return recover.failure(text, message=text.strip() or end)
    return Failure(
        message=uncaught["message"], file=uncaught["file"] or "", line=int(uncaught["line"] or 0), type="exception"
    )
