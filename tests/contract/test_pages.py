"""What the web pages read and write, on every backend."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ratchet.core import events as ev
from ratchet.core.board import BoardColumn
from ratchet.core.budget import Amount, BudgetScope, Caps, Reservation
from ratchet.core.item import ItemStatus, ParkReason, Priority
from ratchet.core.timestamps import format_timestamp
from ratchet.errors import Conflict
from ratchet.store.protocols import Store
from tests.contract.servers import World
from tests.contract.test_queue import finish, named, take


def titles(store: Store, column: BoardColumn, **filters: object) -> list[str]:
    return [row.id for row in store.board((column,), **filters)]  # type: ignore[arg-type]  # named filters


def asking(store: Store) -> str:
    store.add(named("a"))
    lease = take(store)
    store.append(
        lease, [ev.RunClaimed(worker="w"), ev.RunParked(reason=ParkReason.QUESTION, detail="question: which?")]
    )
    return lease.run


def test_the_board_lists_open_items_next_first_and_ended_ones_newest_first(world: World, store: Store) -> None:
    for name in ("a", "b", "c"):
        store.add(named(name, priority=Priority.HIGH if name == "c" else Priority.LOW))
        world.pass_time(1)
    assert titles(store, BoardColumn.QUEUED) == ["c", "a", "b"]
    assert titles(store, BoardColumn.QUEUED, priority=Priority.LOW) == ["a", "b"]
    assert titles(store, BoardColumn.QUEUED, repo="/elsewhere") == []
    lease = take(store)
    assert titles(store, BoardColumn.IN_PROGRESS) == ["c"]
    finish(store, lease)
    finish(store, take(store, "w2"))
    assert titles(store, BoardColumn.COMPLETED) == ["c", "a"]
    assert titles(store, BoardColumn.COMPLETED, limit=1) == ["c"]


def test_the_board_follows_a_run_as_its_events_come(store: Store) -> None:
    store.add(named("a"))
    lease = take(store)
    step = ev.StepStarted(step=1, action="implement", role="implementer", key="ik:1", tree="t", snapshot="s")
    store.append(lease, [ev.RunClaimed(worker="w"), step])
    assert store.board((BoardColumn.IN_PROGRESS,))[0].card.shape == "n"
    spent = ev.UsageMetered(step=1, role="implementer", agent="codex", cost_usd=0.25)
    store.append(lease, [spent, ev.StepReverted(step=1, why="red", paths=[], tree="t")])
    card = store.board((BoardColumn.IN_PROGRESS,))[0].card
    assert (card.shape, card.agent, card.cost_usd, card.phase) == ("r", "codex", 0.25, "implement")


def test_a_changed_priority_changes_the_turn(world: World, store: Store) -> None:
    for name in ("a", "b"):
        store.add(named(name))
        world.pass_time(1)
    assert store.prioritise("b", Priority.CRITICAL).item.priority is Priority.CRITICAL
    assert take(store).item == "b"


def test_the_priority_of_what_has_ended_cannot_be_changed(store: Store) -> None:
    store.add(named("a"))
    finish(store, take(store))
    with pytest.raises(Conflict):
        store.prioritise("a", Priority.LOW)


def test_an_answer_is_in_the_ledger_and_the_item_is_queued_again(store: Store) -> None:
    run = asking(store)
    assert store.answer("a", "the first", by="me").status is ItemStatus.QUEUED
    assert [entry.kind for entry in store.entries(run)][-1] == "question_answered"
    assert take(store, "w2").run == run
    with pytest.raises(Conflict):
        store.answer("a", "again", by="me")


def test_a_message_is_written_between_the_events_of_a_worker_that_goes_on(store: Store) -> None:
    store.add(named("a"))
    with pytest.raises(Conflict):
        store.nudge("a", "too early", by="me")
    lease = take(store)
    store.append(lease, [ev.RunClaimed(worker="w")])
    assert store.nudge("a", "use Decimal", by="me").status is ItemStatus.IN_PROGRESS
    store.append(lease, [ev.StepResumed(step=1)])
    assert [entry.kind for entry in store.entries(lease.run)] == ["run_claimed", "run_nudged", "step_resumed"]
    finish(store, lease)
    with pytest.raises(Conflict):
        store.nudge("a", "too late", by="me")


def test_a_snoozed_entry_comes_back_at_its_time_and_an_acknowledged_one_does_not(world: World, store: Store) -> None:
    store.snooze("one", by="me", until=format_timestamp(world.now + timedelta(seconds=10)))
    store.snooze("two", by="me")
    assert {found.entry for found in store.snoozes()} == {"one", "two"}
    world.pass_time(11)
    assert [found.entry for found in store.snoozes()] == ["two"]
    store.wake("two")
    assert store.snoozes() == []


def test_completed_items_with_doubts_are_listed_apart(store: Store) -> None:
    for name, doubts in (("a", 0), ("b", 2)):
        store.add(named(name))
        lease = take(store, f"w-{name}")
        store.append(lease, [ev.RunCompleted(commits=1, head="c", doubts=doubts)])
    assert titles(store, BoardColumn.TO_REVIEW) == ["b"]
    assert titles(store, BoardColumn.COMPLETED) == ["b", "a"]


def test_the_spending_of_repositories_and_items_is_one_list(store: Store) -> None:
    for name in ("a", "b"):
        store.add(named(name, repo=f"/r/{name}"))
    first, second = take(store, "w1"), take(store, "w2")
    for lease, usd in ((first, 2.0), (second, 3.0)):
        assert isinstance(store.reserve(lease, Amount(cost_usd=usd), caps=Caps()), Reservation)
    held = store.reserve(first, Amount(cost_usd=1.0), caps=Caps())
    assert isinstance(held, Reservation)
    store.settle(held, Amount(cost_usd=0.5))
    found = {(one.scope, one.name): (one.spent_usd, one.used_usd) for one in store.spending([first.item])}
    assert found == {
        (BudgetScope.REPO, store.item(first.item).repo): (0.5, 2.5),
        (BudgetScope.REPO, store.item(second.item).repo): (0.0, 3.0),
        (BudgetScope.ITEM, first.item): (0.5, 2.5),
    }
