"""Locks and budgets, on every backend."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from ratchet.core.budget import Amount, BudgetScope, Cap, Caps, OverBudget, Reservation
from ratchet.core.lease import Lease
from ratchet.core.locks import Blocked, Locked
from ratchet.errors import LeaseLost, UsageError
from ratchet.store.database import local_midnight
from ratchet.store.protocols import Store
from tests.contract.servers import World
from tests.contract.test_queue import holder, named, take

DAY = Caps(day=Cap(tokens=10))


def two_leases(store: Store) -> tuple[Lease, Lease]:
    store.add_all([named("a"), named("b")])
    return take(store, "1"), take(store, "2")


# --- locks --------------------------------------------------------------------------------------------------------


def test_all_paths_are_locked_or_none_and_the_refusal_names_the_holder(store: Store) -> None:
    """[17]"""
    one, two = two_leases(store)
    assert store.lock(one, ["src/b.py", "./src//a.py"]) == Locked(paths=["src/a.py", "src/b.py"])
    refused = store.lock(two, ["docs/", "src/*.py"])
    assert refused == Blocked(asked="src/*.py", held="src/a.py", run=one.run, worker="1")
    assert store.locks("/r") == {one.run: ["src/a.py", "src/b.py"]}
    assert store.unlock(one, ["src/a.py"]) == ["src/b.py"]
    assert store.lock(two, ["docs/", "src/a.py"]) == Locked(paths=["docs/**", "src/a.py"])


def test_asking_again_for_what_one_holds_is_success(store: Store) -> None:
    one, _ = two_leases(store)
    store.lock(one, ["src/"])
    assert store.lock(one, ["src/", "src/a.py"]) == Locked(paths=["src/**", "src/a.py"])


def test_locks_of_another_repository_are_no_hindrance(store: Store) -> None:
    store.add_all([named("a"), named("b", repo="/other")])
    one, two = take(store, "1"), take(store, "2")
    store.lock(one, ["src/"])
    assert isinstance(store.lock(two, ["src/"]), Locked)


@pytest.mark.parametrize("path", ["../x", "a/../../b", "/etc/passwd", "", "~/x", "C:/x", "a\\b"])
def test_a_path_that_leaves_the_repository_is_refused(store: Store, path: str) -> None:
    one, _ = two_leases(store)
    with pytest.raises(UsageError):
        store.lock(one, [path])


@pytest.mark.parametrize("end", ["expiry", "release", "kill", "complete"])
def test_locks_are_released_with_the_lease_however_it_ends(world: World, store: Store, end: str) -> None:
    one, two = two_leases(store)
    store.lock(one, ["src/"])
    if end == "expiry":
        world.pass_time(50)
        store.renew(two, ttl_s=60)
        world.pass_time(11)
    elif end == "release":
        store.release(one)
    elif end == "kill":
        store.kill(one.worker, by="ann")
    else:
        store.complete(one, commits=1, head="h")
    assert isinstance(store.lock(two, ["src/a.py"]), Locked)
    assert list(store.locks("/r")) == [two.run]


def test_a_worker_that_lost_its_lease_can_lock_nothing(store: Store) -> None:
    one, _ = two_leases(store)
    store.release(one)
    for verb in (store.lock, store.unlock):
        with pytest.raises(LeaseLost):
            verb(one, ["src/"])


def test_overlapping_sets_asked_for_in_opposite_order_never_block_each_other(world: World) -> None:
    """[17]: one of the two always gets all."""
    first = world.open()
    leases = two_leases(first)
    stores = [world.open(), world.open()]
    for paths in (["a", "b", "c"], ["c/x", "b", "a"]):
        gate, got = threading.Barrier(2), list[Locked | Blocked]()

        def ask(n: int, gate: threading.Barrier, got: list[Locked | Blocked], paths: list[str]) -> None:
            gate.wait()
            got.append(stores[n].lock(leases[n], paths if n else paths[::-1]))

        threads = [threading.Thread(target=ask, args=(n, gate, got, paths)) for n in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(type(one).__name__ for one in got) == ["Blocked", "Locked"]
        for lease in leases:
            first.unlock(lease)


# --- budgets ------------------------------------------------------------------------------------------------------


def reserved(store: Store, lease: Lease, asked: Amount, caps: Caps) -> Reservation:
    got = store.reserve(lease, asked, caps=caps)
    assert isinstance(got, Reservation), got
    return got


def test_what_was_not_spent_is_free_again(store: Store) -> None:
    one, _ = two_leases(store)
    caps = Caps(item=Cap(cost_usd=1.0))
    first = reserved(store, one, Amount(cost_usd=0.8, tokens=100), caps)
    assert store.reserve(one, Amount(cost_usd=0.3), caps=caps) == OverBudget(
        scope=BudgetScope.ITEM, kind="cost_usd", cap=1.0, used=0.8, asked=0.3
    )
    store.settle(first, Amount(cost_usd=0.1, tokens=7))
    store.settle(first, Amount(cost_usd=0.9))
    assert store.spent(BudgetScope.ITEM, "a") == Amount(cost_usd=0.1, tokens=7)
    reserved(store, one, Amount(cost_usd=0.9), caps)
    assert isinstance(store.reserve(one, Amount(cost_usd=0.000001), caps=caps), OverBudget)


def test_spending_above_the_reservation_is_reported_at_once(store: Store) -> None:
    one, _ = two_leases(store)
    held = reserved(store, one, Amount(cost_usd=0.5, seconds=60), Caps())
    assert store.record_spending(held, Amount(cost_usd=0.5)) == ""
    assert store.record_spending(held, Amount(cost_usd=0.6)) == "cost_usd"
    store.record_spending(held, Amount(cost_usd=0.2))
    assert store.spent(BudgetScope.ITEM, "a").cost_usd == 0.6


@pytest.mark.parametrize(
    ("caps", "scope"), [(Caps(repo=Cap(tokens=10)), BudgetScope.REPO), (Caps(day=Cap(tokens=10)), BudgetScope.DAY)]
)
def test_items_share_the_budget_of_their_repository_and_of_the_day(
    world: World, store: Store, caps: Caps, scope: BudgetScope
) -> None:
    one, two = two_leases(store)
    reserved(store, one, Amount(tokens=6), caps)
    refused = store.reserve(two, Amount(tokens=6), caps=caps)
    assert isinstance(refused, OverBudget) and refused.scope is scope
    world.pass_time(86_400)
    store.renew(two, ttl_s=60)
    reserved(store, two, Amount(tokens=6), caps)


@pytest.fixture
def clock_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Be a machine in another time zone."""

    def move(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield move
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/Los_Angeles"])
def test_machines_in_different_time_zones_share_the_budget_of_the_day(
    store: Store, clock_of: Callable[[str], None], zone: str
) -> None:
    one, two = two_leases(store)
    clock_of("Europe/Berlin")
    reserved(store, one, Amount(tokens=6), DAY)
    clock_of(zone)
    assert isinstance(store.reserve(two, Amount(tokens=6), caps=DAY), OverBudget)
    assert store.used(BudgetScope.DAY).tokens == 6


def test_a_day_on_which_the_clocks_are_changed_is_one_day(
    world: World, store: Store, clock_of: Callable[[str], None]
) -> None:
    clock_of("Europe/Berlin")
    world.now = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)  # half past two in summer; at three it will be two again
    one, two = two_leases(store)
    reserved(store, one, Amount(tokens=6), DAY)
    assert local_midnight(world.now, days=1) == datetime(2026, 10, 25, 23, tzinfo=UTC)
    for hours, free in ((1, False), (22, False), (23, True)):
        world.now = datetime(2026, 10, 25, 0, 30, tzinfo=UTC) + timedelta(hours=hours)
        assert isinstance(store.reserve(two, Amount(tokens=6), caps=DAY), Reservation) is free


