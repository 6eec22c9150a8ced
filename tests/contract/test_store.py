"""What every store promises. Each backend runs this one suite."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.item import Item
from ratchet.core.lease import Holder, Lease
from ratchet.core.receipt import Receipt, Usage
from ratchet.errors import EnvironmentCannot, LeaseHeld, LeaseLost, LedgerBroken, NotFound, StoreNewer, UsageError
from ratchet.store import Store
from ratchet.store.sqlite import SqliteStore

ONE = Holder(worker="one", machine="here", pid=1, born="1")
TWO = Holder(worker="two", machine="here", pid=2, born="2")


class World:
    """A clock that moves when told, workers that die when told, and stores that share one database."""

    def __init__(self, path: Path) -> None:
        self.path, self.now, self.dead = path, datetime(2026, 1, 1, tzinfo=UTC), set[str]()
        self.opened: list[Store] = []

    def open(self) -> Store:
        store = SqliteStore(self.path, clock=lambda: self.now, gone=lambda holder: holder.worker in self.dead)
        self.opened.append(store)
        return store

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "state" / "ratchet.db")
    yield made
    for store in made.opened:
        store.close()


@pytest.fixture
def store(world: World) -> Store:
    return world.open()


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


def test_what_was_appended_is_there_for_whoever_opens_the_store_next(world: World, store: Store) -> None:
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
    with pytest.raises(UsageError, match="nothing is left"):
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
    store.ask_abort("run-1", by="ann")
    assert store.renew(lease, ttl_s=60) == "ann"


def test_what_is_not_there_is_said_so(store: Store) -> None:
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


# --- SQLite's own -------------------------------------------------------------------------------------------------


def _tamper(path: Path, sql: str) -> None:
    db = sqlite3.connect(path)
    db.execute(sql)
    db.commit()
    db.close()


@pytest.mark.parametrize(
    ("sql", "row"),
    [
        ("UPDATE events SET data = CAST(replace(CAST(data AS TEXT), 'w', 'v') AS BLOB) WHERE seq = 2", 2),
        ("UPDATE events SET kind = 'run_aborted' WHERE seq = 1", 1),
        ("UPDATE events SET data = substr(data, 1, 5) WHERE seq = 3", 3),
        ("DELETE FROM events WHERE seq = 2", 3),
        ("DELETE FROM events WHERE seq = 3", 3),
        ("UPDATE events SET epoch = 9 WHERE seq = 3", 3),
    ],
)
def test_a_torn_or_edited_row_is_named_and_never_skipped(world: World, store: Store, sql: str, row: int) -> None:
    store.add(item())
    store.append(claim(store), [CLAIMED, CLAIMED, CLAIMED])
    _tamper(world.path, sql)
    with pytest.raises(LedgerBroken) as broken:
        store.entries("run-1")
    assert broken.value.ids["seq"] == row


def test_a_database_of_a_newer_ratchet_is_refused(world: World) -> None:
    world.open().close()
    _tamper(world.path, "PRAGMA user_version = 999")
    with pytest.raises(StoreNewer, match="999"):
        world.open()


def test_a_file_that_is_no_database_is_said_to_be_none(world: World) -> None:
    world.path.parent.mkdir()
    world.path.write_bytes(b"this is not a database, it only sits where one should be\n" * 100)
    with pytest.raises(EnvironmentCannot, match="not a database"):
        world.open()


def test_only_the_owner_can_read_it(world: World, store: Store) -> None:
    store.add(item())
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in world.path.parent.iterdir()}
    assert set(modes.values()) == {"0o600"} and oct(world.path.parent.stat().st_mode & 0o777) == "0o700"


def test_writes_wait_for_the_disk(store: Store) -> None:
    assert isinstance(store, SqliteStore)
    level = store._db.execute("PRAGMA synchronous").fetchone()[0]
    mode = store._db.execute("PRAGMA journal_mode").fetchone()[0]
    assert (level, mode) == (2, "wal")


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


def test_a_full_disk_is_told_as_one_and_loses_nothing(world: World, store: Store) -> None:
    """SQLite's own page limit stands in for the disk: the error is the same one."""
    assert isinstance(store, SqliteStore)
    store.add(item())
    lease = claim(store)
    store.append(lease, [CLAIMED])
    store._db.execute(f"PRAGMA max_page_count = {store._db.execute('PRAGMA page_count').fetchone()[0]}")
    big: Callable[[int], ev.Event] = lambda n: ev.RunClaimed(worker="x" * n)  # noqa: E731
    with pytest.raises(EnvironmentCannot, match="no room left"):
        for _ in range(10):
            store.append(lease, [big(100_000)])
    assert store.entries("run-1")[0].kind == "run_claimed"
    assert msgspec.json.decode(store.entries("run-1")[0].data)["worker"] == "w"
