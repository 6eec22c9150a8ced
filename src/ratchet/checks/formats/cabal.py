"""Parses `cabal test`: the output of hspec and tasty between lines that name a test suite and its result.

Both print trees without a mark for passed tests, so a tree counts only if its size matches the summary below; otherwise
only the summary is used. A suite of another library is one test.
"""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, compiler, distinct, recover
from ratchet.checks.formats.text import HeadAndTail, lines
from ratchet.core.report import TestResult, TestStatus

_RUNNING = re.compile(r"^Test suite (?P<name>\S+): RUNNING\.\.\.$")
_OVER = re.compile(r"^Test suite (?P<name>\S+): (?P<word>PASS|FAIL)$")
_HSPEC_SUM = re.compile(
    r"^(?P<tests>\d{1,9}) examples?, (?P<failed>\d{1,9}) failures?(?:, (?P<skipped>\d{1,9}) pending)?$"
)
_TASTY_SUM = re.compile(
    r"^(?:All (?P<all>\d{1,9}) tests? passed|(?P<failed>\d{1,9}) out of (?P<tests>\d{1,9}) tests? failed)"
)
_HSPEC_ROW = re.compile(
    r"^(?P<indent> *)(?P<name>\S.*?)(?: \([\d.]+ms\))?(?: FAILED \[(?P<number>\d{1,9})\]| \[(?P<mark>[^\w\s])\])?$"
)
_PENDING = re.compile(r"^ +# PENDING: (?P<reason>.*)$")
_HSPEC_PLACE = re.compile(r"^  (?P<file>\S+?):(?P<line>\d{1,9}):\d{1,9}: *$")
_HSPEC_FAILURE = re.compile(r"^  (?P<number>\d{1,9}\)) ")
_TASTY_ROW = re.compile(r"^(?P<indent> *)(?P<name>\S.*?): +(?P<word>OK|FAIL)(?: \((?P<seconds>[\d.]{1,12})s\))?$")
_TASTY_PLACE = re.compile(r"^(?P<file>\S+\.hs):(?P<line>\d{1,9}):", re.M)
_RAISED = re.compile(r"(?:uncaught exception: (?P<type>\w+)|^Exception: )", re.M)
_VALUES = re.compile(r"^expected: (?P<expected>(?:.|\n(?! but got))*)\n but got: (?P<actual>.*(?:\n {10}.*)*)", re.M)
_CALLED = re.compile(r"called at (?P<file>\S+?):(?P<line>\d{1,9}):\d+ in ")

SIGN = re.compile(rb"Test suite \S+: RUNNING")


def parse(stream: BinaryIO) -> Parsed:
    """Name the tests as each library selects them: `suite:/group/test/` for hspec, `suite:group.test` for tasty."""
    reader = _Cabal()
    for line in lines(stream):
        reader.line(line)
    return reader.parsed()


class _Cabal:
    def __init__(self) -> None:
        self.scan = compiler.CompilerScan()
        self.tests: list[TestResult] = []
        self.reported: dict[str, int] = {}
        self.name = ""
        self.suites = 0
        self.hspec, self.tasty = _Hspec(), _Tasty()

    def line(self, line: str) -> None:
        if match := _RUNNING.match(line):
            self.name, self.hspec, self.tasty = match.group("name"), _Hspec(), _Tasty()
        elif self.name and (match := _OVER.match(line)):
            self.suites += 1
            self._close(good=match.group("word") == "PASS")
        elif self.name:
            self.hspec.line(line)
            self.tasty.line(line)
        else:
            self.scan.line(line)

    def _close(self, *, good: bool) -> None:
        library = self.hspec if self.hspec.sums else self.tasty
        tests = library.tests(self.name)
        if not library.sums:
            tests = [_whole(self.name, self.tasty.body.text(), good=good)]
            sums = {"tests": 1}
        else:
            sums = library.sums
            tests = tests if len(tests) == sums["tests"] else []
        self.tests += tests
        self.reported = {key: self.reported.get(key, 0) + sums.get(key, 0) for key in ("tests", "failed", "skipped")}
        if not library.sums:
            self.reported["failed"] += not good
        self.name = ""

    def parsed(self) -> Parsed:
        begun = [self.name] if self.name else []
        return Parsed(
            tests=distinct(self.tests),
            compile_errors=self.scan.found,
            reported=self.reported,
            ended=not begun and bool(self.suites or self.scan.found),
            partial=bool(begun),
            running=begun,
        )


def _whole(name: str, text: str, *, good: bool) -> TestResult:
    failure = None if good else recover.failure(text, message=text.strip() or "failed")
    return TestResult(id=name, name=name, status=TestStatus.PASSED if good else TestStatus.FAILED, failure=failure)


class _Row:
    def __init__(self, path: list[str], status: TestStatus, *, number: str = "", seconds: float = 0.0) -> None:
        self.path = path
        self.status = status
        self.number = number
        self.seconds = seconds
        self.reason = ""
        self.body = HeadAndTail()


