"""What every store promises. Each backend runs this one suite."""

from __future__ import annotations

import threading
from contextlib import suppress

import msgspec
import pytest

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.item import Item
from ratchet.core.lease import Holder, Lease
from ratchet.core.ledger import Entry
from ratchet.core.queue import ClaimLimits
from ratchet.core.receipt import Receipt, Usage
from ratchet.errors import Conflict, EnvironmentCannot, LeaseHeld, LeaseLost, LedgerBroken, NotFound, UsageError
from ratchet.store.database import claim_key
from ratchet.store.protocols import LedgerCheckpoint, LedgerTail, Store
from tests.contract.servers import World

ONE = Holder(worker="one", machine="here", pid=1, born="1")
TWO = Holder(worker="two", machine="here", pid=2, born="2")


def item(name: str = "item-1", source: str = "") -> Item:
    return Item(
        id=name, repo="/r", spec="# S", title="S", base_commit="c", slug="s", source_ref=source, created_at="2026"
    )


def claim(store: Store, holder: Holder = ONE, name: str = "item-1", run: str = "run-1") -> Lease:
    return store.claim(name, run=run, holder=holder, ttl_s=60)


def receipt(step: int = 1, key: str = "ik:1") -> Receipt:
    return Receipt(
        run="run-1",
        item="item-1",
        step=step,
        action="audit",
        key=key,
        outcome="test_written",
        snapshot_before="a",
        snapshot_after="b",
        command_id="c",
        artifacts=[],
        events=[1],
        usage=Usage(),
        created_at="2026",
    )


CLAIMED = ev.RunClaimed(worker="w")


def test_appended_events_are_there_when_the_store_is_opened_again(world: World, store: Store) -> None:
    store.add(item())
    store.append(claim(store), [CLAIMED, ev.StepResumed(step=1)], receipt())
    again = world.open()
    assert [entry.kind for entry in again.entries("run-1")] == ["run_claimed", "step_resumed"]
    assert again.receipts("run-1") == [receipt()]


def test_an_append_with_an_old_epoch_writes_nothing(world: World, store: Store) -> None:
    store.add(item())
    old = claim(store)
    world.pass_time(61)
    new = claim(store, TWO)
    with pytest.raises(LeaseLost):
        store.append(old, [CLAIMED], receipt())
    assert store.entries("run-1") == [] and store.receipts("run-1") == []
    store.append(new, [CLAIMED])
    assert [entry.epoch for entry in store.entries("run-1")] == [2]


def test_a_worker_that_lost_its_lease_can_neither_renew_nor_release_the_next_ones(world: World, store: Store) -> None:
    store.add(item())
    old = claim(store)
    world.pass_time(61)
    new = claim(store, TWO)
    with pytest.raises(LeaseLost):
        store.renew(old, ttl_s=60)
    store.release(old)
    assert store.renew(new, ttl_s=60) == ""


def test_a_held_run_is_refused_with_the_holders_name(store: Store) -> None:
    store.add(item())
    claim(store)
    with pytest.raises(LeaseHeld) as refused:
        claim(store, TWO)
    assert refused.value.ids["holder"] == "one"


def test_a_dead_holders_run_is_free_at_once(world: World, store: Store) -> None:
    store.add(item())
    claim(store)
    world.dead.add("one")
    assert claim(store, TWO).epoch == 2


def test_a_renewed_lease_does_not_expire(world: World, store: Store) -> None:
    store.add(item())
    lease = claim(store)
    for _ in range(5):
        world.pass_time(50)
        store.renew(lease, ttl_s=60)
    with pytest.raises(LeaseHeld):
        claim(store, TWO)


def test_a_claim_after_a_release_continues_the_same_run(store: Store) -> None:
    store.add(item())
    store.release(claim(store))
    assert claim(store, TWO, run="run-other").run == "run-1"


def test_of_many_claimers_exactly_one_wins(world: World) -> None:
    world.open().add(item())
    won: list[int] = []
    stores = [world.open() for _ in range(8)]
    gate = threading.Barrier(len(stores))

    def race(number: int) -> None:
        gate.wait()
        with suppress(LeaseHeld):
            won.append(claim(stores[number], Holder(worker=f"w{number}", machine="m", pid=number, born="0")).epoch)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [1]


