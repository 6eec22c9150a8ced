"""What runners print for people, read back: every test where each has a line of its own, else those that failed.

pytest -v, unittest -v, jest --verbose, mocha's spec, RSpec's documentation, PHPUnit's testdox, ctest, Gradle, Maven. It
has `ended` if there is a summary and the tests agree with it.
"""

# The signs are the runners' own.
# ruff: noqa: RUF001

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from typing import BinaryIO, ClassVar

from ratchet.checks.formats import Parsed, distinct, recover, unknown
from ratchet.checks.formats.text import Ends, lines
from ratchet.core.report import Diagnostic, TestResult, TestStatus, disagreements, totals_of

_WIDE = 2_000
_MAX_BYTES = 64 << 20
_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
_TESTS_MAX = 200_000
_WORDS = {
    TestStatus.PASSED: ("passed", "ok", "✓", "✔", "√"),
    TestStatus.FAILED: ("failed", "fail", "✕", "✘", "×", "✗", "timeout"),
    TestStatus.ERROR: ("error", "exception", "not run"),
    TestStatus.SKIPPED: ("skipped", "skip", "○", "↩", "∅", "-", "disabled", "pending"),
    TestStatus.XFAILED: ("xfail", "expected failure"),
    TestStatus.XPASSED: ("xpass", "unexpected success"),
    TestStatus.TODO: ("✎",),
}
_STATUS = {word: status for status, words in _WORDS.items() for word in words}


def parse(stream: BinaryIO) -> Parsed:
    """By the dialect that knows most of it. A log that is larger than any list of tests is left alone."""
    content = stream.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        return Parsed()
    content = _COLOUR.sub(b"", content) if b"\x1b[" in content else content
    dialects = [make() for make in _DIALECTS if make.sign.search(content)]
    if not dialects:
        return Parsed()
    totals = unknown.Scan()
    for line in lines(io.BytesIO(content)):
        totals.line(line)
        if len(line) <= _WIDE:
            for dialect in dialects:
                dialect.line(line)
    told = totals.parsed()
    read = [dialect.parsed(told) for dialect in dialects if dialect.tests or dialect.unloaded]
    return max(read, key=lambda parsed: (parsed.ended, len(parsed.tests)), default=Parsed())


class _Test:
    """A test as it is being read: what is told of its failure comes before or after its line, or far below."""

    def __init__(self, name: str, status: TestStatus, *, file: str = "", suite: Iterable[str] = ()) -> None:
        self.name, self.status, self.file, self.suite = name, status, file, list(suite)
        self.said, self.why = Ends(), ""

    @property
    def is_red(self) -> bool:
        return self.status in (TestStatus.FAILED, TestStatus.ERROR)

    def result(self, joint: str) -> TestResult:
        said = _outdented(self.said.text())
        inside = joint.join([*self.suite, self.name])
        return TestResult(
            id=f"{self.file}::{inside}" if self.file else inside,
            name=self.name,
            suite=self.suite,
            file=self.file,
            status=self.status,
            failure=recover.failure(said, message=self.why or _message(said)) if self.is_red else None,
        )


def _outdented(text: str) -> str:
    rows = text.strip("\n").split("\n")
    depth = min((len(row) - len(row.lstrip(" ")) for row in rows if row.strip()), default=0)
    return "\n".join(row[depth:] for row in rows)


def _message(said: str) -> str:
    """pytest's own words where there are some; else what stands before the first empty line or call."""
    told = re.findall(r"(?m)^E {3,}(.*)$", said)
    if told:
        return "\n".join(told)
    if said.startswith("Traceback "):
        return said.rstrip().rpartition("\n")[2]
    return re.split(r"\n\s*\n|\n\s+at |\n\s*# \./", said.strip(), maxsplit=1)[0] or said.strip()


