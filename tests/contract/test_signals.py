"""Who waits is woken: by other stores on the same database, in other threads and processes, on every backend."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable

import pytest

from ratchet.core.failure import Reason
from ratchet.core.lease import Lease
from ratchet.core.signal import Topic
from ratchet.store.protocols import Store, open_store
from tests.contract.servers import World
from tests.contract.test_queue import finish, holder, named, take

LONG_S = 30.0


def test_an_item_added_elsewhere_wakes_waiting_workers(world: World, store: Store) -> None:
    other = world.open()
    with store.listen(Topic.WORK) as work:
        woken = threading.Thread(target=lambda: work.wait(LONG_S))
        woken.start()
        other.add(named("a"))
        woken.join(LONG_S / 2)
        assert not woken.is_alive()


def test_a_signal_between_checking_and_waiting_is_not_lost(world: World, store: Store) -> None:
    with store.listen(Topic.WORK) as work:
        world.open().add(named("a"))
        assert work.wait(LONG_S)
        assert not work.wait(0)


@pytest.mark.parametrize("topic", list(Topic))
def test_its_own_process_gets_a_waiter_back(store: Store, topic: Topic) -> None:
    with store.listen(topic) as listener:
        waiter = threading.Thread(target=lambda: listener.wait(LONG_S))
        waiter.start()
        listener.wake()
        waiter.join(LONG_S / 2)
        assert not waiter.is_alive()


def _add(address: str, name: str) -> None:
    store = open_store(address)
    store.add(named(name))
    store.close()


def test_another_process_wakes_us_too(world: World, store: Store) -> None:
    with store.listen(Topic.WORK) as work:
        adder = multiprocessing.get_context("spawn").Process(target=_add, args=(str(world.address), "a"))
        adder.start()
        assert work.wait(LONG_S)
        assert take(store).item == "a"
        adder.join()


WAYS: dict[str, Callable[[Store, Lease], object]] = {
    "released": lambda store, lease: store.release(lease),
    "failed": lambda store, lease: store.fail(lease, Reason.WORKER_LOST, "lost"),
    "killed": lambda store, lease: store.kill(lease.worker, by="ann"),
    "completed": finish,
}


@pytest.mark.parametrize("way", list(WAYS))
def test_every_verb_that_makes_an_item_claimable_wakes_waiting_workers(store: Store, way: str) -> None:
    store.add(named("a"))
    store.add(named("b", needs=["a"]))
    lease = take(store)
    with store.listen(Topic.WORK) as work:
        WAYS[way](store, lease)
        assert work.wait(LONG_S)
    assert take(store, "2").item == ("b" if way == "completed" else "a")


@pytest.mark.parametrize("how", ["cancel", "abort", "kill"])
def test_a_stop_request_reaches_its_worker_at_once(world: World, store: Store, how: str) -> None:
    store.add(named("a"))
    lease, other = take(store), world.open()
    with store.listen(Topic.STOP) as stop, store.listen(Topic.WORK) as work:
        if how == "cancel":
            other.cancel("a", by="ann")
        elif how == "abort":
            other.request_abort(lease.run, by="ann")
        else:
            other.kill(lease.worker, by="ann")
        assert stop.wait(LONG_S)
        assert work.wait(LONG_S if how == "kill" else 0) is (how == "kill")


def test_many_listeners_receive_one_signal_and_a_closed_one_delays_none(world: World, store: Store) -> None:
    gone = store.listen(Topic.WORK)
    listeners = [store.listen(Topic.WORK) for _ in range(3)]
    gone.close()
    world.open().add(named("a"))
    assert [listener.wait(LONG_S) for listener in listeners] == [True] * 3
    for listener in listeners:
        listener.close()


def test_a_signal_arrives_long_before_the_next_poll(world: World, store: Store) -> None:
    other, taken = world.open(), list[float]()
    with store.listen(Topic.WORK) as work:
        for n in range(15):
            began = time.perf_counter()
            other.add(named(f"i{n}"))
            assert work.wait(LONG_S)
            lease = store.claim_next(holder(), run=f"run-{n}", ttl_s=60)
            taken.append(time.perf_counter() - began)
            assert isinstance(lease, Lease)
    assert sorted(taken)[7] < 0.25  # the goal of 5 ms is the benchmark's; this one holds on a busy machine too
