"""Base classes for parsing a runner's console output: its tests, the details of each, and the summary."""

# The symbols are the runners' own.
# ruff: noqa: RUF001

from __future__ import annotations

import re
from collections.abc import Iterable

from ratchet.checks.formats import Parsed, distinct, recover
from ratchet.checks.formats.text import HeadAndTail
from ratchet.core.report import RED, Diagnostic, TestResult, TestStatus, count_totals, disagreements

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


class ConsoleTest:
    """A test while it is read: its failure details may precede or follow its line, or come much later."""

    def __init__(self, name: str, status: TestStatus, *, file: str = "", suite: Iterable[str] = ()) -> None:
        self.name, self.status, self.file, self.suite = name, status, file, list(suite)
        self.output, self.why = HeadAndTail(), ""

    @property
    def is_red(self) -> bool:
        return self.status in (TestStatus.FAILED, TestStatus.ERROR)

    def result(self, joint: str) -> TestResult:
        output = _outdented(self.output.text())
        inside = joint.join([*self.suite, self.name])
        return TestResult(
            id=f"{self.file}::{inside}" if self.file else inside,
            name=self.name,
            suite=self.suite,
            file=self.file,
            status=self.status,
            failure=recover.failure(output, message=self.why or _message(output)) if self.is_red else None,
        )


def _outdented(text: str) -> str:
    rows = text.strip("\n").split("\n")
    depth = min((len(row) - len(row.lstrip(" ")) for row in rows if row.strip()), default=0)
    return "\n".join(row[depth:] for row in rows)


def _message(text: str) -> str:
    """Return pytest's message if there is one; else the text before the first empty line or stack frame."""
    error_lines = re.findall(r"(?m)^E {3,}(.*)$", text)
    if error_lines:
        return "\n".join(error_lines)
    if text.startswith("Traceback "):
        return text.rstrip().rpartition("\n")[2]
    return re.split(r"\n\s*\n|\n\s+at |\n\s*# \./", text.strip(), maxsplit=1)[0] or text.strip()


class ConsoleDialect:
    """Base of a runner's console format. `joint` separates a group from its tests; without a match of `sign` the
    format is not tried."""

    joint = " > "
    sign: re.Pattern[bytes]

    def __init__(self) -> None:
        self.tests: list[ConsoleTest] = []
        self.about: ConsoleTest | None = None
        self.red: dict[str, ConsoleTest] = {}  # by the title of the failure details
        self.reported: dict[str, int] = {}
        self.unloaded: list[Diagnostic] = []

    def line(self, line: str) -> None:
        raise NotImplementedError

    def add(self, name: str, word: str, *, file: str = "", suite: Iterable[str] = ()) -> ConsoleTest | None:
        status = STATUS.get(word.lower())
        if status is None or len(self.tests) >= _TESTS_MAX:
            return None
        self.about = ConsoleTest(name, status, file=file, suite=suite)
        self.tests.append(self.about)
        if self.about.is_red:
            self.red.setdefault(self.title(self.about), self.about)
        return self.about

    def title(self, test: ConsoleTest) -> str:
        return test.name

    def say(self, line: str) -> None:
        if self.about:
            self.about.output.add(f"{line}\n")

    def parsed(self, parsed: Parsed) -> Parsed:
        """Return the result with compiler errors, and the summary if it covers all named tests. If only failures are
        named, it is complete if their number matches the summary."""
        reported = self.counted(self.reported or parsed.reported)
        tests = distinct([test.result(self.joint) for test in self.tests])
        unbuilt = {base(error.file) for error in parsed.compile_errors}
        unloaded = [error for error in self.unloaded if base(error.file) not in unbuilt]
        is_verbose = any(test.status is TestStatus.PASSED for test in tests)
        files = len(unloaded) + len(parsed.compile_errors)
        agrees = bool(reported) and not disagreements(count_totals(tests), reported, files)
        if not is_verbose and all(test.status in RED for test in tests):
            red = reported.get("failed", 0) + reported.get("errors", 0)
            agrees = red > 0 and red in (len(tests), len(tests) + len(unloaded))
        return Parsed(
            tests=tests,
            collection_errors=unloaded,
            compile_errors=parsed.compile_errors,
            reported=reported if is_verbose else {},
            ended=agrees,
            partial=not agrees,
        )

    def counted(self, reported: dict[str, int]) -> dict[str, int]:
        """Return the summary in this runner's way of counting."""
        return reported


def base(file: str) -> str:
    return file.rpartition("/")[2]
