"""Parses the console output of XCTest and swift-testing, from `swift test` or xcodebuild."""

from __future__ import annotations

import re

import msgspec

from ratchet.checks.formats import Parsed
from ratchet.checks.formats.dialect import ConsoleDialect, ConsoleTest

_CASE = r"(?:-\[(?P<group>\S+) (?P<method>[^\]]+)\]|(?P<whole>[\w.]+))"


class SwiftConsole(ConsoleDialect):
    """A failure has its own line before that of its test. Tests of swift-testing run in parallel."""

    joint = "/"
    sign = re.compile(rb"^Test [Cc]ase '|Test run with \d", re.M)
    _ROW = re.compile(
        rf"^Test [Cc]ase '{_CASE}(?:\(\))?' (?P<word>passed|failed|skipped)(?: on '.*')? \([\d.]+ seconds\)\.?$"
    )
    _ERROR = re.compile(rf"^(?P<file>[^\s:][^:]*):(?P<line>\d{{1,9}}): error: {_CASE} : (?P<message>.*)$")
    _NEW = re.compile(
        r"^[^\w\s'\"-] {1,2}Test (?!run with |case passing )(?P<name>\"[^\"]*\"|\S.*?)(?: with \d+ test cases?)? "
        r"(?P<word>passed|failed|skipped)(?: after [\d.]+ seconds)?(?: with \d+ .*)?(?:: .*)?\.?$"
    )
    _ISSUE = re.compile(
        r"^[^\w\s'\"-] {1,2}Test (?P<name>\"[^\"]*\"|\S.*?) recorded an issue(?: with .*?)?"
        r" at (?P<file>[^\s:]+):(?P<line>\d{1,9}):\d+: (?P<message>.*)$"
    )
    _OF_TEST = re.compile(rf"^{_CASE} : ")
    _OVER = re.compile(r"^Test Suite '(?:All tests|Selected tests)' (?:passed|failed) at ")
    _SUM = re.compile(r"^\s*Executed (?P<tests>\d{1,9}) tests?, with |^\S {1,2}Test run with (?P<new>\d{1,9}) tests? ")

    def __init__(self) -> None:
        super().__init__()
        self.failures: dict[str, list[str]] = {}
        self.is_over = False

    def line(self, line: str) -> None:
        if match := self._ROW.match(line):
            *group, name = _names(match)
            self._test(name, match["word"], group, ".".join([*group, name]))
        elif match := self._ERROR.match(line):
            self._add_failure(".".join(_names(match)), match)
        elif " recorded a" in line:
            if match := self._ISSUE.match(line):
                self._add_failure(match["name"], match)
        elif match := self._NEW.match(line):
            self._test(match["name"].strip('"'), match["word"], [], match["name"])
        elif (match := self._SUM.match(line)) and (self.is_over or match["new"]):
            self.reported["tests"] = self.reported.get("tests", 0) + int(match["tests"] or match["new"])
        self.is_over = bool(self._OVER.match(line))

    def parsed(self, parsed: Parsed) -> Parsed:
        """Drop compiler errors that are failures: both look alike."""
        errors = [error for error in parsed.compile_errors if not self._OF_TEST.match(error.message)]
        return super().parsed(msgspec.structs.replace(parsed, compile_errors=errors))

    def _add_failure(self, key: str, match: re.Match[str]) -> None:
        self.failures.setdefault(key, []).append(f"{match['file']}:{match['line']}: {match['message']}")

    def _test(self, name: str, word: str, suite: list[str], key: str) -> None:
        failures = self.failures.pop(key, [])
        made: ConsoleTest | None = self.add(name, word, suite=suite)
        if made and made.is_red:
            made.output.add("\n".join(failures))
            made.why = failures[0].partition(": ")[2] if failures else f"{word}, and says nothing of why"


def _names(match: re.Match[str]) -> list[str]:
    if match["whole"]:
        group, _, name = match["whole"].rpartition(".")
        return [group, name]
    return [match["group"], match["method"]]
