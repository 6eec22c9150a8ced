"""The `tdd` workflow's own rules."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ratchet.core import events as ev
from ratchet.core.failure import FAULT, FaultOwner, Reason, counts_as_attempt
from ratchet.core.state import advance, fold
from ratchet.core.workflows.tdd import NEXT, TDD, TddPhase, bounds
from tests.core.playing import REPORT, started


def test_an_event_that_does_not_belong_in_a_phase_is_refused() -> None:
    state = fold("run-1", NEXT, [started()])
    with pytest.raises(ValueError, match="cannot happen in baseline"):
        advance(state, NEXT, ev.Landed(step=1, how="branch", branch="b", head="h"))


def test_a_kind_from_the_future_is_counted_and_skipped() -> None:
    unknown = ev.decode("telepathy_started", b'{"kind":"telepathy_started","by":"us"}')
    assert isinstance(unknown, ev.UnknownEvent)
    assert fold("run-1", NEXT, [started(), unknown]).unknown == 1


def test_the_third_failed_attempt_gives_the_test_back_to_the_auditor_with_what_was_tried() -> None:
    state = fold("run-1", NEXT, [started()])
    state = msgspec.structs.replace(
        state, phase=TddPhase.IMPLEMENT, red=["t::a"], attempts=3, feedback=["x", "y", "z"], green_tree="g"
    )
    abandoned = TDD.decide(state)
    assert isinstance(abandoned, ev.TestAbandoned) and "attempt 2: y" in abandoned.why
    after = advance(state, NEXT, abandoned)
    assert (after.phase, after.tree, after.iteration, after.red) == (TddPhase.AUDIT, "g", 2, [])


def test_every_reason_has_a_fault_and_only_the_agents_and_the_items_count() -> None:
    assert set(FAULT) == set(Reason)
    counted = {FAULT[reason] for reason in Reason if counts_as_attempt(reason)}
    assert counted == {FaultOwner.AGENT, FaultOwner.ITEM}


def test_landing_is_reached_only_through_a_review_and_the_final_verification() -> None:
    assert [key for key, after in NEXT.items() if after == TddPhase.LAND] == [(TddPhase.FINAL, ev.FinalVerified)]
    assert [key for key, after in NEXT.items() if after == TddPhase.FINAL] == [(TddPhase.REVIEW, ev.ReviewApproved)]


@pytest.mark.parametrize(
    ("phase", "counter", "policy", "limit", "kind", "reason"),
    [
        (TddPhase.VERIFY_RED, "iteration", "iterations", 16, ev.RunFailed, Reason.BUDGET_SPENT),
        (TddPhase.AUDIT, "audit_tries", "audit_tries", 3, ev.RunFailed, Reason.NO_PROGRESS),
        (TddPhase.AUDIT, "greens_since_refactor", "refactor_interval", 3, ev.RefactorFellDue, None),
        (TddPhase.IMPLEMENT, "attempts", "attempts", 3, ev.TestAbandoned, None),
        (TddPhase.REVISE, "review_rounds", "review_rounds", 4, ev.RunFailed, Reason.NO_PROGRESS),
        (TddPhase.REVISE, "attempts", "attempts", 3, ev.RunFailed, Reason.NO_PROGRESS),
        (TddPhase.REVIEW, "review_rounds", "review_rounds", 3, ev.RunFailed, Reason.NO_PROGRESS),
        (TddPhase.REVIEW, "review_tries", "review_tries", 3, ev.RunFailed, Reason.NO_PROGRESS),
    ],
)
def test_a_count_ends_at_its_limit_and_not_before(
    phase: TddPhase, counter: str, policy: str, limit: int, kind: type[ev.Event], reason: Reason | None
) -> None:
    state = fold("run-1", NEXT, [started()])
    assert limit - getattr(state.policy, policy) in (0, 1), "the default of the policy"
    state = msgspec.structs.replace(state, phase=phase, red=["t::a"], findings=["f"], feedback=["why"])
    assert bounds(msgspec.structs.replace(state, **{counter: limit - 1})) is None
    decided = bounds(msgspec.structs.replace(state, **{counter: limit}))
    assert type(decided) is kind
    assert getattr(decided, "reason", None) is reason


def test_no_refactoring_falls_due_where_it_is_switched_off() -> None:
    state = fold("run-1", NEXT, [started(refactor_interval=0)])
    assert bounds(msgspec.structs.replace(state, phase=TddPhase.AUDIT, greens_since_refactor=50)) is None


def test_the_inputs_of_each_step_distinguish_it_from_others() -> None:
    state = msgspec.structs.replace(
        fold("run-1", NEXT, [started()]),
        iteration=2,
        audit_tries=3,
        attempts=4,
        review_rounds=5,
        review_tries=6,
        greens=7,
        feedback=["why"],
        findings=["f"],
        red=["t::a"],
        fingerprint="print",
    )
    expected: dict[TddPhase, dict[str, Any]] = {
        TddPhase.AUDIT: {"iteration": 2, "try": 4, "feedback": ["why"], "commits": []},
        TddPhase.IMPLEMENT: {
            "iteration": 2,
            "attempt": 5,
            "feedback": ["why"],
            "tests": ["t::a"],
            "fingerprint": "print",
        },
        TddPhase.REVISE: {"round": 5, "attempt": 5, "feedback": ["why"], "findings": ["f"]},
        TddPhase.REVIEW: {"round": 6, "try": 7, "feedback": ["why"], "kept": 0, "findings": ["f"]},
        TddPhase.REFACTOR: {"iteration": 2, "greens": 7, "kept": 0},
        TddPhase.JUDGE: {"iteration": 2, "try": 4, "attempt": 5, "round": 5, "kept": 0, "tests": ["t::a"]},
    }
    for phase, wanted in expected.items():
        found = TDD.inputs(msgspec.structs.replace(state, phase=phase))
        assert found == found | wanted, phase


def test_a_claim_of_completeness_is_judged_by_the_refused_and_given_up_tests_of_the_ledger() -> None:
    state = msgspec.structs.replace(fold("run-1", NEXT, [started()]), phase=TddPhase.VERIFY_RED)
    refused = advance(state, NEXT, ev.RedRefused(step=1, why="t is broken", tree="g"))
    assert "the last test was refused (t is broken)" in refused.unmet
    again = msgspec.structs.replace(refused, phase=TddPhase.VERIFY_RED)
    assert advance(again, NEXT, ev.RedRefused(step=2, why="already passes", tree="g", met=True)).unmet == ""
    red = ev.RedConfirmed(step=2, tests=["t::a"], fingerprint="f", report=REPORT)
    assert advance(again, NEXT, red).unmet == ""
