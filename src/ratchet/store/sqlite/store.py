"""The embedded store: one SQLite file; writes are durable before a verb returns."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from ratchet.core.lease import Holder
from ratchet.core.ledger import Entry
from ratchet.core.queue import AGING_S
from ratchet.core.signal import Topic
from ratchet.core.timestamps import format_timestamp
from ratchet.errors import DiskFull, EnvironmentCannot, RatchetError
from ratchet.files import FILE_MODE, make_private_dir
from ratchet.store.claimable import SqlClaimable
from ratchet.store.database import Row, T, Transaction, migrations, new_key, reject_newer_schema, utc_now
from ratchet.store.group_commit import GroupCommit, PendingCall
from ratchet.store.learnings import SqlLearnings
from ratchet.store.locks import SqlLocks
from ratchet.store.metrics import SqlMetrics
from ratchet.store.pages import SqlPages
from ratchet.store.pool import Pool
from ratchet.store.protocols import Listener
from ratchet.store.provider_slots import SqlProviderSlots
from ratchet.store.remote_workers import SqlRemoteWorkers
from ratchet.store.retention import SqlRetention
from ratchet.store.sqlite import vector_file
from ratchet.store.sqlite.fifo_notify import FifoListener, notify
from ratchet.store.workers import SqlWorkers

BUSY_S, _RETRY_WAIT_S = 30.0, 0.005
READERS_MAX = 8
# temp_store: savepoint journals stay in memory; in a file every touched page would cost another write.
_PRAGMAS = ("synchronous = FULL", "foreign_keys = ON", "temp_store = MEMORY")
# The writer caches pages that change often. The WAL stays short: writing to a file that does not grow is faster.
_WRITER = ("cache_size = -16384",)
_ADD = "INSERT INTO events (run, seq, at, epoch, kind, data, prev, sum) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_EVERYTHING = 2**63 - 1
_ADD_VECTOR = """
INSERT INTO learning_vectors (embedder, learning, repo, vector) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_NEW_VECTORS = """
SELECT n, repo, vector FROM learning_vectors WHERE embedder = ? AND n > ? ORDER BY n LIMIT ?
"""
_VECTORS = "SELECT n, learning FROM learning_vectors WHERE n IN"


