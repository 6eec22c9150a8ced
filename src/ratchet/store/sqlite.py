"""The embedded store: one SQLite file, durable before anything acts on it."""

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
from ratchet.errors import DiskFull, EnvironmentCannot, RatchetError
from ratchet.files import FILE_MODE, make_private_dir
from ratchet.store import Listener
from ratchet.store.counting import Counting
from ratchet.store.database import Row, T, Transaction, new_key, refuse_newer, scripts, stamp, utc_now
from ratchet.store.feed import Feed
from ratchet.store.learnings import Learnings
from ratchet.store.locks import Locks
from ratchet.store.outside import Outside
from ratchet.store.pool import Pool
from ratchet.store.signals import Pipe, tell
from ratchet.store.together import Ask, Together
from ratchet.store.workers import Workers

BUSY_S, _NAP_S = 30.0, 0.005
READERS_MAX = 8
# What can be undone is kept in memory while it is being done: in a file, every page touched would be a write more.
_PRAGMAS = ("synchronous = FULL", "foreign_keys = ON", "temp_store = MEMORY")
# Pages that are changed again and again are kept by the one who writes. The log stays short: a file that does not grow
# is the faster one to write to.
_WRITER = ("cache_size = -16384",)
_ADD = "INSERT INTO events (run, seq, at, epoch, kind, data, prev, sum) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_AFTER = "(place, run, seq) > (?, ?, ?) ORDER BY place LIMIT ?"


