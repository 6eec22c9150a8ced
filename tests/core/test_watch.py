"""The state of a watch: what a report makes of it, and the record of each test."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.core.report import Diagnostic, Report, ReportStatus, TestResult, TestStatus, Totals, count_totals
from ratchet.core.watch import (
    Colour,
    TestRecord,
    WatchStage,
    WatchState,
    after_affected,
    after_everything,
    changed_to,
    record_results,
)

PASSED = TestResult(id="t::a", status=TestStatus.PASSED, duration_s=1.0)
FAILED = TestResult(id="t::a", status=TestStatus.FAILED, duration_s=2.0)
BROKEN = Diagnostic(file="b.py", message="no")


def report(*tests: TestResult, status: ReportStatus = ReportStatus.PASSED) -> Report:
    return Report(runner="pytest", status=status, tests=list(tests), totals=count_totals(tests))


def test_affected_tests_that_pass_are_not_yet_green() -> None:
    assert after_affected(WatchState(), report(PASSED), seconds=0.1).colour is Colour.PENDING
    red = after_affected(WatchState(), report(FAILED, status=ReportStatus.FAILED), seconds=0.1)
    assert red.colour is Colour.RED


def test_failures_stay_listed_until_they_have_run_again() -> None:
    other = TestResult(id="t::b", status=TestStatus.FAILED)
    state = after_affected(WatchState(failing=[FAILED, other]), report(PASSED), seconds=0.12345)
    assert (state.failing, state.broken, state.affected_s) == ([other], [], 0.123)
    state = after_affected(state, report(FAILED), seconds=0.1)
    assert state.failing == [FAILED, other]


def test_a_file_that_does_not_load_is_red_before_all_tests_have_run() -> None:
    broken = Report(runner="pytest", status=ReportStatus.FAILED, collection_errors=[BROKEN])
    state = after_affected(WatchState(), broken, seconds=0.1)
    assert (state.colour, state.broken) == (Colour.RED, [BROKEN])


@pytest.mark.parametrize("status", [status for status in ReportStatus if status is not ReportStatus.PASSED])
def test_only_a_passed_report_is_green(status: ReportStatus) -> None:
    assert after_everything(WatchState(), report(PASSED), flaky=[], seconds=1).colour is Colour.GREEN
    assert after_everything(WatchState(), report(PASSED, status=status), flaky=[], seconds=1).colour is Colour.RED


def test_a_complete_run_replaces_the_state() -> None:
    state = after_everything(
        WatchState(runs=3, note="old", tree="one"),
        report(FAILED, status=ReportStatus.FAILED),
        flaky=["t::f"],
        seconds=2.34567,
    )
    assert state == WatchState(
        colour=Colour.RED,
        stage=WatchStage.IDLE,
        tree="one",
        status=ReportStatus.FAILED,
        totals=Totals(tests=1, failed=1),
        failing=[FAILED],
        flaky=["t::f"],
        everything_s=2.346,
        runs=4,
    )


def test_a_run_without_a_verdict_has_the_reason_as_its_note() -> None:
    def note(status: ReportStatus = ReportStatus.CRASHED, **fields: Any) -> str:
        return after_everything(WatchState(), Report(runner="r", status=status, **fields), flaky=[], seconds=1).note

    output = "".join(f"line {number}\n\n" for number in range(9))
    assert note(notes=["no free port", "again"], output=output) == "no free port; again"
    assert note(output=output) == "\n".join(f"line {number}" for number in range(3, 9))
    assert note(output=output, tests=[FAILED]) == "crashed", "the failing test explains it"
    assert note(output="x" * 600) == "x" * 500
    assert note(ReportStatus.FAILED, notes=["not shown"]) == note(ReportStatus.PASSED, notes=["not shown"]) == ""


def test_a_change_resets_the_verdict_and_keeps_the_failures() -> None:
    before = after_everything(WatchState(), report(FAILED, status=ReportStatus.FAILED), flaky=[], seconds=1)
    before = after_affected(before, report(FAILED), seconds=1)
    after = changed_to(before, tree="two", changed=[f"{number}.py" for number in range(300)], note="why")
    assert (after.colour, after.stage, after.tree, after.note) == (Colour.PENDING, WatchStage.STARTING, "two", "why")
    assert (after.status, after.affected_s, after.everything_s, after.chosen) == (None, None, None, 0)
    assert (len(after.changed), after.changed[-1], after.failing, after.runs) == (200, "199.py", [FAILED], 1)


def test_a_different_result_on_the_same_tree_counts_as_flaky() -> None:
    known: dict[str, TestRecord] = {}
    for tree, test in (("one", PASSED), ("one", FAILED), ("two", FAILED), ("two", FAILED)):
        known = record_results(known, report(test), tree=tree, whole=True)
    assert (known["t::a"].runs, known["t::a"].repeats, known["t::a"].flips) == (4, 2, 1)
    assert known["t::a"].flaky_rate == 0.5, "the change between the trees is no flip"
    assert record_results(known, report(), tree="two", whole=True) == {}
    assert record_results(known, report(), tree="two", whole=False) == known


def test_a_record_has_the_last_result_and_a_moving_average_of_the_duration() -> None:
    known = record_results({}, report(PASSED), tree="one", whole=True)
    assert known["t::a"] == TestRecord(status="passed", duration_s=1.0, runs=1, tree="one")
    known = record_results(known, report(FAILED), tree="two", whole=False)
    assert known["t::a"] == TestRecord(status="failed", duration_s=1.3, runs=2, tree="two")
    skipped = TestResult(id="t::a", status=TestStatus.SKIPPED)
    assert record_results(known, report(skipped), tree="two", whole=True)["t::a"].repeats == 0
