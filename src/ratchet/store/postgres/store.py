"""The PostgreSQL store, shared by many machines. Verbs are retried after deadlocks, lost connections and restarts."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import msgspec
import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row

from ratchet.core.lease import Holder
from ratchet.core.ledger import Entry
from ratchet.core.queue import AGING_S
from ratchet.core.signal import Topic
from ratchet.core.timestamps import format_timestamp
from ratchet.errors import DiskFull, EnvironmentCannot, RatchetError
from ratchet.store.claimable import SqlClaimable
from ratchet.store.database import Row, SingleStatement, T, Transaction, migrations, new_key, reject_newer_schema
from ratchet.store.learnings import SqlLearnings
from ratchet.store.locks import SqlLocks
from ratchet.store.metrics import SqlMetrics
from ratchet.store.pages import SqlPages
from ratchet.store.pool import Pool
from ratchet.store.postgres import pgvector
from ratchet.store.postgres.batching import BatchedWorkers, StatementFailed
from ratchet.store.postgres.deadlines import AnswerDeadlines
from ratchet.store.postgres.feed_order import PLACE, feed_horizon, notice_restore
from ratchet.store.postgres.libpq import Connection
from ratchet.store.postgres.pg_notify import CHANNEL, PgNotifications, PollingListener
from ratchet.store.protocols import Listener
from ratchet.store.provider_slots import SqlProviderSlots
from ratchet.store.redis_gate import open_gate
from ratchet.store.remote_workers import SqlRemoteWorkers
from ratchet.store.retention import SqlRetention

CONNECTIONS_MAX = 16
# With `RETRY_S`, every verb ends well before a lease of 60 s does.
CONNECT_S = 5
OPEN_AGAIN_S = (0.05, 0.2)
ANSWER_S = 20.0
RETRY_S = 30.0
ANCHOR_S = 60.0
STATEMENT_S = 20
IDLE_S = 10  # in a transaction: its client is frozen, and its locks would stop all others
# Detect a vanished host on idle connections too, such as that of the notifications.
_KEEPALIVE = {
    "keepalives": "1", "keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}  # fmt: skip
# Plans are cached and must not depend on the size of a table: a sequential scan is right only while it is small.
DISABLED_PLANS = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_bitmapscan")
_MIGRATING = 7_232_438  # advisory lock that serialises migrations of concurrent starts

_ADD = f"""
INSERT INTO events (run, seq, at, epoch, kind, data, prev, sum, place)
SELECT run, seq, at, epoch, kind, convert_to(data, 'UTF8'), prev, sum, {PLACE.format(run="%s", before="%s")}
FROM json_to_recordset(CAST(%s AS JSON))
  AS entry (run TEXT, seq BIGINT, at TEXT, epoch BIGINT, kind TEXT, data TEXT, prev TEXT, sum TEXT)
"""  # noqa: S608 — ours


class PostgresStore(
    BatchedWorkers,
    SqlLocks,
    SqlProviderSlots,
    SqlMetrics,
    SqlLearnings,
    SqlRemoteWorkers,
    SqlRetention,
    SqlPages,
    SqlClaimable,
):
    is_shared = True
    _listed = "turn + 0, id || ''"
    _beats = """
SELECT beat ->> 0, CAST(beat ->> 1 AS BIGINT), CAST(beat ->> 2 AS BIGINT)
FROM jsonb_array_elements(CAST(? AS JSONB)) AS beat
"""
    _index_words = """
UPDATE learnings SET words = setweight(to_tsvector('english', ?), 'B') || setweight(to_tsvector('english', ?), 'A')
WHERE id = ?
"""
    _contains = "strpos"
    # PostgreSQL does not know how rare a word is, so the weights come with the query.
    _find_words = """
WITH asked AS (SELECT word, CAST(weight AS DOUBLE PRECISION) AS weight, plainto_tsquery('english', word) AS query
               FROM jsonb_each_text(CAST(? AS JSONB)) AS given (word, weight))
SELECT id FROM learnings
WHERE words @@ (SELECT CAST(string_agg(CAST(query AS TEXT), ' | ') AS TSQUERY) FROM asked WHERE numnode(query) > 0)
  AND {scope} {live}
