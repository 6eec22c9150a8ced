"""Sealed tests: examples that the author of a change never sees. Their names, their results, and what may be
disclosed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import msgspec

from ratchet.core.report import GREEN, Diagnostic, Report, TestResult, count_totals

FILES_MAX, BYTES_MAX = 20, 1_000_000
_WORD = re.compile(r"\d[\d.]*\d|\d|[^\W\d_]+")


def has_sealed_name(path: str) -> bool:
    """Whether a new test file is a sealed one: its name holds the word."""
    return "sealed" in _name(path).lower()


def _name(path: str) -> str:
    return path.rpartition("/")[2]


class SealedResult(msgspec.Struct, frozen=True, kw_only=True):
    """The results of sealed files in one report. `loaded` is false when one of them did not load."""

    passed: int = 0
    tests: int = 0
    loaded: bool = True

    @property
    def ok(self) -> bool:
        return self.loaded and 0 < self.tests == self.passed

    def __str__(self) -> str:
        if not self.loaded or not self.tests:
            return "its sealed examples did not run to their end"
        return f"{self.tests - self.passed} of {self.tests} sealed examples do not pass"


def sealed_result(report: Report, paths: Collection[str]) -> SealedResult:
    tests = [test for test in report.tests if is_in(test, paths)]
    broken = [error for error in _load_errors(report) if error.file in paths]
    return SealedResult(
        passed=sum(test.status in GREEN for test in tests), tests=len(tests), loaded=not broken and not report.running
    )


def is_in(test: TestResult, paths: Collection[str]) -> bool:
    """Whether the test is in one of the files; some runners name only the class or the program, called as its file."""
    if test.file:
        return test.file in paths
    names = "\n".join([test.id, *test.suite])
    return any(path in names or _name(path).partition(".")[0] in names for path in paths)


def without_sealed(report: Report, paths: Collection[str]) -> Report:
    """Return the report as if the files did not exist. Free text of the runner is left out."""
    tests = [test for test in report.tests if not is_in(test, paths)]
    return msgspec.structs.replace(
        report,
        tests=tests,
        totals=count_totals(tests),
        collection_errors=[error for error in report.collection_errors if error.file not in paths],
        compile_errors=[error for error in report.compile_errors if error.file not in paths],
        reported={},
        notes=[],
        running=[],
        output="",
        parts=[],
    )


def _load_errors(report: Report) -> Iterable[Diagnostic]:
    return [*report.collection_errors, *report.compile_errors]


class Withheld(msgspec.Struct, frozen=True, kw_only=True):
    """The words and numbers that only the sealed files hold. `clean` takes them out of a text."""

    words: frozenset[str] = frozenset()

    def clean(self, text: str) -> str:
        return _WORD.sub(lambda found: "[sealed]" if found[0].lower() in self.words else found[0], text)


def withheld(sealed: Iterable[str], known: Iterable[str]) -> Withheld:
    """Return what to withhold: everything in the sealed texts that the known texts do not hold too."""
    return Withheld(words=frozenset(_words(sealed) - _words(known)))


def _words(texts: Iterable[str]) -> set[str]:
    return {word.lower() for text in texts for word in _WORD.findall(text)}
