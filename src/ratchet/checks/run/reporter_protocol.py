"""The format of our reporters: one JSON record a line, between a start and an end record with a nonce.

    {"kind": "start", "nonce", "version", "root"?}     {"kind": "collected", "ids"}     {"kind": "end", "nonce", "exit"}
    {"kind": "test_start", "id", "file"?, "line"?}     {"kind": "test_over", "id", "outcome"?, "whole"?}
    {"kind": "all_over"}
    {"kind": "phase", "id", "when", "outcome": passed|failed|skipped|rerun, "file", "line", "name", "project"?, …}
    {"kind": "broken", "file", "line", "column", "type", "message"}

A test ends with its teardown, or with the phase that has `"last": true`. The outcome that a test's own process reports
counts if that process died before the runner could report more. A test that exists in several projects of one run is
named with its project; a test of a single project is not.
"""

from __future__ import annotations

import json
import os.path
import re
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ratchet.checks.formats import Parsed
from ratchet.core.report import Diagnostic, Failure, Frame, TestResult, TestStatus

CHANNEL = "records.ndjson"
CRASHED = "Crashed"  # error type of a file whose process died
_LINE_MAX = 4_000_000
_PHASES = ("setup", "call", "teardown")
Row = dict[str, Any]


def parse(stream: BinaryIO, *, nonce: str, exit_code: int | None, stopped: bool = False, folder: str = "") -> Parsed:
    """Parse a stream of records. Damaged and foreign lines are skipped and noted. Memory grows with the number of
    tests, not of lines.

    `folder` is where the runner was started: names relative to another folder are rebased to it.
    """
    reader = RecordReader(nonce, folder)
    while line := stream.readline(_LINE_MAX):
        reader.feed(line)
    return reader.parsed(exit_code=exit_code, stopped=stopped)


