"""Outcomes of trials and their comparison."""

from __future__ import annotations

from typing import Any

import msgspec
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
from ratchet.core.backtest.task import LINE_MAX_CHARS, LeftOutReason, MinedTask, find_effect, why_no_setup
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


def test_a_verdict_says_what_was_fixed_what_was_lost_and_why() -> None:
    cases = [
        (report(old=PASSED, new=PASSED, newer=FAILED), "1 of 2 tests pass", 1, []),
        (report(old=FAILED, new=PASSED, newer=PASSED), "1 tests no longer pass", 2, ["t.py::old"]),
        (report(old=PASSED), "none of the tests pass", 0, []),
        (report(old=PASSED, new=PASSED, newer=PASSED), "", 2, []),
        (None, "there is no result", 0, []),
    ]
    for result, why, fixed, lost in cases:
        verdict = judge_result(TASK, result, cheats=[], refused=[])
        assert (verdict.why, verdict.fixed, verdict.lost) == (why, fixed, lost)
    cheated = judge_result(TASK, report(new=PASSED), cheats=["s.py:1: fake", "more"], refused=[])
    assert (cheated.why, cheated.fixed, cheated.lost) == ("s.py:1: fake", 1, ["t.py::old"])
    refused = judge_result(TASK, report(old=PASSED), cheats=[], refused=["first", "second"])
    assert (refused.outcome, refused.why) == (TrialOutcome.CHEATED, "first")
    assert judge_result(TASK, None, cheats=["fake"], refused=[]).outcome is TrialOutcome.FAILED


def test_at_most_twenty_lost_tests_are_named() -> None:
    many = msgspec.structs.replace(TASK, pass_to_pass=[f"t{n:02}" for n in range(30)])
    for cheats in ([], ["fake"]):
        assert judge_result(many, report(), cheats=cheats, refused=[]).lost == many.pass_to_pass[:20]


def test_an_arm_is_named_by_what_it_compares_and_its_model_by_the_last_setting() -> None:
    arm = Arm(agent="claude:opus", variant="learnings")
    assert (arm.label, arm.model) == ("claude:opus tdd learnings", "opus")
    settings = ["roles.implementer.model=a", "roles.auditor.model=b", "roles.implementer.model=c=d"]
    assert Arm(agent="claude:opus", settings=settings).model == "c=d"
    assert (Arm(agent="codex").model, Arm(agent="codex").label) == ("", "codex tdd")


def test_the_trials_of_an_arm_are_summed() -> None:
    arm, other = Arm(agent="a"), Arm(agent="b")
    trials = [
        Trial(task="1", arm=arm.label, outcome=TrialOutcome.SOLVED, attempts=2, refused_cheats=1, seconds=1.04,
              usage=Usage(cost_usd=0.5, tokens_in=10)),
        Trial(task="2", arm=arm.label, outcome=TrialOutcome.PARTLY, attempts=3, refused_cheats=2, seconds=2.0,
              usage=Usage(cost_usd=0.25, tokens_in=5), priced=False),
        Trial(task="3", arm=other.label, outcome=TrialOutcome.SOLVED, attempts=9),
    ]  # fmt: skip
    by_arm = {found.arm.agent: found for found in rank([arm, other, Arm(agent="none")], trials)}
    found = by_arm["a"]
    assert (found.trials, found.attempts, found.refused_cheats, found.seconds) == (2, 5, 3, 3.0)
    assert (found.usage, found.priced, by_arm["b"].priced) == (Usage(cost_usd=0.75, tokens_in=15), False, True)
    assert (found.rate, found.low, found.high) == (0.5, *wilson(1, 2))
    assert found.outcomes == {"solved": 1, "partly": 1, "broke_others": 0, "cheated": 0, "failed": 0}
    assert (by_arm["none"].rate, by_arm["none"].trials, by_arm["none"].low) == (0.0, 0, 0.0)


def test_of_arms_that_solve_as_many_the_more_certain_the_cheaper_and_the_faster_comes_first() -> None:
    arms = [Arm(agent=name) for name in ("slow", "fast", "dear", "sure")]
    cost, seconds = {"dear": 2.0}, {"slow": 9.0}
    trials = [
        Trial(task=str(n), arm=arm.label, outcome=TrialOutcome.SOLVED, usage=Usage(cost_usd=cost.get(arm.agent, 1.0)),
              seconds=seconds.get(arm.agent, 1.0))
        for arm in arms
        for n in range(8 if arm.agent == "sure" else 2)
    ]  # fmt: skip
    assert [found.arm.agent for found in rank(arms, trials)] == ["sure", "fast", "slow", "dear"]


