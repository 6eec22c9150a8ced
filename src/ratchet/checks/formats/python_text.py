"""Parses the console output of pytest and unittest."""

from __future__ import annotations

import re
from typing import ClassVar

from ratchet.checks.formats import Parsed
from ratchet.checks.formats.dialect import STATUS, ConsoleDialect, ConsoleTest
from ratchet.core.report import Diagnostic, TestStatus

_COLLECTING = "ERROR collecting "


class PytestConsole(ConsoleDialect):
    """With `-v` each test has a line; without it failed ones have one at the end, after their details."""

    sign = re.compile(
        rb"\.py::\S+ (?:PASS|FAIL|ERR|SKIP|XFAIL|XPASS)|^\[gw\d+\]|^(?:FAILED|ERROR) \S+\.py\b"
        rb"|^=+ (?:FAILURES|ERRORS) =+\r?$",
        re.M,
    )
    _ROW = re.compile(
        r"^(?P<id>\S+?\.py::.+?) (?P<word>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)(?: \(.*\))?(?:\s+\[ *\d+%\])?$"
        r"|^\[gw\d+\](?: \[ *\d+%\])? (?P<word1>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (?P<id1>\S+?\.py::.+?)\s*$"
    )
    _SUB = re.compile(r"^SUBFAILED(?:[(\[].*?[)\]])? (?P<id>\S+?\.py::.+?)(?: - .*)?$")
    _HEAD = re.compile(r"^_{3,} (?:ERROR at (?:setup|teardown) of )?(?P<name>\S.*?) _{3,}$")
    _SHORT = re.compile(r"^(?P<word>FAILED|ERROR) (?P<id>\S+?\.py::(?:[^\s\[]+\[.*?\]|.+?))(?: - (?P<why>.*))?$")
    _AT = re.compile(r"(?m)^(?P<file>[^\s:]+\.py):\d+: ")
    _SUM = re.compile(r"^(?:=+ )?(?P<counts>\d+ [a-z]+(?:, \d+ [a-z ]+)*) in [\d.]+s(?: \([\d:]+\))?(?: =+)?$")
    _COUNTED: ClassVar = {"failed": "failed", "passed": "passed", "error": "errors", "errors": "errors"}

    joint = "::"

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, ConsoleTest] = {}
        self.loading: ConsoleTest | None = None
        self.twice: dict[str, int] = {}
        self.details: dict[str, list[ConsoleTest]] = {}  # details of tests whose files are not known yet

    def line(self, line: str) -> None:
        if match := self._ROW.match(line):
            self._row(match["id"] or match["id1"], match["word"] or match["word1"])
        elif match := self._HEAD.match(line):
            self._over()
            self.about = self.red.get(match["name"]) or self._file(match["name"])
            self.about = self.about or self._unplaced(match["name"], around=" ERROR at " in line)
        elif (match := self._SHORT.match(line)) and match["id"] not in self.known:
            self._short(match["id"], match["word"], match["why"] or "")
        elif match := self._SUM.match(line):
            self._over()
            self._sum(match["counts"])
        elif (match := self._SUB.match(line)) and match["id"] in self.known:
            self._worse(self.known[match["id"]], TestStatus.FAILED)
        elif line.startswith("==="):
            self._over()
        else:
            self.say(line)

    def _file(self, name: str) -> ConsoleTest | None:
        """Report a file that failed to load, which is not a test."""
        self.loading = (
            ConsoleTest("", TestStatus.ERROR, file=name.removeprefix(_COLLECTING)) if _COLLECTING in name else None
        )
        return self.loading

    def _unplaced(self, name: str, *, around: bool) -> ConsoleTest:
        found = ConsoleTest(name, TestStatus.ERROR if around else TestStatus.FAILED)
        self.details.setdefault(name, []).append(found)
        return found

    def _short(self, name: str, word: str, why: str) -> None:
        self._row(name, word)
        if made := self.known.get(name):
            details = self.details.get(self.title(made), [])
            made.output, made.why = (details.pop(0).output, "") if details else (made.output, why)

    def _sum(self, counts: str) -> None:
        """Add up totals: a log may contain several runs."""
        for count, word in re.findall(r"(\d{1,9}) ([a-z]+)", counts):
            if key := self._COUNTED.get(word):
                self.reported[key] = self.reported.get(key, 0) + int(count)

    def parsed(self, summary: Parsed) -> Parsed:
        """Return the results; if the list at the end is disabled, failures are known only from their details."""
        for test in [each for summary in self.details.values() for each in summary] if not self.known else []:
            at = self._AT.search(test.output.text())
            *suite, own = re.split(r"\.(?![^\[]*\])", test.name)
            if made := self.add(own, test.status, file=at["file"] if at else "", suite=suite):
                made.output = test.output
        return super().parsed(summary)

    def _over(self) -> None:
        if self.loading:
            error = self.loading.result("").failure
            kind, message = (error.type, error.message) if error else ("", "")
            self.unloaded.append(Diagnostic(file=self.loading.file, type=kind, message=message))
        self.loading = self.about = None

    def _row(self, name: str, word: str) -> None:
        """Add a row: a test that passes and then fails in its teardown has two."""
        file, _, rest = name.partition("::")
        *suite, own = re.split(r"::(?![^\[]*\])", rest)
        if before := self.known.get(name):
            self._worse(before, STATUS[word.lower()])
        elif made := self.add(own, word, file=file, suite=suite):
            self.known[name] = made
        self.about = None

    def _worse(self, test: ConsoleTest, status: TestStatus) -> None:
        """Merge the rows of a test; pytest counts each of them."""
        word = "passed" if test.status is TestStatus.PASSED else "failed" if test.is_red else "skipped"
        self.twice[word] = self.twice.get(word, 0) + 1
        test.status = max(test.status, status, key=_GRAVE.index)
        self.red.setdefault(self.title(test), test)

    def counted(self, reported: dict[str, int]) -> dict[str, int]:
        return {name: max(0, count - self.twice.get(name, 0)) for name, count in reported.items()}

    def title(self, test: ConsoleTest) -> str:
        return ".".join([*test.suite, test.name])