class Dialect:
    """`joint` stands between a group and what is in it; what has no `sign` of a dialect is not read by it."""

    joint = " > "
    sign: re.Pattern[bytes]

    def __init__(self) -> None:
        self.tests: list[_Test] = []
        self.about: _Test | None = None
        self.red: dict[str, _Test] = {}  # by what their failure is told under
        self.reported: dict[str, int] = {}
        self.unloaded: list[Diagnostic] = []

    def line(self, line: str) -> None:
        raise NotImplementedError

    def add(self, name: str, word: str, *, file: str = "", suite: Iterable[str] = ()) -> _Test | None:
        status = _STATUS.get(word.lower())
        if status is None or len(self.tests) >= _TESTS_MAX:
            return None
        self.about = _Test(name, status, file=file, suite=suite)
        self.tests.append(self.about)
        if self.about.is_red:
            self.red.setdefault(self.title(self.about), self.about)
        return self.about

    def title(self, test: _Test) -> str:
        return test.name

    def say(self, line: str) -> None:
        if self.about:
            self.about.said.add(f"{line}\n")

    def parsed(self, told: Parsed) -> Parsed:
        """With what the compiler said, and the summary if it is of all tests that are named."""
        reported = self.counted(self.reported or told.reported)
        tests = distinct([test.result(self.joint) for test in self.tests])
        unbuilt = {_base(error.file) for error in told.compile_errors}
        unloaded = [error for error in self.unloaded if _base(error.file) not in unbuilt]
        is_verbose = any(test.status is TestStatus.PASSED for test in tests)
        files = len(unloaded) + len(told.compile_errors)
        agrees = bool(reported) and not disagreements(totals_of(tests), reported, files)
        return Parsed(
            tests=tests,
            collection_errors=unloaded,
            compile_errors=told.compile_errors,
            reported=reported if is_verbose else {},
            ended=agrees,
            partial=not agrees,
        )

    def counted(self, reported: dict[str, int]) -> dict[str, int]:
        """The summary, as this runner counts."""
        return reported


def _base(file: str) -> str:
    return file.rpartition("/")[2]


_COLLECTING = "ERROR collecting "


class _Pytest(Dialect):
    """With `-v` each test has a line; without it those that failed have one at the end, below what is told of them."""

    sign = re.compile(rb"\.py::\S+ (?:PASS|FAIL|ERR|SKIP|XFAIL|XPASS)|^\[gw\d+\]|^(?:FAILED|ERROR) \S+\.py\b", re.M)
    _ROW = re.compile(
        r"^(?P<id>\S+?\.py::.+?) (?P<word>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)(?: \(.*\))?(?:\s+\[ *\d+%\])?$"
        r"|^\[gw\d+\](?: \[ *\d+%\])? (?P<word1>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (?P<id1>\S+?\.py::.+?)\s*$"
    )
    _SUB = re.compile(r"^SUBFAILED(?:[(\[].*?[)\]])? (?P<id>\S+?\.py::.+?)(?: - .*)?$")
    _HEAD = re.compile(r"^_{3,} (?:ERROR at (?:setup|teardown) of )?(?P<name>\S.*?) _{3,}$")
    _SHORT = re.compile(r"^(?P<word>FAILED|ERROR) (?P<id>\S+?\.py::.+?)(?: - (?P<why>.*))?$")
    _SUM = re.compile(r"^(?:=+ )?(?P<counts>\d+ [a-z]+(?:, \d+ [a-z ]+)*) in [\d.]+s(?: \([\d:]+\))?(?: =+)?$")
    _COUNTED: ClassVar = {"failed": "failed", "passed": "passed", "error": "errors", "errors": "errors"}

    joint = "::"

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, _Test] = {}
        self.loading: _Test | None = None
        self.twice: dict[str, int] = {}
        self.told: dict[str, list[_Test]] = {}  # what is told of tests whose files are not known yet

    def line(self, line: str) -> None:
        if match := self._ROW.match(line):
            self._row(match["id"] or match["id1"], match["word"] or match["word1"])
        elif match := self._HEAD.match(line):
            self._over()
            self.about = self.red.get(match["name"]) or self._file(match["name"]) or self._unplaced(match["name"])
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

    def _file(self, name: str) -> _Test | None:
        """What is told of a file that could not be loaded, which is no test."""
        self.loading = _Test("", TestStatus.ERROR, file=name.removeprefix(_COLLECTING)) if _COLLECTING in name else None
        return self.loading

    def _unplaced(self, name: str) -> _Test:
        found = _Test(name, TestStatus.FAILED)
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
        """Where only those that failed are named, it is whole if these are as many as the summary says."""
        whole = super().parsed(told)
        if not self.reported or any(test.status not in (TestStatus.FAILED, TestStatus.ERROR) for test in whole.tests):
            return whole
        said = self.reported.get("failed", 0) + self.reported.get("errors", 0)
        whole.ended = said == len(whole.tests) + len(whole.collection_errors)
        return whole

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
            self._worse(before, _STATUS[word.lower()])
        elif made := self.add(own, word, file=file, suite=suite):
            self.known[name] = made
        self.about = None

    def _worse(self, test: _Test, status: TestStatus) -> None:
        """Each of its ends is in pytest's counts."""
        word = "passed" if test.status is TestStatus.PASSED else "failed" if test.is_red else "skipped"
        self.twice[word] = self.twice.get(word, 0) + 1
        test.status = max(test.status, status, key=_GRAVE.index)
        self.red.setdefault(self.title(test), test)

    def counted(self, reported: dict[str, int]) -> dict[str, int]:
        return {name: max(0, count - self.twice.get(name, 0)) for name, count in reported.items()}

    def title(self, test: _Test) -> str:
        return ".".join([*test.suite, test.name])