class RecordReader:
    """Processes records one by one."""

    def __init__(self, nonce: str, folder: str = "") -> None:
        self.nonce = nonce
        self.folder, self.root = folder, ""
        self.places: dict[str, str] = {}
        self.phases: dict[str, list[Row]] = {}
        self.tests: dict[str, TestResult] = {}
        self.attempts: dict[str, int] = {}
        self.duplicates: dict[str, int] = {}
        self.projects: dict[str, dict[str, str]] = {}
        self.broken: list[Diagnostic] = []
        self.collected: list[str] | None = None
        self.running: list[str] = []
        self.start_locations: dict[str, tuple[str, int]] = {}
        self.process_outcomes: dict[str, str] = {}
        self.whole: set[str] = set()
        self.ends: list[Row] = []
        self.starts, self.unreadable, self.forged = 0, 0, ""
        self.all_over = False

    def feed(self, line: bytes) -> None:
        try:
            row = self._rebase(_row(line)) if self.root else _row(line)
            getattr(self, f"_{row['kind']}", lambda _row: None)(row)
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
            self.unreadable += 1

    def _start(self, row: Row) -> None:
        self.starts += row["nonce"] == self.nonce
        root = row.get("root")
        if root and self.folder and os.path.realpath(root) != os.path.realpath(self.folder):
            self.root = os.path.realpath(root)

    def _rebase(self, row: Row) -> Row:
        """Rebase names: pytest names files relative to its configuration, which may be above or below the start
        folder."""
        for key in {"id", "file"} & set(row):
            row[key] = self._from_folder(row[key])
        for frame in row.get("frames") or []:
            frame["file"] = self._from_folder(frame["file"])
        return row | {"ids": [self._from_folder(name) for name in row["ids"]]} if "ids" in row else row

    def _from_folder(self, name: str) -> str:
        file, colons, rest = name.partition("::")
        if file and file not in self.places:
            self.places[file] = os.path.relpath(Path(self.root, file), os.path.realpath(self.folder))
        return f"{self.places.get(file, file)}{colons}{rest}"

    def _end(self, row: Row) -> None:
        if row["nonce"] == self.nonce:
            self.ends.append(row)

    def _collected(self, row: Row) -> None:
        self.collected = self.collected or []
        self.collected += map(str, row["ids"])

    def _test_start(self, row: Row) -> None:
        if row["id"] not in self.running:
            self.running.append(row["id"])
        if "line" in row:
            self.start_locations = {
                name: self.start_locations[name] for name in self.running if name in self.start_locations
            }
            self.start_locations[row["id"]] = (row["file"], row["line"])

    def _test_over(self, row: Row) -> None:
        if row["id"] in self.running:
            self.running.remove(row["id"])
        if row.get("outcome"):
            self.process_outcomes[row["id"]] = row["outcome"]
        if row.get("whole"):
            self.whole.add(row["id"])

    def _all_over(self, _row: Row) -> None:
        self.all_over = True

    def _broken(self, row: Row) -> None:
        names = ("file", "line", "column", "type", "message")
        fields = {name: row[name] for name in names if row.get(name)}
        found = msgspec.convert(fields | {"tool": row.get("tool", "")}, Diagnostic)
        if found not in self.broken:
            self.broken.append(found)

    def _phase(self, row: Row) -> None:
        name = row["id"]
        if row["outcome"] == "rerun":
            self.attempts[name] = self.attempts.get(name, 1) + 1
            self.phases.pop(name, None)
            return
        # A hook in the project turned a failure into a pass. That is legitimate for an expected failure, and for a
        # failure that was reported before the test was retried.
        if row["outcome"] == "passed" and row.get("raised") and "xfail" not in row and name not in self.attempts:
            self.forged = self.forged or name
        self.phases.setdefault(name, []).append(row)
        if row["when"] == "teardown" or row.get("last") or row["when"] not in _PHASES:
            self._finish(name, row.get("project") or "", whole=bool(row.get("last")))

    def _finish(self, name: str, project: str, *, whole: bool) -> None:
        test = _test(name, self.phases.pop(name))
        test = msgspec.structs.replace(test, attempts=self.attempts.get(name, 1))
        before, own = self.tests.get(name), name
        if before and whole and self._allows_duplicate(name):
            self.duplicates[name] = self.duplicates.get(name, 1) + 1
            own = f"{name} ({self.duplicates[name]})"
            self.tests[own] = msgspec.structs.replace(test, id=own)
        # A class or module fixture that fails in its teardown reports the test again: the worse result stays.
        elif before is None or before.failure is None:
            self.tests[name] = test
        if project:
            self.projects.setdefault(name, {})[own] = project
        if name in self.running:
            self.running.remove(name)

    def _allows_duplicate(self, name: str) -> bool:
        """Return whether a second test of this name may exist: many runners allow it. If the runner listed its tests,
        the list decides."""
        return self.collected is None or self.collected.count(name) > self.duplicates.get(name, 1)

    def parsed(self, *, exit_code: int | None, stopped: bool) -> Parsed:
        running = [name for name in self.running if not any(other.startswith(f"{name}::") for other in self.running)]
        # A runner that outlived the process of a test may report its end although the test's end is missing.
        ended = self.starts > 0 and len(self.ends) >= self.starts and not running
        died = _results_of_dead_files(self.broken, running)
        cut = not ended or any(error.type == CRASHED for error in self.broken)
        return Parsed(
            tests=[*self._results(), *self._results_of_lost_processes(cut=cut), *died.values()],
            collection_errors=[
                error for error in self.broken if error.file not in {test.file for test in died.values()}
            ],
            ended=ended,
            notes=self._notes(exit_code, stopped),
            running=running,
            places=self.start_locations,
        )

    def _results(self) -> list[TestResult]:
        """Return the results; files that were skipped as a whole are dropped if nothing else ran, because then no test
        ran."""
        results = list(self._named_by_project().values())
        return results if any(test.phase in _PHASES for test in results) else [test for test in results if test.failure]

    def _named_by_project(self) -> dict[str, TestResult]:
        """Return the tests by name; tests of several projects include the project, because they finish in any order."""
        names = {name: name for name in self.tests}
        for plain, of in self.projects.items():
            if len({*of.values()}) > 1:
                names |= _numbered({own: f"{plain} [{project}]" for own, project in of.items()})
        return {names[own]: msgspec.structs.replace(test, id=names[own]) for own, test in self.tests.items()}

    def _results_of_lost_processes(self, *, cut: bool) -> list[TestResult]:
        """Return tests that finished before their process died and that the runner never reported: a process that is
        forced to exit may lose its last messages.

        If nothing was cut off, their full names must be known and must not occur in another file: a test is reported
        under the file that defines it, which may differ from that of its process.
        """
        unreported = {name: outcome for name, outcome in self.process_outcomes.items() if name not in self.tests}
        if not cut:
            reported = {name.partition("::")[2] for name in self.tests}
            finished = [name for name in unreported if name in self.whole and name.partition("::")[2] not in reported]
            unreported = {name: unreported[name] for name in finished}
        return [
            _result_of_id(
                name,
                TestStatus.PASSED if outcome == "passed" else TestStatus.FAILED,
                None if outcome == "passed" else Failure(message="the test failed, then its process died"),
            )
            for name, outcome in unreported.items()
        ]

    def _notes(self, exit_code: int | None, stopped: bool) -> list[str]:
        """List contradictions between the channels. Each makes the run inconsistent, whatever its exit code."""
        notes = [f"{self.unreadable} unreadable records"] if self.unreadable else []
        if self.ends and self.collected is not None:
            unrun = [name for name in self.collected if name not in self.tests]
            notes += [f"{len(unrun)} collected tests did not run, {unrun[0]} first"] if unrun else []
        elif self.collected and (left := len({*self.collected} - {*self.tests, *self.running, *self.process_outcomes})):
            notes.append(f"{left} more {'test was' if left == 1 else 'tests were'} not reached")
        if self.all_over and not self.ends:
            notes.append("every test had ended; the runner, which then cleans up, had not")
        exits = [row.get("exit") for row in self.ends]
        runner_exit = next(filter(None, exits), exits[0] if exits else None)
        if not stopped and runner_exit not in (None, exit_code):
            notes.append(f"the runner ended with {runner_exit}, the command with {exit_code}")
        if self.forged:
            notes.append(f"reported as passed although it raised: {self.forged}")
        return notes


