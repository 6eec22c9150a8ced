"""Budgets at work: reserved before an agent is asked, metered while it works, stopped before it is too much."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from ratchet.core import events as ev
from ratchet.core.budget import Amount, BudgetScope, Caps, Reservation
from ratchet.core.failure import Reason
from ratchet.core.item import ItemStatus, ParkReason
from ratchet.core.state import RunState, RunStatus
from ratchet.interfaces.terminal.live_view import ignore_event
from tests.support import (
    AUDIT,
    COMPLETE,
    GOOD_SCRIPT,
    IMPLEMENT,
    REVIEW,
    carry_script,
    kinds,
    open_factory,
    small_project,
)

CENT = {"cost_usd": 0.01, "tokens_out": 10}


def growing(reports: int) -> dict[str, Any]:
    """An auditor whose bill grows by a dollar with each report, and who would go on for long."""
    return GOOD_SCRIPT | {"audit": [AUDIT | {"reports": [{"cost_usd": 1.0}] * reports, "delay_s": 0.01}, COMPLETE]}


def metered(events: list[ev.Event]) -> list[ev.UsageMetered]:
    return [event for event in events if isinstance(event, ev.UsageMetered)]


def test_an_agent_whose_cost_grows_is_stopped_within_one_report_of_its_cap(tmp_path: Path) -> None:
    state, events, place = carry_script(tmp_path, growing(500), "budget.item.cost_usd=3.5")
    assert state.status is RunStatus.FAILED and state.failure is Reason.BUDGET_SPENT and "cost_usd" in state.detail
    assert metered(events)[0].cost_usd == 4.0 and sum(event.cost_usd for event in metered(events)) == 4.0
    with open_factory(place) as factory:
        assert factory.store.spent(BudgetScope.ITEM, factory.store.runs()[0].item).cost_usd == 4.0
        assert factory.store.used(BudgetScope.DAY) == factory.store.spent(BudgetScope.DAY)


def test_a_step_that_takes_more_than_its_share_is_a_failed_try_and_the_run_goes_on(tmp_path: Path) -> None:
    script = growing(500)
    script["audit"].insert(1, AUDIT)
    state, events, _ = carry_script(tmp_path, script, "budget.step.cost_usd=2")
    assert state.status is RunStatus.COMPLETED
    failed = [event for event in events if isinstance(event, ev.AuditFailed)]
    assert [event.reason for event in failed] == [Reason.BUDGET_SPENT] and metered(events)[0].cost_usd == 3.0


def test_when_the_day_is_spent_the_run_waits_for_the_next_and_that_is_no_failure(tmp_path: Path) -> None:
    state, _, place = carry_script(tmp_path, growing(1), "budget.day.cost_usd=1")
    assert state.parked and state.parked.reason is ParkReason.QUOTA and state.parked.until
    with open_factory(place) as factory:
        row = factory.store.items().rows[0]
    assert row.status is ItemStatus.PARKED and row.attempts == 0 and row.not_before == state.parked.until


def test_what_others_only_reserved_of_the_day_is_waited_for_a_little(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    with open_factory(place, "budget.day.cost_usd=10", "budget.step.cost_usd=10") as factory:
        other = factory.claim(factory.add(place / "SPEC.md", settings=["agent=x"]).id)
        assert isinstance(factory.store.reserve(other, Amount(cost_usd=10), caps=Caps()), Reservation)
        (place / "OTHER.md").write_text("# Another\n")
        lease = factory.claim(factory.add(place / "OTHER.md").id)
        state = asyncio.run(factory.work(lease, watch=ignore_event, on_agent_event=lambda _text: None))
    assert state.parked and "budget spent: cost_usd of this day: 10 of 10" in state.parked.detail


def test_iterations_are_budgeted_too(tmp_path: Path) -> None:
    state, _, place = carry_script(tmp_path, GOOD_SCRIPT, "budget.item.iterations=1")
    assert state.failure is Reason.BUDGET_SPENT and "iterations" in state.detail and len(state.commits) == 1
    with open_factory(place) as factory:
        assert factory.store.spent(BudgetScope.RUN, state.run).iterations == 1


def test_the_spending_of_a_lost_worker_is_recorded_by_the_next_worker_of_the_run(tmp_path: Path) -> None:
    script = {
        "audit": [AUDIT | {"usage": CENT}, COMPLETE | {"usage": CENT}],
        "implement": [IMPLEMENT | {"usage": CENT}],
        "review": [REVIEW | {"usage": CENT}],
    }
    place = small_project(tmp_path, script)
    with open_factory(place) as factory:
        lease = factory.claim(factory.add(place / "SPEC.md").id)
        lost = factory.store.reserve(lease, Amount(cost_usd=1, tokens=100, seconds=10, iterations=1), caps=Caps())
        assert isinstance(lost, Reservation)
        factory.store.record_spending(lost, Amount(cost_usd=0.5, tokens=7, seconds=1.5, iterations=1))
        factory.store.release(lease)
        received: list[ev.Event] = []
        lease = factory.claim(lease.item)
        state = asyncio.run(
            factory.work(
                lease, watch=lambda _entry, event, _state: received.append(event), on_agent_event=lambda _text: None
            )
        )
        spent = factory.store.spent(BudgetScope.RUN, lease.run)
    found = [event for event in metered(received) if event.agent == "lost"]
    assert [(event.cost_usd, event.tokens_out, event.seconds) for event in found] == [(0.5, 7, 1.5)]
    assert (spent.cost_usd, spent.tokens) == (0.54, 47) == (state.usage.cost_usd, state.usage.tokens_out)
    assert spent.seconds == state.usage.seconds and spent.iterations == 2


def test_the_ledger_and_the_reservations_say_the_same(tmp_path: Path) -> None:
    script = GOOD_SCRIPT | {"audit": [AUDIT | {"reports": [{"cost_usd": 0.1, "tokens_in": 3}] * 7}, COMPLETE]}
    state, events, place = carry_script(tmp_path, script)
    with open_factory(place) as factory:
        spent = factory.store.spent(BudgetScope.RUN, state.run)
    assert kinds(events)[-1] == "run_completed" and _amount(state) == spent
    assert spent.cost_usd == 0.7 and spent.tokens == 21


def _amount(state: RunState) -> Amount:
    tokens = state.usage.tokens_in + state.usage.tokens_out
    return Amount(cost_usd=state.usage.cost_usd, tokens=tokens, seconds=state.usage.seconds, iterations=state.iteration)


def test_usage_that_cannot_be_makes_no_room_in_a_budget(tmp_path: Path) -> None:
    reports = [{"cost_usd": -100.0}, {"cost_usd": 50.0}]
    first = AUDIT | {"reports": [{"tokens_in": 10**20}], "delay_s": 0.01}
    script = GOOD_SCRIPT | {"audit": [first, AUDIT | {"reports": reports, "delay_s": 0.01}, COMPLETE]}
    state, events, place = carry_script(tmp_path, script, "budget.item.cost_usd=5", "budget.item.tokens=0")
    assert state.failure is Reason.BUDGET_SPENT and metered(events)[1].cost_usd == 15.0
    failed = [event for event in events if isinstance(event, ev.AuditFailed)]
    assert [event.reason for event in failed] == [Reason.BUDGET_SPENT] * 2 and "tokens" in failed[0].why
    assert "not believed: it reported 50 USD" in failed[1].why
    with open_factory(place) as factory:
        assert factory.store.spent(BudgetScope.DAY).cost_usd == 15.0


def test_a_forged_bill_fails_its_own_run_and_leaves_the_day_to_others(tmp_path: Path) -> None:
    reports = [{"cost_usd": 1e308, "tokens_in": 10**18, "tokens_out": 10**18, "seconds": 1e300}]
    script = GOOD_SCRIPT | {"audit": [AUDIT | {"reports": reports, "delay_s": 0.01}] * 3}
    state, events, place = carry_script(tmp_path, script, "tdd.audit_tries=1", "budget.step.cost_usd=1")
    assert state.failure and "not believed: it reported 1e+12 USD" in repr(events)
    with open_factory(place) as factory:
        assert 0 < factory.store.spent(BudgetScope.DAY).cost_usd <= 3.0
