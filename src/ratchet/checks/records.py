"""What our own reporters write, whatever the runner: one JSON record a line, between a start and an end with a nonce.

    {"kind": "start", "nonce", "version", "root"?}     {"kind": "collected", "ids"}     {"kind": "end", "nonce", "exit"}
    {"kind": "test_start", "id", "file"?, "line"?}     {"kind": "test_over", "id", "outcome"?}
    {"kind": "phase", "id", "when", "outcome": passed|failed|skipped|rerun, "file", "line", "name", "project"?, …}
    {"kind": "broken", "file", "line", "column", "type", "message"}

A test is over with its teardown, or with the phase that says `"last": true`. What a test's own process says of its
outcome counts where that process died before its runner could tell more. A test that several projects of one run have
is named with its project, and one that a single project has is not.
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
CRASHED = "Crashed"  # the type of what is told of a file whose process died
_LINE_MAX = 4_000_000
_PHASES = ("setup", "call", "teardown")
Row = dict[str, Any]


def parse(stream: BinaryIO, *, nonce: str, exit_code: int | None, stopped: bool = False, folder: str = "") -> Parsed:
    """Lines that are torn or not ours are skipped and noted. Memory grows with the tests, not with the lines.

    `folder` is where the runner was started: names that it gives from another one are made to start there.
    """
    reader = Reader(nonce, folder)
    while line := stream.readline(_LINE_MAX):
        reader.take(line)
    return reader.parsed(exit_code=exit_code, stopped=stopped)


class Reader:
    """Folds records one by one."""

    def __init__(self, nonce: str, folder: str = "") -> None:
        self.nonce = nonce
        self.folder, self.root = folder, ""
        self.places: dict[str, str] = {}
        self.phases: dict[str, list[Row]] = {}
        self.tests: dict[str, TestResult] = {}
        self.attempts: dict[str, int] = {}
        self.twins: dict[str, int] = {}
        self.projects: dict[str, dict[str, str]] = {}
        self.broken: list[Diagnostic] = []
        self.collected: list[str] | None = None
        self.running: list[str] = []
        self.begun_at: dict[str, tuple[str, int]] = {}
        self.inside: dict[str, str] = {}
        self.ends: list[Row] = []
        self.starts, self.torn, self.forged = 0, 0, ""

    def take(self, line: bytes) -> None:
        try:
            row = self._moved(_row(line)) if self.root else _row(line)
            getattr(self, f"_{row['kind']}", lambda _row: None)(row)
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
            self.torn += 1

    def _start(self, row: Row) -> None:
        self.starts += row["nonce"] == self.nonce
        root = row.get("root")
        if root and self.folder and os.path.realpath(root) != os.path.realpath(self.folder):
            self.root = os.path.realpath(root)

    def _moved(self, row: Row) -> Row:
        """pytest names all from where its configuration is, which may be above or below where it was started."""
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
            self.begun_at = {name: self.begun_at[name] for name in self.running if name in self.begun_at}
            self.begun_at[row["id"]] = (row["file"], row["line"])

    def _test_over(self, row: Row) -> None:
        if row["id"] in self.running:
            self.running.remove(row["id"])
        if row.get("outcome"):
            self.inside[row["id"]] = row["outcome"]

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
        # A hook in the project turned a failure into a pass; an expected failure is the one honest way to do that.
        if row["outcome"] == "passed" and row.get("raised") and "xfail" not in row:
            self.forged = self.forged or name
        self.phases.setdefault(name, []).append(row)
        if row["when"] == "teardown" or row.get("last") or row["when"] not in _PHASES:
            self._over(name, row.get("project") or "", whole=bool(row.get("last")))

    def _over(self, name: str, project: str, *, whole: bool) -> None:
        test = _test(name, self.phases.pop(name))
        test = msgspec.structs.replace(test, attempts=self.attempts.get(name, 1))
        before, own = self.tests.get(name), name
        if before and whole and self._may_have_a_twin(name):
            self.twins[name] = self.twins.get(name, 1) + 1
            own = f"{name} ({self.twins[name]})"
            self.tests[own] = msgspec.structs.replace(test, id=own)
        # A class or module fixture that fails in its teardown reports the test again: the graver word stays.
        elif before is None or before.failure is None:
            self.tests[name] = test
        if project:
            self.projects.setdefault(name, {})[own] = project
        if name in self.running:
            self.running.remove(name)

    def _may_have_a_twin(self, name: str) -> bool:
        """Many runners allow two tests of one name, and count both. One that said what it collected has said so."""
        return self.collected is None or self.collected.count(name) > self.twins.get(name, 1)

    def parsed(self, *, exit_code: int | None, stopped: bool) -> Parsed:
        running = [name for name in self.running if not any(other.startswith(f"{name}::") for other in self.running)]
        # A runner that outlived the process of a test may well say its end: the test's is still missing.
        ended = self.starts > 0 and len(self.ends) >= self.starts and not running
        died = _of_dead(self.broken, running)
        cut = not ended or any(error.type == CRASHED for error in self.broken)
        return Parsed(
            tests=[*self._named().values(), *(self._told_inside() if cut else []), *died.values()],
            collection_errors=[
                error for error in self.broken if error.file not in {test.file for test in died.values()}
            ],
            ended=ended,
            notes=self._notes(exit_code, stopped),
            running=running,
            places=self.begun_at,
        )

    def _named(self) -> dict[str, TestResult]:
        """The tests, those that several projects have each with its own: in which order they end is chance."""
        names = {name: name for name in self.tests}
        for plain, of in self.projects.items():
            if len({*of.values()}) > 1:
                names |= _numbered({own: f"{plain} [{project}]" for own, project in of.items()})
        return {names[own]: msgspec.structs.replace(test, id=names[own]) for own, test in self.tests.items()}

    def _told_inside(self) -> list[TestResult]:
        """Tests that were over before their process died, and of which the runner never heard."""
        unheard = {name: outcome for name, outcome in self.inside.items() if name not in self.tests}
        return [
            _nameable(
                name,
                TestStatus.PASSED if outcome == "passed" else TestStatus.FAILED,
                None if outcome == "passed" else Failure(message="it failed, and then its process died"),
            )
            for name, outcome in unheard.items()
        ]

    def _notes(self, exit_code: int | None, stopped: bool) -> list[str]:
        """Where the channels contradict each other. Each note makes the run inconsistent, whatever its exit code."""
        notes = [f"{self.torn} unreadable records"] if self.torn else []
        if self.ends and self.collected is not None:
            unrun = [name for name in self.collected if name not in self.tests]
            notes += [f"{len(unrun)} collected tests did not run, {unrun[0]} first"] if unrun else []
        elif self.collected and (left := len({*self.collected} - {*self.tests, *self.running, *self.inside})):
            notes.append(f"{left} more {'test was' if left == 1 else 'tests were'} not reached")
        told = [row.get("exit") for row in self.ends]
        said = next(filter(None, told), told[0] if told else None)
        if not stopped and said not in (None, exit_code):
            notes.append(f"the runner ended with {said}, the command with {exit_code}")
        if self.forged:
            notes.append(f"reported as passed although it raised: {self.forged}")
        return notes


def _numbered(names: dict[str, str]) -> dict[str, str]:
    """The second of a name is that, and so on."""
    met: dict[str, int] = {}
    found: dict[str, str] = {}
    for own, name in names.items():
        met[name] = met.get(name, 0) + 1
        found[own] = name if met[name] == 1 else f"{name} ({met[name]})"
    return found


def _row(line: bytes) -> Row:
    try:
        row: Row = msgspec.json.decode(line)
    except msgspec.DecodeError:
        # Half of a surrogate pair, which names of files in Python and cut strings in JavaScript hold, is no torn line.
        row = msgspec.json.decode(json.dumps(json.loads(line), ensure_ascii=False).encode(errors="replace"))
    return row


def _of_dead(broken: list[Diagnostic], running: list[str]) -> dict[str, TestResult]:
    """The tests that ran in a process of which only the end is known: it is theirs."""
    found: dict[str, TestResult] = {}
    for error in broken:
        for name in running if error.type == CRASHED else []:
            if name.startswith(f"{error.file}::"):
                failure = Failure(type=error.type, message=error.message, file=error.file)
                found[name] = _nameable(name, TestStatus.ERROR, failure)
    return found


def _nameable(name: str, status: TestStatus, failure: Failure | None) -> TestResult:
    file, _, path = name.partition("::")
    file = re.sub(r"^\[[^\]]*\] ", "", file)  # playwright's project
    *suite, own = path.split(" > ")
    return TestResult(id=name, name=own, suite=suite, file=file, status=status, failure=failure)


def _test(name: str, phases: list[Row]) -> TestResult:
    """One test from its set-up, call and teardown; the gravest phase decides, a failing subtest fails its parent."""
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
    # A skipped subtest does not skip the test around it.
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
    """Both values of a difference that a message holds: not every runner hands them over."""
    from ratchet.checks.formats.recover import values  # noqa: PLC0415 — many patterns, seldom needed

    return values.sides(values.diff(message))
