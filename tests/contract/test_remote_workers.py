"""What is asked from outside, on every backend: heartbeats in bulk, workers by token, runs by the page."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ratchet.core import events as ev
from ratchet.core.lease import POOL_S, Lease, LeaseRenewal, WorkerPool
from ratchet.errors import UsageError
from ratchet.store.protocols import Store
from tests.contract.servers import World
from tests.contract.test_queue import holder, named

NOTE = ev.RunClaimed(worker="w")


def claim(store: Store, count: int) -> list[Lease]:
    for n in range(count):
        store.add(named(f"i{n:02}"))
    leases = [store.claim_next(holder(f"w{n}"), run=f"run-{n:02}", ttl_s=60) for n in range(count)]
    return [lease for lease in leases if isinstance(lease, Lease)]


def test_many_heartbeats_are_one_transaction_and_each_hears_its_own_answer(world: World, store: Store) -> None:
    kept, asked, lost, done = claim(store, 4)
    store.cancel(asked.item, by="me")
    store.kill(lost.worker, by="me")
    store.complete(done, commits=1, head="h")
    world.pass_time(50)
    beats = [
        LeaseRenewal(run=lease.run, epoch=lease.epoch, iteration=n) for n, lease in enumerate((kept, asked, lost, done))
    ]
    assert store.renew_all(beats, ttl_s=60) == ["", "me", None, ""]
    world.pass_time(50)
    assert store.expire() == []
    assert store.worker(asked.worker).iteration == 1 and store.worker(kept.worker).status == "running"
    world.pass_time(20)
    assert kept.run in store.expire()


def test_a_worker_is_known_by_its_token_also_when_it_is_over(store: Store) -> None:
    (lease,) = claim(store, 1)
    store.complete(lease, commits=1, head="h")
    found = store.worker_by_token(lease.token)
    assert found and (found.id, found.epoch) == (lease.worker, lease.epoch)
    assert store.worker_by_token("another") is None


def test_runs_by_the_page_are_each_there_once(world: World, store: Store) -> None:
    for n in range(5):
        store.add(named(f"i{n}"))
        store.claim_next(holder(), run=f"run-{n}", ttl_s=60)
        world.pass_time(1)
    page, after = store.runs_page(limit=3)
    rest, end = store.runs_page(limit=3, after=after)
    assert [row.run for row in [*page, *rest]] == ["run-4", "run-3", "run-2", "run-1", "run-0"] and not end
    assert [row.run for row in store.runs_page(item="i2")[0]] == ["run-2"]
    with pytest.raises(UsageError, match="is not a page cursor"):
        store.runs_page(after="run-none")


def test_a_pool_of_workers_is_live_until_it_dies_or_is_silent(world: World, store: Store) -> None:
    for name, workers in (("a", 2), ("b", 3), ("a", 4)):
        store.announce(WorkerPool(holder=replace(holder(name), pid=ord(name)), workers=workers))
    assert {pool.holder.worker: pool.workers for pool in store.pools()} == {"a": 4, "b": 3}
    world.dead.add("b")
    assert [pool.holder.worker for pool in store.pools()] == ["a"]
    world.pass_time(POOL_S + 1)
    assert store.pools() == []


def test_runs_are_those_of_one_repository_where_one_is_named(store: Store) -> None:
    store.add(named("i1", repo="/one"))
    store.add(named("i2", repo="/two"))
    for n in range(2):
        store.claim_next(holder(f"w{n}"), run=f"run-{n}", ttl_s=60)
    assert [(row.run, row.repo) for row in store.runs("/one")] == [("run-0", "/one")]
    assert [row.run for row in store.runs_page(repo="/two")[0]] == ["run-1"]
    assert len(store.runs()) == 2


def test_locks_are_listed_with_the_workers_that_hold_them(store: Store) -> None:
    one, two = claim(store, 2)
    store.lock(one, ["./src/../src/a.py"])
    store.lock(two, ["docs/"])
    held = {(lock.path, lock.worker, lock.run) for lock in store.held_locks()}
    assert held == {("src/a.py", one.worker, one.run), ("docs/**", two.worker, two.run)}


def test_a_completed_item_can_be_queued_again(store: Store) -> None:
    (lease,) = claim(store, 1)
    store.complete(lease, commits=1, head="h")
    assert store.requeue(lease.item).status == "queued"
    again = store.claim_next(holder("again"), run="run-again", ttl_s=60)
    assert isinstance(again, Lease) and again.run == "run-again"
