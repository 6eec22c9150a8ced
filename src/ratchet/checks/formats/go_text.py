"""Parses the text of `go test`, with or without `-v`, and of gotestsum, by reconstructing the events.

Works like Go's test2json, except that a package is named only after its output. gotestsum's lists name it at once.
"""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, lenient_json
from ratchet.checks.formats.go_json import GoEvents
from ratchet.checks.formats.text import TAIL_LIMIT, HeadAndTail, lines

_UPDATE = re.compile(r"^=== (?P<word>RUN|PAUSE|CONT|NAME)\s+(?P<test>\S+)$")
_RESULT = re.compile(
    r"--- (?P<word>PASS|FAIL|SKIP): (?P<test>\S+)(?: \((?P<s>\d{1,9}(?:\.\d{1,9})?)(?:s| seconds)\))?$"
)
_PACKAGE = re.compile(
    r"^(?P<word>ok|FAIL|\?)\s{2,}\t?(?P<package>[^\s\[:]+)\s+(?P<rest>(?:[\d.]+s|\(cached\)|\[).*)$|"
    r"^(?P<word1>ok|FAIL|\?) *\t(?P<package1>[^\s\[:]+)(?P<rest1>\s.*|)$"
)
_BENCHMARK = re.compile(r"^Benchmark\w+$")
_UNBUILT = re.compile(r"^FAIL\s+\S+ \[(?:build|setup) failed\]")
_VERDICT = re.compile(r"^(?:PASS|FAIL)$")
_SUMMED = re.compile(
    r"^(?:=== (?P<word>FAIL|SKIP): (?P<package>\S*) (?P<test>\S*)"
    r"|(?P<word1>PASS|FAIL|SKIP) (?P<package1>\S+?)\.(?P<test1>(?:Test|Example|Fuzz)\S*))"
    r"(?: \(re-run \d+\))? \((?:(?P<s>[\d.]{1,12})s|unknown)\)$"
)
_SUM = re.compile(r"^DONE (?:\d+ runs, )?(?P<tests>\d{1,9}) tests?\b")
_ACTIONS = {"RUN": "run", "PAUSE": "pause", "CONT": "cont", "PASS": "pass", "FAIL": "fail", "SKIP": "skip"}
_WAITING = 200_000  # lines of a package without a name yet; beyond that only results are kept

SIGN = re.compile(
    rb"--- (?:PASS|FAIL|SKIP): |=== (?:RUN|FAIL|SKIP)|FAIL(?:\t| +\t|  )"
    rb"|\[(?:build|setup) failed\]|(?:PASS|FAIL|SKIP) \S+\.(?:Test|Example|Fuzz)"
)


def parse(stream: BinaryIO) -> Parsed:
    """Return every named test; without `-v` only the failed ones. A test binary run by itself has no package."""
    plainly, summed = _Plain(), _Summed()
    for raw in lines(stream):
        line = raw.replace("\x16", "")  # marks lines of the test binary itself, for test2json
        plainly.line(line)
        summed.line(line)
    return summed.parsed() if summed.tests else plainly.parsed()