def test_the_same_source_asked_for_twice_is_one_item_while_it_is_open(store: Store) -> None:
    first = store.add(item("item-1", "SPEC.md:1"))
    assert store.add(item("item-2", "SPEC.md:1")).id == first.id
    store.append(claim(store), [ev.RunCompleted(commits=0, head="h")])
    assert store.add(item("item-3", "SPEC.md:1")).id == "item-3"


@pytest.mark.parametrize(
    ("event", "run", "status"),
    [
        (CLAIMED, "running", "in_progress"),
        (ev.RunParked(reason="quota", detail="d"), "running", "parked"),  # type: ignore[arg-type]
        (ev.RunCompleted(commits=1, head="h"), "completed", "completed"),
        (ev.RunFailed(reason=Reason.NO_PROGRESS, detail="d"), "failed", "failed"),
        (ev.RunAborted(by="me"), "aborted", "cancelled"),
    ],
)
def test_an_event_moves_the_rows_it_speaks_of(store: Store, event: ev.Event, run: str, status: str) -> None:
    store.add(item())
    store.append(claim(store), [event])
    row = store.run("run-1")
    assert (row.status, row.item_status) == (run, status)


def test_nothing_is_written_after_the_end(store: Store) -> None:
    store.add(item())
    lease = claim(store)
    store.append(lease, [ev.RunAborted(by="me")])
    with pytest.raises(LeaseLost):
        store.append(lease, [CLAIMED])
    with pytest.raises(UsageError, match="is already"):
        claim(store, TWO)


def test_a_receipt_is_never_overwritten_and_its_events_are_not_written_either(store: Store) -> None:
    store.add(item())
    lease = claim(store)
    store.append(lease, [CLAIMED], receipt())
    for second in (receipt(step=1, key="ik:2"), receipt(step=2, key="ik:1")):
        with pytest.raises(EnvironmentCannot):
            store.append(lease, [CLAIMED], second)
    assert len(store.entries("run-1")) == 1 and store.receipts("run-1") == [receipt()]


def test_an_abort_that_was_asked_for_reaches_the_holder(store: Store) -> None:
    store.add(item())
    lease = claim(store)
    store.request_abort("run-1", by="ann")
    assert store.renew(lease, ttl_s=60) == "ann"


def test_missing_objects_are_an_error(store: Store) -> None:
    for look in (store.run, store.entries, store.item):
        with pytest.raises(NotFound):
            look("nothing")


def test_runs_are_listed_newest_first(world: World, store: Store) -> None:
    for number in (1, 2, 3):
        store.add(item(f"item-{number}"))
        claim(store, name=f"item-{number}", run=f"run-{number}")
        world.pass_time(1)
    assert [row.run for row in store.runs()] == ["run-3", "run-2", "run-1"]


def test_a_message_that_is_too_large_is_refused_whole(store: Store) -> None:
    store.add(item())
    lease = claim(store)
    with pytest.raises(ValueError, match="artifact"):
        store.append(lease, [CLAIMED, ev.RunAborted(by="x" * 300_000)])
    assert store.entries("run-1") == []


def test_two_starters_do_not_race_over_a_fresh_database(world: World) -> None:
    gate, failed = threading.Barrier(6), list[BaseException]()

    def start() -> None:
        gate.wait()
        try:
            world.open()
        except BaseException as error:  # noqa: BLE001 — whatever it is, the test shows it
            failed.append(error)

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


# --- calls that are sent again -------------------------------------------------------------------------------------


def test_an_append_behind_a_named_entry_is_written_once_however_often_it_is_sent(store: Store) -> None:
    store.add(item())
    lease = claim(store)
    first = store.append(lease, [CLAIMED, ev.StepResumed(step=1)], after=0)
    assert store.append(lease, [CLAIMED, ev.StepResumed(step=1)], after=0) == first
    with pytest.raises(Conflict, match="2 entries, not 0"):
        store.append(lease, [ev.StepResumed(step=2)], after=0)
    assert store.run("run-1").length == 2


def test_appends_that_are_sent_again_while_the_first_waits_are_written_once(world: World, store: Store) -> None:
    store.add(item())
    lease, answers = claim(store), list[list[Entry]]()
    calls = [threading.Thread(target=lambda: answers.append(store.append(lease, [CLAIMED], after=0))) for _ in range(4)]
    with world.writers_blocked():
        for call in calls:
            call.start()
    for call in calls:
        call.join()
    assert len(answers) == 4 and all(answer == answers[0] for answer in answers)
    assert store.run("run-1").length == 1


