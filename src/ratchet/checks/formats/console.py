"""Parses the console output of runners: every test if each has a line of its own, else the failed ones.

pytest, unittest, jest, mocha's spec, RSpec's documentation, PHPUnit's testdox, ctest, Gradle, Maven, Ant, XCTest.
`ended` is set if there is a summary and the tests agree with it.
"""

# The symbols are the runners' own.
# ruff: noqa: RUF001

from __future__ import annotations

import io
import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, unknown
from ratchet.checks.formats.dialect import ConsoleDialect, ConsoleTest
from ratchet.checks.formats.python_text import PytestConsole, UnittestConsole
from ratchet.checks.formats.swift_text import SwiftConsole
from ratchet.checks.formats.text import HeadAndTail, lines
from ratchet.core.report import Diagnostic

_WIDE = 2_000
_MAX_BYTES = 64 << 20
_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")


def parse(stream: BinaryIO) -> Parsed:
    """Parse with the dialect that recognises most. A log larger than any test list is ignored."""
    content = stream.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        return Parsed()
    content = _COLOUR.sub(b"", content) if b"\x1b[" in content else content
    dialects = [make() for make in _DIALECTS if make.sign.search(content)]
    if not dialects:
        return Parsed()
    totals = unknown.SummaryScan()
    for line in lines(io.BytesIO(content)):
        totals.line(line)
        if len(line) <= _WIDE:
            for dialect in dialects:
                dialect.line(line)
    counts = totals.parsed()
    read = [parsed for dialect in dialects if (parsed := dialect.parsed(counts)).tests or parsed.collection_errors]
    return max(read, key=lambda parsed: (parsed.ended, len(parsed.tests)), default=Parsed())


class _Gradle(ConsoleDialect):
    sign = re.compile(rb"^\w[^\n>]* > [^\n]* (?:PASSED|FAILED|SKIPPED)\b", re.M)
    _ROW = re.compile(r"^(?P<names>[\w$.]+ > \S.*) (?P<word>PASSED|FAILED|SKIPPED)(?: \([^()]*\))?$")

    def line(self, line: str) -> None:
        if match := self._ROW.match(line):
            *suite, name = match["names"].split(" > ")
            self.add(name, match["word"], suite=suite)
        elif line[:1] not in (" ", "\t", ""):
            self.about = None
        else:
            self.say(line)


class _Maven(ConsoleDialect):
    """Only failures have a line; in old versions, in a list at the end."""

    sign = re.compile(rb"<<< (?:FAILURE|ERROR)!|^(?:Failed tests|Tests in error):", re.M)
    _ROW = re.compile(
        r"^(?:\[ERROR\] +)?(?:(?P<suite>[\w$.]+)\.(?P<name>[\w$]+\S*?) (?:-- |\s*)Time elapsed: .*<<< "
        r"(?P<word>FAILURE|ERROR)!"
        r"|(?!Tests run:)(?P<name1>\S.*?)(?:\((?P<suite1>[\w$.]+)\))?\s+Time elapsed: .*<<< (?P<word1>FAILURE|ERROR)!)$"
    )
    _CLASS = re.compile(r"^(?:\[\w+\] +)?Tests run: .*<<< (?:FAILURE|ERROR)! -{1,2} in (?P<name>\S+)$")
    _LIST = re.compile(r"^(?P<word>Failed tests|Tests in error):(?P<rest>.*)$")
    _ITEM = re.compile(r"^\s+(?P<name>\S.*?)(?: on instance .+?)?\((?P<suite>[\w.$]+)\)(?:: ?(?P<why>.*))?$")
    inside = listing = ""

    def line(self, line: str) -> None:
        if match := self._CLASS.match(line):
            self.inside, self.about = match["name"], None
        elif match := self._ROW.match(line):
            word = {"FAILURE": "failed", "ERROR": "error"}[match["word"] or match["word1"]]
            suite, name = match["suite"] or match["suite1"] or self.inside, match["name"] or match["name1"]
            # Surefire may retry failed tests.
            self.about = self.red.get(f"{suite} {name}") or self.add(name, word, suite=[suite])
        elif match := self._LIST.match(line):
            self.listing = "failed" if match["word"] == "Failed tests" else "error"
            self._item(f" {match['rest']}")
        elif self.listing and line.startswith(" "):
            self._item(line)
        elif line.startswith("[") or self.listing:
            self.listing, self.about = "", None
        else:
            self.say(line)

    def _item(self, line: str) -> None:
        match = self._ITEM.match(line)
        if match and f"{match['suite']} {match['name']}" not in self.red:
            made = self.add(match["name"], self.listing, suite=[match["suite"]])
            if made and match["why"]:
                made.why = match["why"]
        self.about = None

    def title(self, test: ConsoleTest) -> str:
        return f"{''.join(test.suite)} {test.name}"