class _Plain:
    def __init__(self) -> None:
        self.events = GoEvents()
        self.waiting: list[lenient_json.Table] = []
        self.test = ""
        self.reports: list[lenient_json.Table] = []  # results whose output may follow, each nested in the one before
        self.running: set[str] = set()
        self.verdict = False
        self.benchmark: lenient_json.Table = {}  # the last one that began: only failed ones are tests

    def line(self, line: str) -> None:
        if match := _UPDATE.match(line):
            self._flush(0)
            self.test = match["test"]
            self.running.add(self.test)
            if match["word"] in _ACTIONS:
                self._wait({"Action": _ACTIONS[match["word"]], "Test": self.test})
        elif "--- " in line and (match := _RESULT.search(line)) and self._is_result(line[: match.start()], match):
            self._result(line, match)
        elif match := _PACKAGE.match(line):
            self._package(line, match)
        elif _VERDICT.match(line):
            self._flush(0)
            self.verdict = True
        elif _BENCHMARK.match(line):
            self._flush(0)
            self.benchmark = {"Action": "output", "Test": line, "Output": ""}
        else:
            self._output(line)

    def _is_result(self, before: str, match: re.Match[str]) -> bool:
        """Return whether the line is a result: alone in its line, or after output without a line end."""
        return not before.strip() or (match["test"] in self.running and match["s"] is not None)

    def _result(self, line: str, match: re.Match[str]) -> None:
        before = line[: match.start()]
        if self.benchmark.get("Test") == match["test"]:
            self._wait(self.benchmark)
        if before.strip():
            self._wait({"Action": "output", "Test": match["test"], "Output": before + "\n"})
        self._flush(len(before) // 4 if not before.strip() else 0)
        self.test = match["test"]
        self.reports.append({"Action": _ACTIONS[match["word"]], "Test": self.test, "Elapsed": float(match["s"] or 0)})

    def _flush(self, depth: int) -> None:
        self.test = ""
        while len(self.reports) > depth:
            report = self.reports.pop()
            self.running.discard(report["Test"])
            self._wait(report)

    def _output(self, line: str) -> None:
        depth = (len(line) - len(line.lstrip(" "))) // 4
        if 0 < depth <= len(self.reports):
            self.test = self.reports[depth - 1]["Test"]
        if not self.test:
            self.events.stray(line)
            if self.benchmark:
                self.benchmark["Output"] = f"{self.benchmark['Output']}{line}\n"[-TAIL_LIMIT:]
        self._wait({"Action": "output", "Test": self.test, "Output": line + "\n"})

    def _wait(self, event: lenient_json.Table) -> None:
        if event["Action"] != "output" or len(self.waiting) < _WAITING:
            self.waiting.append(event)

    def _package(self, line: str, match: re.Match[str]) -> None:
        word, package = match["word"] or match["word1"], match["package"] or match["package1"]
        if _UNBUILT.match(line):
            self.events.stray(line)
            # Text before it is the compiler's.
            self.waiting = []
        elif word != "?":
            self._over("fail" if word == "FAIL" else "pass", package)
        self.verdict = False

    def _over(self, action: str, package: str) -> None:
        self._flush(0)
        waiting, self.waiting = self.waiting, []
        self.running.clear()
        for event in [*waiting, {"Action": action}]:
            self.events.take_event({**event, "Package": package})

    def parsed(self) -> Parsed:
        """Return the results: a package without a final line was cut off, unless its tests had a verdict and nothing
        followed."""
        self._flush(0)
        has_result = any(event["Action"] != "output" for event in self.waiting)
        if has_result and self.verdict:
            failed = any(event["Action"] == "fail" for event in self.waiting)
            self._over("fail" if failed else "pass", "")
        elif has_result:
            for event in self.waiting:
                self.events.take_event({**event, "Package": ""})
        return self.events.parsed()


class _Summed:
    """Parses gotestsum: a line for each test, or a list of failed ones with their output."""

    def __init__(self) -> None:
        self.tests: dict[tuple[str, str], tuple[str, float, HeadAndTail]] = {}
        self.output = HeadAndTail()
        self.ended = False

    def line(self, line: str) -> None:
        if match := _SUMMED.match(line):
            self._test(match)
        elif _SUM.match(line):
            self.ended = True
        elif line.startswith(("=== ", "PASS ", "FAIL ", "ok ", "DONE ")):
            self.output = HeadAndTail()
        else:
            self.output.add(line + "\n")

    def _test(self, match: re.Match[str]) -> None:
        key = match["package"] or match["package1"] or "", match["test"] or match["test1"] or ""
        is_listed = bool(match["word"])
        # In the list the output follows, in the run it precedes.
        output, self.output = self.output, HeadAndTail()
        self.tests[key] = (
            _ACTIONS[match["word"] or match["word1"]],
            _seconds(match["s"]),
            self.output if is_listed else output,
        )

    def parsed(self) -> Parsed:
        events = GoEvents()
        for (package, test), (action, elapsed_s, output) in self.tests.items():
            # A package that failed by itself names no test.
            about = {"Package": package, **({"Test": test} if test else {})}
            for row in output.text().splitlines():
                events.take_event({**about, "Action": "output", "Output": row + "\n"})
            events.take_event({**about, "Action": action, "Elapsed": elapsed_s})
        parsed = events.parsed()
        parsed.ended, parsed.partial = self.ended, not self.ended
        return parsed


def _seconds(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0
