"""The embedded store: one SQLite file, durable before anything acts on it."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from ratchet.core.events import Event, encode, kind_of
from ratchet.core.item import OPEN, RANK, Item, ItemStatus
from ratchet.core.lease import Holder, Lease
from ratchet.core.ledger import GENESIS, MESSAGE_MAX_BYTES, Entry, first_break, seal
from ratchet.core.receipt import Receipt
from ratchet.core.state import ROWS, RunStatus
from ratchet.errors import (
    DiskFull,
    EnvironmentCannot,
    LeaseHeld,
    LeaseLost,
    LedgerBroken,
    NotFound,
    RatchetError,
    StoreNewer,
    UsageError,
)
from ratchet.files import FILE_MODE, make_private_dir
from ratchet.store import RunRow

BUSY_S = 30.0


def utc_now() -> datetime:
    return datetime.now(UTC)


def stamp(at: datetime) -> str:
    """RFC 3339 in UTC, always as wide, so that text order is time order."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class SqliteStore:
    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], datetime] = utc_now,
        gone: Callable[[Holder], bool] = lambda _holder: False,
    ) -> None:
        """`gone` says whether a lease's holder is known to be dead, which frees its lease before it expires."""
        self.path = path
        self._clock = clock
        self._gone = gone
        self._lock = threading.RLock()
        self._db = _connect(path)
        try:
            with self._told(), self._lock:
                _migrate(self._db, path)
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        with self._lock:
            self._db.close()

    # --- items and leases ------------------------------------------------------------------------------------

    def add(self, item: Item) -> Item:
        with self._write() as db:
            same = db.execute(_OPEN_ITEM, (item.repo, item.source_ref)).fetchone() if item.source_ref else None
            if same:
                return msgspec.json.decode(same["body"], type=Item)
            body = msgspec.json.encode(item)
            row = (item.id, item.repo, item.source_ref, "queued", RANK[item.priority], item.created_at, body)
            db.execute(_ADD_ITEM, row)
        return item

    def item(self, item: str) -> Item:
        with self._read() as db:
            row = db.execute("SELECT body FROM items WHERE id = ?", (item,)).fetchone()
        if row is None:
            raise NotFound(f"there is no item {item}", hint="`ratchet runs` lists what there is", item=item)
        return msgspec.json.decode(row["body"], type=Item)

    def claim(self, item: str, *, run: str, holder: Holder, ttl_s: float) -> Lease:
        now = self._clock()
        with self._write() as db:
            row = db.execute("SELECT status, run FROM items WHERE id = ?", (item,)).fetchone()
            if row is None:
                raise NotFound(f"there is no item {item}", item=item)
            if row["status"] not in OPEN:
                raise UsageError(f"item {item} is {row['status']}: nothing is left to do", item=item)
            run = row["run"] or self._start(db, item, run, now)
            self._free(db, run, now)
            epoch = int(db.execute(_NEXT_EPOCH, (run,)).fetchone()["epoch"])
            who = (holder.worker, holder.machine, holder.pid, holder.born)
            db.execute(_TAKE, (run, epoch, *who, stamp(now + timedelta(seconds=ttl_s))))
            db.execute("UPDATE items SET status = 'assigned' WHERE id = ?", (item,))
        return Lease(run=run, item=item, epoch=epoch, holder=holder)

    def _start(self, db: sqlite3.Connection, item: str, run: str, now: datetime) -> str:
        db.execute(_START_RUN, (run, item, stamp(now), GENESIS))
        db.execute("UPDATE items SET run = ? WHERE id = ?", (run, item))
        return run

    def _free(self, db: sqlite3.Connection, run: str, now: datetime) -> None:
        """Drop a lease that has expired or whose holder is dead; refuse when it is alive."""
        row = db.execute("SELECT * FROM leases WHERE run = ?", (run,)).fetchone()
        if row is None:
            return
        held_by = _holder(row)
        if row["expires_at"] > stamp(now) and not self._gone(held_by):
            raise LeaseHeld(
                f"{run} is being worked on by {held_by.worker} (process {held_by.pid})",
                hint=f"wait for it, or stop it with `ratchet abort {run}`",
                run=run,
                holder=held_by.worker,
            )
        db.execute("DELETE FROM leases WHERE run = ?", (run,))

    def renew(self, lease: Lease, *, ttl_s: float) -> str:
        until = stamp(self._clock() + timedelta(seconds=ttl_s))
        with self._write() as db:
            row = db.execute(_RENEW, (until, lease.run, lease.epoch)).fetchone()
            if row is None:
                raise _lost(lease)
            return str(row["abort_by"])

    def release(self, lease: Lease) -> None:
        with self._write() as db:
            db.execute("DELETE FROM leases WHERE run = ? AND epoch = ?", (lease.run, lease.epoch))

    # --- the ledger ------------------------------------------------------------------------------------------

    def append(self, lease: Lease, events: Sequence[Event], receipt: Receipt | None = None) -> list[Entry]:
        at = stamp(self._clock())
        with self._write() as db:
            row = db.execute("SELECT length, head FROM runs WHERE id = ?", (lease.run,)).fetchone()
            if row is None:
                raise _lost(lease)
            entries = _chain(lease, events, at=at, length=row["length"], head=row["head"])
            status = _moved(db, lease, events)
            after = (entries[-1].seq, entries[-1].sum, status, lease.run, lease.epoch, row["length"])
            if db.execute(_ADVANCE, after).rowcount != 1:
                raise _lost(lease)
            db.executemany(_ADD_EVENT, [msgspec.structs.astuple(entry) for entry in entries])
            if receipt:
                body = msgspec.json.encode(receipt)
                db.execute("INSERT INTO receipts VALUES (?, ?, ?, ?)", (lease.run, receipt.step, receipt.key, body))
        return entries

    def entries(self, run: str) -> list[Entry]:
        row = self.run(run)
        with self._read() as db:
            rows = db.execute("SELECT * FROM events WHERE run = ? ORDER BY seq", (run,)).fetchall()
        entries = [Entry(**dict(found)) for found in rows]
        if broken := first_break(entries, run=run, length=row.length, head=row.head):
            raise LedgerBroken(
                f"row {broken.seq} of the ledger of {run} does not hold: {broken.why}",
                hint="restore the database from a backup; the commits on the branch are not affected",
                run=run,
                seq=broken.seq,
            )
        return entries

    def receipts(self, run: str) -> list[Receipt]:
        with self._read() as db:
            rows = db.execute("SELECT body FROM receipts WHERE run = ? ORDER BY step", (run,)).fetchall()
        try:
            return [msgspec.json.decode(row["body"], type=Receipt) for row in rows]
        except msgspec.MsgspecError as error:
            raise LedgerBroken(f"a receipt of {run} cannot be read: {error}", run=run) from error

    # --- looking ---------------------------------------------------------------------------------------------

    def runs(self) -> list[RunRow]:
        with self._read() as db:
            return [_run_row(row) for row in db.execute(f"{_RUNS} ORDER BY runs.created_at DESC, runs.id DESC")]

    def run(self, run: str) -> RunRow:
        with self._read() as db:
            row = db.execute(f"{_RUNS} WHERE runs.id = ?", (run,)).fetchone()
        if row is None:
            raise NotFound(f"there is no run {run}", hint="`ratchet runs` lists what there is", run=run)
        return _run_row(row)

    def ask_abort(self, run: str, *, by: str) -> None:
        with self._write() as db:
            db.execute("UPDATE runs SET abort_by = ? WHERE id = ? AND status = 'running'", (by, run))

    # --- transactions ----------------------------------------------------------------------------------------

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self._told(), self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        with self._told(), self._lock:
            yield self._db

    @contextmanager
    def _told(self) -> Iterator[None]:
        """SQLite's errors in the words of a person who has to do something about them."""
        try:
            yield
        except sqlite3.Error as error:
            raise _explained(error, self.path) from error


