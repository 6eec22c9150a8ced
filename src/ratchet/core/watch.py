"""State of a watch: its colour, its stage and the record of each test.

Green requires a full run on the current tree; red is reported at the first failure; everything else is pending.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ratchet.core.lines import split_lines
from ratchet.core.report import GREEN, RED, Diagnostic, Report, ReportStatus, TestResult, Totals, load_errors

_SHOWN_MAX = 200
_WEIGHT = 0.3
_OUTPUT_LINES, _NOTE_CHARS = 6, 500


class Colour(StrEnum):
    GREEN = "green"
    RED = "red"
    PENDING = "pending"


class WatchStage(StrEnum):
    """`affected`: running affected and last failed tests; `everything`: running the whole suite in its own order."""

    STARTING = "starting"
    AFFECTED = "affected"
    EVERYTHING = "everything"
    IDLE = "idle"
    GONE = "gone"


class WatchState(msgspec.Struct, frozen=True, kw_only=True):
    """A complete state: readers need only the newest. `tree` identifies the content it describes.

    `chosen` is the number of tests and test files selected to run first (0: everything); `affected_s` and
    `everything_s` are the seconds from the change to the verdict of these, and of the whole suite.
    """

    colour: Colour = Colour.PENDING
    stage: WatchStage = WatchStage.STARTING
    tree: str = ""
    follows: str = "save"
    changed: list[str] = []
    chosen: int = 0
    status: ReportStatus | None = None
    totals: Totals = Totals()
    failing: list[TestResult] = []
    broken: list[Diagnostic] = []
    flaky: list[str] = []
    affected_s: float | None = None
    everything_s: float | None = None
    note: str = ""
    runs: int = 0
    pid: int = 0
    at: str = ""


def changed_to(state: WatchState, *, tree: str, changed: list[str], note: str) -> WatchState:
    """Reset the verdict after a change of the tree. Failures stay listed until they have run again."""
    return msgspec.structs.replace(
        state,
        colour=Colour.PENDING,
        stage=WatchStage.STARTING,
        tree=tree,
        changed=changed[:_SHOWN_MAX],
        chosen=0,
        status=None,
        affected_s=None,
        everything_s=None,
        note=note,
    )


def after_affected(state: WatchState, report: Report, *, seconds: float) -> WatchState:
    """Turn red on a failure; a partial run never turns green."""
    red = red_tests(report)
    ran = {test.id for test in report.tests}
    still = [test for test in state.failing if test.id not in ran]
    return msgspec.structs.replace(
        state,
        colour=Colour.RED if red or load_errors(report) else Colour.PENDING,
        failing=[*red, *still][:_SHOWN_MAX],
        broken=load_errors(report),
        affected_s=round(seconds, 3),
    )


def after_everything(state: WatchState, report: Report, *, flaky: list[str], seconds: float) -> WatchState:
    return msgspec.structs.replace(
        state,
        colour=Colour.GREEN if report.status is ReportStatus.PASSED else Colour.RED,
        stage=WatchStage.IDLE,
        status=report.status,
        totals=report.totals,
        failing=red_tests(report)[:_SHOWN_MAX],
        broken=load_errors(report),
        flaky=flaky,
        everything_s=round(seconds, 3),
        note="" if report.status in (ReportStatus.PASSED, ReportStatus.FAILED) else _no_verdict_note(report),
        runs=state.runs + 1,
    )


def _no_verdict_note(report: Report) -> str:
    """Return why there is no verdict: the notes, else the end of the runner's output."""
    named = red_tests(report) or load_errors(report)
    lines = [line.strip() for line in split_lines(report.output) if line.strip() and not named]
    return ("; ".join(report.notes) or "\n".join(lines[-_OUTPUT_LINES:]) or str(report.status))[-_NOTE_CHARS:]


def red_tests(report: Report) -> list[TestResult]:
    return [test for test in report.tests if test.status in RED]


class TestRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of one test: last status, average duration, and how often its result flipped on the same tree."""

    status: str
    duration_s: float = 0.0
    runs: int = 0
    repeats: int = 0
    flips: int = 0
    tree: str = ""

    @property
    def flaky_rate(self) -> float:
        return self.flips / self.repeats if self.repeats else 0.0


def record_results(known: dict[str, TestRecord], report: Report, *, tree: str, whole: bool) -> dict[str, TestRecord]:
    """Update the records from a report. A whole run drops the records of tests that no longer exist."""
    found = {test.id: _update_record(known.get(test.id), test, tree) for test in report.tests}
    return found if whole else {**known, **found}


def _update_record(before: TestRecord | None, test: TestResult, tree: str) -> TestRecord:
    if before is None:
        return TestRecord(status=test.status, duration_s=test.duration_s, runs=1, tree=tree)
    again = before.tree == tree and test.status in GREEN | RED
    flipped = again and (before.status in GREEN) != (test.status in GREEN)
    return TestRecord(
        status=test.status,
        duration_s=round(before.duration_s + _WEIGHT * (test.duration_s - before.duration_s), 6),
        runs=before.runs + 1,
        repeats=before.repeats + again,
        flips=before.flips + flipped,
        tree=tree,
    )
