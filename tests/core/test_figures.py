"""Figures: what each counts, and that parts add up to a full recount."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.core import events as ev
from ratchet.core.failure import Reason, RevertOutcome
from ratchet.core.figures import RunPast, RunTallies, Tally, recount, slot_of
from ratchet.core.item import ParkReason
from ratchet.core.metrics import Figures
from ratchet.core.workflows.tdd import TDD
from tests.core.playing import REPORT, play, started
from tests.core.random_runs import ledger

AT = "2026-01-01T12:{:02}:00.000000Z"
CLAIMED = ev.RunClaimed(worker="w1")
RED = ev.RedConfirmed(step=2, tests=["t"], fingerprint="f", report=REPORT)
CHANGED = ev.ChangeProposed(step=3, paths=["a.py"], tree="t", summary="s")
KEPT = ev.StepCommitted(step=4, commit="c1", parent="c0", subject="s", tests=["t"], report=REPORT, tree="t")
VERIFIED = ev.StepVerified(step=5, gates=[], warnings=[])


def step(number: int, action: str, role: str = "") -> ev.StepStarted:
    return ev.StepStarted(step=number, action=action, role=role, key="k", tree="t", snapshot="s")


def asked(role: str, agent: str, **used: float) -> ev.UsageMetered:
    return ev.UsageMetered(step=1, role=role, agent=agent, model="m1", **used)  # type: ignore[arg-type]


def total(*events: object, minutes: list[int] | None = None) -> Tally:
    times = minutes or list(range(len(events)))
    return sum(recount((AT.format(at), event) for at, event in zip(times, events, strict=True)).values(), Tally())


def test_a_revert_and_a_second_attempt_make_two_attempts_to_green() -> None:
    reverted = ev.StepReverted(step=4, why="red", paths=[], tree="t", outcome=RevertOutcome.OVERFITTED)
    found = total(started(), CLAIMED, RED, CHANGED, reverted, CHANGED, KEPT, VERIFIED)
    assert (found.greens, found.green_attempts, found.commits, found.reverts, found.overfitted) == (1, 2, 1, 1, 1)
    figures = Figures.of(found)
    assert (figures.attempts_to_green, figures.reverts_per_commit, figures.accepted) == (2, 1, 1)


def test_a_commit_that_a_gate_took_back_is_not_accepted() -> None:
    undone = ev.StepReverted(step=5, why="lint", paths=[], tree="t", commit="c1", outcome=RevertOutcome.GATE)
    figures = Figures.of(total(started(), CLAIMED, RED, CHANGED, KEPT, undone))
    assert (figures.commits, figures.accepted, figures.reverts, figures.attempts_to_green) == (1, 0, 1, None)
    assert figures.cost_per_accepted_usd is None


def test_a_change_belongs_to_the_agent_that_made_it_and_time_to_its_step() -> None:
    events = [
        started(), CLAIMED, step(3, "implement", "implementer"), asked("implementer", "claude", cost_usd=0.5), CHANGED,
        step(4, "judge"), KEPT,
    ]  # fmt: skip
    found = recount((AT.format(at), event) for at, event in enumerate(events))
    by_agent = {key.agent: sum((t for k, t in found.items() if k.agent == key.agent), Tally()) for key in found}
    assert by_agent["claude"].commits == 1 and by_agent["claude"].cost_microusd == 500_000
    assert {(key.action, tally.step_ms) for key, tally in found.items() if tally.step_ms} == {
        ("implement", 120_000),
        ("judge", 60_000),
    }
    assert {key.worker for key in found} == {"", "w1"} and {key.model for key in found} == {"", "m1"}


def test_an_iteration_counts_from_its_first_call_also_if_it_finds_nothing_left_to_do() -> None:
    """As the budget counts it: the figures beside it say the same."""
    first = [asked("auditor", "a"), RED, asked("implementer", "a"), CHANGED, KEPT, VERIFIED]
    assert total(started(), CLAIMED, *first).iterations == 1
    assert total(started(), CLAIMED, *first, asked("auditor", "a")).iterations == 2


def test_an_unknown_cost_stays_unknown() -> None:
    known, unknown = asked("r", "a", cost_usd=1.0), asked("r", "a", tokens_in=5, priced=False)
    assert Figures.of(total(started(), unknown)).cost_usd is None
    assert Figures.of(total(started())).cost_usd == 0
    partly = Figures.of(total(started(), RED, known, unknown, KEPT))
    assert (partly.cost_usd, partly.unpriced_calls, partly.cost_per_accepted_usd) == (1.0, 1, None)
    assert Figures.of(total(started(), RED, known, KEPT)).cost_per_accepted_usd == 1.0


def test_time_lost_to_quota_is_the_time_from_the_stop_to_the_next_claim() -> None:
    parked = ev.RunParked(reason=ParkReason.QUOTA, detail="limit")
    refused = ev.RunReturned(reason=Reason.RATE_LIMITED, detail="429")
    asked_ = ev.RunParked(reason=ParkReason.QUESTION, detail="?")
    found = total(
        started(), CLAIMED, parked, CLAIMED, refused, CLAIMED, asked_, CLAIMED, minutes=[0, 0, 10, 25, 30, 31, 40, 59]
    )
    assert (found.quota_waits, found.quota_ms) == (2, 16 * 60_000)


def test_a_crash_is_one_recovery_and_a_pause_is_none() -> None:
    again = ev.StepResumed(step=1)
    lost, parked = (
        ev.RunReturned(reason=Reason.WORKER_LOST, detail="lost"),
        ev.RunParked(reason=ParkReason.QUOTA, detail="d"),
    )
    assert total(started(), CLAIMED, step(1, "audit"), lost, CLAIMED, again).recoveries == 1
    assert total(started(), CLAIMED, step(1, "audit"), CLAIMED, again).recoveries == 1
    assert total(started(), CLAIMED, step(1, "audit"), parked, CLAIMED, again).recoveries == 0
    assert total(started(), CLAIMED, ev.RunReturned(reason=Reason.NO_PROGRESS, detail="d")).recoveries == 0


def test_work_that_was_reported_as_done_and_was_not_is_false_done() -> None:
    refused = ev.FinalRefused(step=9, why="3 tests fail", reports=[])
    assert Figures.of(total(started(), refused, ev.TaskUnfinished(step=9, task="T1", why="exit 1"))).false_done == 2


def test_the_time_to_create_a_workspace_is_a_mean_over_those_that_were_created() -> None:
    first = ev.StepStarted(step=1, action="baseline", role="", key="k", tree="t", snapshot="s", workspace_s=0.25)
    again = ev.StepResumed(step=1, workspace_s=0.75)
    figures = Figures.of(total(started(), CLAIMED, first, again, step(2, "audit")))
    assert (figures.workspaces, figures.workspace_create_s) == (2, 0.5)


def test_a_completed_run_took_the_time_since_its_first_event() -> None:
    done = ev.RunCompleted(commits=1, head="h")
    figures = Figures.of(total(started(), CLAIMED, done, minutes=[0, 1, 30]))
    assert (figures.completed, figures.success_rate, figures.average_completion_s) == (1, 1, 1_800)


@pytest.mark.parametrize(
    ("at", "slot"), [("2026-01-01T12:00:00Z", "2026-01-01T12:00"), ("2026-01-01T23:59:59.9Z", "2026-01-01T23:45")]
)
def test_a_slot_is_a_quarter_of_an_hour(at: str, slot: str) -> None:
    assert slot_of(at) == slot


def test_iterations_are_numbered_as_the_state_numbers_them() -> None:
    """[the history of any tdd run]"""
    from ratchet.core.state import fold  # noqa: PLC0415

    for seed in range(50):
        chance = random.Random(seed)
        history = play(TDD, [chance.randrange(9) for _ in range(60)], {})
        counted = RunTallies()
        for event in history:
            counted.add(AT.format(0), event)
        assert counted.past.iteration == fold("run-1", TDD.table, history).iteration, seed


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.data())
def test_counting_in_parts_equals_a_recount(seed: int, data: st.DataObject) -> None:
    """What is kept between the parts is stored as JSON, as the store keeps it."""
    import msgspec  # noqa: PLC0415

    events = ledger(random.Random(seed))
    cut = data.draw(st.integers(0, len(events)))
    first = RunTallies()
    for at, event in events[:cut]:
        first.add(at, event)
    past = msgspec.json.decode(msgspec.json.encode(first.past), type=RunPast)
    second = RunTallies(past)
    for at, event in events[cut:]:
        second.add(at, event)
    whole = recount(events)
    parts = {
        key: first.tallies.get(key, Tally()) + second.tallies.get(key, Tally())
        for key in first.tallies | second.tallies
    }
    assert parts == whole
