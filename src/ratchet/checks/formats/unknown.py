"""Parses the output of an unknown runner: its totals if a summary line is unambiguous, otherwise nothing."""

# One pattern, one line.
# ruff: noqa: E501

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, compiler
from ratchet.checks.formats.text import lines

_WIDE = 400

# A summary states the failed and the passed or total tests; anything less could be any log line.
_WORDS = {
    "tests": "tests", "test": "tests", "runs": "tests", "examples": "tests", "example": "tests", "specs": "tests", "total": "tests",
    "passed": "passed", "pass": "passed", "passing": "passed", "flaky": "passed", "ok": "passed", "succeeded": "passed", "successes": "passed",
    "failed": "failed", "fail": "failed", "failing": "failed", "failures": "failed", "failure": "failed",
    "errors": "errors", "error": "errors", "errored": "errors",
    "skipped": "skipped", "skip": "skipped", "skips": "skipped", "ignored": "skipped", "pending": "skipped", "disabled": "skipped", "omissions": "skipped", "pendings": "skipped",
    "xfailed": "xfailed", "xpassed": "xpassed", "todo": "todo",
}  # fmt: skip
_COUNT_WORD = re.compile(r"(?P<n>\d{1,9}) (?P<w>[a-z]+)\b")
_WORD_COUNT = re.compile(r"\b(?P<w>[A-Za-z]+)[:=] ?(?P<n>\d{1,9})\b")
_ANCHOR = re.compile(
    r"^(?:=+ |Tests:|Tests run:|test result:|Test Results?:|Results?:|Summary:?|Ran |Total|Finished|FAILED|OK\b|Done|\s*\d{1,9} )",
    re.I,
)
_SINGLE = re.compile(
    r"^\s*(?P<n>\d{1,9}) (?P<w>passing|failing|pending|pass|fail|skip|todo|passed|failed|flaky|skipped)(?P<time> \([\d.]+ ?m?s\))?$"
)
_COLUMN = re.compile(r"^ {2}(?P<w>Total|Passed|Skipped): {2,}(?P<n>\d{1,9})$")
_UNITTEST = re.compile(r"^Ran (\d{1,9}) tests? in [\d.]+s$")
_JUNIT_END = re.compile(
    r"^(?:OK \((?P<ok>\d{1,9}) tests?\)|Tests run: (?P<ran>\d{1,9}), {1,2}Failures: (?P<failed>\d{1,9}))$"
)
_PROVE = re.compile(
    r"^(?:Failed (?P<programs>\d{1,9})/\d+ test programs\. (?P<failed>\d{1,9})/\d+ subtests failed\."
    r"|Files=\d+, Tests=(?P<tests>\d{1,9}), .*|Result: (?P<verdict>PASS|FAIL))$"
)
_VERDICT = re.compile(r"^(OK|FAILED)(?: \((.*)\))?$")


def parse(stream: BinaryIO) -> Parsed:
    """Return only `reported`, and only if all summaries in the output agree; `ended` means that there was one."""
    reader = SummaryScan()
    for line in lines(stream):
        reader.line(line)
    return reader.parsed()