class _Ant(ConsoleDialect):
    """The junit task reports a class after its output. Only failures have a status."""

    sign = re.compile(rb"\[junit\] Testcase: ")
    joint = "#"
    _SUITE = re.compile(r"^\s*\[junit\] Testsuite: (?P<name>\S+)$")
    _CASE = re.compile(
        r"^\s*\[junit\] Testcase: (?P<name>\S+?)(?:\((?P<suite>[\w.$]+)\))?(?: took [\d.,]+ sec|:(?P<rest>.*))?$"
    )
    _WORD = re.compile(r"^\s*\[junit\]?\s*(?P<word>FAILED|Caused an ERROR)$")

    def __init__(self) -> None:
        super().__init__()
        self.suite = self.case = ""

    def line(self, line: str) -> None:
        if match := self._SUITE.match(line):
            self.suite, self.case, self.about = match["name"], "", None
        elif match := self._CASE.match(line):
            self.suite, self.case, self.about = match["suite"] or self.suite, match["name"], None
            self._end((match["rest"] or "").strip())
        elif self.case and (match := self._WORD.match(line)):
            self._end(match["word"])
        elif not line.lstrip().startswith("[junit]"):
            self.about = None
        else:
            self.say(line.lstrip().removeprefix("[junit]").removeprefix(" "))

    def _end(self, word: str) -> None:
        if self.case and word in ("FAILED", "Caused an ERROR"):
            self.add(self.case, "failed" if word == "FAILED" else "error", suite=[self.suite])
            self.case = ""


_CALLED = ("Test command: ", "Working Directory: ", "Test timeout computed to be: ")


class _Ctest(ConsoleDialect):
    sign = re.compile(rb"^ *\d+/\d+ Test +#\d+: ", re.M)
    _ROW = re.compile(
        r"^\s*\d+/\d+ Test +#(?P<n>\d+): (?P<name>.+?) \.{2,}[. ]*(?:(?:Subprocess \w+)?\*\*\*)?"
        r"(?P<why>(?P<word>Passed|Failed|Not Run|Skipped|Timeout|Exception|Disabled)\b(?:: \w+)?)"
    )
    _NUMBERED = re.compile(r"^(?P<n>\d+): ?(?P<text>.*)$")
    _SUM = re.compile(r"^\d+% tests passed, (?P<failed>\d{1,9}) tests? failed out of (?P<tests>\d{1,9})$")

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[str, HeadAndTail] = {}

    def line(self, line: str) -> None:
        if match := self._ROW.match(line):
            made = self.add(match["name"], match["word"].lower())
            if made:
                made.output = self.before.pop(match["n"], made.output)
                made.why = match["why"]
        elif match := self._SUM.match(line):
            self.reported = {name: int(count) for name, count in match.groupdict().items()}
            self.about = None
        elif (match := self._NUMBERED.match(line)) and not match["text"].startswith(_CALLED):
            self.before.setdefault(match["n"], HeadAndTail()).add(f"{match['text']}\n")
        elif re.match(r"^\s+Start +\d+: |^test \d+$", line):
            self.about = None
        else:
            self.say(line)


class _Tree(ConsoleDialect):
    """Groups above their tests, indented by two spaces; failures below, by number or by name."""

    _SIGN = re.compile(
        r"^(?P<space> *)(?P<sign>[✓✔√✕✘×✗○↩∅✎]|-(?= )) (?P<name>.+?)(?: \(\d[\d.]* ?m?s\)| \[[\d.]+ m?s\])?$"
    )

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[tuple[int, str]] = []
        self.file = ""

    def enter(self, depth: int, name: str) -> None:
        self.leave(depth)
        self.groups.append((depth, name))

    def leave(self, depth: int) -> None:
        while self.groups and self.groups[-1][0] >= depth:
            self.groups.pop()

    def test(self, depth: int, name: str, word: str) -> ConsoleTest | None:
        self.leave(depth)
        made = self.add(name, word, file=self.file, suite=[group for _, group in self.groups])
        self.about = None
        return made


