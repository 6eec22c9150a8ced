"""Outcomes of trials and their comparison."""

from __future__ import annotations

import pytest

from ratchet.core.backtest.ranking import (
    Arm,
    Trial,
    TrialOutcome,
    compare_pairs,
    judge_result,
    mcnemar,
    paired_interval,
    rank,
    wilson,
)
from ratchet.core.backtest.task import LeftOutReason, MinedTask, find_effect
from ratchet.core.receipt import Usage
from ratchet.core.report import Diagnostic, Report, ReportStatus, TestResult, TestStatus

TASK = MinedTask(
    id="p-1", commit="c1", base_commit="c0", title="t", spec="# t\n", created_at="", test_paths=["t.py"],
    source_paths=["s.py"], fail_to_pass=["t.py::new", "t.py::newer"], pass_to_pass=["t.py::old"],
)  # fmt: skip
PASSED, FAILED = TestStatus.PASSED, TestStatus.FAILED


def report(*, errors: tuple[str, ...] = (), **tests: TestStatus) -> Report:
    results = [TestResult(id=f"t.py::{name}", status=status, file="t.py") for name, status in tests.items()]
    status = ReportStatus.FAILED if errors or FAILED in tests.values() else ReportStatus.PASSED
    return Report(
        runner="pytest", status=status, tests=results, collection_errors=[Diagnostic(file=file) for file in errors]
    )


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (report(old=PASSED, new=PASSED, newer=PASSED), TrialOutcome.SOLVED),
        (report(old=PASSED, new=PASSED, newer=FAILED), TrialOutcome.PARTLY),
        (report(old=FAILED, new=PASSED, newer=PASSED), TrialOutcome.BROKE_OTHERS),
        (report(new=PASSED, newer=PASSED), TrialOutcome.BROKE_OTHERS),
        (report(old=PASSED, new=FAILED, newer=FAILED), TrialOutcome.FAILED),
        (None, TrialOutcome.FAILED),
    ],
)
def test_a_result_is_judged_by_the_sealed_tests(result: Report | None, outcome: TrialOutcome) -> None:
    assert judge_result(TASK, result, cheats=[], refused=[]).outcome is outcome


def test_a_cheat_in_the_result_counts_even_if_all_tests_pass() -> None:
    result = report(old=PASSED, new=PASSED, newer=PASSED)
    assert judge_result(TASK, result, cheats=["s.py:1: fake"], refused=[]).outcome is TrialOutcome.CHEATED


def test_a_refused_cheat_counts_only_without_an_honest_result() -> None:
    assert judge_result(TASK, None, cheats=[], refused=["fake"]).outcome is TrialOutcome.CHEATED
    result = report(old=PASSED, new=PASSED, newer=PASSED)
    assert judge_result(TASK, result, cheats=[], refused=["fake"]).outcome is TrialOutcome.SOLVED


def test_an_effect_is_what_is_green_at_the_commit_only() -> None:
    effect = find_effect([report(old=PASSED, new=FAILED)] * 2, [report(old=PASSED, new=PASSED)] * 2)
    assert (effect.fail_to_pass, effect.pass_to_pass, effect.reason) == (["t.py::new"], ["t.py::old"], None)


def test_tests_of_a_file_that_does_not_load_at_the_parent_are_red() -> None:
    effect = find_effect([report(errors=("t.py",))], [report(old=PASSED, new=PASSED)])
    assert effect.fail_to_pass == ["t.py::new", "t.py::old"]


@pytest.mark.parametrize(
    ("red", "after", "reason"),
    [
        ([report(new=PASSED)], [report(new=PASSED)], LeftOutReason.NOT_RED),
        ([report(new=FAILED)], [report(new=FAILED)], LeftOutReason.COMMIT_FAILS),
        ([report(new=FAILED), report(new=PASSED)], [report(new=PASSED)] * 2, LeftOutReason.FLAKY),
        ([report(new=FAILED)] * 2, [report(new=PASSED), report(old=PASSED, new=FAILED)], LeftOutReason.FLAKY),
        ([report(old=PASSED)], [report(old=PASSED, new=PASSED)], LeftOutReason.WRONG_RED),
        ([Report(runner="pytest", status=ReportStatus.CRASHED)], [report(new=PASSED)], LeftOutReason.WRONG_RED),
    ],
)
def test_a_commit_without_an_effect_is_left_out_with_a_reason(
    red: list[Report], after: list[Report], reason: LeftOutReason
) -> None:
    assert find_effect(red, after).reason is reason


def test_wilson_intervals_are_those_of_the_books() -> None:
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)


def test_mcnemar_is_the_exact_sign_test() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(5, 5) == 1.0
    assert mcnemar(6, 0) == pytest.approx(2 / 64)
    assert mcnemar(1, 9) == mcnemar(9, 1) == pytest.approx(22 / 1024)


def test_a_paired_interval_holds_its_difference() -> None:
    low, high = paired_interval(12, 2, 40)
    assert low < 0.25 < high
    assert low > 0


def trial(arm: Arm, task: str, outcome: TrialOutcome, cost: float = 0.1) -> Trial:
    return Trial(task=task, arm=arm.label, outcome=outcome, usage=Usage(cost_usd=cost))


def test_arms_are_ranked_by_what_they_solve_then_by_cost_and_compared_on_common_tasks() -> None:
    good, dear, bad = Arm(agent="a"), Arm(agent="b"), Arm(agent="c", variant="x")
    trials = [trial(arm, task, TrialOutcome.SOLVED, cost) for arm, cost in ((good, 0.1), (dear, 1)) for task in "12"]
    trials += [trial(bad, "1", TrialOutcome.FAILED)]
    results = rank([bad, dear, good], trials)
    assert [found.arm.agent for found in results] == ["a", "b", "c"]
    assert (results[0].solved, results[2].outcomes["failed"]) == (2, 1)
    pair = next(pair for pair in compare_pairs(results, trials) if pair.second == bad.label)
    assert (pair.tasks, pair.only_first, pair.only_second) == (1, 1, 0)


def test_a_test_file_that_cannot_be_loaded_at_the_commit_is_named() -> None:
    effect = find_effect([report(old=PASSED)], [report(errors=("t.py",), old=PASSED)])
    assert effect.reason is LeftOutReason.NOT_RED
    assert effect.detail.startswith("t.py cannot be loaded at the commit")