def _numbered(names: dict[str, str]) -> dict[str, str]:
    """Number repeated names, from the second on."""
    met: dict[str, int] = {}
    found: dict[str, str] = {}
    for own, name in names.items():
        met[name] = met.get(name, 0) + 1
        found[own] = name if met[name] == 1 else f"{name} ({met[name]})"
    return found


def _row(line: bytes) -> Row:
    try:
        row: Row = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        # An unpaired surrogate, as in Python file names and cut JavaScript strings, does not make a line damaged.
        row = msgspec.json.decode(json.dumps(json.loads(line), ensure_ascii=False).encode(errors="replace"))
    return row


def _results_of_dead_files(broken: list[Diagnostic], running: list[str]) -> dict[str, TestResult]:
    """Return results for the tests that ran in a process of which only the end is known."""
    found: dict[str, TestResult] = {}
    for error in broken:
        for name in running if error.type == CRASHED else []:
            if name.startswith(f"{error.file}::"):
                failure = Failure(type=error.type, message=error.message, file=error.file)
                found[name] = _result_of_id(name, TestStatus.ERROR, failure)
    return found


def _result_of_id(name: str, status: TestStatus, failure: Failure | None) -> TestResult:
    file, _, path = name.partition("::")
    file = re.sub(r"^\[[^\]]*\] ", "", file)  # the project in playwright
    *suite, own = path.split(" > ")
    return TestResult(id=name, name=own, suite=suite, file=file, status=status, failure=failure)


def _test(name: str, phases: list[Row]) -> TestResult:
    """Build a test from setup, call and teardown: the worst phase decides, and a failing subtest fails its parent."""
    worst = max(phases, key=_gravity)
    failure = _failure(worst) if worst["outcome"] == "failed" else None
    return TestResult(
        id=name,
        name=worst.get("name", ""),
        suite=worst.get("suite") or name.partition("[")[0].split("::")[1:-1],
        file=worst.get("file", ""),
        line=worst.get("line", 0),
        status=_status(worst),
        duration_s=round(sum(row.get("duration", 0.0) for row in phases if not row.get("subtest")), 6),
        phase=worst["when"],
        reason=worst.get("xfail") or worst.get("reason", ""),
        failure=failure,
        stdout=worst.get("stdout", "") if failure else "",
        stderr=worst.get("stderr", "") if failure else "",
    )


def _gravity(row: Row) -> tuple[int, int]:
    # A skipped subtest does not skip its parent.
    by_outcome = {"failed": 3, "skipped": 0 if row.get("subtest") else 2, "passed": 1}[row["outcome"]]
    return by_outcome, {"call": 2, "setup": 1, "teardown": 0}.get(row["when"], 3)


def _status(row: Row) -> TestStatus:
    if row.get("todo"):
        return TestStatus.TODO
    match row["outcome"], row["when"], "xfail" in row:
        case "skipped", _, True:
            return TestStatus.XFAILED
        case "skipped", _, False:
            return TestStatus.SKIPPED
        case "passed", _, True:
            return TestStatus.XPASSED
        case "failed", "call", _:
            return TestStatus.ERROR if row.get("error") else TestStatus.FAILED
        case "failed", _, _:
            return TestStatus.ERROR
        case _:
            return TestStatus.PASSED


def _failure(row: Row) -> Failure:
    frames = [msgspec.convert(frame, Frame) for frame in row.get("frames", [])]
    message = row.get("message", "")
    expected, actual = row.get("expected"), row.get("actual")
    if expected is None and actual is None and "\n- Expected" in message:
        expected, actual = _sides(message)
    return Failure(
        type=row.get("type", ""),
        message=f"[{row['subtest']}] {message}" if row.get("subtest") else message,
        expected=expected,
        actual=actual,
        operator=row.get("operator", ""),
        file=frames[-1].file if frames else row.get("file", ""),
        line=frames[-1].line if frames else row.get("line", 0),
        frames=frames,
    )


def _sides(message: str) -> tuple[str | None, str | None]:
    """Extract both values of a comparison from a message: not every runner reports them."""
    from ratchet.checks.formats.recover import values  # noqa: PLC0415 — many patterns, seldom needed

    return values.sides(values.diff(message))
