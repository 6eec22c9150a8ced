"""What only the embedded store promises: one file, its owner's, durable, and every row of it checked."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
import pytest

from ratchet.core import events as ev
from ratchet.errors import EnvironmentCannot, LeaseLost, LedgerBroken, StoreNewer
from ratchet.store.database import Transaction
from ratchet.store.protocols import Store, open_store
from ratchet.store.sqlite.store import SqliteStore
from tests.contract.servers import World
from tests.contract.test_races import at_once
from tests.contract.test_store import CLAIMED, claim, item


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "state" / "ratchet.db")
    yield made
    made.close()


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


def test_a_file_that_is_no_database_is_reported_as_such(world: World) -> None:
    world.path.parent.mkdir()
    world.path.write_bytes(b"this is not a database, it only sits where one should be\n" * 100)
    with pytest.raises(EnvironmentCannot, match="not a database"):
        world.open()


def test_a_database_that_cannot_be_opened_leaves_no_connection_open(world: World) -> None:
    world.path.parent.mkdir()
    world.path.write_bytes(b"this is not a database, it only sits where one should be\n" * 100)
    with pytest.raises(EnvironmentCannot) as refused:
        world.open()
    opened = [path.resolve() for path in Path("/proc/self/fd").iterdir()]
    assert refused.value.__traceback__ and world.path.resolve() not in opened


def test_only_the_owner_can_read_it(world: World, store: Store) -> None:
    store.add(item())
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in world.path.parent.iterdir()}
    assert set(modes.values()) == {"0o600"} and oct(world.path.parent.stat().st_mode & 0o777) == "0o700"


def test_writes_wait_for_the_disk(store: Store) -> None:
    assert isinstance(store, SqliteStore)
    level = store._db.execute("PRAGMA synchronous").fetchone()[0]
    mode = store._db.execute("PRAGMA journal_mode").fetchone()[0]
    assert (level, mode) == (2, "wal")


def test_threads_that_write_at_once_share_their_waits_for_the_disk(store: Store) -> None:
    assert isinstance(store, SqliteStore)
    output = list[str]()
    store._db.set_trace_callback(output.append)
    threads, each = 8, 20
    everybody = threading.Barrier(threads)

    def write(name: int) -> None:
        everybody.wait()
        for n in range(each):
            store.add(item(f"item-{name}-{n}"))

    at_once(*[partial(write, name) for name in range(threads)])
    assert sum(count.items for count in store.stats()) == threads * each
    assert output.count("COMMIT") * 3 < threads * each


def _held_up(store: SqliteStore) -> tuple[threading.Thread, threading.Event]:
    """Somebody who has the turn to write until the event is set."""
    begun, go_on = threading.Event(), threading.Event()
    thread = threading.Thread(target=store._write, args=(lambda _db: begun.set() or go_on.wait(30),))  # type: ignore[func-returns-value]
    thread.start()
    assert begun.wait(30)
    return thread, go_on


def _until_waiting(store: SqliteStore, number: int) -> None:
    while store._writes.waiting < number:
        os.sched_yield()


def test_a_verb_that_fails_half_way_fails_no_other(store: Store) -> None:
    assert isinstance(store, SqliteStore)

    def half(db: Transaction) -> None:
        db.execute("UPDATE items SET detail = 'half' WHERE id = 'a'")
        raise LeaseLost("not mine")

    store.add(item("a"))
    turn, go_on = _held_up(store)
    verbs = [partial(store.add, item("b")), partial(store._write, half), partial(store.add, item("c"))]
    with ThreadPoolExecutor(3) as threads:
        reported = [threads.submit(verb) for verb in verbs]
        _until_waiting(store, 3)
        go_on.set()
        assert [type(one.exception()) for one in reported] == [type(None), LeaseLost, type(None)]
    turn.join()
    assert [(row.item.id, row.detail) for row in store.items().rows] == [("a", ""), ("b", ""), ("c", "")]


def test_an_interrupted_waiter_delays_no_other_call(store: Store) -> None:
    assert isinstance(store, SqliteStore)
    turn, go_on = _held_up(store)
    received: list[type[BaseException]] = []

    class Interrupted(BaseException):
        pass

    def wait() -> None:
        try:
            store.add(item("a"))
        except Interrupted as error:
            received.append(type(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    _until_waiting(store, 1)
    assert waiting.ident
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(waiting.ident), ctypes.py_object(Interrupted))
    go_on.set()
    turn.join()
    waiting.join()
    assert received == [Interrupted]
    assert store.add(item("b")).id == "b"


def test_a_full_disk_is_reported_as_such_and_loses_nothing(world: World, store: Store) -> None:
    """SQLite's own page limit stands in for the disk: the error is the same one."""
    assert isinstance(store, SqliteStore)
    store.add(item())
    lease = claim(store)
    store.append(lease, [CLAIMED])
    store._db.execute(f"PRAGMA max_page_count = {store._db.execute('PRAGMA page_count').fetchone()[0]}")
    big: Callable[[int], ev.Event] = lambda n: ev.RunClaimed(worker="x" * n)  # noqa: E731
    with pytest.raises(EnvironmentCannot, match="no space left"):
        for _ in range(10):
            store.append(lease, [big(100_000)])
    assert store.entries("run-1")[0].kind == "run_claimed"
    assert msgspec.json.decode(store.entries("run-1")[0].data)["worker"] == "w"


def test_what_one_process_writes_is_there_for_another_however_many_came_and_went(tmp_path: Path) -> None:
    """Closing a file drops this process's locks on it. Once, opening a reader did, and the log was deleted under us."""
    path = tmp_path / "ratchet.db"
    look = [sys.executable, "-c", "import sys; from ratchet.store.protocols import open_store;"
            "s = open_store(sys.argv[1]); print(len(s.items().rows)); s.close()", str(path)]  # fmt: skip
    store = open_store(path)
    for count in range(1, 4):
        store.add(item(f"i{count}"))
        assert len(store.items().rows) == count  # by a connection that only reads
        seen = subprocess.run(look, capture_output=True, text=True, check=True).stdout
        assert int(seen) == count
    store.close()


_ALL_AT_ONCE = """
import multiprocessing, sys
from pathlib import Path
from ratchet.store.sqlite.store import SqliteStore

def enter(path, ready):
    ready.wait()
    SqliteStore(path).close()

context = multiprocessing.get_context("fork")
for number in range(30):
    ready = context.Barrier(4)
    args = (Path(sys.argv[1]) / f"{number}.db", ready)
    crowd = [context.Process(target=enter, args=args) for _ in range(4)]
    for each in crowd:
        each.start()
    for each in crowd:
        each.join()
    assert not any(each.exitcode for each in crowd), number
"""


def test_concurrent_first_opens_of_a_database_succeed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _ALL_AT_ONCE, str(tmp_path)], check=True, timeout=60)
