"""The shared store: PostgreSQL, for many machines. Its verbs ride out deadlocks, lost connections and a restart."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import msgspec
import psycopg
from psycopg import errors as pg
from psycopg.rows import dict_row

from ratchet.core.lease import Holder
from ratchet.core.ledger import Entry
from ratchet.core.queue import AGING_S
from ratchet.core.signal import Topic
from ratchet.errors import DiskFull, EnvironmentCannot, RatchetError
from ratchet.store import Listener
from ratchet.store.counting import Counting
from ratchet.store.database import Row, Single, T, Transaction, new_key, refuse_newer, scripts, stamp
from ratchet.store.direct import Connection
from ratchet.store.feed import Feed
from ratchet.store.fused import Failed, Fused
from ratchet.store.learnings import Learnings
from ratchet.store.locks import Locks
from ratchet.store.notices import CHANNEL, Notices, Poll
from ratchet.store.outside import Outside
from ratchet.store.pool import Pool

CONNECTIONS_MAX = 16
CONNECT_S = 10
RIDE_OUT_S = 30.0
ANCHOR_S = 60.0
STATEMENT_S = 60
# Plans are kept, and a table that was small when its plan was made grows: reading all of it was right only then.
OFF = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_bitmapscan")
_MIGRATING = 7_232_438  # an advisory lock of our own: two starters do not race

_ADD = """
INSERT INTO events (run, seq, at, epoch, kind, data, prev, sum)
SELECT run, seq, at, epoch, kind, convert_to(data, 'UTF8'), prev, sum FROM json_to_recordset(CAST(%s AS JSON))
  AS entry (run TEXT, seq BIGINT, at TEXT, epoch BIGINT, kind TEXT, data TEXT, prev TEXT, sum TEXT)
"""
_SETTLED = "place < pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
_AFTER = f"(place, run, seq) > (?, ?, ?) AND {_SETTLED} ORDER BY place, run, seq LIMIT ?"


class PostgresStore(Fused, Locks, Counting, Feed, Learnings, Outside):
    _listed = "turn + 0, id || ''"
    # A transaction that is still open may have a place before those that are committed: nothing past it is told yet.
    _follow = f"SELECT * FROM events WHERE {_AFTER}"  # noqa: S608 — ours
    _follow_run = f"SELECT * FROM events WHERE run = ? AND {_AFTER}"  # noqa: S608 — ours
    _last_place = f"SELECT place FROM events WHERE {_SETTLED} ORDER BY place DESC LIMIT 1"  # noqa: S608 — ours
    _beats = """
SELECT beat ->> 0, CAST(beat ->> 1 AS BIGINT), CAST(beat ->> 2 AS BIGINT)
FROM jsonb_array_elements(CAST(? AS JSONB)) AS beat
"""
    _index_words = """
UPDATE learnings SET words = setweight(to_tsvector('english', ?), 'B') || setweight(to_tsvector('english', ?), 'A')
WHERE id = ?
"""
    _find_words = """
WITH asked AS (SELECT to_tsquery('english', ?) AS words)
SELECT body, retired_at FROM learnings, asked
WHERE learnings.words @@ asked.words AND retired_at = '' AND (repo = ? OR ? = '')
ORDER BY ts_rank_cd(learnings.words, asked.words) DESC, id LIMIT ?
"""

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], datetime] | None = None,
        gone: Callable[[Holder], bool] = lambda _holder: False,
        aging_s: float = AGING_S,
        connections: int = CONNECTIONS_MAX,
    ) -> None:
        """Without a `clock`, time is the server's: a worker whose own clock is wrong must not expire the others."""
        super().__init__()
        self.url, self._where = url, _without_secrets(url)
        self._gone, self._aging_s = gone, aging_s
        self._pool = Pool(lambda: connect(url), most=connections, sound=lambda db: not (db.closed or db.broken))
        self._notices = Notices(lambda: connect(url))
        try:
            first = connect(url)
        except psycopg.Error as error:
            raise _explained(error, self._where) from error
        self._pool.keep(first)
        try:
            _migrate(first, self._where)
        except psycopg.Error as error:
            self.close()
            raise _explained(error, self._where) from error
        except BaseException:
            self.close()
            raise
        self._clock = clock or ServerClock(self._server_time)

    def close(self) -> None:
        self._pool.close()
        self._notices.close()

    def listen(self, topic: Topic) -> Listener:
        return Poll(self.feed_end) if topic is Topic.EVENTS else self._notices.listen(topic)

    def _asked(self, words: list[str]) -> str:
        return " | ".join(words)

    def _write(self, act: Callable[[Transaction], T], *, durable: bool = True) -> T:
        return self._insist(_whole(act if durable else _unhurried(act)), at=stamp(self._now()))

    def _read(self, act: Callable[[Transaction], T]) -> T:
        return self._insist(_plain(act))

    def _write_one(self, act: Callable[[Single], T]) -> T:
        return self._insist(lambda db, again: act(_Single(db, again)), at=stamp(self._now()))

    def _try_once(self, sql: str, *values: object) -> list[Row]:
        try:
            with self._pool.borrow() as db:
                return db.say(sql, values)
        except psycopg.Error as error:
            if doubt := _cut(error):
                self._pool.forget()
            raise Failed(doubt=doubt) from error

    def _now(self) -> datetime:
        # Here, where no connection is held: asking for the time takes one, and the last may be ours.
        if isinstance(self._clock, ServerClock):
            self._clock.anchor()
        return self._clock()

    def _insist(self, act: Callable[[Connection, _Try], T], *, at: str = "") -> T:
        """Try again what a deadlock undid, and through a restart of the server, for `RIDE_OUT_S` at most.

        What is done outside of a transaction must be a single statement, or only look.
        """
        again, until = _Try(new_key(), at), time.monotonic() + RIDE_OUT_S
        for wait_s in _waits():
            try:
                with self._pool.borrow() as db:
                    return act(db, again)
            except psycopg.Error as error:
                if not _passing(error) or time.monotonic() + wait_s > until:
                    raise _explained(error, self._where) from error
                if _cut(error):
                    again.doubt = True
                    self._pool.forget()
            time.sleep(wait_s)
        raise AssertionError("the waits have no end")

    def _server_time(self) -> datetime:
        row = self._read(lambda db: db.one("SELECT clock_timestamp() AS now"))
        assert row
        now: datetime = row["now"]
        return now.astimezone(UTC)