def _explained(error: sqlite3.Error, path: Path) -> RatchetError:
    full = getattr(error, "sqlite_errorname", "") in ("SQLITE_FULL", "SQLITE_IOERR_WRITE")
    if full:
        return DiskFull(
            f"no room left while writing {path}",
            hint="free some space, then run `ratchet resume` again: nothing that was announced is lost",
        )
    return EnvironmentCannot(
        f"the database {path} cannot be used: {error}",
        hint="check that the file is a Ratchet database and that you may write to it and its folder",
    )


def _connect(path: Path) -> sqlite3.Connection:
    make_private_dir(path.parent)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, FILE_MODE))
        db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise EnvironmentCannot(f"the database {path} cannot be opened: {error}") from error
    db.row_factory = sqlite3.Row
    return db


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    """Bring the schema up to date, under the write lock so that two starters do not race."""
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        db.execute(f"PRAGMA {pragma}")
    folder = files("ratchet.store") / "sql" / "sqlite"
    scripts = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda script: script.name)
    newest = int(scripts[-1].name[:4])
    if _version(db) == newest:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        version = _version(db)
        if version > newest:
            raise StoreNewer(
                f"{path} was written by a newer Ratchet (schema {version}, this one knows {newest})",
                hint="upgrade: pip install --upgrade ratchet-factory",
            )
        for script in scripts[version:]:
            for statement in script.read_text("utf-8").split(";\n"):
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {newest}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _chain(lease: Lease, events: Sequence[Event], *, at: str, length: int, head: str) -> list[Entry]:
    entries: list[Entry] = []
    for seq, event in enumerate(events, start=length + 1):
        data = encode(event)
        if len(data) > MESSAGE_MAX_BYTES:
            raise ValueError(f"{kind_of(event)} has {len(data)} bytes: what is larger than a message is an artifact")
        head = entries[-1].sum if entries else head
        entry = seal(run=lease.run, seq=seq, at=at, epoch=lease.epoch, kind=kind_of(event), data=data, prev=head)
        entries.append(entry)
    return entries