def test_pairs_are_counted_on_common_tasks() -> None:
    one, two = Arm(agent="a"), Arm(agent="b")
    solved, not_solved = TrialOutcome.SOLVED, TrialOutcome.PARTLY
    rows = [("1", solved, not_solved), ("2", solved, not_solved), ("3", not_solved, solved), ("4", solved, solved)]
    trials = [trial(arm, task, end) for task, *ends in rows for arm, end in zip((one, two), ends, strict=True)]
    trials += [trial(one, "5", solved), trial(two, "6", not_solved)]
    [pair] = compare_pairs(rank([one, two], trials), trials)
    first, second = (
        (pair.only_first, pair.only_second) if pair.first == one.label else (pair.only_second, pair.only_first)
    )
    assert (pair.tasks, first, second) == (4, 2, 1)
    assert abs(pair.difference) == 0.25 and pair.p == mcnemar(2, 1) == 1.0
    assert (pair.low, pair.high) == paired_interval(pair.only_first, pair.only_second, 4)
    nothing = compare_pairs(rank([one, two], trials[:1]), trials[:1])[0]
    assert (nothing.tasks, nothing.difference, nothing.p) == (0, 0.0, 1.0)


def test_a_paired_interval_is_that_of_agresti_and_min() -> None:
    assert paired_interval(12, 2, 40) == pytest.approx((0.0723, 0.4039), abs=1e-4)
    assert paired_interval(3, 3, 10) == pytest.approx((-0.4321, 0.4321), abs=1e-4)
    assert paired_interval(1, 0, 1)[1] == 1.0 and paired_interval(0, 1, 1)[0] == -1.0


def test_wilson_intervals_stay_between_0_and_1() -> None:
    assert wilson(20, 20) == pytest.approx((0.8389, 1.0), abs=1e-4)
    assert wilson(1, 1)[1] == 1.0 and wilson(0, 1)[0] == 0.0


def test_a_test_that_changes_between_runs_is_neither_fixed_nor_kept() -> None:
    red = [report(old=PASSED, new=FAILED, shaky=FAILED, was=PASSED), report(old=PASSED, new=FAILED, shaky=PASSED)]
    after = [report(old=PASSED, new=PASSED, shaky=PASSED, was=PASSED)] * 2
    effect = find_effect(red, after)
    assert (effect.fail_to_pass, effect.pass_to_pass) == (["t.py::new"], ["t.py::old"])


def test_the_reason_why_a_commit_is_left_out_names_the_tests() -> None:
    red, green = report(a=FAILED, b=FAILED, c=FAILED, d=FAILED), report(a=PASSED, b=PASSED, c=PASSED, d=PASSED)
    flaky = find_effect([red, green], [green])
    assert flaky.detail == "t.py::a, t.py::b, t.py::c"
    assert find_effect([report(old=PASSED)], [report(old=PASSED, new=PASSED)]).detail == (
        "t.py::new did not run at the parent"
    )
    gone = find_effect([report(old=PASSED, new=FAILED)], [report(old=PASSED, new=PASSED, newer=PASSED)])
    assert gone.fail_to_pass == ["t.py::new"]


def test_a_setup_is_refused_with_the_last_error_of_its_output() -> None:
    def setup(status: ReportStatus, **fields: Any) -> str:
        return why_no_setup(Report(runner="r", status=status, **fields))

    green = [TestResult(id="a", status=PASSED)]
    assert setup(ReportStatus.PASSED, tests=green) == setup(ReportStatus.FAILED, tests=green) == ""
    assert setup(ReportStatus.FAILED, tests=[TestResult(id="a", status=FAILED)]) == "no test passes"
    output = "ValueError: first\nImportError: no numpy  \ndone\n"
    assert setup(ReportStatus.FAILED, tests=[], output=output) == "no test passes: ImportError: no numpy"
    assert setup(ReportStatus.FAILED, output=output, notes=["noted"]) == "no test passes"
    long = setup(ReportStatus.FAILED, output=f"KeyError: {'x' * 400}")
    assert len(long) == len("no test passes: ") + LINE_MAX_CHARS
