"""What happens when two things happen at once, and what a late worker leaves behind, on every backend."""

from __future__ import annotations

import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.item import ItemStatus
from ratchet.core.lease import Lease
from ratchet.core.locks import Blocked, Locked
from ratchet.core.queue import ClaimLimits, NoWork, NoWorkReason
from ratchet.core.receipt import Artifact
from ratchet.errors import LeaseHeld, LeaseLost, NotFound, StoreNewer
from ratchet.store.protocols import CancelOutcome, Store, open_store
from tests.contract.servers import World
from tests.contract.test_queue import RED, finish, holder, named, nothing, take

COMMITTED = ev.StepCommitted(
    step=1, commit="c1", parent="c0", subject="s", tests=["t"], tree="x", report=Artifact(path="p", sha256="s", size=1)
)


def at_once(*acts: Callable[[], object]) -> None:
    """All of them from one moment on; what one raises is raised here."""
    gate, failed = threading.Barrier(len(acts)), list[BaseException]()

    def go(act: Callable[[], object]) -> None:
        gate.wait()
        try:
            act()
        except BaseException as error:  # noqa: BLE001 — it is raised below
            failed.append(error)

    threads = [threading.Thread(target=go, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


# --- claim and cancel ---------------------------------------------------------------------------------------------


def test_a_concurrent_cancel_and_claim_both_take_effect(world: World, store: Store) -> None:
    """[7]: either no worker claims it, or the worker that did is asked to stop."""
    stores = [world.open(), world.open()]
    for n in range(10):
        store.add(named(f"i{n}"))
        got, text = list[Lease | NoWork](), list[CancelOutcome]()
        at_once(
            lambda: got.append(stores[0].claim_next(holder(), run=f"run-{n}", ttl_s=60)),  # noqa: B023 — joined below
            lambda: text.append(stores[1].cancel(f"i{n}", by="ann")),  # noqa: B023
        )
        if isinstance(got[0], Lease):
            assert text == [CancelOutcome.ASKED] and store.renew(got[0], ttl_s=60) == "ann"
            store.append(got[0], [ev.RunAborted(by="ann")])
        else:
            assert text == [CancelOutcome.DONE]
        assert store.item_row(f"i{n}").status == "cancelled"


def test_of_two_workers_one_gets_the_last_item_and_the_other_hears_that_there_is_none(world: World) -> None:
    stores = [world.open(), world.open()]
    for n in range(10):
        stores[0].add(named(f"i{n}"))
        got = list[Lease | NoWork]()
        at_once(*[
            lambda s=s: got.append(stores[s].claim_next(holder(f"{s}"), run=f"run-{n}-{s}", ttl_s=60))  # noqa: B023
            for s in range(2)
        ])  # fmt: skip
        assert sorted(type(one).__name__ for one in got) == ["Lease", "NoWork"]


def test_of_a_concurrent_completion_and_expiry_exactly_one_takes_effect(world: World, store: Store) -> None:
    stores = [world.open(), world.open()]
    for n in range(10):
        store.add(named(f"i{n}"))
        lease = take(store, f"{n}")
        world.pass_time(61)
        text = list[str]()

        def complete(lease: Lease = lease, text: list[str] = text) -> None:
            with suppress(LeaseLost):
                finish(stores[0], lease)
                text.append("completed")

        def expire(text: list[str] = text) -> None:
            text.extend("returned" for _ in stores[1].expire())

        at_once(complete, expire)
        assert len(text) == 1
        status = store.item_row(f"i{n}").status
        assert status == ("completed" if text == ["completed"] else "queued")
        if status == "queued":
            finish(store, take(store, f"{n} again"))


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        (ClaimLimits(workers=3), 3),
        (ClaimLimits(per_repo=2), 4),
        (ClaimLimits(cooldown_s=60), 1),
        (ClaimLimits(awaiting_review=1), 0),
    ],
)
def test_limits_hold_under_concurrent_claims(world: World, store: Store, limits: ClaimLimits, most: int) -> None:
    """[6, 15]"""
    store.add_all([named(f"i{n}", repo="/r" if n % 2 else "/q") for n in range(8)])
    if limits.awaiting_review:
        store.append(take(store), [ev.RunParked(reason="review", detail="look")])  # type: ignore[arg-type]
        store.expire()
    stores, got = [world.open() for _ in range(8)], list[Lease | NoWork]()
    at_once(*[
        lambda n=n: got.append(stores[n].claim_next(holder(f"{n}"), run=f"r{n}", ttl_s=60, limits=limits))
        for n in range(8)
    ])  # fmt: skip
    assert sum(isinstance(one, Lease) for one in got) == most


