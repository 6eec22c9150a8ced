"""Slots of providers: no more agents than the limit, on any number of hosts, and none lost with a host."""

from __future__ import annotations

import threading

import pytest

from ratchet.core.lease import Holder, Lease
from ratchet.core.rate_limit import ProviderUse
from ratchet.errors import LeaseLost
from ratchet.store.protocols import Store
from tests.contract.servers import World
from tests.contract.test_queue import holder, named

QUIET_S = 60.0


def leased(store: Store, name: str, by: Holder | None = None) -> Lease:
    store.add(named(name))
    return store.claim(name, run=f"run-{name}", holder=by or holder(), ttl_s=600)


def taken(store: Store, lease: Lease, slot: str, *, limit: int = 2) -> bool:
    return store.take_slot(lease, "claude", slot, limit=limit, quiet_s=QUIET_S)


def test_a_slot_is_taken_once_and_there_are_no_more_than_the_limit(store: Store) -> None:
    one, two = leased(store, "a"), leased(store, "b")
    assert taken(store, one, "s1") and taken(store, one, "s1") and taken(store, two, "s2")
    assert not taken(store, two, "s3")
    assert store.take_slot(two, "codex", "s4", limit=2, quiet_s=QUIET_S)
    assert store.provider_uses() == [
        ProviderUse(provider="claude", limit=2, held=2), ProviderUse(provider="codex", limit=2, held=1)
    ]  # fmt: skip
    for _ in range(2):
        store.free_slot("claude", "s1", refused=False)
    assert taken(store, two, "s3") and not taken(store, one, "s1")


def test_the_slots_of_a_lease_that_ended_are_free(store: Store) -> None:
    one, two = leased(store, "a"), leased(store, "b")
    assert taken(store, one, "s1") and taken(store, one, "s2") and not taken(store, two, "s3")
    store.release(one)
    assert taken(store, two, "s3") and taken(store, two, "s4")
    with pytest.raises(LeaseLost):
        taken(store, one, "s1", limit=9)


def test_the_slots_of_an_expired_lease_and_of_a_dead_process_are_free(world: World, store: Store) -> None:
    one, two, three = leased(store, "a", holder("one")), leased(store, "b", holder("two")), leased(store, "c")
    assert taken(store, one, "s1", limit=1) and not taken(store, two, "s2", limit=1)
    world.dead.add("one")
    assert taken(store, two, "s2", limit=1) and not taken(store, three, "s3", limit=1)
    world.pass_time(590)
    assert store.renew(three, ttl_s=600) == ""
    world.pass_time(11)
    assert taken(store, three, "s3", limit=1)


def test_a_refusal_halves_the_limit_once_and_quiet_raises_it(world: World, store: Store) -> None:
    lease = leased(store, "a")
    assert all(taken(store, lease, f"s{n}", limit=8) for n in range(8))
    world.pass_time(1)
    for n in range(8):
        store.free_slot("claude", f"s{n}", refused=True)  # all began before the first refusal
    assert [taken(store, lease, f"t{n}", limit=8) for n in range(8)].count(True) == 4
    world.pass_time(2 * QUIET_S)
    assert [taken(store, lease, f"u{n}", limit=8) for n in range(8)].count(True) == 2


def test_a_lower_configured_limit_holds_at_once(store: Store) -> None:
    lease = leased(store, "a")
    assert all(taken(store, lease, f"s{n}", limit=4) for n in range(4))
    store.free_slot("claude", "s0", refused=False)
    assert not taken(store, lease, "s4", limit=3)


def test_of_many_hosts_at_once_no_more_than_the_limit_get_a_slot(world: World) -> None:
    first = world.open()
    leases = [leased(first, f"i{n}") for n in range(8)]
    stores, got, gate = [world.open() for _ in leases], list[bool](), threading.Barrier(8)

    def ask(n: int) -> None:
        gate.wait()
        got.append(taken(stores[n], leases[n], f"s{n}", limit=3))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got.count(True) == 3
