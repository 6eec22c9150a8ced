"""The feed of all ledgers, learnings and figures, on every backend."""

from __future__ import annotations

import threading

import pytest

from ratchet.core import events as ev
from ratchet.core.budget import Amount, Caps, Reservation
from ratchet.core.failure import Reason
from ratchet.core.learning import Learning
from ratchet.core.ledger import FeedEntry
from ratchet.core.metrics import Figures
from ratchet.core.signal import Topic
from ratchet.errors import NotFound, UsageError
from ratchet.store.protocols import Store
from tests.contract.servers import World
from tests.contract.test_queue import RED, finish, named, take
from tests.contract.test_races import COMMITTED, at_once

CLAIMED = ev.RunClaimed(worker="w")


def all_of(store: Store, after: str = "", *, limit: int = 7) -> list[FeedEntry]:
    reported = list[FeedEntry]()
    while page := store.feed(after, limit=limit):
        reported += page
        after = page[-1].place
    return reported


def test_a_reader_of_the_feed_gets_every_row_once_while_many_write(world: World, store: Store) -> None:
    store.add_all([named(f"i{n}") for n in range(4)])
    leases = [take(store, f"{n}") for n in range(4)]
    stores, received, over = [world.open() for _ in range(4)], list[FeedEntry](), threading.Event()

    def write(n: int) -> None:
        for _ in range(15):
            stores[n].append(leases[n], [CLAIMED, CLAIMED])

    def follow() -> None:
        place = ""
        while not over.is_set() or store.feed(place):
            for reported in store.feed(place, limit=5):
                received.append(reported)
                place = reported.place

    reader = threading.Thread(target=follow)
    reader.start()
    at_once(*[lambda n=n: write(n) for n in range(4)])
    over.set()
    reader.join()
    seen = [(reported.entry.run, reported.entry.seq) for reported in received]
    assert len(seen) == len(set(seen)) == 120
    assert [reported.entry for reported in all_of(store)] == [reported.entry for reported in received]
    for lease in leases:
        assert [seq for run, seq in seen if run == lease.run] == list(range(1, 31))
        assert [reported.entry for reported in received if reported.entry.run == lease.run] == store.entries(lease.run)


def test_from_the_end_only_new_events_are_received_and_one_run_can_be_followed(store: Store) -> None:
    store.add_all([named("a"), named("b")])
    one, two = take(store, "1"), take(store, "2")
    store.append(one, [CLAIMED])
    end = store.feed_end()
    assert store.feed(end) == []
    store.append(two, [CLAIMED])
    store.append(one, [CLAIMED])
    assert [reported.entry.run for reported in store.feed(end)] == [two.run, one.run]
    assert [reported.entry.seq for reported in store.feed(run=one.run)] == [1, 2]
    with pytest.raises(UsageError, match="not a place"):
        store.feed("nonsense")


def test_a_listener_is_woken_when_there_are_new_events(world: World, store: Store) -> None:
    store.add(named("a"))
    lease = take(store)
    with store.listen(Topic.EVENTS) as events:
        assert not events.wait(0)
        world.open().append(lease, [CLAIMED])
        assert events.wait(30)


def learning(name: str, content: str, **fields: object) -> Learning:
    return Learning(id=name, repo="/r", content=content, created_at=f"2026-{name}", **fields)  # type: ignore[arg-type]


def test_learnings_are_found_by_their_words_best_first(store: Store) -> None:
    """[34]"""
    store.add_learning(learning("1", "The parser needs a trailing newline", tags=["parser"], run="run-1", seq=4))
    store.add_learning(learning("2", "Mock the clock, never sleep in tests"))
    store.add_learning(learning("3", "Parsing tests are slow: parse once for all tests", tags=["tests"]))
    assert store.learnings(query="parsing tests")[0].id == "3"
    assert {one.id for one in store.learnings(query="PARSER: newline\" OR * -'")} == {"1"}
    assert store.learnings(query="!!! ()") == [] == store.learnings("/other", query="parser")
    assert [one.id for one in store.learnings("/r", limit=2)] == ["3", "2"]
    assert store.learnings("/r", query="newline")[0].run == "run-1"


def test_a_retired_learning_is_not_found_and_a_duplicate_is_merged(store: Store) -> None:
    store.add_learning(learning("1", "never sleep"))
    store.add_learning(learning("1", "never sleep"))
    assert len(store.learnings(query="sleep")) == 1
    assert store.retire_learning("1").retired_at and store.learnings(query="sleep") == [] == store.learnings()
    with pytest.raises(NotFound):
        store.retire_learning("2")
    with pytest.raises(UsageError):
        store.add_learning(learning("3", "x" * 10_001))


def test_figures_are_counted_from_ledger_events(world: World, store: Store) -> None:
    """[16, 32, 33]"""
    assert Figures.of(store.metrics().today).success_rate is None
    store.add_all([named("a", created_at="2025"), named("b"), named("c")])
    one, two = take(store, "1"), take(store, "2")
    held = store.reserve(one, Amount(cost_usd=1.0, tokens=50), caps=Caps())
    assert isinstance(held, Reservation)
    store.settle(held, Amount(cost_usd=0.5, tokens=20))
    reverted = ev.StepReverted(step=2, why="red", paths=[], tree="x")
    used = ev.UsageMetered(step=2, role="r", agent="a", cost_usd=0.5, tokens_in=15, tokens_out=5)
    store.append(one, [RED, used, COMMITTED, reverted, ev.StepResumed(step=2), COMMITTED])
    world.pass_time(30)
    finish(store, one)
    store.append(two, [ev.RunFailed(reason=Reason.NO_PROGRESS, detail="d")])
    three = take(store, "3")
    load = store.metrics()
    figures = Figures.of(load.today)
    assert (figures.completed, figures.failed, figures.success_rate) == (1, 1, 0.5)
    assert (load.active_workers, figures.iterations, figures.recoveries) == (1, 1, 1)
    assert (figures.reverts_per_commit, figures.cost_per_accepted_usd) == (0.5, 0.25)
    assert figures.average_completion_s == 30 and figures.tokens_in == 15 and load.spent_today.tokens == 20
    assert sum(count.items for count in load.queue) == 3 and load.oldest_queued_at == ""
    store.fail(three, Reason.MISCONFIGURED, "no such agent")
    assert store.metrics().today.recoveries == 1  # tried again, but nothing was recovered
    store.requeue("c")
    store.kill(take(store, "4").worker, by="ann")
    assert store.metrics().today.recoveries == 2
    world.pass_time(86_400)
    assert store.metrics().today.completed == 0