def test_the_daily_iteration_limit_holds_under_concurrent_claims(world: World, store: Store) -> None:
    """[15]"""
    store.add_all([named(f"i{n}") for n in range(4)])
    store.append(take(store), [RED, RED])
    stores, got = [world.open() for _ in range(3)], list[Lease | NoWork]()
    limits = ClaimLimits(daily_iterations=2)
    at_once(*[
        lambda n=n: got.append(stores[n].claim_next(holder(f"{n}"), run=f"r{n}", ttl_s=60, limits=limits))
        for n in range(3)
    ])  # fmt: skip
    assert all(isinstance(one, NoWork) and one.why is NoWorkReason.DAILY_ITERATIONS for one in got)


# --- many threads on one store ------------------------------------------------------------------------------------


def test_one_store_is_used_by_many_threads_at_once(store: Store) -> None:
    store.add_all([named(f"i{n:02}") for n in range(32)])
    got = list[str]()

    def work(name: str) -> None:
        while isinstance(lease := store.claim_next(holder(name), run=f"run-{name}-{len(got)}-{name}", ttl_s=60), Lease):
            got.append(lease.item)
            store.append(lease, [ev.RunClaimed(worker=name)])
            assert store.renew(lease, ttl_s=60) == ""
            finish(store, lease)
            assert store.item_row(lease.item).status == "completed"

    at_once(*[lambda n=n: work(f"w{n}") for n in range(8)])
    assert Counter(got) == Counter(f"i{n:02}" for n in range(32))
    assert all(len(store.entries(row.run)) == 2 for row in store.runs())


def test_a_failing_verb_in_a_shared_transaction_leaves_nothing_and_fails_no_other(store: Store) -> None:
    refused = list[str]()

    def add(n: int) -> None:
        try:
            store.add_all([named(f"a{n}"), named(f"b{n}", needs=["nowhere"] if n % 2 else [])])
        except NotFound:
            refused.append(f"a{n}")

    at_once(*[lambda n=n: add(n) for n in range(16)])
    assert sorted(refused) == sorted(f"a{n}" for n in range(1, 16, 2))
    there = {row.item.id for row in store.items(limit=100).rows}
    assert there == {f"{name}{n}" for n in range(0, 16, 2) for name in "ab"}


# --- late results -------------------------------------------------------------------------------------------------


def test_writes_of_a_worker_that_lost_its_lease_are_rejected_and_recorded_once(world: World, store: Store) -> None:
    store.add(named("a"))
    old = take(store, "1")
    world.pass_time(61)
    new = take(store, "2")
    for _ in range(2):
        for late in (
            lambda: store.append(old, [COMMITTED]),
            lambda: store.complete(old, commits=1, head="c1"),
            lambda: store.fail(old, Reason.AGENT_CRASHED, "boom"),
            lambda: store.append(old, [ev.RunClaimed(worker="w")]),
        ):
            with pytest.raises(LeaseLost):
                late()
    assert [entry.kind for entry in store.entries(new.run)] == ["run_returned"]
    noted = {(one.kind, one.head, one.worker, one.epoch) for one in store.fenced_writes(new.run)}
    assert noted == {
        ("step_committed", "c1", "1", old.epoch),
        ("run_completed", "c1", "1", old.epoch),
        ("run_failed", "", "1", old.epoch),
    }
    assert len(store.fenced_writes()) == 3


def test_a_late_result_that_was_checked_is_no_longer_asked_about(world: World, store: Store) -> None:
    store.add(named("a"))
    old = take(store, "1")
    world.pass_time(61)
    store.expire()
    with pytest.raises(LeaseLost):
        finish(store, old)
    (late,) = store.fenced_writes()
    store.resolve_fenced_write(late.id, kept=True)
    assert store.fenced_writes() == []
    with pytest.raises(NotFound):
        store.resolve_fenced_write("late-none", kept=False)


# --- the footprint ------------------------------------------------------------------------------------------------