_GRAVE = [*(status for status in TestStatus if status not in (TestStatus.FAILED, TestStatus.ERROR)),
          TestStatus.FAILED, TestStatus.ERROR]  # fmt: skip


class UnittestConsole(ConsoleDialect):
    """Also nose and Django. Without `-v` only failed tests are named, above their details."""

    sign = re.compile(rb" \.\.\. (?:ok|FAIL|ERROR|skipped|expected failure)\b|^={70}\r?\n(?:FAIL|ERROR): ", re.M)
    _WORD = r"(?P<word>ok|FAIL|ERROR|skipped|expected failure|unexpected success)(?: .*)?$"
    _WHO = r"(?P<name>\w+) \((?P<where>[\w.]+)\)(?P<sub> (?:\[.*\]|\(.*\)))?"
    _ROW = re.compile(rf"^(?P<space> *){_WHO} \.\.\. {_WORD}")
    _NAME = re.compile(r"^(?P<name>\w+) \((?P<where>[\w.]+)\)$")
    _DOC = re.compile(rf"^.* \.\.\. {_WORD}")
    _HEAD = re.compile(rf"^(?P<word>FAIL|ERROR): (?:{_WHO}|(?P<whole>\S.*))$")

    def __init__(self) -> None:
        super().__init__()
        self.named: re.Match[str] | None = None
        self.parents: set[str] = set()
        self.uncounted = 0
        self.is_ruled = self.is_listed = False  # below a line of equal signs; tests have lines of their own

    def line(self, line: str) -> None:
        named, self.named = self.named, self._NAME.match(line)
        is_ruled, self.is_ruled = self.is_ruled, line.startswith("=" * 70)
        if match := self._ROW.match(line):
            self._row(match["name"], match["where"], match["word"], match["sub"] or "")
        elif named and (match := self._DOC.match(line)):
            self._row(named["name"], named["where"], match["word"])
        elif is_ruled and (match := self._HEAD.match(line)):
            self._head(match)
        elif line.startswith(("=====", "Ran ")):
            self.about = None
        elif not line.startswith("-----"):
            self.say(line)

    def _head(self, match: re.Match[str]) -> None:
        full = match["whole"] or _unittest_name(match["name"], match["where"]) + (match["sub"] or "")
        self.about = self.red.get(full)
        if not self.about and not self.is_listed:
            self.about = self.add(full, match["word"])

    def _row(self, name: str, where: str, word: str, sub: str = "") -> None:
        """Add a row: hooks do not count as tests, and each failed subtest is a failure."""
        full = _unittest_name(name, where)
        self.uncounted += name in ("setUpClass", "tearDownClass", "setUpModule", "tearDownModule")
        if sub:
            self.uncounted += full in self.parents
            self.parents.add(full)
        self.add(full + sub, word)
        self.about, self.is_listed = None, True

    def counted(self, reported: dict[str, int]) -> dict[str, int]:
        return reported | ({"tests": reported["tests"] + self.uncounted} if "tests" in reported else {})


def _unittest_name(name: str, where: str) -> str:
    """Return the name that unittest accepts; since 3.11 the brackets include the method."""
    return where if where.endswith(f".{name}") else f"{where}.{name}"