class _Jest(_Tree):
    sign = re.compile(rb"^ ?(?:PASS|FAIL) +\S+\.\w+", re.M)
    _FILE = re.compile(r"^ ?(?:PASS|FAIL) {1,2}(?P<file>\S+\.\w+)(?: \([\d.]+ m?s\))?$")
    _HEAD = re.compile(r"^  ● (?P<name>\S.*)$")
    _SOURCE = re.compile(r"^ +(?:> *)?(?:\d+ )?\| ?")

    def __init__(self) -> None:
        super().__init__()
        self.listed: set[str] = set()

    def line(self, line: str) -> None:
        if match := self._FILE.match(line):
            self.file, self.groups, self.about = match["file"].removeprefix("./"), [], None
        elif not self.file:
            return
        elif match := self._HEAD.match(line):
            self.about = self.red.get(f"{self.file} {match['name']}") or self._unlisted(match["name"])
            if match["name"] == "Test suite failed to run":
                self.unloaded.append(Diagnostic(file=self.file, type="", message=match["name"]))
        elif line[:1] not in (" ", ""):
            self.about = None
            self.file = "" if line.startswith(("Test Suites:", "Summary of all")) else self.file
        elif self.about:
            self.say(line) if not self._SOURCE.match(line) else None
        elif match := self._SIGN.match(line):
            self.listed.add(self.file)
            self.test(len(match["space"]), re.sub(r"^(?:skipped|todo) ", "", match["name"]), match["sign"])
        elif line.strip():
            self.enter(len(line) - len(line.lstrip()), line.strip())

    def _unlisted(self, name: str) -> ConsoleTest | None:
        """Add failures: for several files jest lists only the failed tests."""
        if self.file in self.listed or name in ("Console", "Test suite failed to run"):
            return None
        *suite, own = name.split(" › ")
        return self.add(own, "failed", file=self.file, suite=suite)

    def title(self, test: ConsoleTest) -> str:
        return f"{test.file} {' › '.join([*test.suite, test.name])}"


class _Numbered(_Tree):
    """mocha and RSpec: a failure has a number in the tree, and its details follow under that number."""

    _HEAD = re.compile(r"^  (?P<n>\d+)\) (?P<name>.*)$")

    def __init__(self) -> None:
        super().__init__()
        self.numbered: dict[str, ConsoleTest] = {}
        self.telling = self.titled = False
        self.diffs = 0

    def take_detail(self, line: str) -> None:
        if match := self._HEAD.match(line):
            self.about = self.numbered.get(match["n"])
            self.titled = False
            self.diffs = 0
        elif self.about and (self.titled or not self._is_title(line)) and not self._is_repeated(line):
            self.titled = True
            self.say(line)

    def _is_repeated(self, line: str) -> bool:
        """Return whether this is mocha's diff, which repeats the assertion's message."""
        self.diffs += line.strip() in ("+ actual - expected", "+ expected - actual")
        return self.diffs > 1 and not line.lstrip().startswith("at ")

    def _is_title(self, line: str) -> bool:
        """Return whether this repeats the title of the failure: one group a line, and the test's name with a colon."""
        test, text = self.about, line.strip()
        return test is not None and (not text or text in test.suite or text in (test.name, f"{test.name}:"))


class _Mocha(_Numbered):
    sign = re.compile(rb"^  \d+ (?:passing|failing)\b", re.M)
    _RED = re.compile(r"^(?P<space> +)(?P<n>\d+)\) (?P<name>.+)$")
    _SUM = re.compile(r"^  \d+ (?:passing|failing|pending)\b")

    def line(self, line: str) -> None:
        if self._SUM.match(line):
            self.telling = True
        elif self.telling:
            self.take_detail(line)
        elif match := self._SIGN.match(line):
            self.test(len(match["space"]), match["name"], match["sign"]) if match["space"] else None
        elif match := self._RED.match(line):
            if made := self.test(len(match["space"]), match["name"], "failed"):
                self.numbered[match["n"]] = made
        elif re.match(r"^ {2,}\S", line):
            self.enter(len(line) - len(line.lstrip()), line.strip())
        elif line.strip():
            self.groups = []

    def parsed(self, parsed: Parsed) -> Parsed:
        return super().parsed(parsed) if self.telling else Parsed()