@pytest.mark.parametrize("end", ["expiry", "release", "kill", "complete"])
def test_a_reservation_does_not_outlive_its_lease_but_what_was_metered_stays_spent(
    world: World, store: Store, end: str
) -> None:
    one, _ = two_leases(store)
    store.record_spending(reserved(store, one, Amount(tokens=100), Caps()), Amount(tokens=30))
    if end == "expiry":
        world.pass_time(61)
        store.expire()
    elif end == "release":
        store.release(one)
    elif end == "kill":
        store.kill(one.worker, by="ann")
    else:
        store.complete(one, commits=1, head="h")
    assert store.used(BudgetScope.ITEM, "a").tokens == 30 == store.spent(BudgetScope.DAY).tokens
    with pytest.raises(LeaseLost):
        store.reserve(one, Amount(tokens=1), caps=Caps())


def test_thirty_two_workers_at_once_never_overspend(world: World) -> None:
    """[15]: reserve, meter and settle in a race for one day's money."""
    workers, caps = 32, Caps(day=Cap(cost_usd=1.0), repo=Cap(tokens=400))
    first = world.open()
    first.add_all([named(f"i{n:02}") for n in range(workers)])
    leases = [take(first, f"{n}") for n in range(workers)]
    # A store is one connection: four threads on each is as many machines with four workers.
    stores, spent = [world.open() for _ in range(8)], list[float]()
    gate = threading.Barrier(workers)

    def work(n: int) -> None:
        gate.wait()
        store = stores[n % 8]
        for _ in range(3):
            held = store.reserve(leases[n], Amount(cost_usd=0.05, tokens=10), caps=caps)
            if isinstance(held, Reservation):
                assert first.used(BudgetScope.DAY).cost_usd <= 1.0
                store.settle(held, Amount(cost_usd=0.03, tokens=10))
                spent.append(0.03)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = first.spent(BudgetScope.DAY)
    assert total.cost_usd == pytest.approx(sum(spent)) and 0.9 <= total.cost_usd <= 1.0
    assert total.tokens == 10 * len(spent) <= 400
    assert first.used(BudgetScope.DAY) == total


def test_holders_are_distinguished_by_their_lease_not_their_name(store: Store) -> None:
    store.add_all([named("a"), named("b")])
    one = store.claim("a", run="run-a", holder=holder(), ttl_s=60)
    two = store.claim("b", run="run-b", holder=holder(), ttl_s=60)
    store.lock(one, ["src/"])
    assert isinstance(store.lock(two, ["src/"]), Blocked)


def test_an_absurd_amount_is_recorded_as_a_very_large_one(store: Store) -> None:
    one, _ = two_leases(store)
    for _ in range(3):
        held = store.reserve(one, Amount(tokens=5), caps=Caps())
        assert isinstance(held, Reservation)
        assert store.record_spending(held, Amount(tokens=10**20, cost_usd=1e300)) == "cost_usd"
        store.settle(held, Amount(tokens=10**30))
    assert store.spent(BudgetScope.DAY).tokens >= 10**15
    assert isinstance(store.reserve(one, Amount(tokens=1), caps=DAY), OverBudget)
