"""The feed's promises, on every backend: one order, nothing lost, nothing twice. And heartbeats in bulk."""

from __future__ import annotations

import threading

import pytest

from ratchet.core import events as ev
from ratchet.core.feed import START, Beat
from ratchet.core.lease import Lease
from ratchet.errors import NotFound, UsageError
from ratchet.store import Store
from tests.contract.servers import World
from tests.contract.test_queue import holder, named

NOTE = ev.RunClaimed(worker="w")


def claim(store: Store, count: int) -> list[Lease]:
    for n in range(count):
        store.add(named(f"i{n:02}"))
    leases = [store.claim_next(holder(f"w{n}"), run=f"run-{n:02}", ttl_s=60) for n in range(count)]
    return [lease for lease in leases if isinstance(lease, Lease)]


def read_on(store: Store, place: str, seen: list[tuple[str, int]]) -> str:
    for told in store.feed(place, limit=7):
        seen.append((told.entry.run, told.entry.seq))
        place = told.place
    return place


def test_events_come_in_the_order_they_were_written(store: Store) -> None:
    one, other = claim(store, 2)
    store.append(one, [NOTE])
    store.append(other, [NOTE, NOTE])
    store.append(one, [NOTE])
    seen: list[tuple[str, int]] = []
    place = read_on(store, START, seen)
    assert seen == [("run-00", 1), ("run-01", 1), ("run-01", 2), ("run-00", 2)]
    assert store.feed(place) == [] and store.feed_end() == place


def test_a_reader_beside_many_writers_loses_nothing_and_hears_nothing_twice(world: World) -> None:
    """Transactions commit in another order than they began: the feed must not run ahead of one that is still open."""
    stores = [world.open() for _ in range(4)]
    leases = claim(stores[0], 4)
    seen: list[tuple[str, int]] = []
    over = threading.Event()

    def write(store: Store, lease: Lease) -> None:
        for n in range(40):
            store.append(lease, [NOTE] * (1 + n % 3))

    def read() -> None:
        place, reader = START, world.open()
        while not over.is_set():
            place = read_on(reader, place, seen)
        while (further := read_on(reader, place, seen)) != place:
            place = further

    reading = threading.Thread(target=read)
    reading.start()
    writing = [threading.Thread(target=write, args=pair) for pair in zip(stores, leases, strict=True)]
    for thread in writing:
        thread.start()
    for thread in writing:
        thread.join()
    over.set()
    reading.join()
    wanted = {(lease.run, entry.seq) for lease in leases for entry in stores[0].entries(lease.run)}
    assert len(wanted) == 4 * sum(1 + n % 3 for n in range(40))
    assert len(seen) == len(set(seen)) and set(seen) == wanted
    for lease in leases:  # and of each run in its own order
        assert [seq for run, seq in seen if run == lease.run] == sorted(seq for run, seq in wanted if run == lease.run)


@pytest.mark.parametrize("place", ["", "nonsense", "1:run", "x:run:1", "1:run:x", "9" * 30 + ":run:1"])
def test_a_place_that_is_none_is_refused(store: Store, place: str) -> None:
    with pytest.raises(UsageError):
        store.feed(place)


def test_many_heartbeats_are_one_transaction_and_each_hears_its_own_answer(world: World, store: Store) -> None:
    kept, asked, lost, done = claim(store, 4)
    store.cancel(asked.item, by="me")
    store.kill(lost.worker, by="me")
    store.complete(done, commits=1, head="h")
    world.pass_time(50)
    beats = [Beat(run=lease.run, epoch=lease.epoch, iteration=n) for n, lease in enumerate((kept, asked, lost, done))]
    assert store.renew_all(beats, ttl_s=60) == ["", "me", None, ""]
    world.pass_time(50)
    assert store.expire() == []
    assert store.worker(asked.worker).iteration == 1 and store.worker(kept.worker).status == "running"
    world.pass_time(20)
    assert kept.run in store.expire()


def test_a_worker_is_known_by_its_token_also_when_it_is_over(store: Store) -> None:
    (lease,) = claim(store, 1)
    store.complete(lease, commits=1, head="h")
    found = store.proven(lease.token)
    assert found and (found.id, found.epoch) == (lease.worker, lease.epoch)
    assert store.proven("another") is None


def test_runs_by_the_page_are_each_there_once(world: World, store: Store) -> None:
    for n in range(5):
        store.add(named(f"i{n}"))
        store.claim_next(holder(), run=f"run-{n}", ttl_s=60)
        world.pass_time(1)
    page, after = store.runs_page(limit=3)
    rest, end = store.runs_page(limit=3, after=after)
    assert [row.run for row in [*page, *rest]] == ["run-4", "run-3", "run-2", "run-1", "run-0"] and not end
    assert [row.run for row in store.runs_page(item="i2")[0]] == ["run-2"]
    with pytest.raises(NotFound):
        store.runs_page(after="run-none")