_GRAVE = [*(status for status in TestStatus if status not in (TestStatus.FAILED, TestStatus.ERROR)),
          TestStatus.FAILED, TestStatus.ERROR]  # fmt: skip


class _Unittest(Dialect):
    sign = re.compile(rb" \.\.\. (?:ok|FAIL|ERROR|skipped|expected failure)\b")
    _WORD = r"(?P<word>ok|FAIL|ERROR|skipped|expected failure|unexpected success)(?: .*)?$"
    _WHO = r"(?P<name>\w+) \((?P<where>[\w.]+)\)(?P<sub> (?:\[.*\]|\(.*\)))?"
    _ROW = re.compile(rf"^(?P<space> *){_WHO} \.\.\. {_WORD}")
    _NAME = re.compile(r"^(?P<name>\w+) \((?P<where>[\w.]+)\)$")
    _DOC = re.compile(rf"^.* \.\.\. {_WORD}")
    _HEAD = re.compile(rf"^(?:FAIL|ERROR): {_WHO}$")

    def __init__(self) -> None:
        super().__init__()
        self.named: re.Match[str] | None = None
        self.parents: set[str] = set()
        self.uncounted = 0

    def line(self, line: str) -> None:
        named, self.named = self.named, self._NAME.match(line)
        if match := self._ROW.match(line):
            self._row(match["name"], match["where"], match["word"], match["sub"] or "")
        elif named and (match := self._DOC.match(line)):
            self._row(named["name"], named["where"], match["word"])
        elif match := self._HEAD.match(line):
            self.about = self.red.get(_unittest_name(match["name"], match["where"]) + (match["sub"] or ""))
        elif line.startswith(("=====", "Ran ")):
            self.about = None
        elif not line.startswith("-----"):
            self.say(line)

    def _row(self, name: str, where: str, word: str, sub: str = "") -> None:
        """Hooks are not among those that ran, and of one test's subtests each that failed is a failure."""
        full = _unittest_name(name, where)
        self.uncounted += name in ("setUpClass", "tearDownClass", "setUpModule", "tearDownModule")
        if sub:
            self.uncounted += full in self.parents
            self.parents.add(full)
        self.add(full + sub, word)
        self.about = None

    def counted(self, reported: dict[str, int]) -> dict[str, int]:
        return reported | ({"tests": reported["tests"] + self.uncounted} if "tests" in reported else {})


