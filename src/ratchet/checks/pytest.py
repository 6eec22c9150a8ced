"""pytest, read through a plugin of ours that is loaded from outside: what to run, and what its records mean."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from ratchet.core.report import (
    Diagnostic,
    Failure,
    Frame,
    Report,
    TestResult,
    TestStatus,
    status_of,
    totals_of,
)

SHIMS = Path(__file__).with_name("shims")
_PLUGIN = "-p _ratchet_pytest --continue-on-collection-errors"


def environment(env: dict[str, str], *, report: Path, nonce: str) -> dict[str, str]:
    """Everything goes in by the environment, so it reaches pytest through `make test`, scripts and wrappers too."""
    path = [str(SHIMS), *([env["PYTHONPATH"]] if env.get("PYTHONPATH") else [])]
    options = [*([env["PYTEST_ADDOPTS"]] if env.get("PYTEST_ADDOPTS") else []), _PLUGIN]
    return env | {
        "PYTHONPATH": ":".join(path),
        "PYTEST_ADDOPTS": " ".join(options),
        "_RATCHET_REPORT": str(report),
        "_RATCHET_NONCE": nonce,
    }


def parse(
    records: bytes, *, nonce: str, command: list[str], exit_code: int, timed_out: bool, duration_s: float
) -> Report:
    """The plugin's JSON lines as a report. Lines that are torn or not ours are skipped and noted."""
    rows, torn = _rows(records)
    ours = any(row["kind"] == "start" and row.get("nonce") == nonce for row in rows)
    end = next((row for row in reversed(rows) if row["kind"] == "end" and row.get("nonce") == nonce), None)
    tests, running = _tests(rows)
    broken = [_diagnostic(row) for row in rows if row["kind"] == "broken"]
    notes = _notes(rows, tests, end, exit_code, timed_out) + ([f"{torn} unreadable records"] if torn else [])
    ended = ours and end is not None
    return Report(
        runner="pytest",
        runner_version=next((row.get("version", "") for row in rows if row["kind"] == "start"), ""),
        command=command,
        status=status_of(
            tests=tests,
            broken=len(broken),
            exit_code=exit_code,
            ended=ended,
            timed_out=timed_out,
            notes=notes,
        ),
        exit_code=exit_code,
        signal=-exit_code if exit_code < 0 else None,
        duration_s=duration_s,
        totals=totals_of(tests),
        tests=tests,
        collection_errors=broken,
        notes=notes,
        running=running,
    )


def _rows(records: bytes) -> tuple[list[dict[str, Any]], int]:
    rows, torn = [], 0
    for line in records.splitlines():
        try:
            row = msgspec.json.decode(line)
            assert isinstance(row, dict) and isinstance(row["kind"], str)
        except (msgspec.DecodeError, UnicodeDecodeError, AssertionError, KeyError):
            torn += 1
        else:
            rows.append(row)
    return rows, torn


def _notes(
    rows: list[dict[str, Any]],
    tests: list[TestResult],
    end: dict[str, Any] | None,
    exit_code: int,
    timed_out: bool,
) -> list[str]:
    """Where the channels contradict each other. Each note makes the run inconsistent, whatever its exit code."""
    notes = []
    collected = next((row["ids"] for row in rows if row["kind"] == "collected"), None)
    ran = {test.id for test in tests}
    if end and collected is not None and (unrun := [name for name in collected if name not in ran]):
        notes.append(f"{len(unrun)} collected tests did not run, {unrun[0]} first")
    if end and not timed_out and end["exit"] != exit_code:
        notes.append(f"pytest ended with {end['exit']}, the command with {exit_code}")
    if forged := [row["id"] for row in rows if _forged(row)]:
        notes.append(f"reported as passed although it raised: {forged[0]}")
    return notes


def _forged(row: dict[str, Any]) -> bool:
    """A hook in the project turned a failure into a pass; an expected failure is the one honest way to do that."""
    return bool(row["kind"] == "phase" and row["outcome"] == "passed" and row.get("raised") and "xfail" not in row)


def _tests(rows: Iterable[dict[str, Any]]) -> tuple[list[TestResult], list[str]]:
    phases: dict[str, list[dict[str, Any]]] = {}
    running: list[str] = []
    for row in rows:
        if row["kind"] == "test_start":
            running.append(row["id"])
        elif row["kind"] == "phase":
            phases.setdefault(row["id"], []).append(row)
            if row["when"] == "teardown" and row["id"] in running:
                running.remove(row["id"])
    return [_test(name, found) for name, found in phases.items() if name not in running], running


def _test(name: str, phases: list[dict[str, Any]]) -> TestResult:
    """One test from its set-up, call and teardown; the gravest phase decides, a failing subtest fails its parent."""
    worst = max(phases, key=_gravity)
    failure = _failure(worst) if worst["outcome"] == "failed" else None
    return TestResult(
        id=name,
        name=worst.get("name", ""),
        suite=name.split("::")[1:-1],
        file=worst.get("file", ""),
        line=worst.get("line", 0),
        status=_status(worst),
        duration_s=round(sum(row["duration"] for row in phases), 6),
        phase=worst["when"],
        reason=worst.get("xfail") or worst.get("reason", ""),
        failure=failure,
        stdout=worst.get("stdout", "") if failure else "",
        stderr=worst.get("stderr", "") if failure else "",
    )


def _gravity(row: dict[str, Any]) -> tuple[int, int]:
    by_outcome = {"failed": 2, "skipped": 1, "passed": 0}[row["outcome"]]
    return by_outcome, {"call": 2, "setup": 1, "teardown": 0}.get(row["when"], 0)


def _status(row: dict[str, Any]) -> TestStatus:
    match row["outcome"], row["when"], "xfail" in row:
        case "skipped", _, True:
            return TestStatus.XFAILED
        case "skipped", _, False:
            return TestStatus.SKIPPED
        case "passed", _, True:
            return TestStatus.XPASSED
        case "failed", "call", _:
            return TestStatus.FAILED
        case "failed", _, _:
            return TestStatus.ERROR
        case _:
            return TestStatus.PASSED


def _failure(row: dict[str, Any]) -> Failure:
    frames = [Frame(**frame) for frame in row.get("frames", [])]
    message = row.get("message", "")
    return Failure(
        type=row.get("type", ""),
        message=f"[{row['subtest']}] {message}" if row.get("subtest") else message,
        expected=row.get("expected"),
        actual=row.get("actual"),
        operator=row.get("operator", ""),
        file=frames[-1].file if frames else row.get("file", ""),
        line=frames[-1].line if frames else row.get("line", 0),
        frames=frames,
    )


def _diagnostic(row: dict[str, Any]) -> Diagnostic:
    return Diagnostic(
        file=row["file"],
        line=row.get("line", 0),
        column=row.get("column", 0),
        type=row.get("type", ""),
        message=row.get("message", ""),
        tool="pytest",
    )
