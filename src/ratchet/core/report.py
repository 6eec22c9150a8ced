"""One structured result for every test runner. Verdicts come from per-test records, never from an exit code alone."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

import msgspec


class TestStatus(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    XPASSED = "xpassed"
    TODO = "todo"


RED = frozenset({TestStatus.FAILED, TestStatus.ERROR})
GREEN = frozenset({TestStatus.PASSED, TestStatus.XPASSED})


class ReportStatus(StrEnum):
    """`inconsistent`: channels disagree about the same run. Only `passed` is a yes."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    NO_TESTS = "no_tests"
    INCONSISTENT = "inconsistent"
    UNKNOWN = "unknown"


class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stack frame inside the project, innermost last. Lines count from 1."""

    file: str
    line: int = 0
    function: str = ""
    code: str = ""


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: str = ""
    message: str = ""
    expected: str | None = None
    actual: str | None = None
    operator: str = ""
    diff: str = ""
    file: str = ""
    line: int = 0
    frames: list[Frame] = []


class TestResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`id` is the runner's own name for the test, verbatim: what to pass back to run it alone."""

    id: str
    status: TestStatus
    name: str = ""
    suite: list[str] = []
    file: str = ""
    line: int = 0
    duration_s: float = 0.0
    phase: str = "call"
    reason: str = ""
    failure: Failure | None = None
    attempts: int = 1
    stdout: str = ""
    stderr: str = ""


class Diagnostic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that did not compile or load: its tests are missing from the run."""

    file: str = ""
    line: int = 0
    column: int = 0
    type: str = ""
    code: str = ""
    message: str = ""
    tool: str = ""


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    tests: int = 0
    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0
    xfailed: int = 0
    xpassed: int = 0
    todo: int = 0


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`reported` is the runner's own summary, a cross-check; `running` names what ran when the runner died."""

    runner: str
    status: ReportStatus
    totals: Totals = Totals()
    runner_version: str = ""
    root: str = "."
    command: list[str] = []
    exit_code: int | None = None
    signal: int | None = None
    duration_s: float = 0.0
    tests: list[TestResult] = []
    collection_errors: list[Diagnostic] = []
    compile_errors: list[Diagnostic] = []
    reported: dict[str, int] = {}
    notes: list[str] = []
    running: list[str] = []
    output: str = ""


_COUNTED = {
    TestStatus.PASSED: "passed",
    TestStatus.FAILED: "failed",
    TestStatus.ERROR: "errors",
    TestStatus.SKIPPED: "skipped",
    TestStatus.XFAILED: "xfailed",
    TestStatus.XPASSED: "xpassed",
    TestStatus.TODO: "todo",
}


def totals_of(tests: Iterable[TestResult]) -> Totals:
    counts = Counter(_COUNTED[test.status] for test in tests)
    return Totals(tests=sum(counts.values()), **counts)


def status_of(
    *,
    tests: list[TestResult],
    broken: int,
    exit_code: int | None,
    ended: bool,
    timed_out: bool,
    notes: list[str],
) -> ReportStatus:
    """The verdict of a run, in order of gravity. `ended` says whether the runner reported its own end."""
    red = any(test.status in RED for test in tests)
    if timed_out:
        return ReportStatus.TIMEOUT
    if not ended:
        return ReportStatus.CRASHED
    if notes:
        return ReportStatus.INCONSISTENT
    if not tests and not broken:
        return ReportStatus.NO_TESTS
    if red or broken:
        return ReportStatus.INCONSISTENT if exit_code == 0 else ReportStatus.FAILED
    return ReportStatus.PASSED if exit_code == 0 else ReportStatus.INCONSISTENT


def digest(report: Report) -> str:
    """The report's identity for a proof: which tests there were and how each ended; no times, no wording."""
    rows = sorted(f"{test.id}\0{test.status}" for test in report.tests)
    rows += sorted(f"broken\0{error.file}" for error in broken(report))
    return "sha256:" + hashlib.sha256("\n".join(rows).encode()).hexdigest()


def broken(report: Report) -> list[Diagnostic]:
    return [*report.collection_errors, *report.compile_errors]


_NOISE = [
    (re.compile(r"0x[0-9a-fA-F]+"), "0x"),  # object addresses
    (re.compile(r"(?:/[\w.+@%~-]+)+/"), "/"),  # folders: a workspace has another path each time
    (re.compile(r"\s+"), " "),
]


def fingerprint(report: Report, ids: Iterable[str]) -> str:
    """How the named tests failed, without what changes from run to run."""
    wanted = set(ids)
    rows = [f"{t.id}\0{_shape(t.failure)}" for t in report.tests if t.id in wanted]
    rows += [f"{e.file}\0{e.type}: {_quiet(e.message)}" for e in broken(report) if e.file in wanted]
    return "sha256:" + hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()


def _shape(failure: Failure | None) -> str:
    return f"{failure.type}: {_quiet(failure.message)}" if failure else ""


def _quiet(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else ""
    for pattern, plain in _NOISE:
        line = pattern.sub(plain, line)
    return line