def _unittest_name(name: str, where: str) -> str:
    """As unittest takes it; since 3.11 the method is in the brackets too."""
    return where if where.endswith(f".{name}") else f"{where}.{name}"


class _Gradle(Dialect):
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


class _Maven(Dialect):
    """Only failures have a line."""

    sign = re.compile(rb"<<< (?:FAILURE|ERROR)!")
    _ROW = re.compile(
        r"^\[ERROR\] (?:(?P<suite>[\w$.]+)\.(?P<name>[\w$]+\S*?) (?:-- |\s*)Time elapsed: .*<<< "
        r"(?P<word>FAILURE|ERROR)!"
        r"|(?P<name1>\S+)\((?P<suite1>[\w$.]+)\)\s+Time elapsed: .*<<< (?P<word1>FAILURE|ERROR)!)$"
    )

    def line(self, line: str) -> None:
        if match := self._ROW.match(line):
            word = {"FAILURE": "failed", "ERROR": "error"}[match["word"] or match["word1"]]
            self.add(match["name"] or match["name1"], word, suite=[match["suite"] or match["suite1"]])
        elif line.startswith("["):
            self.about = None
        else:
            self.say(line)


_CALLED = ("Test command: ", "Working Directory: ", "Test timeout computed to be: ")


class _Ctest(Dialect):
    sign = re.compile(rb"^ *\d+/\d+ Test +#\d+: ", re.M)
    _ROW = re.compile(
        r"^\s*\d+/\d+ Test +#(?P<n>\d+): (?P<name>.+?) \.{2,}[. ]*(?:\*\*\*)?"
        r"(?P<why>(?P<word>Passed|Failed|Not Run|Skipped|Timeout|Exception|Disabled)\b(?:: \w+)?)"
    )
    _SAID = re.compile(r"^(?P<n>\d+): ?(?P<text>.*)$")
    _SUM = re.compile(r"^\d+% tests passed, (?P<failed>\d{1,9}) tests? failed out of (?P<tests>\d{1,9})$")

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[str, Ends] = {}

    def line(self, line: str) -> None:
        if match := self._ROW.match(line):
            made = self.add(match["name"], match["word"].lower())
            if made:
                made.said = self.before.pop(match["n"], made.said)
                made.why = match["why"]
        elif match := self._SUM.match(line):
            self.reported = {name: int(count) for name, count in match.groupdict().items()}
            self.about = None
        elif (match := self._SAID.match(line)) and not match["text"].startswith(_CALLED):
            self.before.setdefault(match["n"], Ends()).add(f"{match['text']}\n")
        elif re.match(r"^\s+Start +\d+: |^test \d+$", line):
            self.about = None
        else:
            self.say(line)


class _Tree(Dialect):
    """Groups above their tests, each deeper by two spaces; failures below, by number or by name."""

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

    def test(self, depth: int, name: str, word: str) -> _Test | None:
        self.leave(depth)
        made = self.add(name, word, file=self.file, suite=[group for _, group in self.groups])
        self.about = None
        return made


