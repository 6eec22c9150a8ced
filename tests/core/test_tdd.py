"""The `tdd` workflow's own rules."""

from __future__ import annotations

import msgspec
import pytest

from ratchet.core import events as ev
from ratchet.core.failure import FAULT, Fault, Reason, counts_as_attempt
from ratchet.core.state import advance, fold
from ratchet.core.tdd import NEXT, TDD, P
from tests.core.playing import started


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
        state, phase=P.IMPLEMENT, red=["t::a"], attempts=3, feedback=["x", "y", "z"], green_tree="g"
    )
    abandoned = TDD.decide(state)
    assert isinstance(abandoned, ev.TestAbandoned) and "attempt 2: y" in abandoned.why
    after = advance(state, NEXT, abandoned)
    assert (after.phase, after.tree, after.iteration, after.red) == (P.AUDIT, "g", 2, [])


def test_every_reason_has_a_fault_and_only_the_agents_and_the_items_count() -> None:
    assert set(FAULT) == set(Reason)
    counted = {FAULT[reason] for reason in Reason if counts_as_attempt(reason)}
    assert counted == {Fault.AGENT, Fault.ITEM}


def test_landing_is_reached_only_through_a_review_and_the_final_verification() -> None:
    assert [key for key, after in NEXT.items() if after == P.LAND] == [(P.FINAL, ev.FinalVerified)]
    assert [key for key, after in NEXT.items() if after == P.FINAL] == [(P.REVIEW, ev.ReviewApproved)]