class SqliteStore(
    SqlWorkers,
    SqlLocks,
    SqlProviderSlots,
    SqlMetrics,
    SqlLearnings,
    SqlRemoteWorkers,
    SqlRetention,
    SqlPages,
    SqlClaimable,
):
    """One connection writes, others read concurrently. Concurrent writes share one disk flush."""

    is_shared = False
    _beats = "SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?)"
    _index_words = "INSERT INTO learnings_words (content, tags, id) VALUES (?, ?, ?)"
    _contains = "instr"
    _find_words = """
SELECT learnings.id FROM learnings_words CROSS JOIN learnings ON learnings.id = learnings_words.id
WHERE learnings_words MATCH ? AND {scope} {live}
ORDER BY bm25(learnings_words), learnings.id LIMIT ?
"""

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], datetime] = utc_now,
        is_dead: Callable[[Holder], bool] = lambda _holder: False,
        aging_s: float = AGING_S,
    ) -> None:
        self.path = path
        self._clock, self._is_dead, self._aging_s = clock, is_dead, aging_s
        self._writes = GroupCommit(self._execute)
        self._vectors: dict[int, vector_file.VectorFile] = {}
        self._signals = path.with_name(f"{path.name}-signals")
        self._db = _connect(path, *_WRITER)
        self._readers = Pool(lambda: _connect(path), most=READERS_MAX)
        try:
            _migrate(self._db, path)
        except sqlite3.Error as error:
            self._db.close()
            raise _to_ratchet_error(error, path) from error
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        self._readers.close()
        self._writes.drain(self._db.close)

    def vacuum(self) -> None:
        def now() -> None:
            self._db.execute("VACUUM")

        try:
            self._writes.drain(now)
        except sqlite3.Error as error:
            raise _to_ratchet_error(error, self.path) from error

    def listen(self, topic: Topic) -> Listener:
        return FifoListener(self._signals, topic)

    def feed_horizon(self, db: Transaction) -> int:  # noqa: ARG002 — the other store asks its server
        return _EVERYTHING  # one writer: places are committed in their order

    def _word_query(self, words: dict[str, float]) -> str:
        return " OR ".join(f'"{word}"' for word in words)

    def vector_search_error(self) -> str:
        return vector_file.missing()

    def _store_vectors(self, db: Transaction, embedder: int, rows: list[tuple[str, str, list[float]]]) -> None:
        packed = [(embedder, learning, repo, vector_file.pack(vector)) for learning, repo, vector in rows]
        db.execute_many(_ADD_VECTOR, packed)

    def _nearest(self, db: Transaction, embedder: int, vector: Sequence[float], repo: str, limit: int) -> list[str]:
        if vector_file.missing():
            return []
        file = self._vectors.setdefault(embedder, vector_file.VectorFile(self.path, embedder, len(vector)))
        file.refresh(lambda after, most: db.fetch_all(_NEW_VECTORS, embedder, after, most))
        numbers = file.nearest(vector, repo, limit)
        rows = db.fetch_all(f"{_VECTORS} ({', '.join('?' * len(numbers))})", *numbers) if numbers else []
        found = {int(row["n"]): row["learning"] for row in rows}
        return [found[number] for number in numbers if number in found]

    def _read(self, action: Callable[[Transaction], T]) -> T:
        try:
            with self._readers.connection() as db:
                db.execute("BEGIN")
                try:
                    return action(_Transaction(db))
                finally:
                    db.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise _to_ratchet_error(error, self.path) from error

    def _write(self, action: Callable[[Transaction], T], *, durable: bool = True) -> T:
        ask = _PendingWrite(action, new_key(), at=format_timestamp(self._clock()), durable=durable)
        self._writes.submit(ask, gather=durable)
        while not ask.done:  # the thread that executed it was interrupted
            ask = ask.again()
            self._writes.submit(ask, gather=durable)
        if isinstance(ask.error, sqlite3.Error):
            raise _to_ratchet_error(ask.error, self.path) from ask.error
        if ask.error:
            raise ask.error
        answer: T = ask.answer
        return answer

    def _execute(self, asks: list[_PendingWrite]) -> None:
        """Execute all calls in one transaction with one disk flush, then send their signals."""
        with self._synchronous(wait=any(ask.durable for ask in asks)):
            self._execute_all(asks)
        for ask in asks:
            ask.done = True
        with suppress(OSError):  # a signal is a hint: what was committed has not failed because one could not be sent
            for topic in set[Topic]().union(*(ask.topics for ask in asks)):
                notify(self._signals, topic)

    @contextmanager
    def _synchronous(self, *, wait: bool) -> Iterator[None]:
        if wait:
            yield
            return
        self._db.execute("PRAGMA synchronous = NORMAL")
        try:
            yield
        finally:
            self._db.execute("PRAGMA synchronous = FULL")

    def _execute_all(self, asks: list[_PendingWrite]) -> None:
        if len(asks) > 1 and self._execute_group(asks):
            return
        for ask in asks:
            self._execute_single(ask)

    def _execute_group(self, asks: list[_PendingWrite], *, apart: bool = False) -> bool:
        """Execute all calls in one transaction. False, with nothing written, when the database failed: the calls are
        then executed one by one, so that each gets its own error.

        When a call raises after writing, all are repeated in savepoints (`apart`), which copy every page they touch."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            if not all(self._execute_in_savepoint(ask) if apart else self._execute_in_group(ask) for ask in asks):
                _rollback(self._db)
                return not apart and not any(ask.failed for ask in asks) and self._execute_group(asks, apart=True)
            self._db.execute("COMMIT")
        except sqlite3.Error:
            return False
        finally:
            _rollback(self._db)
        return True

    def _execute_in_group(self, ask: _PendingWrite) -> bool:
        before = self._db.total_changes
        ask.execute(self._db)
        return ask.error is None or (not ask.failed and self._db.total_changes == before)

    def _execute_in_savepoint(self, ask: _PendingWrite) -> bool:
        self._db.execute("SAVEPOINT ask")
        ask.execute(self._db)
        if ask.error:
            self._db.execute("ROLLBACK TO ask")
        self._db.execute("RELEASE ask")
        return not ask.failed

    def _execute_single(self, ask: _PendingWrite) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            ask.execute(self._db)
            if ask.error is None:
                self._db.execute("COMMIT")
        except sqlite3.Error as error:
            ask.fail(error)
        finally:
            _rollback(self._db)


class _PendingWrite(PendingCall):
    """A verb that waits to be written. It may be executed more than once; the last result counts."""

    def __init__(
        self, action: Callable[[Transaction], Any], key: str, *, at: str, durable: bool, maybe_committed: bool = False
    ) -> None:
        super().__init__()
        self._act, self._key, self._at, self.durable = action, key, at, durable
        self._maybe_committed, self.done = maybe_committed, False
        self.answer: Any = None
        self.error: Exception | None = None
        self.topics: set[Topic] = set()

    def again(self) -> _PendingWrite:
        """Return the same call, to be submitted again: it may have been committed."""
        return _PendingWrite(self._act, self._key, at=self._at, durable=self.durable, maybe_committed=True)

    @property
    def failed(self) -> bool:
        """Whether the database failed, as opposed to the verb raising an error."""
        return isinstance(self.error, sqlite3.Error)

    def execute(self, db: sqlite3.Connection) -> None:
        transaction = _Transaction(db, self._key, self._at, maybe_committed=self._maybe_committed)
        self.answer, self.error, self.topics = None, None, set()
        try:
            self.answer = self._act(transaction)
            self.topics = transaction.topics
        except Exception as error:  # noqa: BLE001 — raised again in the caller's thread
            self.error = error

    def fail(self, error: sqlite3.Error) -> None:
        self.answer, self.error, self.topics = None, error, set()


class _Transaction:
    def __init__(
        self, db: sqlite3.Connection, key: str = "", began_at: str = "", *, maybe_committed: bool = False
    ) -> None:
        self._db, self.key, self.began_at, self.maybe_committed = db, key, began_at, maybe_committed
        self.topics: set[Topic] = set()

    def fetch_all(self, sql: str, *values: object) -> list[Row]:
        return self._db.execute(_without_lock_clauses(sql), values).fetchall()

    def fetch_one(self, sql: str, *values: object) -> Row | None:
        # Fetch all rows: a statement with RETURNING is complete only then.
        rows = self._db.execute(_without_lock_clauses(sql), values).fetchall()
        return rows[0] if rows else None

    def execute(self, sql: str, *values: object) -> int:
        return self._db.execute(_without_lock_clauses(sql), values).rowcount

    def execute_many(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
        self._db.executemany(sql, rows)

    def insert_events(self, entries: Sequence[Entry]) -> None:
        self._db.executemany(_ADD, [msgspec.structs.astuple(entry) for entry in entries])

    def lock_rows(self, sql: str, *values: object) -> None:
        """Nothing to do: SQLite has a single writer."""

    def advisory_lock(self, name: str) -> None:
        """Nothing to do: SQLite has a single writer."""

    def notify(self, topic: Topic) -> None:
        self.topics.add(topic)


def _rollback(db: sqlite3.Connection) -> None:
    if db.in_transaction:
        db.execute("ROLLBACK")


@cache
def _without_lock_clauses(sql: str) -> str:
    return re.sub(r"\bFOR (UPDATE|SHARE)( OF \w+)?( SKIP LOCKED)?", "", sql)


def _to_ratchet_error(error: sqlite3.Error, path: Path) -> RatchetError:
    full = getattr(error, "sqlite_errorname", "") in ("SQLITE_FULL", "SQLITE_IOERR_WRITE")
    if full:
        return DiskFull(
            f"no space left while writing {path}",
            hint="free some space, then run `ratchet resume` again: no recorded event is lost",
        )
    return EnvironmentCannot(
        f"cannot use the database {path}: {error}",
        hint="check that the file is a Ratchet database and that it and its folder are writable",
    )


def _create(path: Path) -> None:
    """Create the file if it is missing. Never open an existing one: closing any handle on a file drops all POSIX locks
    of this process on it, and the next connection to close would take itself for the last and delete the WAL in use."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, FILE_MODE))


def _connect(path: Path, *pragmas: str) -> sqlite3.Connection:
    make_private_dir(path.parent)
    try:
        _create(path)
        db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            db.row_factory = sqlite3.Row
            for pragma in (*_PRAGMAS, *pragmas):
                db.execute(f"PRAGMA {pragma}")
        except BaseException:
            db.close()
            raise
    except (OSError, sqlite3.Error) as error:
        raise EnvironmentCannot(f"cannot open the database {path}: {error}") from error
    return db


def _enable_wal(db: sqlite3.Connection) -> None:
    """Switch to WAL, with retries: of two concurrent switches SQLite fails one at once, whatever its `timeout`."""
    until = time.monotonic() + BUSY_S
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() >= until:
                raise
            time.sleep(_RETRY_WAIT_S)
        else:
            return


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    """Upgrade the schema under the write lock, so that concurrent starts do not race."""
    _enable_wal(db)
    steps = migrations("sqlite")
    newest = steps[-1][0]
    if _version(db) == newest:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        version = _version(db)
        reject_newer_schema(str(path), version, newest)
        for script in [script for number, script in steps if number > version]:
            for statement in script.split(";\n"):
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {newest}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


__all__ = ["SqliteStore", "utc_now"]
