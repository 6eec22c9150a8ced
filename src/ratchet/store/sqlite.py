"""The embedded store: one SQLite file, durable before anything acts on it."""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path

from ratchet.core.lease import Holder
from ratchet.core.queue import AGING_S
from ratchet.errors import DiskFull, EnvironmentCannot, RatchetError
from ratchet.files import FILE_MODE, make_private_dir
from ratchet.store.budgets import Budgets
from ratchet.store.database import Row, refuse_newer, scripts, stamp, utc_now
from ratchet.store.feed import Feed
from ratchet.store.locks import Locks
from ratchet.store.workers import Workers

BUSY_S = 30.0


class SqliteStore(Workers, Locks, Budgets, Feed):
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

    @contextmanager
    def _write(self) -> Iterator[_Transaction]:
        with self._told(), self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield _Transaction(self._db)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _read(self) -> Iterator[_Transaction]:
        with self._told(), self._lock:
            yield _Transaction(self._db)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """SQLite's errors in the words of a person who has to do something about them."""
        try:
            yield
        except sqlite3.Error as error:
            raise _explained(error, self.path) from error


class _Transaction:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

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

    def alone(self, what: str) -> None:
        """There is one writer at a time."""


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
