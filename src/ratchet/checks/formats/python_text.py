"""What pytest and unittest print for people, as dialects of the console."""

from __future__ import annotations

import re
from typing import ClassVar

from ratchet.checks.formats import Parsed
from ratchet.checks.formats.dialect import STATUS, Dialect, Test
from ratchet.core.report import Diagnostic, TestStatus

_COLLECTING = "ERROR collecting "


class Pytest(Dialect):
    """With `-v` each test has a line; without it those that failed have one at the end, below what is told of them."""

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
    _SHORT = re.compile(r"^(?P<word>FAILED|ERROR) (?P<id>\S+?\.py::.+?)(?: - (?P<why>.*))?$")
    _AT = re.compile(r"(?m)^(?P<file>[^\s:]+\.py):\d+: ")
    _SUM = re.compile(r"^(?:=+ )?(?P<counts>\d+ [a-z]+(?:, \d+ [a-z ]+)*) in [\d.]+s(?: \([\d:]+\))?(?: =+)?$")
    _COUNTED: ClassVar = {"failed": "failed", "passed": "passed", "error": "errors", "errors": "errors"}

    joint = "::"

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, Test] = {}
        self.loading: Test | None = None
        self.twice: dict[str, int] = {}
        self.told: dict[str, list[Test]] = {}  # what is told of tests whose files are not known yet

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

    def _file(self, name: str) -> Test | None:
        """What is told of a file that could not be loaded, which is no test."""
        self.loading = Test("", TestStatus.ERROR, file=name.removeprefix(_COLLECTING)) if _COLLECTING in name else None
        return self.loading

    def _unplaced(self, name: str, *, around: bool) -> Test:
        found = Test(name, TestStatus.ERROR if around else TestStatus.FAILED)
        self.told.setdefault(name, []).append(found)
        return found

    def _short(self, name: str, word: str, why: str) -> None:
        self._row(name, word)
        if made := self.known.get(name):
            told = self.told.get(self.title(made), [])
            made.said, made.why = (told.pop(0).said, "") if told else (made.said, why)

    def _sum(self, counts: str) -> None:
        """A log may hold several runs."""
        for count, word in re.findall(r"(\d{1,9}) ([a-z]+)", counts):
            if key := self._COUNTED.get(word):
                self.reported[key] = self.reported.get(key, 0) + int(count)

    def parsed(self, told: Parsed) -> Parsed:
        """Some want no list at the end: then of those that failed there is only what is told of them."""
        for test in [each for told in self.told.values() for each in told] if not self.known else []:
            at = self._AT.search(test.said.text())
            *suite, own = re.split(r"\.(?![^\[]*\])", test.name)
            if made := self.add(own, test.status, file=at["file"] if at else "", suite=suite):
                made.said = test.said
        return super().parsed(told)

    def _over(self) -> None:
        if self.loading:
            error = self.loading.result("").failure
            kind, said = (error.type, error.message) if error else ("", "")
            self.unloaded.append(Diagnostic(file=self.loading.file, type=kind, message=said))
        self.loading = self.about = None

    def _row(self, name: str, word: str) -> None:
        """A test that passes and then fails in its teardown has two lines."""
        file, _, rest = name.partition("::")
        *suite, own = re.split(r"::(?![^\[]*\])", rest)
        if before := self.known.get(name):
            self._worse(before, STATUS[word.lower()])
        elif made := self.add(own, word, file=file, suite=suite):
            self.known[name] = made
        self.about = None

    def _worse(self, test: Test, status: TestStatus) -> None:
        """Each of its ends is in pytest's counts."""
        word = "passed" if test.status is TestStatus.PASSED else "failed" if test.is_red else "skipped"
        self.twice[word] = self.twice.get(word, 0) + 1
        test.status = max(test.status, status, key=_GRAVE.index)
        self.red.setdefault(self.title(test), test)

    def counted(self, reported: dict[str, int]) -> dict[str, int]:
        return {name: max(0, count - self.twice.get(name, 0)) for name, count in reported.items()}

    def title(self, test: Test) -> str:
        return ".".join([*test.suite, test.name])


_GRAVE = [*(status for status in TestStatus if status not in (TestStatus.FAILED, TestStatus.ERROR)),
          TestStatus.FAILED, TestStatus.ERROR]  # fmt: skip


class Unittest(Dialect):
    """nose and Django too. Without `-v` only those that failed are named, above what is told of them."""

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
        self.is_ruled = self.is_listed = False  # below a rule of equal signs; tests have lines of their own

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
        """Hooks are not among those that ran, and of one test's subtests each that failed is a failure."""
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
    """As unittest takes it; since 3.11 the method is in the brackets too."""
    return where if where.endswith(f".{name}") else f"{where}.{name}"
