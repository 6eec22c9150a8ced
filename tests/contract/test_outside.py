"""What is asked from outside, on every backend: heartbeats in bulk, workers by token, runs by the page."""

from __future__ import annotations

import pytest

from ratchet.core import events as ev
from ratchet.core.lease import Beat, Lease
from ratchet.errors import UsageError
from ratchet.store import Store
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
    with pytest.raises(UsageError, match="is no page"):
        store.runs_page(after="run-none")