def _moved(db: sqlite3.Connection, lease: Lease, events: Sequence[Event]) -> str:
    """Move the item as the events say; returns the run's status after them."""
    status = RunStatus.RUNNING
    for event in events:
        if type(event) in ROWS:
            status, item = ROWS[type(event)]
            db.execute("UPDATE items SET status = ? WHERE id = ?", (item, lease.item))
    return status


def _lost(lease: Lease) -> LeaseLost:
    return LeaseLost(
        f"{lease.run} is no longer ours (epoch {lease.epoch}): nothing was written",
        hint=f"`ratchet show {lease.run}` tells who continues it",
        run=lease.run,
        epoch=lease.epoch,
    )


def _holder(row: sqlite3.Row) -> Holder:
    return Holder(worker=row["worker"], machine=row["machine"], pid=row["pid"], born=row["born"])


def _run_row(row: sqlite3.Row) -> RunRow:
    fields: dict[str, Any] = {
        name: row[name] for name in ("run", "item", "created_at", "length", "head", "epoch", "abort_by")
    }
    return RunRow(
        **fields,
        title=msgspec.json.decode(row["body"], type=Item).title,
        status=RunStatus(row["status"]),
        item_status=ItemStatus(row["item_status"]),
        holder=_holder(row) if row["worker"] else None,
        expires_at=row["expires_at"] or "",
    )


_OPEN_ITEM = """
SELECT body FROM items WHERE repo = ? AND source_ref = ?
AND status IN ('generating', 'queued', 'assigned', 'in_progress', 'parked')
"""
_ADD_ITEM = """
INSERT INTO items (id, repo, source_ref, status, rank, created_at, body) VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_START_RUN = "INSERT INTO runs VALUES (?, ?, 'running', ?, 0, ?, 0, '')"
_NEXT_EPOCH = "UPDATE runs SET epoch = epoch + 1 WHERE id = ? AND status = 'running' RETURNING epoch"
_TAKE = "INSERT INTO leases VALUES (?, ?, ?, ?, ?, ?, ?)"
_RENEW = """
UPDATE leases SET expires_at = ? WHERE run = ? AND epoch = ?
RETURNING (SELECT abort_by FROM runs WHERE runs.id = leases.run) AS abort_by
"""
_ADVANCE = """
UPDATE runs SET length = ?, head = ?, status = ?
WHERE id = ? AND epoch = ? AND length = ? AND status = 'running'
"""
_ADD_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_RUNS = """
SELECT runs.id AS run, runs.item, runs.status, runs.created_at, runs.length, runs.head, runs.epoch, runs.abort_by,
       items.body, items.status AS item_status,
       leases.worker, leases.machine, leases.pid, leases.born, leases.expires_at
FROM runs JOIN items ON items.id = runs.item LEFT JOIN leases ON leases.run = runs.id
"""