def test_an_append_sent_again_after_its_run_ended_is_found(store: Store) -> None:
    store.add(item())
    lease = claim(store)
    done = [ev.RunCompleted(commits=1, head="h")]
    first = store.append(lease, done, after=0)
    assert store.append(lease, done, after=0) == first
    with pytest.raises(LeaseLost):
        store.append(lease, [CLAIMED], after=0)


def test_a_report_of_no_progress_that_is_sent_again_counts_once(store: Store) -> None:
    store.add(item())
    lease = claim(store)
    assert store.report_stuck(lease, "no progress", key="a") is None
    assert store.report_stuck(lease, "no progress", key="a") is None
    second = store.report_stuck(lease, "no progress", key="b")
    assert second and second.attempts == 1
    again = store.report_stuck(lease, "no progress", key="b")
    assert again and (again.after, again.attempts, again.returns) == (second.after, second.attempts, second.returns)
    with pytest.raises(LeaseLost):
        store.report_stuck(lease, "no progress", key="c")


def test_a_claim_with_the_same_key_returns_the_same_lease(store: Store) -> None:
    store.add_all([item(), item("item-2")])
    first = store.claim_next(ONE, run="run-1", ttl_s=60, key=claim_key("k" * 32))
    assert isinstance(first, Lease)
    assert store.claim_next(ONE, run="run-2", ttl_s=60, key=claim_key("k" * 32)) == first
    limited = store.claim_next(ONE, run="run-3", ttl_s=60, key=claim_key("k" * 32), limits=ClaimLimits(workers=1))
    assert limited == first and store.lease_by_token(first.token) == first
    store.complete(first, commits=0, head="")
    with pytest.raises(LeaseLost, match="has ended"):
        store.claim_next(ONE, run="run-4", ttl_s=60, key=claim_key("k" * 32))
    assert store.item_row("item-2").status == "queued"


def test_an_item_with_needs_that_is_added_again_is_the_same_item(store: Store) -> None:
    store.add(item())
    dependant = msgspec.structs.replace(item("item-2"), needs=["item-1"])
    assert store.add(dependant) == store.add(dependant)
    assert store.add_all([dependant, item("item-3")])[0] == dependant


def test_a_run_is_found_by_its_id_or_a_part_of_it_newest_first(store: Store) -> None:
    for number in range(4):
        store.add(item(f"i{number}"))
        claim(store, name=f"i{number}", run=f"run-2026%_{number}")
    assert [row.run for row in store.find_runs("run-2026%_2", limit=9)] == ["run-2026%_2"]
    assert [row.run for row in store.find_runs("6%_", limit=3)] == ["run-2026%_3", "run-2026%_2", "run-2026%_1"]
    assert store.find_runs("62_", limit=3) == [] == store.find_runs("nothing", limit=3)


def test_the_completed_are_known_by_the_name_of_their_workspace(store: Store) -> None:
    store.add_all([msgspec.structs.replace(item(name), slug=f"slug-{name}") for name in ("i1", "i2")])
    store.complete(claim(store, name="i1"), commits=1, head="h")
    assert store.completed_slugs(["slug-i1", "slug-i2", "slug-i3"]) == ["slug-i1"]


def test_the_tail_of_a_ledger_is_verified_from_its_checkpoint_on(world: World, store: Store) -> None:
    store.add(item("i1"))
    lease = claim(store, name="i1")
    entries = store.append(lease, [ev.RunClaimed(worker="w")] * 5)
    assert store.ledger_tail(lease.run, version="v") == LedgerTail(checkpoint=None, entries=entries)
    kept = LedgerCheckpoint(run=lease.run, seq=3, sum=entries[2].sum, version="v", state=b"{}")
    store.checkpoint_ledger(msgspec.structs.replace(kept, seq=1))
    store.checkpoint_ledger(kept)
    assert store.ledger_tail(lease.run, version="v") == LedgerTail(checkpoint=kept, entries=entries[3:])
    assert store.ledger_tail(lease.run, version="other").entries == entries
    world.tamper("UPDATE events SET at = '2' WHERE seq = 4")
    with pytest.raises(LedgerBroken, match="row 4"):
        store.ledger_tail(lease.run, version="v")
