"""What a watch says: the state it tells, its colour, and what each test is known for. Pure.

Green is said only after everything has run on the tree as it is; red as soon as one test is; else it is pending.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ratchet.core.report import GREEN, RED, Diagnostic, Report, ReportStatus, TestResult, Totals, broken

_SHOWN_MAX = 200
_WEIGHT = 0.3
_SAID_LINES, _NOTE_CHARS = 6, 500


class Colour(StrEnum):
    GREEN = "green"
    RED = "red"
    PENDING = "pending"


class Stage(StrEnum):
    """`affected`: what the change can reach and what failed last; `everything`: the whole suite, in its own order."""

    STARTING = "starting"
    AFFECTED = "affected"
    EVERYTHING = "everything"
    IDLE = "idle"
    GONE = "gone"


class WatchState(msgspec.Struct, frozen=True, kw_only=True):
    """One state, whole: who reads the newest needs no other. `tree` names the content it is about.

    `chosen` is how many tests and test files were to run first (0: all at once); `affected_s` and `everything_s` are
    the seconds from the change to the verdict of those, and of the whole suite.
    """

    colour: Colour = Colour.PENDING
    stage: Stage = Stage.STARTING
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
    """The tree moved: what was known of it is not known any more. The failures stay in sight until they have run."""
    return msgspec.structs.replace(
        state,
        colour=Colour.PENDING,
        stage=Stage.STARTING,
        tree=tree,
        changed=changed[:_SHOWN_MAX],
        chosen=0,
        status=None,
        affected_s=None,
        everything_s=None,
        note=note,
    )


def after_affected(state: WatchState, report: Report, *, seconds: float) -> WatchState:
    """A red test is red. Anything else is not a verdict on the tree yet."""
    red = red_tests(report)
    ran = {test.id for test in report.tests}
    still = [test for test in state.failing if test.id not in ran]
    return msgspec.structs.replace(
        state,
        colour=Colour.RED if red or broken(report) else Colour.PENDING,
        failing=[*red, *still][:_SHOWN_MAX],
        broken=broken(report),
        affected_s=round(seconds, 3),
    )


def after_everything(state: WatchState, report: Report, *, flaky: list[str], seconds: float) -> WatchState:
    return msgspec.structs.replace(
        state,
        colour=Colour.GREEN if report.status is ReportStatus.PASSED else Colour.RED,
        stage=Stage.IDLE,
        status=report.status,
        totals=report.totals,
        failing=red_tests(report)[:_SHOWN_MAX],
        broken=broken(report),
        flaky=flaky,
        everything_s=round(seconds, 3),
        note="" if report.status in (ReportStatus.PASSED, ReportStatus.FAILED) else _why(report),
        runs=state.runs + 1,
    )


def _why(report: Report) -> str:
    """Why there is no verdict on tests: what was noted, else the end of what the runner said."""
    named = red_tests(report) or broken(report)
    said = [line.strip() for line in report.output.splitlines() if line.strip() and not named]
    return ("; ".join(report.notes) or "\n".join(said[-_SAID_LINES:]) or str(report.status))[-_NOTE_CHARS:]


def red_tests(report: Report) -> list[TestResult]:
    return [test for test in report.tests if test.status in RED]


class Known(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of one test: how it ended last, how long it takes, how often it ended otherwise on one tree."""

    status: str
    duration_s: float = 0.0
    runs: int = 0
    repeats: int = 0
    flips: int = 0
    tree: str = ""

    @property
    def flaky_rate(self) -> float:
        return self.flips / self.repeats if self.repeats else 0.0


def observed(known: dict[str, Known], report: Report, *, tree: str, whole: bool) -> dict[str, Known]:
    """Every result taken in. After a whole run, tests that are no more are forgotten."""
    found = {test.id: _seen(known.get(test.id), test, tree) for test in report.tests}
    return found if whole else {**known, **found}


def _seen(before: Known | None, test: TestResult, tree: str) -> Known:
    if before is None:
        return Known(status=test.status, duration_s=test.duration_s, runs=1, tree=tree)
    again = before.tree == tree and test.status in GREEN | RED
    flipped = again and (before.status in GREEN) != (test.status in GREEN)
    return Known(
        status=test.status,
        duration_s=round(before.duration_s + _WEIGHT * (test.duration_s - before.duration_s), 6),
        runs=before.runs + 1,
        repeats=before.repeats + again,
        flips=before.flips + flipped,
        tree=tree,
    )