ORDER BY (SELECT COALESCE(sum(weight), 0) FROM asked WHERE learnings.words @@ query) / (3 + ln(1 + length(words))) DESC,
  id LIMIT ?
"""

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], datetime] | None = None,
        is_dead: Callable[[Holder], bool] = lambda _holder: False,
        aging_s: float = AGING_S,
        connections: int = CONNECTIONS_MAX,
        redis: str = "",
    ) -> None:
        """Without a `clock`, use the server's time: a worker with a wrong clock must not expire other leases."""
        super().__init__()
        self.url, self._where = url, _without_secrets(url)
        self._is_dead, self._aging_s = is_dead, aging_s
        self.gate = open_gate(redis, hashlib.sha256(self._where.encode()).hexdigest()[:12])
        self._pool = Pool(lambda: connect(url), most=connections, sound=lambda db: not (db.closed or db.broken))
        self._deadlines = AnswerDeadlines()
        self._notices = PgNotifications(lambda: connect(url))
        try:
            self._pool.put_back(_open(url, self._where))
        except psycopg.Error as error:
            self.close()
            raise _to_ratchet_error(error, self._where) from error
        except BaseException:
            self.close()
            raise
        self._clock = clock or ServerClock(self._server_time)

    def close(self) -> None:
        self._pool.close()
        self._notices.close()
        self._deadlines.close()

    def vacuum(self) -> None:
        with connect(self.url) as db:
            db.execute("SET statement_timeout = 0")
            db.execute("VACUUM events, receipts, runs, workers, items, reservations")

    def listen(self, topic: Topic) -> Listener:
        return PollingListener(self.feed_end) if topic is Topic.EVENTS else self._notices.listen(topic)

    def feed_horizon(self, db: Transaction) -> int:
        return feed_horizon(db)

    def _word_query(self, words: dict[str, float]) -> str:
        return msgspec.json.encode(words).decode()

    def vector_search_error(self) -> str:
        return self._read(pgvector.missing)

    def _store_vectors(self, db: Transaction, embedder: int, rows: list[tuple[str, str, list[float]]]) -> None:
        pgvector.store(db, embedder, rows)

    def _nearest(self, db: Transaction, embedder: int, vector: Sequence[float], repo: str, limit: int) -> list[str]:
        return pgvector.nearest(db, embedder, vector, repo, limit)

    def _write(self, action: Callable[[Transaction], T], *, durable: bool = True) -> T:
        return self._retry(
            _in_transaction(action if durable else _without_flush(action)), at=format_timestamp(self._now())
        )

    def _read(self, action: Callable[[Transaction], T]) -> T:
        return self._retry(_with_cursor(action))

    def _write_one(self, action: Callable[[SingleStatement], T]) -> T:
        return self._retry(lambda db, again: action(_SingleStatement(db, again)), at=format_timestamp(self._now()))

    def _execute_once(self, sql: str, *values: object) -> list[Row]:
        try:
            with self._pool.connection() as db, self._deadlines.limit(db, ANSWER_S):
                return db.execute_direct(sql, values)
        except psycopg.Error as error:
            if maybe_committed := _connection_lost(error):
                self._pool.close_idle()
            raise StatementFailed(maybe_committed=maybe_committed) from error

    def _now(self) -> datetime:
        # Called where no connection is held: the query takes one, and this caller may hold the last.
        if isinstance(self._clock, ServerClock):
            self._clock.anchor()
        return self._clock()

    def _retry(self, action: Callable[[Connection, _Attempt], T], *, at: str = "") -> T:
        """Retry after deadlocks and connection loss, for at most `RETRY_S`.

        An action outside of a transaction must be a single statement or read-only.
        """
        again, until = _Attempt(new_key(), at), time.monotonic() + RETRY_S
        for wait_s in _backoff():
            try:
                with self._pool.connection() as db, self._deadlines.limit(db, _answer_s(until)):
                    return action(db, again)
            except psycopg.Error as error:
                # The first attempt of a claim may be committed while this one waits for it: the next finds its lease.
                doubled = isinstance(error, pg.UniqueViolation) and error.diag.constraint_name == "workers_pkey"
                if not (doubled or _is_transient(error)) or time.monotonic() + wait_s > until:
                    raise _to_ratchet_error(error, self._where) from error
                again.maybe_committed |= doubled or _connection_lost(error)
                if _connection_lost(error):
                    self._pool.close_idle()
            time.sleep(wait_s)
        raise AssertionError("_backoff is infinite")

    def _server_time(self) -> datetime:
        row = self._read(lambda db: db.fetch_one("SELECT clock_timestamp() AS now"))
        assert row
        now: datetime = row["now"]
        return now.astimezone(UTC)