class SqliteStore(Workers, Locks, Counting, Feed, Learnings, Outside):
    """One connection writes, others read beside it. Writes that arrive together share one wait for the disk."""

    _follow = f"SELECT * FROM events WHERE {_AFTER}"  # noqa: S608 — ours
    _follow_run = f"SELECT * FROM events WHERE run = ? AND {_AFTER}"  # noqa: S608 — ours
    _last_place = "SELECT max(place) AS place FROM events"
    _beats = "SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?)"
    _index_words = "INSERT INTO learnings_words (content, tags, id) VALUES (?, ?, ?)"
    _find_words = """
SELECT body, retired_at FROM learnings_words JOIN learnings ON learnings.id = learnings_words.id
WHERE learnings_words MATCH ? AND retired_at = '' AND (repo = ? OR ? = '')
ORDER BY bm25(learnings_words), learnings.id LIMIT ?
"""

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], datetime] = utc_now,
        gone: Callable[[Holder], bool] = lambda _holder: False,
        aging_s: float = AGING_S,
    ) -> None:
        self.path = path
        self._clock, self._gone, self._aging_s = clock, gone, aging_s
        self._writes = Together(self._serve)
        self._signals = path.with_name(f"{path.name}-signals")
        self._db = _connect(path, *_WRITER)
        self._readers = Pool(lambda: _connect(path), most=READERS_MAX)
        try:
            _migrate(self._db, path)
        except sqlite3.Error as error:
            self._db.close()
            raise _explained(error, path) from error
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        self._readers.close()
        self._writes.drain(self._db.close)

    def listen(self, topic: Topic) -> Listener:
        return Pipe(self._signals, topic)

    def _asked(self, words: list[str]) -> str:
        return " OR ".join(f'"{word}"' for word in words)

    def _read(self, act: Callable[[Transaction], T]) -> T:
        try:
            with self._readers.borrow() as db:
                db.execute("BEGIN")
                try:
                    return act(_Transaction(db))
                finally:
                    db.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise _explained(error, self.path) from error

    def _write(self, act: Callable[[Transaction], T], *, durable: bool = True) -> T:
        ask = _Ask(act, at=stamp(self._clock()), durable=durable)
        self._writes.join(ask, gather=durable)
        if isinstance(ask.error, sqlite3.Error):
            raise _explained(ask.error, self.path) from ask.error
        if ask.error:
            raise ask.error
        answer: T = ask.answer
        return answer

    def _serve(self, asks: list[_Ask]) -> None:
        """Do all of it in one transaction: one wait for the disk, whatever their number."""
        with self._waiting_for_disk(wait=any(ask.durable for ask in asks)):
            self._do(asks)
        for topic in set[Topic]().union(*(ask.topics for ask in asks)):
            tell(self._signals, topic)

    @contextmanager
    def _waiting_for_disk(self, *, wait: bool) -> Iterator[None]:
        if wait:
            yield
            return
        self._db.execute("PRAGMA synchronous = NORMAL")
        try:
            yield
        finally:
            self._db.execute("PRAGMA synchronous = FULL")

    def _do(self, asks: list[_Ask]) -> None:
        if len(asks) > 1 and self._together(asks):
            return
        for ask in asks:
            self._alone(ask)

    def _together(self, asks: list[_Ask], *, apart: bool = False) -> bool:
        """False, and nothing is written, when the database itself failed: then each one hears its own error.

        When one of them gives up half-way, all are done again `apart`, which costs a copy of every page they touch."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            if not all(self._done_apart(ask) if apart else self._done(ask) for ask in asks):
                _leave(self._db)
                return not apart and not any(ask.failed for ask in asks) and self._together(asks, apart=True)
            self._db.execute("COMMIT")
        except sqlite3.Error:
            return False
        finally:
            _leave(self._db)
        return True

    def _done(self, ask: _Ask) -> bool:
        before = self._db.total_changes
        ask.do(self._db)
        return ask.error is None or (not ask.failed and self._db.total_changes == before)

    def _done_apart(self, ask: _Ask) -> bool:
        self._db.execute("SAVEPOINT ask")
        ask.do(self._db)
        if ask.error:
            self._db.execute("ROLLBACK TO ask")
        self._db.execute("RELEASE ask")
        return not ask.failed

    def _alone(self, ask: _Ask) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            ask.do(self._db)
            if ask.error is None:
                self._db.execute("COMMIT")
        except sqlite3.Error as error:
            ask.fail(error)
        finally:
            _leave(self._db)


class _Ask(Ask):
    """A verb that waits for its turn to write. It may be done more than once; what counts is the last time."""

    def __init__(self, act: Callable[[Transaction], Any], *, at: str, durable: bool) -> None:
        super().__init__()
        self._act, self._key, self._at, self.durable = act, new_key(), at, durable
        self.answer: Any = None
        self.error: Exception | None = None
        self.topics: set[Topic] = set()

    @property
    def failed(self) -> bool:
        """It was the database that failed, not the verb that refused."""
        return isinstance(self.error, sqlite3.Error)

    def do(self, db: sqlite3.Connection) -> None:
        transaction = _Transaction(db, self._key, self._at)
        self.answer, self.error, self.topics = None, None, set()
        try:
            self.answer = self._act(transaction)
            self.topics = transaction.topics
        except Exception as error:  # noqa: BLE001 — it is raised where the verb was called
            self.error = error

    def fail(self, error: sqlite3.Error) -> None:
        self.answer, self.error, self.topics = None, error, set()


class _Transaction:
    doubt = False

    def __init__(self, db: sqlite3.Connection, key: str = "", began_at: str = "") -> None:
        self._db, self.key, self.began_at = db, key, began_at
        self.topics: set[Topic] = set()

    def all(self, sql: str, *values: object) -> list[Row]:
        return self._db.execute(_unlocked(sql), values).fetchall()

    def one(self, sql: str, *values: object) -> Row | None:
        # All of it: a statement with RETURNING is not done until its rows are read.
        rows = self._db.execute(_unlocked(sql), values).fetchall()
        return rows[0] if rows else None

    def run(self, sql: str, *values: object) -> int:
        return self._db.execute(_unlocked(sql), values).rowcount

    def many(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
        self._db.executemany(sql, rows)

    def add(self, entries: Sequence[Entry]) -> None:
        self._db.executemany(_ADD, [msgspec.structs.astuple(entry) for entry in entries])

    def hold(self, sql: str, *values: object) -> None:
        """There is one writer at a time."""

    def alone(self, what: str) -> None:
        """There is one writer at a time."""

    def tell(self, topic: Topic) -> None:
        self.topics.add(topic)


def _leave(db: sqlite3.Connection) -> None:
    if db.in_transaction:
        db.execute("ROLLBACK")


@cache
def _unlocked(sql: str) -> str:
    return re.sub(r"\bFOR (UPDATE|SHARE)( OF \w+)?( SKIP LOCKED)?", "", sql)


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


def _create(path: Path) -> None:
    """Never opened and closed once it is there: closing any handle on a file drops all locks this process has on it,
    and whoever closes the database next takes itself for the last and deletes the log under the others."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, FILE_MODE))


def _connect(path: Path, *pragmas: str) -> sqlite3.Connection:
    make_private_dir(path.parent)
    try:
        _create(path)
        db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        db.row_factory = sqlite3.Row
        for pragma in (*_PRAGMAS, *pragmas):
            db.execute(f"PRAGMA {pragma}")
    except (OSError, sqlite3.Error) as error:
        raise EnvironmentCannot(f"the database {path} cannot be opened: {error}") from error
    return db


def _keep_a_log(db: sqlite3.Connection) -> None:
    """Of two who turn a new file to WAL at once SQLite refuses one without waiting, whatever its `timeout`."""
    until = time.monotonic() + BUSY_S
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() >= until:
                raise
            time.sleep(_NAP_S)
        else:
            return


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    """Bring the schema up to date, under the write lock so that two starters do not race."""
    _keep_a_log(db)
    steps = scripts("sqlite")
    newest = steps[-1][0]
    if _version(db) == newest:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        version = _version(db)
        refuse_newer(str(path), version, newest)
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


__all__ = ["SqliteStore", "stamp", "utc_now"]