class _Rspec(_Numbered):
    """A passed test has no mark: it is a line with nothing below it."""

    sign = re.compile(rb"^\d+ examples?, \d+ failures?\b", re.M)
    _ROW = re.compile(r"^(?P<space> *)(?P<name>\S.*?)(?: \((?:FAILED - (?P<n>\d+)|(?P<pending>PENDING: .*))\))?$")
    _PLACE = re.compile(r"^rspec (?P<file>\./\S+?):(?P<line>\d+) # (?P<name>.*)$")

    def __init__(self) -> None:
        super().__init__()
        self.open: tuple[int, str] | None = None
        self.is_red = False

    def line(self, line: str) -> None:
        if line.startswith(("Failures:", "Pending:", "Finished in ", "Failed examples:")):
            self._close(-1)
            self.telling, self.is_red, self.about = True, line.startswith("Failures:"), None
        elif self.telling:
            self.take_detail(line) if self.is_red else None
        elif not line.strip():
            self._close(-1)
        elif match := self._ROW.match(line):
            self._row(match)

    def _row(self, match: re.Match[str]) -> None:
        depth = len(match["space"])
        self._close(depth)
        if match["n"] or match["pending"]:
            made = self.test(depth, match["name"], "failed" if match["n"] else "skipped")
            if made and match["n"]:
                self.numbered[match["n"]] = made
        else:
            self.open = depth, match["name"]

    def _close(self, depth: int) -> None:
        """Close the open line: a group if this line is below it, else a test; at the margin it is neither."""
        if self.open and depth > self.open[0]:
            self.enter(*self.open)
        elif self.open and self.open[0]:
            self.test(*self.open, "passed")
        self.open = None

    def parsed(self, parsed: Parsed) -> Parsed:
        """Require a matching summary: any indented text looks like this format."""
        whole = super().parsed(parsed)
        return whole if whole.ended else Parsed()


class _Testdox(_Tree):
    sign = re.compile(rb"^ \xe2(?:\x9c[\x94\x98]|\x86\xa9|\x88\x85) ", re.M)
    joint = "::"
    _CLASS = re.compile(r"^(?:\S.* \((?P<full>[\w\\]+)\)|(?P<name>\w[\w ]*))$")
    _HEAD = re.compile(r"^\d+\) (?P<class>[\w\\]+)::(?P<name>\w+)")

    def line(self, line: str) -> None:
        if match := self._HEAD.match(line):
            self.about = self.red.get(f"{match['class']} {_letters(match['name'])}")
        elif match := self._CLASS.match(line):
            self.groups, self.about = [(0, match["full"] or match["name"])], None
        elif self.groups and (match := self._SIGN.match(line)) and match["space"] == " ":
            made = self.test(1, match["name"], match["sign"])
            self.about = made if made and made.is_red else None
        elif re.match(r"^\S", line):
            self.about = None
        else:
            self.say(re.sub(r"^ +[│┐├┊┴╵╷] ?", "", line))

    def title(self, test: ConsoleTest) -> str:
        return f"{''.join(test.suite)} {_letters(test.name)}"

    def counted(self, reported: dict[str, int]) -> dict[str, int]:
        """Merge the counts: failures and errors have the same mark here."""
        both = reported.get("failed", 0) + reported.get("errors", 0)
        return {name: n for name, n in reported.items() if name != "errors"} | ({"failed": both} if reported else {})


def _letters(name: str) -> str:
    return re.sub(r"\W|_", "", name.removeprefix("test")).lower()


_DIALECTS: tuple[type[ConsoleDialect], ...] = (
    PytestConsole, UnittestConsole, _Jest, _Mocha, _Rspec, _Testdox, _Ctest, _Gradle, _Maven, _Ant, SwiftConsole,
)  # fmt: skip