def _answer_s(until: float) -> float:
    return min(ANSWER_S, max(1.0, until - time.monotonic()))


class ServerClock:
    """The server's time: queried once a minute, advanced by the monotonic clock in between."""

    def __init__(self, ask: Callable[[], datetime]) -> None:
        self._ask = ask
        self._anchored: tuple[datetime, float] | None = None
        self.anchor()

    def __call__(self) -> datetime:
        assert self._anchored
        at, tick = self._anchored
        return at + timedelta(seconds=_ticks() - tick)

    def anchor(self) -> None:
        """Query the server's time if the last query is older than `ANCHOR_S`."""
        before = _ticks()
        if self._anchored is None or before - self._anchored[1] > ANCHOR_S:
            at = self._ask()
            self._anchored = at, (before + _ticks()) / 2


def _ticks() -> float:
    """Return monotonic seconds, including suspend where the system has such a clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class _Attempt:
    """Values that all attempts of one verb share, and whether an earlier attempt may have been committed."""

    def __init__(self, key: str, began_at: str, *, maybe_committed: bool = False) -> None:
        self.key, self.began_at, self.maybe_committed = key, began_at, maybe_committed


class _SingleStatement(_Attempt):
    def __init__(self, db: Connection, again: _Attempt) -> None:
        super().__init__(again.key, again.began_at, maybe_committed=again.maybe_committed)
        self._db = db

    def fetch_one(self, sql: str, *values: object) -> Row | None:
        rows = self._db.execute_direct(sql, values)
        return rows[0] if rows else None


class _Transaction(_Attempt):
    def __init__(self, cursor: psycopg.Cursor[dict[str, Any]], again: _Attempt) -> None:
        super().__init__(again.key, again.began_at, maybe_committed=again.maybe_committed)
        self._cursor = cursor

    def fetch_all(self, sql: str, *values: object) -> list[Row]:
        return list(self._cursor.execute(_to_psycopg(sql), values).fetchall())

    def fetch_one(self, sql: str, *values: object) -> Row | None:
        return self._cursor.execute(_to_psycopg(sql), values).fetchone()

    def execute(self, sql: str, *values: object) -> int:
        return self._cursor.execute(_to_psycopg(sql), values).rowcount

    def execute_many(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
        rows = list(rows)
        if len(rows) == 1:
            self._cursor.execute(_to_psycopg(sql), rows[0])
        elif rows:
            self._cursor.executemany(_to_psycopg(sql), rows)

    def insert_events(self, entries: Sequence[Entry]) -> None:
        rows = [msgspec.structs.asdict(entry) | {"data": entry.data.decode()} for entry in entries]
        first = entries[0]
        self._cursor.execute(_ADD, (first.run, first.seq - 1, msgspec.json.encode(rows).decode()))

    def lock_rows(self, sql: str, *values: object) -> None:
        self._cursor.execute(_to_psycopg(sql), values)

    def advisory_lock(self, name: str) -> None:
        self._cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"ratchet {name}",))

    def notify(self, topic: Topic) -> None:
        # Commits that NOTIFY are serialised, each waiting for the disk: too slow for every append.
        if topic is not Topic.EVENTS:
            self._cursor.execute(f'NOTIFY "{CHANNEL}{topic}"')


def _without_flush(action: Callable[[Transaction], T]) -> Callable[[Transaction], T]:
    def do(db: Transaction) -> T:
        db.execute("SET LOCAL synchronous_commit = off")
        return action(db)

    return do


def _with_cursor(action: Callable[[Transaction], T]) -> Callable[[Connection, _Attempt], T]:
    def do(db: Connection, again: _Attempt) -> T:
        with db.cursor() as cursor:
            return action(_Transaction(cursor, again))

    return do


def _in_transaction(action: Callable[[Transaction], T]) -> Callable[[Connection, _Attempt], T]:
    def do(db: Connection, again: _Attempt) -> T:
        with db.transaction(), db.cursor() as cursor:
            return action(_Transaction(cursor, again))

    return do


def _backoff() -> Iterator[float]:
    """Yield exponential waits with jitter, so that callers which failed together do not retry together."""
    wait_s = 0.01
    while True:
        yield wait_s * random.uniform(0.5, 1.0)  # noqa: S311 — nothing secret
        wait_s = min(wait_s * 2, 1.0)


def _connection_lost(error: psycopg.Error) -> bool:
    """Whether the connection was lost or refused: the last commit may or may not have succeeded."""
    away = (
        pg.AdminShutdown, pg.CrashShutdown, pg.CannotConnectNow, pg.TooManyConnections,
        pg.IdleSessionTimeout, pg.IdleInTransactionSessionTimeout,
    )  # fmt: skip
    return isinstance(error, away) or (isinstance(error, psycopg.OperationalError) and error.sqlstate is None)


def _is_transient(error: psycopg.Error) -> bool:
    return _connection_lost(error) or isinstance(error, pg.SerializationFailure | pg.DeadlockDetected)


@cache
def _to_psycopg(sql: str) -> str:
    # Statements are constants without user input, in which `?` and `%` have no other meaning.
    return sql.replace("?", "%s")


def connect(url: str) -> Connection:
    given = _KEEPALIVE | {"connect_timeout": CONNECT_S} | conninfo_to_dict(url)
    db = Connection.connect(autocommit=True, row_factory=dict_row, **given)  # type: ignore[arg-type]  # libpq's options
    # Durable whatever the server's default is; no statement runs for ever, and no transaction waits for ever.
    db.execute(f"SET synchronous_commit = on; SET statement_timeout = '{STATEMENT_S}s'")
    db.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_S}s'")
    # The disabled scans look so dear to the planner that it would compile short statements, for 50 ms each.
    db.execute("; ".join(f"SET {setting} = off" for setting in (*DISABLED_PLANS, "jit")))
    return db


def _open(url: str, where: str) -> Connection:
    """Connect and upgrade the schema; once more, and again, when the connection is lost meanwhile."""
    for wait_s in OPEN_AGAIN_S:
        with suppress(psycopg.OperationalError):
            return _connect_and_migrate(url, where)
        time.sleep(wait_s)
    return _connect_and_migrate(url, where)


def _connect_and_migrate(url: str, where: str) -> Connection:
    db = connect(url)
    try:
        _migrate(db, where)
    except BaseException:
        db.close()
        raise
    return db


def _migrate(db: Connection, where: str) -> None:
    steps = migrations("postgres")
    newest = steps[-1][0]
    with db.transaction():
        db.execute("SET LOCAL statement_timeout = 0")
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATING,))
        db.execute("CREATE TABLE IF NOT EXISTS ratchet_schema (version INTEGER NOT NULL)")
        row = db.execute("SELECT COALESCE(max(version), 0) AS version FROM ratchet_schema").fetchone()
        version = int(row["version"]) if row else 0
        reject_newer_schema(where, version, newest)
        for number, script in [step for step in steps if step[0] > version]:
            db.execute(script)
            db.execute("INSERT INTO ratchet_schema VALUES (%s)", (number,))
        notice_restore(db)


def _to_ratchet_error(error: psycopg.Error, where: str) -> RatchetError:
    if isinstance(error, pg.DiskFull):
        return DiskFull(
            f"no space left on {where}",
            hint="free some space, then run `ratchet resume` again: no recorded event is lost",
        )
    return EnvironmentCannot(
        f"cannot use the database {where}: {error}",
        hint="check that the server is up, the address is right and you have write permission",
    )


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