class SummaryScan:
    def __init__(self) -> None:
        self.found: list[dict[str, int]] = []
        self.ran: int | None = None
        self.single: dict[str, int] = {}
        self.column: dict[str, int] = {}
        self.proved: dict[str, int] = {}
        self.timed = False
        self.junit = False
        self.spoilt = False
        self.scan = compiler.CompilerScan()

    def line(self, line: str) -> None:
        if len(line) > _WIDE:
            return
        if match := _UNITTEST.match(line):
            self.ran = int(match.group(1))
        elif self.ran is not None and (match := _VERDICT.match(line)):
            self._unittest(match)
        elif line.startswith("JUnit version "):
            self.junit = True
        elif self.junit and (match := _JUNIT_END.match(line)):
            counts = {"tests": int(match["ok"] or match["ran"]), "failed": int(match["failed"] or 0)}
            self.found = [*self.found, counts][-50:]
        elif match := _PROVE.match(line):
            self._prove(match)
        elif match := _SINGLE.match(line):
            self._single(match)
        elif match := _COLUMN.match(line):
            self._column(match)
        elif counts := _summary(line):
            self.found = [*self.found, counts][-50:]
        else:
            self.scan.line(line)

    def _unittest(self, match: re.Match[str]) -> None:
        counts = {"tests": self.ran or 0, "failed": 0}
        pairs = {word: int(n) for word, n in re.findall(r"([a-z][a-z ]*)=(\d{1,9})", match.group(2) or "")}
        counts["failed"] = pairs.get("failures", 0)
        counts["errors"] = pairs.get("errors", 0)
        counts["skipped"] = pairs.get("skipped", 0)
        self.found.append(counts)
        self.ran = None

    def _prove(self, match: re.Match[str]) -> None:
        """Parse the last lines of prove. A program can fail although none of its tests did."""
        self.proved |= {name: int(count) for name, count in match.groupdict().items() if name != "verdict" and count}
        if match["verdict"] and "tests" in self.proved:
            died = self.proved.get("programs", 0) if not self.proved.get("failed") else 0
            self.found.append(
                {"tests": self.proved["tests"] + died, "failed": self.proved.get("failed", 0), "errors": died}
            )
            self.proved = {}

    def _single(self, match: re.Match[str]) -> None:
        """Parse a summary with one count a line: mocha, bun, playwright. A repeated word invalidates it."""
        word = match.group("w")
        self.spoilt |= word in self.single
        self.single[word] = int(match.group("n"))
        self.timed |= bool(match.group("time"))

    def _singles(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for word, count in self.single.items():
            counts[_WORDS[word]] = counts.get(_WORDS[word], 0) + count
        sure = "passed" in counts and ("failed" in counts or self.timed) and not self.spoilt
        return counts if sure else {}

    def _column(self, match: re.Match[str]) -> None:
        """Parse uvu's summary, one count a line: total, passed of these, and skipped in addition."""
        if match.group("w") == "Total":
            self.column = {}
        self.column[match.group("w")] = int(match.group("n"))
        match self.column:
            case {"Total": ran, "Passed": passed, "Skipped": skipped} if passed <= ran:
                counts = {"tests": ran + skipped, "passed": passed, "failed": ran - passed, "skipped": skipped}
                self.found.append(counts)

    def parsed(self) -> Parsed:
        if self.single:
            self.found.append(self._singles())
        sure = len({tuple(sorted(counts.items())) for counts in self.found}) == 1
        return Parsed(
            compile_errors=self.scan.found,
            reported=self.found[0] if sure else {},
            ended=sure and bool(self.found[0]),
            partial=True,
        )


_GREEN = re.compile(r"^=+ .*\bpassed\b.* in [\d.]+s|^Tests: .*\bpassed, \d+ total$")


def _summary(line: str) -> dict[str, int]:
    if not _ANCHOR.match(line):
        return {}
    counts: dict[str, int] = {}
    for pattern in (_COUNT_WORD, _WORD_COUNT):
        for match in pattern.finditer(line):
            word = _WORDS.get(match.group("w").lower())
            if word:
                counts[word] = counts.get(word, 0) + int(match.group("n"))
        if _is_complete(counts) or (_GREEN.search(line) and "passed" in counts):
            return counts
        counts = {}
    return {}


def _is_complete(counts: dict[str, int]) -> bool:
    """Return whether there are failed and passed, or total and failed, and the parts do not exceed the total."""
    if not ("failed" in counts or "errors" in counts) or not ("passed" in counts or "tests" in counts):
        return False
    parts = sum(count for word, count in counts.items() if word != "tests")
    return "tests" not in counts or parts <= counts["tests"]