class _Tree:
    """Tracks groups by indentation: a row belongs to the last rows that were less indented."""

    def __init__(self) -> None:
        self.above: list[tuple[int, str]] = []
        self.rows: list[_Row] = []
        self.sums: dict[str, int] = {}

    def place(self, indent: int, name: str) -> list[str]:
        self.above = [*(each for each in self.above if each[0] < indent), (indent, name)][-50:]
        return [each for _, each in self.above]


class _Hspec(_Tree):
    def __init__(self) -> None:
        super().__init__()
        self.failing = False
        self.at: re.Match[str] | None = None
        self.number = ""
        self.output: dict[str, tuple[re.Match[str] | None, HeadAndTail]] = {}

    def line(self, line: str) -> None:
        if match := _HSPEC_SUM.match(line):
            self.sums = {key: int(value or 0) for key, value in match.groupdict().items()}
        elif line == "Failures:" or line.startswith(("Finished in ", "Randomized with seed ")):
            self.failing = True
        elif self.failing:
            self._failure(line)
        elif self.rows and (match := _PENDING.match(line)):
            self.rows[-1].status, self.rows[-1].reason = TestStatus.SKIPPED, match.group("reason")
        elif match := _HSPEC_ROW.match(line):
            self._row(match)

    def _row(self, match: re.Match[str]) -> None:
        indent = len(match.group("indent"))
        # A row followed by a deeper one is a group.
        if self.rows and self.above and self.above[-1][0] < indent and not self.rows[-1].number:
            self.rows.pop()
        path = self.place(indent, match.group("name"))
        red = match.group("number") or match.group("mark") == "✘"
        status = TestStatus.FAILED if red else TestStatus.PASSED
        self.rows.append(_Row(path, status, number=match.group("number") or ""))

    def _failure(self, line: str) -> None:
        if match := _HSPEC_PLACE.match(line):
            self.at = match
        elif match := _HSPEC_FAILURE.match(line):
            self.number = match.group("number")[:-1]
            self.output[self.number] = (self.at, HeadAndTail())
            self.at = None
        elif self.number and line.startswith("  To rerun use:"):
            self.number = ""
        elif self.number:
            self.output[self.number][1].add(f"{line[7:]}\n")

    def tests(self, suite: str) -> list[TestResult]:
        return [self._test(suite, row) for row in self.rows]

    def _test(self, suite: str, row: _Row) -> TestResult:
        at, output = self.output.get(row.number, (None, HeadAndTail()))
        return _result(f"{suite}:/{'/'.join(row.path)}/", suite, row, output.text(), at)


class _Tasty(_Tree):
    def __init__(self) -> None:
        super().__init__()
        self.body = HeadAndTail()
        self.indent = -1

    def line(self, line: str) -> None:
        self.body.add(f"{line}\n")
        indent = len(line) - len(line.lstrip(" "))
        if match := _TASTY_SUM.match(line):
            self.sums = {"tests": int(match["all"] or match["tests"]), "failed": int(match["failed"] or 0)}
        elif line and self.rows and indent > self.indent >= 0:
            self.rows[-1].body.add(f"{line[self.indent + 2 :]}\n")
        elif match := _TASTY_ROW.match(line):
            self.indent = indent
            status = TestStatus.PASSED if match["word"] == "OK" else TestStatus.FAILED
            seconds = float(match["seconds"]) if (match["seconds"] or "").count(".") == 1 else 0.0
            self.rows.append(_Row(self.place(indent, match["name"]), status, seconds=seconds))
        elif line.strip():
            self.indent = -1
            self.place(indent, line.strip())

    def tests(self, suite: str) -> list[TestResult]:
        return [self._test(suite, row) for row in self.rows]

    def _test(self, suite: str, row: _Row) -> TestResult:
        output = re.sub(r"(?m)^Use -p .* to rerun this test only\.\n?", "", row.body.text())
        return _result(f"{suite}:{'.'.join(row.path)}", suite, row, output, _TASTY_PLACE.search(output))


def _result(name: str, suite: str, row: _Row, text: str, at: re.Match[str] | None) -> TestResult:
    failure = None
    if row.status is TestStatus.FAILED:
        raised, called = _RAISED.search(text), _CALLED.search(text)
        place, values = at or called, _VALUES.search(text)
        failure = recover.failure(
            text,
            message=text.strip() or "failed",
            type=(raised.group("type") or "Exception") if raised else "",
            file=place.group("file") if place else "",
            line=int(place.group("line")) if place else 0,
            expected=values.group("expected").strip() if values else None,
            actual=values.group("actual").strip() if values else None,
        )
    return TestResult(
        id=name,
        name=row.path[-1],
        suite=[suite, *row.path[:-1]],
        status=row.status,
        duration_s=row.seconds,
        reason=row.reason,
        failure=failure,
    )