class ServerClock:
    """The server's time, asked for now and then and told on by a clock that nobody can set meanwhile."""

    def __init__(self, ask: Callable[[], datetime]) -> None:
        self._ask = ask
        self._anchored: tuple[datetime, float] | None = None
        self.anchor()

    def __call__(self) -> datetime:
        assert self._anchored
        at, tick = self._anchored
        return at + timedelta(seconds=_ticks() - tick)

    def anchor(self) -> None:
        """Ask again when the last answer is a minute old."""
        before = _ticks()
        if self._anchored is None or before - self._anchored[1] > ANCHOR_S:
            at = self._ask()
            self._anchored = at, (before + _ticks()) / 2


def _ticks() -> float:
    """Seconds that also pass while the machine sleeps, where the system has such a clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class _Try:
    """What stays the same when a verb is done again, and whether it is."""

    def __init__(self, key: str, began_at: str, *, doubt: bool = False) -> None:
        self.key, self.began_at, self.doubt = key, began_at, doubt


class _Single(_Try):
    def __init__(self, db: Connection, again: _Try) -> None:
        super().__init__(again.key, again.began_at, doubt=again.doubt)
        self._db = db

    def one(self, sql: str, *values: object) -> Row | None:
        rows = self._db.say(sql, values)
        return rows[0] if rows else None


class _Transaction(_Try):
    def __init__(self, cursor: psycopg.Cursor[dict[str, Any]], again: _Try) -> None:
        super().__init__(again.key, again.began_at, doubt=again.doubt)
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

    def add(self, entries: Sequence[Entry]) -> None:
        rows = [msgspec.structs.asdict(entry) | {"data": entry.data.decode()} for entry in entries]
        self._cursor.execute(_ADD, (msgspec.json.encode(rows).decode(),))

    def hold(self, sql: str, *values: object) -> None:
        self._cursor.execute(_marked(sql), values)

    def alone(self, what: str) -> None:
        self._cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"ratchet {what}",))

    def tell(self, topic: Topic) -> None:
        # Notices are sent one transaction after the other, each waiting for the disk: too dear for every append.
        if topic is not Topic.EVENTS:
            self._cursor.execute(f'NOTIFY "{CHANNEL}{topic}"')


def _unhurried(act: Callable[[Transaction], T]) -> Callable[[Transaction], T]:
    def do(db: Transaction) -> T:
        db.run("SET LOCAL synchronous_commit = off")
        return act(db)

    return do


def _plain(act: Callable[[Transaction], T]) -> Callable[[Connection, _Try], T]:
    def do(db: Connection, again: _Try) -> T:
        with db.cursor() as cursor:
            return act(_Transaction(cursor, again))

    return do


def _whole(act: Callable[[Transaction], T]) -> Callable[[Connection, _Try], T]:
    def do(db: Connection, again: _Try) -> T:
        with db.transaction(), db.cursor() as cursor:
            return act(_Transaction(cursor, again))

    return do


def _waits() -> Iterator[float]:
    """Twice as long each time, and never in step with the others that were thrown out together with us."""
    wait_s = 0.01
    while True:
        yield wait_s * random.uniform(0.5, 1.0)  # noqa: S311 — nothing secret
        wait_s = min(wait_s * 2, 1.0)


def _cut(error: psycopg.Error) -> bool:
    """The connection is gone, or could not be made. Whether the last commit went through is not known."""
    away = (pg.AdminShutdown, pg.CrashShutdown, pg.CannotConnectNow, pg.TooManyConnections, pg.IdleSessionTimeout)
    return isinstance(error, away) or (isinstance(error, psycopg.OperationalError) and error.sqlstate is None)


def _passing(error: psycopg.Error) -> bool:
    return _cut(error) or isinstance(error, pg.SerializationFailure | pg.DeadlockDetected)


@cache
def _marked(sql: str) -> str:
    # Ours, always: the verbs hold no text from outside, and no `?` or `%` of another meaning.
    return sql.replace("?", "%s")


def connect(url: str) -> Connection:
    db = Connection.connect(url, autocommit=True, row_factory=dict_row, connect_timeout=CONNECT_S)
    # Durable whatever the server's default is; and no wait without an end.
    db.execute(f"SET synchronous_commit = on; SET statement_timeout = '{STATEMENT_S}s'")
    db.execute("; ".join(f"SET {setting} = off" for setting in OFF))
    return db


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
