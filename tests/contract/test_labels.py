"""Items that require labels: only workers that have all of them take such an item."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ratchet.core.lease import Lease, WorkerPool
from ratchet.core.queue import ClaimLimits, NoWork, NoWorkReason
from ratchet.errors import UsageError
from ratchet.store.protocols import Store
from tests.contract.servers import World
from tests.contract.test_queue import holder, named


def claimed(store: Store, *labels: str, limits: ClaimLimits | None = None) -> str:
    """Return the item that a worker with these labels gets, or why it gets none."""
    got = store.claim_next(holder(), run=f"run-{'-'.join(labels)}", ttl_s=60, limits=limits, labels=labels)
    return got.item if isinstance(got, Lease) else str(got.why)


def test_a_worker_takes_only_items_whose_labels_it_has_all(world: World, store: Store) -> None:
    for name, labels in (("both", ["gpu", "arm64"]), ("one", ["gpu"]), ("plain", [])):
        store.add(named(name, require_labels=labels))
        world.pass_time(1)
    assert claimed(store, "arm64", "big") == "plain"
    assert claimed(store, "arm64", "big") == claimed(store) == NoWorkReason.LABELS
    assert claimed(store, "gpu") == "one"
    assert claimed(store, "big", "gpu", "arm64") == "both"
    assert claimed(store, "gpu") == NoWorkReason.EMPTY


def test_a_label_that_is_part_of_another_is_another(store: Store) -> None:
    store.add(named("a", require_labels=["gpu-a100", "xgpu"]))
    assert claimed(store, "gpu", "a100", "x", "gpu-a100") == NoWorkReason.LABELS
    assert claimed(store, "xgpu", "gpu-a100") == "a"


def test_labels_and_limits_hold_together_on_a_claim(world: World, store: Store) -> None:
    for name in ("first", "second"):
        store.add(named(name, require_labels=["gpu"]))
        world.pass_time(1)
    limits = ClaimLimits(per_repo=1)
    assert claimed(store, "gpu", limits=limits) == "first"
    assert claimed(store, "gpu", limits=limits) == NoWorkReason.PER_REPO
    assert claimed(store, limits=limits) == NoWorkReason.LABELS


def test_a_named_item_is_claimed_whatever_it_requires(store: Store) -> None:
    store.add(named("a", require_labels=["gpu"]))
    assert store.claim("a", run="run-a", holder=holder(), ttl_s=60).item == "a"


def test_items_that_a_worker_may_not_take_do_not_keep_it_from_draining(store: Store) -> None:
    store.add(named("a", require_labels=["gpu"]))
    assert store.is_drained(["arm64"]) and store.is_drained([])
    assert not store.is_drained(["gpu"]) and not store.is_drained()
    assert claimed(store, "gpu") == "a" and not store.is_drained(["arm64"])  # its dependants may become claimable


def test_workers_and_pools_show_their_labels(store: Store) -> None:
    store.add(named("a"))
    assert claimed(store, "gpu", "arm64") == "a"
    assert [row.labels for row in store.workers()] == [["arm64", "gpu"]]
    pool = WorkerPool(holder=holder(), workers=4, labels=["arm64", "gpu"])
    store.announce(pool)
    assert [replace(found, seen_at="") for found in store.pools()] == [pool]


@pytest.mark.parametrize("label", ["", "two words", "new\nline", "-gpu", "a" * 64])
def test_what_is_no_label_is_refused(store: Store, label: str) -> None:
    with pytest.raises(UsageError):
        store.add(named("a", require_labels=[label]))


def test_a_retried_item_keeps_its_labels(store: Store) -> None:
    store.add(named("a", require_labels=["gpu"]))
    first = store.claim_next(holder(), run="run-1", ttl_s=60, labels=["gpu"])
    assert isinstance(first, Lease)
    store.release(first)
    assert isinstance(store.claim_next(holder(), run="run-2", ttl_s=60), NoWork)
    assert claimed(store, "gpu") == "a"