def test_a_claim_locks_the_footprint_and_skips_items_that_overlap_other_locks(store: Store) -> None:
    """[18]: locked before the work, not reported after it."""
    store.add(named("a", footprint=["src/"]))
    store.add(named("b", footprint=["src/x.py", "docs/"]))
    store.add(named("c", footprint=["README.md"]))
    store.add(named("d"))
    one, three, four = (take(store, name) for name in ("1", "3", "4"))
    assert (one.item, three.item, four.item) == ("a", "c", "d")
    assert store.locks("/r") == {one.run: ["src/**"], three.run: ["README.md"]}
    assert nothing(store) is NoWorkReason.LOCKED
    with pytest.raises(LeaseHeld, match="src"):
        store.claim("b", run="run-b", holder=holder(), ttl_s=60)
    finish(store, one)
    two = take(store, "2")
    assert two.item == "b" and store.locks("/r")[two.run] == ["docs/**", "src/x.py"]


def test_of_many_claimers_no_two_hold_the_same_paths(world: World, store: Store) -> None:
    store.add_all([named(f"i{n}", footprint=[f"src/{n % 3}.py", "docs/"] if n % 2 else ["src/"]) for n in range(6)])
    stores, got = [world.open() for _ in range(6)], list[Lease | NoWork]()
    at_once(*[
        lambda n=n: got.append(stores[n].claim_next(holder(f"{n}"), run=f"r{n}", ttl_s=60)) for n in range(6)
    ])  # fmt: skip
    assert sum(isinstance(one, Lease) for one in got) == 1


def test_processes_that_lock_in_opposite_order_do_not_deadlock(world: World, store: Store) -> None:
    """[17]"""
    store.add_all([named("a"), named("b")])
    leases = [take(store, "1"), take(store, "2")]
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    paths = [f"src/{n}.py" for n in range(20)]
    workers = [
        context.Process(target=_lock_often, args=(str(world.address), lease, paths[::way], answers))
        for lease, way in zip(leases, (1, -1), strict=True)
    ]
    for worker in workers:
        worker.start()
    tries = [answers.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    assert all(worker.exitcode == 0 for worker in workers) and tries == [5, 5]


def _lock_often(address: str, lease: Lease, paths: list[str], answers: Any) -> None:
    """Until it got all of them often; the other lets go each time, so neither can be kept from it for ever."""
    store, got = open_store(address), 0
    for _ in range(10_000):
        match store.lock(lease, paths):
            case Locked(paths=held):
                assert held == sorted(paths)
                store.unlock(lease)
                got += 1
            case Blocked(run=run):
                assert run != lease.run
        if got == 5:
            break
    answers.put(got)
    store.close()


# --- dependants ---------------------------------------------------------------------------------------------------


def test_a_need_that_fails_while_its_dependant_is_added_parks_it_all_the_same(world: World, store: Store) -> None:
    stores = [world.open(), world.open()]
    for n in range(10):
        store.add(named(f"need{n}"))
        lease = take(store, f"{n}")
        failed = ev.RunFailed(reason=Reason.NO_PROGRESS, detail="d")
        at_once(
            partial(stores[0].append, lease, [failed]),
            partial(stores[1].add, named(f"after{n}", needs=[f"need{n}"])),
        )
        assert store.item_row(f"after{n}").status is ItemStatus.PARKED


# --- starting -----------------------------------------------------------------------------------------------------


def _start(address: str, gate: Any, answers: Any) -> None:
    gate.wait()
    try:
        open_store(address).close()
        answers.put("")
    except Exception as error:  # noqa: BLE001 — whatever it is, the test shows it
        answers.put(repr(error))


def test_processes_that_start_at_once_on_a_fresh_database_do_not_race(world: World) -> None:
    """[36]"""
    context = multiprocessing.get_context("spawn")
    gate: Any = context.Barrier(4)
    answers: Any = context.Queue()
    starters = [context.Process(target=_start, args=(str(world.address), gate, answers)) for _ in range(4)]
    for starter in starters:
        starter.start()
    assert [answers.get(timeout=60) for _ in starters] == [""] * 4
    for starter in starters:
        starter.join()
    world.open().add(named("a"))


def test_a_newer_schema_is_refused_with_a_hint(world: World) -> None:
    """[36]"""
    store = world.open()
    sql = "PRAGMA user_version = 9999" if world.backend == "sqlite" else "INSERT INTO ratchet_schema VALUES (9999)"
    world.tamper(sql)
    with pytest.raises(StoreNewer, match="9999") as refused:
        world.open()
    assert "upgrade" in refused.value.hint
    store.close()
