"""The queue's promises, on every backend. Numbers in brackets are the faults of an earlier factory made impossible."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.item import Item, ItemStatus, ParkReason, Priority
from ratchet.core.lease import Holder, Lease, WorkerStatus
from ratchet.core.queue import ClaimLimits, NoWork, NoWorkReason
from ratchet.core.receipt import Artifact
from ratchet.core.retry import RetryAction
from ratchet.core.timestamps import format_timestamp
from ratchet.errors import Conflict, LeaseHeld, LeaseLost, NotFound, UsageError
from ratchet.store.protocols import CancelOutcome, Store
from tests.contract.servers import World
from tests.contract.test_store import item

RED = ev.RedConfirmed(step=1, tests=["t"], fingerprint="f", report=Artifact(path="p", sha256="s", size=1))


def named(name: str, **fields: Any) -> Item:
    return replace(item(name), **fields)


def holder(name: str = "w") -> Holder:
    return Holder(worker=name, machine="m", pid=1, born="1")


def take(store: Store, name: str = "w", limits: ClaimLimits | None = None) -> Lease:
    lease = store.claim_next(holder(name), run=f"run-{name}", ttl_s=60, limits=limits)
    assert isinstance(lease, Lease), lease
    return lease


def nothing(store: Store, limits: ClaimLimits | None = None) -> NoWorkReason:
    found = store.claim_next(holder("late"), run="run-late", ttl_s=60, limits=limits)
    assert isinstance(found, NoWork), found
    return found.why


def finish(store: Store, lease: Lease) -> None:
    store.complete(lease, commits=1, head="h")


# --- whose turn it is ---------------------------------------------------------------------------------------------


def test_the_highest_priority_goes_first_then_the_first_in(world: World, store: Store) -> None:
    for name, priority in (("a", "low"), ("b", "high"), ("c", "critical"), ("d", "high")):
        store.add(named(name, priority=Priority(priority)))
        world.pass_time(1)
    assert [take(store, f"{n}").item for n in range(4)] == ["c", "b", "d", "a"]
    assert nothing(store) is NoWorkReason.EMPTY


def test_low_priority_does_not_starve(world: World) -> None:
    store = world.open(aging_s=3600)
    store.add(named("old", priority=Priority.LOW))
    world.pass_time(3 * 3600 + 1)
    store.add(named("new", priority=Priority.CRITICAL))
    assert take(store).item == "old"


def test_of_many_claimers_each_gets_another_item(world: World) -> None:
    first = world.open()
    first.add_all([named(f"i{n:02}") for n in range(24)])
    stores, got = [world.open() for _ in range(8)], list[str]()
    gate = threading.Barrier(8)

    def work(number: int) -> None:
        gate.wait()
        while isinstance(
            lease := stores[number].claim_next(holder(f"{number}"), run=f"run-{number}-{len(got)}", ttl_s=60), Lease
        ):
            got.append(lease.item)
            finish(stores[number], lease)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(got) == Counter(f"i{n:02}" for n in range(24))
    assert {count.status for count in first.stats()} == {ItemStatus.COMPLETED}
    assert first.workers(live=True) == []


# --- adding -------------------------------------------------------------------------------------------------------


def test_an_item_waits_until_all_it_needs_is_completed(store: Store) -> None:
    store.add(named("a"))
    store.add(named("b", needs=["a"], priority=Priority.CRITICAL))
    lease = take(store)
    assert lease.item == "a" and nothing(store) is NoWorkReason.EMPTY
    finish(store, lease)
    assert take(store, "2").item == "b"


def test_items_that_wait_for_each_other_are_refused_whole(store: Store) -> None:
    with pytest.raises(UsageError, match="in a cycle"):
        store.add_all([named("a", needs=["b"]), named("b", needs=["c"]), named("c", needs=["a"])])
    with pytest.raises(UsageError, match="in a cycle"):
        store.add(named("a", needs=["a"]))
    with pytest.raises(NotFound, match="nowhere"):
        store.add(named("a", needs=["nowhere"]))
    assert store.items().rows == []


@pytest.mark.parametrize("end", ["fail", "cancel"])
def test_what_needs_a_failed_item_is_parked_and_comes_back_with_it(store: Store, end: str) -> None:
    store.add(named("a"))
    store.add(named("b", needs=["a"]))
    if end == "fail":
        store.append(take(store), [ev.RunFailed(reason=Reason.NO_PROGRESS, detail="d")])
    else:
        store.cancel("a", by="ann")
    row = store.item_row("b")
    assert (row.status, row.park_reason) == ("parked", ParkReason.BLOCKED)
    store.add(named("c", needs=["a"]))
    assert store.item_row("c").status == "parked"
    with pytest.raises(UsageError, match="needs a"):
        store.unpark("b")
    store.requeue("a")
    assert {store.item_row(name).status for name in "abc"} == {"queued"}


def test_what_needs_what_needs_a_failed_item_is_parked_too_and_comes_back_with_it(store: Store) -> None:
    store.add_all([named("a"), named("b", needs=["a"]), named("c", needs=["b"]), named("d", needs=["c"]), named("x")])
    store.add(named("y", needs=["d", "x"]))
    store.cancel("a", by="ann")
    store.cancel("x", by="ann")
    store.add(named("e", needs=["d"]))
    store.add_all([named("g", needs=["f"]), named("f", needs=["e"])])
    assert {store.item_row(name).status for name in "bcdefgy"} == {"parked"} and store.is_drained()
    with pytest.raises(UsageError, match="needs c"):
        store.requeue("d")
    store.requeue("a")
    assert {store.item_row(name).status for name in "abcdefg"} == {"queued"} and not store.is_drained()
    assert store.item_row("y").status == "parked"
    store.requeue("x")
    assert store.item_row("y").status == "queued"


def test_items_that_need_a_parked_item_do_not_keep_workers_waiting(world: World, store: Store) -> None:
    """A worker that ends when nothing is left to do does not wait for what only a person can move."""
    store.add_all([named("a"), named("b", needs=["a"])])
    assert not store.is_drained()
    store.append(take(store), [ev.RunParked(reason=ParkReason.QUESTION, detail="?")])
    assert store.item_row("b").status == "queued" and store.is_drained()
    store.requeue("a")
    assert not store.is_drained()
    store.fail(take(store, "2"), Reason.AGENT_CRASHED, "boom")
    assert nothing(store) is NoWorkReason.EMPTY and not store.is_drained()


@pytest.mark.parametrize("fields", [{"max_iterations": 201}, {"max_iterations": 0}, {"footprint": ["../x"]}])
def test_what_the_types_do_not_allow_is_not_queued(store: Store, fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        store.add(named("a", **fields))
    assert store.items().rows == []


def test_the_same_request_is_the_same_item_for_ever(store: Store) -> None:
    store.add(named("a", request_key="k"))
    finish(store, take(store))
    assert store.add(named("b", request_key="k")).id == "a"
    with pytest.raises(UsageError, match="another item"):
        store.add(named("c", request_key="k", spec="# Other"))


def test_the_same_source_added_by_many_at_once_is_one_item(world: World) -> None:
    """[14]"""
    stores, got = [world.open() for _ in range(6)], list[str]()
    gate = threading.Barrier(6)

    def add(number: int) -> None:
        gate.wait()
        got.append(stores[number].add(named(f"i{number}", source="github", source_ref="o/r#1")).id)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(got)) == 1 and len(stores[0].items().rows) == 1


# --- limits -------------------------------------------------------------------------------------------------------


def test_no_more_workers_than_allowed_claim_concurrently(world: World) -> None:
    """[6]"""
    world.open().add_all([named(f"i{n}") for n in range(8)])
    stores, got = [world.open() for _ in range(8)], list[object]()
    gate = threading.Barrier(8)

    def race(number: int) -> None:
        gate.wait()
        limits = ClaimLimits(workers=3)
        got.append(stores[number].claim_next(holder(f"{number}"), run=f"run-{number}", ttl_s=60, limits=limits))

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(one, Lease) for one in got) == 3


def test_a_busy_repository_lets_another_go_first(store: Store) -> None:
    """[14]"""
    store.add_all([named("a1"), named("a2"), named("b1", repo="/other")])
    limits = ClaimLimits(per_repo=1)
    assert [take(store, f"{n}", limits).item for n in range(2)] == ["a1", "b1"]
    assert nothing(store, limits) is NoWorkReason.PER_REPO
    finish(store, take(store, "2"))
    assert nothing(store, limits) is NoWorkReason.EMPTY


def test_too_much_awaiting_review_stops_new_work(store: Store) -> None:
    store.add_all([named("a"), named("b")])
    lease = take(store)
    store.append(lease, [ev.RunParked(reason=ParkReason.REVIEW, detail="look")])
    store.release(lease)
    assert nothing(store, ClaimLimits(awaiting_review=1)) is NoWorkReason.AWAITING_REVIEW
    assert take(store, "2", ClaimLimits(awaiting_review=2)).item == "b"


def test_the_cooldown_says_until_when(world: World, store: Store) -> None:
    store.add_all([named("a"), named("b")])
    limits = ClaimLimits(cooldown_s=10)
    take(store, "1", limits)
    refused = store.claim_next(holder(), run="r", ttl_s=60, limits=limits)
    assert isinstance(refused, NoWork) and refused.why is NoWorkReason.COOLDOWN
    world.pass_time(10)
    assert refused.until == format_timestamp(world.now)
    take(store, "2", limits)


def test_iterations_of_the_day_are_counted_from_the_ledgers_and_end_at_midnight(world: World, store: Store) -> None:
    """[12, 15, 33]: nothing to reset, nothing to drift."""
    store.add_all([named("a"), named("b")])
    store.append(take(store), [RED, RED])
    limits = ClaimLimits(daily_iterations=2)
    assert nothing(store, limits) is NoWorkReason.DAILY_ITERATIONS
    world.pass_time(86_400)
    take(store, "2", limits)


def test_the_store_stops_a_run_with_more_iterations_than_allowed(store: Store) -> None:
    """[12]"""
    store.add(named("a", max_iterations=2))
    lease = take(store)
    assert store.renew(lease, ttl_s=60, iteration=2) == ""
    assert "the limit is 2" in store.renew(lease, ttl_s=60, iteration=3)


# --- coming back --------------------------------------------------------------------------------------------------


def test_a_lost_workers_run_is_claimed_next_without_a_call_to_expire(world: World, store: Store) -> None:
    """[1]: recovery is part of claiming, so it cannot be forgotten."""
    store.add(named("a"))
    old = take(store)
    store.append(old, [ev.RunClaimed(worker="w")])
    world.pass_time(61)
    new = take(store, "2")
    assert (new.run, new.item) == (old.run, old.item) and new.epoch > old.epoch
    with pytest.raises(LeaseLost):
        store.append(old, [ev.RunClaimed(worker="w")])
    with pytest.raises(LeaseLost):
        store.complete(old, commits=1, head="h")
    assert [entry.kind for entry in store.entries(new.run)] == ["run_claimed", "run_returned"]


def test_a_run_is_requeued_when_its_lease_expires_or_earlier_if_its_worker_died(world: World, store: Store) -> None:
    store.add_all([named("a"), named("b")])
    one, two = take(store, "1"), take(store, "2")
    world.dead.add("1")
    assert store.expire() == [one.run]
    world.pass_time(61)
    assert store.expire() == [two.run] and store.expire() == []
    assert {row.status for row in store.items().rows} == {ItemStatus.QUEUED}


def test_failures_that_count_wait_longer_each_time_and_then_end(world: World, store: Store) -> None:
    store.add(named("a"))
    for delay_s in (60, 300, 1800):
        after = store.fail(take(store), Reason.AGENT_CRASHED, "boom")
        assert (after.after, after.delay_s) == (RetryAction.RETRY, delay_s)
        world.pass_time(delay_s - 1)
        assert nothing(store) is NoWorkReason.EMPTY
        world.pass_time(1)
    assert store.fail(take(store), Reason.AGENT_CRASHED, "boom").after is RetryAction.FAIL
    assert store.item_row("a").status == "failed" and store.workers(live=True) == []


def test_a_platform_failure_is_no_attempt_and_is_retried_with_delays_and_a_limit(world: World, store: Store) -> None:
    """[9]"""
    store.add(named("a"))
    for _ in range(25):
        after = store.fail(take(store), Reason.WORKSPACE, "no disk")
        assert after.after is RetryAction.RETRY and after.delay_s >= 60 and after.attempts == 0
        world.pass_time(after.delay_s)
    assert store.fail(take(store), Reason.WORKSPACE, "no disk").after is RetryAction.PARK
    assert store.item_row("a").park_reason is ParkReason.QUESTION


def test_a_stuck_worker_is_nudged_then_its_run_is_requeued(store: Store) -> None:
    """[2]"""
    store.add(named("a"))
    lease = take(store)
    assert store.report_stuck(lease, "same edit again") is None
    assert store.worker(lease.worker).status is WorkerStatus.STUCK
    after = store.report_stuck(lease, "same edit again")
    assert after and after.after is RetryAction.RETRY
    assert store.item_row("a").status == "queued" and store.worker(lease.worker).status is WorkerStatus.FAILED


# --- by hand ------------------------------------------------------------------------------------------------------


def test_a_killed_workers_run_is_requeued_and_killing_again_changes_nothing(store: Store) -> None:
    store.add(named("a"))
    lease = take(store)
    assert store.kill(lease.worker, by="ann")
    assert store.item_row("a").status == "queued" and store.worker(lease.worker).status is WorkerStatus.KILLED
    with pytest.raises(LeaseLost):
        store.renew(lease, ttl_s=60)
    with pytest.raises(LeaseLost):
        store.append(lease, [ev.RunClaimed(worker="w")])
    assert not store.kill(lease.worker, by="ann")
    assert take(store, "2").run == lease.run
    assert not store.kill(lease.worker, by="ann") and store.item_row("a").status == "assigned"


def test_the_dead_and_those_whose_time_is_up_are_not_at_work(world: World, store: Store) -> None:
    """Though nobody has come for their runs yet."""
    store.add_all([named("a"), named("b"), named("c")])
    take(store, "lost")
    world.pass_time(40)
    take(store, "dead"), take(store, "alive")
    world.dead.add("dead")
    world.pass_time(40)
    assert [row.name for row in store.workers(live=True)] == ["alive"] and store.metrics().active_workers == 1
    assert {row.name for row in store.workers()} == {"lost", "dead", "alive"}


def test_killing_a_finished_worker_changes_nothing(store: Store) -> None:
    """[3]"""
    store.add(named("a"))
    lease = take(store)
    finish(store, lease)
    assert not store.kill(lease.worker, by="ann")
    assert store.item_row("a").status == "completed" and store.worker(lease.worker).status is WorkerStatus.COMPLETED


def test_a_heartbeat_after_the_end_of_its_run_is_no_error(store: Store) -> None:
    """[21]"""
    store.add(named("a"))
    lease = take(store)
    finish(store, lease)
    finish(store, lease)
    assert store.renew(lease, ttl_s=60) == ""
    store.release(lease)
    assert store.item_row("a").status == "completed"


@pytest.mark.parametrize("status", ["completed", "cancelled", "failed"])
def test_a_finished_item_cannot_be_claimed(store: Store, status: str) -> None:
    """[5]"""
    store.add(named("a"))
    ends = {
        "completed": ev.RunCompleted(commits=1, head="h"),
        "cancelled": ev.RunAborted(by="me"),
        "failed": ev.RunFailed(reason=Reason.NO_PROGRESS, detail="d"),
    }
    store.append(take(store), [ends[status]])
    with pytest.raises(UsageError):
        store.claim("a", run="run-2", holder=holder(), ttl_s=60)
    assert nothing(store) is NoWorkReason.EMPTY


def test_cancel_ends_a_waiting_item_and_asks_a_working_worker_to_stop(world: World, store: Store) -> None:
    """[7]"""
    store.add_all([named("a"), named("b"), named("c")])
    one, two = take(store, "1"), take(store, "2")
    assert store.cancel("c", by="ann") is CancelOutcome.DONE and store.cancel("c", by="ann") is CancelOutcome.OVER
    assert store.cancel("a", by="ann") is CancelOutcome.ASKED and store.renew(one, ttl_s=60) == "ann"
    store.append(one, [ev.RunAborted(by="ann")])
    assert store.cancel("b", by="ann") is CancelOutcome.ASKED
    world.pass_time(61)  # its worker died before the request arrived: the cancel still holds
    store.expire()
    assert {store.item_row(name).status for name in "abc"} == {ItemStatus.CANCELLED}
    assert store.run(two.run).status == "aborted"


@pytest.mark.parametrize("end", ["release", "park", "kill"])
def test_a_cancel_holds_though_its_worker_gives_the_run_back_before_it_hears(store: Store, end: str) -> None:
    store.add_all([named("a"), named("b", needs=["a"])])
    lease = take(store)
    assert store.cancel("a", by="ann") is CancelOutcome.ASKED
    if end == "park":
        store.append(lease, [ev.RunParked(reason=ParkReason.QUESTION, detail="?")])
    elif end == "kill":
        store.kill(lease.worker, by="bob")
    store.release(lease)
    assert (store.item_row("a").status, store.item_row("b").status) == ("cancelled", "parked")
    assert store.run(lease.run).status == "aborted" and store.workers(live=True) == []
    assert store.entries(lease.run)[-1].kind == "run_aborted"
    assert store.requeue("a").run == ""


def test_a_cancelled_run_without_a_lease_ends_in_its_ledger(store: Store) -> None:
    store.add(named("a"))
    lease = take(store)
    store.release(lease)
    assert store.cancel("a", by="ann") is CancelOutcome.DONE
    assert store.run(lease.run).status == "aborted"
    assert [entry.kind for entry in store.entries(lease.run)] == ["run_aborted"]


def test_requeue_resets_all_retries_and_starts_a_new_run(world: World, store: Store) -> None:
    """[8]"""
    store.add(named("a"))
    for _ in range(4):
        store.fail(take(store), Reason.AGENT_CRASHED, "boom")
        world.pass_time(1800)
    before = store.item_row("a")
    row = store.requeue("a")
    assert (row.status, row.attempts, row.returns, row.not_before, row.run) == ("queued", 0, 0, "", "")
    assert row.item == before.item
    assert take(store, "again").run == "run-again"


def test_an_item_in_progress_cannot_be_queued_again_and_a_completed_one_can(store: Store) -> None:
    store.add(named("a"))
    lease = take(store)
    with pytest.raises(UsageError, match="assigned"):
        store.requeue("a")
    finish(store, lease)
    assert store.requeue("a").status is ItemStatus.QUEUED


def test_what_is_parked_until_a_time_comes_back_at_that_time(world: World, store: Store) -> None:
    store.add(named("a"))
    until = format_timestamp(world.now.replace(hour=13))
    store.park("a", ParkReason.QUOTA, until=until)
    assert nothing(store) is NoWorkReason.EMPTY
    world.now = world.now.replace(hour=13)
    lease = take(store)
    store.append(lease, [ev.RunParked(reason=ParkReason.QUESTION, detail="which?")])
    store.release(lease)
    world.pass_time(86_400)
    assert nothing(store) is NoWorkReason.EMPTY and store.item_row("a").detail == "which?"
    assert store.unpark("a").status == "queued"
    assert take(store, "2").run == lease.run


def test_what_its_worker_parked_stays_parked_though_the_worker_dies_at_once(world: World, store: Store) -> None:
    store.add(named("a", footprint=["src"]))
    lease = take(store)
    store.append(lease, [ev.RunParked(reason=ParkReason.QUESTION, detail="which?")])
    assert store.workers(live=True) == [] and store.locks(store.item("a").repo) == {}
    world.pass_time(3_600)
    assert store.expire() == [] and store.item_row("a").status == "parked" and store.item_row("a").returns == 0
    with pytest.raises(LeaseLost):
        store.append(lease, [ev.RunClaimed(worker="late")])


# --- looking ------------------------------------------------------------------------------------------------------


def test_pages_hold_every_item_once_in_the_order_of_their_turn(store: Store) -> None:
    store.add_all([named(f"i{n}", priority=Priority.HIGH if n % 2 else Priority.LOW) for n in range(7)])
    seen, after = list[str](), ""
    while True:
        page = store.items(after=after, limit=3)
        seen += [row.item.id for row in page.rows]
        after = page.after
        if not after:
            break
    assert seen == ["i1", "i3", "i5", "i0", "i2", "i4", "i6"]
    high = store.items(priority=Priority.HIGH, status=ItemStatus.QUEUED, repo="/r")
    assert [row.item.id for row in high.rows] == ["i1", "i3", "i5"]
    assert store.items(repo="/elsewhere").rows == []
    assert {(c.status, c.priority): c.items for c in store.stats()} == {("queued", "high"): 3, ("queued", "low"): 4}


def test_a_token_proves_its_own_lease_only_while_it_is_held(store: Store) -> None:
    """[35]"""
    store.add_all([named("a"), named("b")])
    one, two = take(store, "1"), take(store, "2")
    assert one.token != two.token and store.lease_by_token(one.token) == one
    store.release(one)
    for wrong in (one.token, "", "x"):
        with pytest.raises(LeaseLost):
            store.lease_by_token(wrong)
    assert store.lease_by_token(two.token).run == two.run


def test_items_that_wait_for_a_lock_hide_no_free_item_behind_them(store: Store) -> None:
    locked = [named(f"a{n:04}", footprint=["src/"]) for n in range(1200)]
    store.add(named("a", footprint=["src/"]))
    take(store, "0")
    store.add_all(locked)
    store.add_all([named("b", footprint=["docs/"]), named("c")])
    assert [take(store, "1").item, take(store, "2").item] == ["b", "c"]
    assert store.claim_next(holder("3"), run="run-3", ttl_s=60) == NoWork(why=NoWorkReason.LOCKED)


def test_a_dependant_that_is_parked_until_a_time_is_blocked_when_its_need_is_cancelled(
    world: World, store: Store
) -> None:
    store.add_all([named("a"), named("b", needs=["a"]), named("c", needs=["b"])])
    until = format_timestamp(world.now + timedelta(seconds=30))
    store.park("b", ParkReason.QUOTA, until=until)
    store.cancel("a", by="me")
    world.pass_time(60)
    store.expire()
    for name in ("b", "c"):
        row = store.item_row(name)
        assert (row.status, row.park_reason) == (ItemStatus.PARKED, ParkReason.BLOCKED)
    assert store.is_drained()
    with pytest.raises(Conflict, match="needs a"):
        store.park("b", ParkReason.QUOTA, until=until)
    store.requeue("a")
    assert store.item_row("b").status is ItemStatus.QUEUED


# --- adding and claiming at once -------------------------------------------------------------------------------------


def test_an_item_that_is_added_claimed_is_never_offered_to_a_waiting_worker(store: Store) -> None:
    lease = store.add_claimed(named("a"), run="run-a", holder=holder("cli"), ttl_s=60)
    assert lease.item == "a" and store.item_row("a").status is ItemStatus.ASSIGNED
    assert nothing(store) is NoWorkReason.EMPTY


def test_the_same_open_source_is_added_claimed_once(store: Store) -> None:
    store.add(named("a", source_ref="SPEC.md:1"))
    assert (
        store.add_claimed(named("b", source_ref="SPEC.md:1"), run="run-b", holder=holder("cli"), ttl_s=60).item == "a"
    )
    with pytest.raises(LeaseHeld):
        store.add_claimed(named("c", source_ref="SPEC.md:1"), run="run-c", holder=holder("late"), ttl_s=60)


def test_an_item_that_cannot_be_claimed_is_not_added(store: Store) -> None:
    store.add(named("a", footprint=["src"]))
    take(store)
    with pytest.raises(LeaseHeld):
        store.add_claimed(named("b", footprint=["src/x.py"]), run="run-b", holder=holder("cli"), ttl_s=60)
    with pytest.raises(NotFound):
        store.item_row("b")
