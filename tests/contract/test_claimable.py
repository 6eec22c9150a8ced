"""What schedulers start workers for: the items that claims could take now, on every backend."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ratchet.core.item import ParkReason
from ratchet.core.lease import Lease
from ratchet.core.queue import Claimable, ClaimLimits
from ratchet.core.timestamps import format_timestamp
from ratchet.store.protocols import Store
from tests.contract.servers import World
from tests.contract.test_queue import finish, holder, named, take


def claimable(store: Store, **options: Any) -> list[str]:
    return [one.item for one in store.claimable(**options)]


def test_items_in_progress_are_not_claimable_and_the_others_are_in_the_order_of_the_queue(store: Store) -> None:
    store.add_all([named(name) for name in ("a", "b", "c")])
    take(store)
    assert claimable(store) == ["b", "c"]
    assert claimable(store, limit=1) == ["b"]


def test_an_item_is_claimable_when_what_it_needs_is_completed(store: Store) -> None:
    store.add_all([named("a"), named("b", needs=["a"])])
    lease = take(store)
    assert claimable(store) == []
    finish(store, lease)
    assert claimable(store) == ["b"]


def test_items_whose_lease_has_expired_or_whose_park_is_over_are_claimable_before_anyone_requeues_them(
    world: World, store: Store
) -> None:
    store.add_all([named("lost"), named("parked")])
    take(store)
    store.park("parked", ParkReason.QUOTA, until=format_timestamp(world.now + timedelta(seconds=60)))
    assert claimable(store) == []
    world.pass_time(61)
    assert claimable(store) == ["lost", "parked"]


def test_items_that_wait_for_a_lock_are_not_claimable_and_of_equal_footprints_one_is(store: Store) -> None:
    store.add_all([named("all", footprint=["src/"]), named("below", footprint=["src/a.py"])])
    store.add_all([named(name, footprint=["docs/"]) for name in ("one", "two")])
    lease = take(store)
    assert claimable(store) == ["one"]
    finish(store, lease)
    assert claimable(store) == ["below", "one"]


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        (ClaimLimits(workers=3), ["b", "c"]),
        (ClaimLimits(workers=1), []),
        (ClaimLimits(per_repo=2), ["b", "other"]),
        (ClaimLimits(cooldown_s=60), []),
        (ClaimLimits(daily_iterations=0), []),
    ],
)
def test_no_more_items_are_claimable_than_the_limits_have_room_for(
    store: Store, limits: ClaimLimits, left: list[str]
) -> None:
    store.add_all([*(named(name) for name in ("a", "b", "c")), named("other", repo="/another")])
    take(store)
    assert claimable(store, limits=limits) == left


def test_after_a_cooldown_one_item_is_claimable(world: World, store: Store) -> None:
    store.add_all([named(name) for name in ("a", "b", "c")])
    take(store)
    world.pass_time(61)
    take(store, "again")  # the first lease has expired
    world.pass_time(30)
    assert claimable(store, limits=ClaimLimits(cooldown_s=29)) == ["b"]


def test_claimable_items_name_the_labels_that_they_require(store: Store) -> None:
    store.add_all([named("big", require_labels=["gpu", "arm64"]), named("plain")])
    assert store.claimable() == [Claimable(item="big", require_labels=["arm64", "gpu"]), Claimable(item="plain")]


def test_one_item_can_be_claimed_by_name_if_it_is_claimable(store: Store) -> None:
    store.add_all([named("a"), named("b"), named("c", needs=["a"]), named("d", require_labels=["gpu"])])

    def claim(name: str, **options: Any) -> str:
        got = store.claim_next(holder(), run=f"run-{name}", ttl_s=60, item=name, **options)
        return got.item if isinstance(got, Lease) else "none"

    assert [claim(name) for name in ("b", "b", "c", "d")] == ["b", "none", "none", "none"]
    assert claim("a", limits=ClaimLimits(workers=1)) == "none"
    assert claim("d", labels=["gpu"]) == "d" and claimable(store) == ["a"]