class _Jest(_Tree):
    sign = re.compile(rb"^(?:PASS|FAIL) \S+\.\w+", re.M)
    _FILE = re.compile(r"^(?:PASS|FAIL) (?P<file>\S+\.\w+)(?: \([\d.]+ m?s\))?$")
    _HEAD = re.compile(r"^  ● (?P<name>\S.*)$")
    _SOURCE = re.compile(r"^ +(?:> *)?(?:\d+ )?\| ?")

    def line(self, line: str) -> None:
        if match := self._FILE.match(line):
            self.file, self.groups, self.about = match["file"].removeprefix("./"), [], None
        elif not self.file:
            return
        elif match := self._HEAD.match(line):
            self.about = self.red.get(f"{self.file} {match['name']}")
            if match["name"] == "Test suite failed to run":
                self.unloaded.append(Diagnostic(file=self.file, type="", message=match["name"]))
        elif line[:1] not in (" ", ""):
            self.about = None
            self.file = "" if line.startswith(("Test Suites:", "Summary of all")) else self.file
        elif self.about:
            self.say(line) if not self._SOURCE.match(line) else None
        elif match := self._SIGN.match(line):
            self.test(len(match["space"]), re.sub(r"^(?:skipped|todo) ", "", match["name"]), match["sign"])
        elif line.strip():
            self.enter(len(line) - len(line.lstrip()), line.strip())

    def title(self, test: _Test) -> str:
        return f"{test.file} {' › '.join([*test.suite, test.name])}"


class _Numbered(_Tree):
    """mocha and RSpec: a failure has a number in the tree, and under that number it is told below."""

    _HEAD = re.compile(r"^  (?P<n>\d+)\) (?P<name>.*)$")

    def __init__(self) -> None:
        super().__init__()
        self.numbered: dict[str, _Test] = {}
        self.telling = self.titled = False
        self.diffs = 0

    def tell(self, line: str) -> None:
        if match := self._HEAD.match(line):
            self.about = self.numbered.get(match["n"])
            self.titled = False
            self.diffs = 0
        elif self.about and (self.titled or not self._is_title(line)) and not self._is_repeated(line):
            self.titled = True
            self.say(line)

    def _is_repeated(self, line: str) -> bool:
        """mocha shows how the values differ once more, below what the assertion says of it."""
        self.diffs += line.strip() in ("+ actual - expected", "+ expected - actual")
        return self.diffs > 1 and not line.lstrip().startswith("at ")

    def _is_title(self, line: str) -> bool:
        """Where it says once more whose failure this is: a group a line, and the test's name with a colon."""
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
            self.tell(line)
        elif match := self._SIGN.match(line):
            self.test(len(match["space"]), match["name"], match["sign"]) if match["space"] else None
        elif match := self._RED.match(line):
            if made := self.test(len(match["space"]), match["name"], "failed"):
                self.numbered[match["n"]] = made
        elif re.match(r"^ {2,}\S", line):
            self.enter(len(line) - len(line.lstrip()), line.strip())
        elif line.strip():
            self.groups = []

    def parsed(self, told: Parsed) -> Parsed:
        return super().parsed(told) if self.telling else Parsed()


class _Rspec(_Numbered):
    """A test that passed has no sign: it is the line that has none below it."""

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
            self.tell(line) if self.is_red else None
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
        """What stood open is a group if this is below it, else it was a test; one at the edge is neither."""
        if self.open and depth > self.open[0]:
            self.enter(*self.open)
        elif self.open and self.open[0]:
            self.test(*self.open, "passed")
        self.open = None

    def parsed(self, told: Parsed) -> Parsed:
        """Anything that is indented looks like it: only a summary that counts the same makes these tests."""
        whole = super().parsed(told)
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

    def title(self, test: _Test) -> str:
        return f"{''.join(test.suite)} {_letters(test.name)}"

    def counted(self, reported: dict[str, int]) -> dict[str, int]:
        """A failure and an error have the same sign here."""
        both = reported.get("failed", 0) + reported.get("errors", 0)
        return {name: n for name, n in reported.items() if name != "errors"} | ({"failed": both} if reported else {})


def _letters(name: str) -> str:
    return re.sub(r"\W|_", "", name.removeprefix("test")).lower()


_DIALECTS: tuple[type[Dialect], ...] = (
    _Pytest, _Unittest, _Jest, _Mocha, _Rspec, _Testdox, _Ctest, _Gradle, _Maven,
)  # fmt: skip
