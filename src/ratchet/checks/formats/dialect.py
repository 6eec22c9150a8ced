"""What a runner prints for people, as it is read: its tests, what is told of each, and what its own summary says."""

# The signs are the runners' own.
# ruff: noqa: RUF001

from __future__ import annotations

import re
from collections.abc import Iterable

from ratchet.checks.formats import Parsed, distinct, recover
from ratchet.checks.formats.text import Ends
from ratchet.core.report import RED, Diagnostic, TestResult, TestStatus, disagreements, totals_of

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
STATUS = {word: status for status, words in _WORDS.items() for word in words}


class Test:
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
        self.tests: list[Test] = []
        self.about: Test | None = None
        self.red: dict[str, Test] = {}  # by what their failure is told under
        self.reported: dict[str, int] = {}
        self.unloaded: list[Diagnostic] = []

    def line(self, line: str) -> None:
        raise NotImplementedError

    def add(self, name: str, word: str, *, file: str = "", suite: Iterable[str] = ()) -> Test | None:
        status = STATUS.get(word.lower())
        if status is None or len(self.tests) >= _TESTS_MAX:
            return None
        self.about = Test(name, status, file=file, suite=suite)
        self.tests.append(self.about)
        if self.about.is_red:
            self.red.setdefault(self.title(self.about), self.about)
        return self.about

    def title(self, test: Test) -> str:
        return test.name

    def say(self, line: str) -> None:
        if self.about:
            self.about.said.add(f"{line}\n")

    def parsed(self, told: Parsed) -> Parsed:
        """With what the compiler said, and the summary if it is of all tests that are named. Where only those are that
        failed, it is whole if they are as many as the summary says."""
        reported = self.counted(self.reported or told.reported)
        tests = distinct([test.result(self.joint) for test in self.tests])
        unbuilt = {base(error.file) for error in told.compile_errors}
        unloaded = [error for error in self.unloaded if base(error.file) not in unbuilt]
        is_verbose = any(test.status is TestStatus.PASSED for test in tests)
        files = len(unloaded) + len(told.compile_errors)
        agrees = bool(reported) and not disagreements(totals_of(tests), reported, files)
        if not is_verbose and all(test.status in RED for test in tests):
            red = reported.get("failed", 0) + reported.get("errors", 0)
            agrees = red > 0 and red in (len(tests), len(tests) + len(unloaded))
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


def base(file: str) -> str:
    return file.rpartition("/")[2]
