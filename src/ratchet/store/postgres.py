"""The shared store: PostgreSQL, for many machines. One connection for each store, made anew when it was lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import errors as pg
from psycopg.rows import dict_row

from ratchet.core.lease import Holder
from ratchet.core.queue import AGING_S
from ratchet.errors import DiskFull, EnvironmentCannot, RatchetError
from ratchet.store.budgets import Budgets
from ratchet.store.database import Row, refuse_newer, scripts, utc_now
from ratchet.store.feed import Feed
from ratchet.store.locks import Locks
from ratchet.store.workers import Workers

CONNECT_S = 10
STATEMENT_S = 60
_MIGRATING = 7_232_438  # an advisory lock of our own: two starters do not race

Connection = psycopg.Connection[dict[str, Any]]


class PostgresStore(Workers, Locks, Budgets, Feed):
    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], datetime] | None = None,
        gone: Callable[[Holder], bool] = lambda _holder: False,
        aging_s: float = AGING_S,
    ) -> None:
        """Without a `clock`, time is the server's: a worker whose own clock is wrong must not expire the others."""
        self.url, self._where = url, _without_secrets(url)
        self._gone, self._aging_s = gone, aging_s
        self._lock = threading.RLock()
        with self._told():
            self._db = _connect(url)
            try:
                _migrate(self._db, self._where)
                self._clock = clock or _clock_of(self._db)
            except BaseException:
                self._db.close()
                raise

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextmanager
    def _write(self) -> Iterator[_Transaction]:
        with self._told(), self._lock:
            db = self._connected()
            with db.transaction(), db.cursor() as cursor:
                yield _Transaction(cursor)

    @contextmanager
    def _read(self) -> Iterator[_Transaction]:
        with self._told(), self._lock, self._connected().cursor() as cursor:
            yield _Transaction(cursor)

    def _connected(self) -> Connection:
        if self._db.closed or self._db.broken:
            self._db.close()
            self._db = _connect(self.url)
        return self._db

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise _explained(error, self._where) from error


class _Transaction:
    def __init__(self, cursor: psycopg.Cursor[dict[str, Any]]) -> None:
        self._cursor = cursor

    def all(self, sql: str, *values: object) -> list[Row]:
        return list(self._cursor.execute(_marked(sql), values).fetchall())

    def one(self, sql: str, *values: object) -> Row | None:
        return self._cursor.execute(_marked(sql), values).fetchone()

    def run(self, sql: str, *values: object) -> int:
        return self._cursor.execute(_marked(sql), values).rowcount

    def many(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
        rows = list(rows)
        if len(rows) == 1:
            self._cursor.execute(_marked(sql), rows[0])
        elif rows:
            self._cursor.executemany(_marked(sql), rows)

    def alone(self, what: str) -> None:
        self._cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"ratchet {what}",))


@cache
def _marked(sql: str) -> str:
    # Ours, always: the verbs hold no text from outside, and no `?` or `%` of another meaning.
    return sql.replace("?", "%s")


def _connect(url: str) -> Connection:
    db: Connection = psycopg.connect(url, autocommit=True, row_factory=dict_row, connect_timeout=CONNECT_S)
    # Durable whatever the server's default is; and no wait without an end.
    db.execute("SET synchronous_commit = on")
    db.execute(f"SET statement_timeout = '{STATEMENT_S}s'")
    return db


def _clock_of(db: Connection) -> Callable[[], datetime]:
    before = utc_now()
    row = db.execute("SELECT clock_timestamp() AS now").fetchone()
    assert row
    ahead: timedelta = row["now"].astimezone(UTC) - (before + (utc_now() - before) / 2)
    return lambda: utc_now() + ahead


def _migrate(db: Connection, where: str) -> None:
    steps = scripts("postgres")
    newest = steps[-1][0]
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATING,))
        db.execute("CREATE TABLE IF NOT EXISTS ratchet_schema (version INTEGER NOT NULL)")
        row = db.execute("SELECT COALESCE(max(version), 0) AS version FROM ratchet_schema").fetchone()
        version = int(row["version"]) if row else 0
        refuse_newer(where, version, newest)
        for number, script in [step for step in steps if step[0] > version]:
            db.execute(script)
            db.execute("INSERT INTO ratchet_schema VALUES (%s)", (number,))


def _explained(error: psycopg.Error, where: str) -> RatchetError:
    if isinstance(error, pg.DiskFull):
        return DiskFull(
            f"no room left on {where}",
            hint="free some space, then run `ratchet resume` again: nothing that was announced is lost",
        )
    return EnvironmentCannot(
        f"the database {where} cannot be used: {error}",
        hint="check that the server is up, that the address is right and that you may write to it",
    )


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
