"""Single-statement versions of add, claim and complete: on a server, round trips dominate the cost of a verb.

They handle the common case and fall back to the general verbs in `store.queue` and `store.workers` for the rest:
duplicate items, needs, limits, labels, footprints, expired or lost leases, broken connections.

Claims and completions from concurrent threads of one process (such as a server's requests) are batched as rows of one
statement and share its round trip and commit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from ratchet.core import events as ev
from ratchet.core.events import encode, kind_of
from ratchet.core.item import Item
from ratchet.core.lease import Holder, Lease
from ratchet.core.ledger import GENESIS
from ratchet.core.queue import ClaimLimits, NoWork, NoWorkReason
from ratchet.core.timestamps import format_timestamp
from ratchet.store.database import Row, SingleStatement, T, new_key
from ratchet.store.group_commit import GroupCommit, PendingCall
from ratchet.store.labels import suits
from ratchet.store.ledger import token_hash, worker_and_token
from ratchet.store.postgres.feed_order import PLACE
from ratchet.store.queue import ADD_ITEM, DUE, NEXT
from ratchet.store.workers import SqlWorkers

BATCH_MIN, BATCH_MAX = 4, 32  # smaller batches are not worth a second statement; larger ones make no row cheaper
FALLBACK = 0  # row number that sends callers without a row of their own to the general verb


class StatementFailed(Exception):
    """A statement failed; with `maybe_committed` it may have been committed."""

    def __init__(self, *, maybe_committed: bool) -> None:
        super().__init__()
        self.maybe_committed = maybe_committed


class _PendingRow(PendingCall):
    """One caller's row of a batched statement. Its outcome is unknown until `set_answer`."""

    def __init__(self, **values: object) -> None:
        super().__init__()
        self.values = values
        self.answer: Row | None = None
        self.failed = self.maybe_committed = True

    def set_answer(self, row: Row | None) -> None:
        self.answer, self.failed, self.maybe_committed = row, False, False


class BatchedWorkers(SqlWorkers):
    def __init__(self) -> None:
        self._claims = GroupCommit(self._claim_all, limit=self._batch_limit)
        self._completions = GroupCommit(self._complete_all, limit=self._batch_limit)

    def _batch_limit(self) -> int:
        """Batch half of the pending calls, so that the other half can return and submit while these execute."""
        return min(BATCH_MAX, max(BATCH_MIN, -(-(self._claims.pending + self._completions.pending) // 2)))

    def _write_one(self, act: Callable[[SingleStatement], T]) -> T:
        raise NotImplementedError

    def _execute_once(self, sql: str, *values: object) -> list[Row]:
        """Raises StatementFailed."""
        raise NotImplementedError

    def _now(self) -> datetime:
        """Return the server's time. May query the server: do not call while holding a connection."""
        raise NotImplementedError

    def _add_all(self, items: Sequence[Item]) -> list[Item]:
        if (
            len(items) == 1
            and not items[0].needs
            and self._write_one(lambda db: db.fetch_one(ADD, *self._row(items[0])))
        ):
            return [*items]
        return super()._add_all(items)

    # --- claiming --------------------------------------------------------------------------------------------

    def claim_next(
        self,
        holder: Holder,
        *,
        run: str,
        ttl_s: float,
        limits: ClaimLimits | None = None,
        key: str = "",
        labels: Sequence[str] = (),
        item: str = "",
    ) -> Lease | NoWork:
        if not (labels or item or (limits and limits.any)):
            key = key or new_key()
            got = self._claim_plain(holder, run, ttl_s, key)
            if got is not None:
                return got
        return self._claim_limited(
            holder, limits or ClaimLimits(), run=run, ttl_s=ttl_s, key=key, labels=labels, item=item
        )

    def _claim_limited(
        self,
        holder: Holder,
        limits: ClaimLimits,
        *,
        run: str,
        ttl_s: float,
        key: str,
        labels: Sequence[str],
        item: str,
    ) -> Lease | NoWork:
        """Claim within limits. A refusal that only time ends is recorded in the gate, so that others need not ask."""
        kind = hashlib.sha256(msgspec.json.encode(limits)).hexdigest()[:16]
        if known := self.gate.refusal(kind):
            return msgspec.json.decode(known, type=NoWork)
        got = super().claim_next(holder, run=run, ttl_s=ttl_s, limits=limits, key=key, labels=labels, item=item)
        if isinstance(got, NoWork) and got.until:
            left = datetime.fromisoformat(got.until) - self._clock()
            self.gate.refuse(kind, msgspec.json.encode(got).decode(), left.total_seconds())
        return got

    def _claim_plain(self, holder: Holder, run: str, ttl_s: float, key: str) -> Lease | NoWork | None:
        """Claim without limits. None: fall back to the general verb, which finds a lease that was granted anyway."""
        until = format_timestamp(self._now() + timedelta(seconds=ttl_s))
        worker, token = worker_and_token(key)
        ask = _PendingRow(
            asked_run=run,
            worker=worker,
            name=holder.worker,
            machine=holder.machine,
            pid=holder.pid,
            born=holder.born,
            token=token_hash(token),
            until=until,
        )
        self._claims.submit(ask)
        if ask.failed:
            return None
        row = ask.answer
        if row is None:
            return NoWork(why=NoWorkReason.EMPTY)
        if row["n"] == FALLBACK:
            return None
        return Lease(run=row["run"], item=row["item"], epoch=row["epoch"], holder=holder, worker=worker, token=token)

    def _claim_all(self, asks: list[_PendingRow]) -> None:
        at = format_timestamp(self._clock())
        requests = msgspec.json.encode([ask.values for ask in asks]).decode()
        rows = self._rows(asks, CLAIM, at, at, at, -1, "", len(asks), at, requests, GENESIS)
        if rows is not None:
            given = {row["n"]: row for row in rows}
            for n, ask in enumerate(asks, 1):
                ask.set_answer(given.get(n, given.get(FALLBACK)))

    # --- completing ------------------------------------------------------------------------------------------

    def complete(self, lease: Lease, *, commits: int, head: str) -> None:
        event, at = ev.RunCompleted(commits=commits, head=head), format_timestamp(self._now())
        data = encode(event).decode()
        ask = _PendingRow(item=lease.item, run=lease.run, epoch=lease.epoch, kind=kind_of(event), data=data, at=at)
        self._completions.submit(ask)
        if ask.answer is None:
            super().complete(lease, commits=commits, head=head)

    def _complete_all(self, asks: list[_PendingRow]) -> None:
        once = {ask.values["run"]: ask.values for ask in reversed(asks)}
        rows = self._rows(asks, COMPLETE, msgspec.json.encode([*once.values()]).decode())
        if rows is not None:
            given = {(row["run"], row["epoch"]): row for row in rows}
            for ask in asks:
                ask.set_answer(given.get((ask.values["run"], ask.values["epoch"])))

    def _rows(self, asks: list[_PendingRow], sql: str, *values: object) -> list[Row] | None:
        """Execute for all callers. None: it failed, and each caller continues with the general verb, which retries."""
        try:
            return self._execute_once(sql, *values)
        except StatementFailed as error:
            for ask in asks:
                ask.maybe_committed = error.maybe_committed
            return None


ADD = f"""
WITH added AS ({ADD_ITEM} RETURNING id)
SELECT id, pg_notify('ratchet_work', '') AS notified FROM added
"""  # noqa: S608 — ours
CLAIM = f"""
WITH due AS MATERIALIZED ({DUE}),
next AS MATERIALIZED ({NEXT.format(more=suits(()), most="(SELECT CAST(? AS BIGINT))")}),
picked AS MATERIALIZED (
  SELECT zipped.*, CAST(? AS TEXT) AS at FROM due, ROWS FROM (
    unnest(ARRAY (SELECT id FROM next), ARRAY (SELECT run FROM next), ARRAY (SELECT footprint FROM next)),
    json_to_recordset(CAST(? AS JSON)) AS (
      asked_run TEXT, worker TEXT, name TEXT, machine TEXT, pid BIGINT, born TEXT, token TEXT, until TEXT)
  ) WITH ORDINALITY AS zipped (item, run, footprint, asked_run, worker, name, machine, pid, born, token, until, n)
  WHERE NOT due.due AND zipped.footprint = ''),
started AS (
  INSERT INTO runs (id, item, status, created_at, length, head, epoch, abort_by)
    SELECT asked_run, item, 'running', at, 0, ?, 1, '' FROM picked WHERE run IS NULL),
again AS (
  UPDATE runs SET epoch = epoch + 1 WHERE id = ANY (ARRAY (SELECT run FROM picked)) AND status = 'running'
  RETURNING id, epoch),
held AS MATERIALIZED (
  SELECT picked.*, asked_run AS id, CAST(1 AS BIGINT) AS epoch FROM picked WHERE run IS NULL
  UNION ALL
  SELECT picked.*, again.id, again.epoch FROM again JOIN picked ON picked.run = again.id),
worker AS (
  INSERT INTO workers (id, name, machine, pid, born, token_sha256, item, run, epoch, status, started_at, beat_at,
                       expires_at)
  SELECT worker, name, machine, pid, born, token, item, id, epoch, 'starting', at, at, until FROM held),
moved AS (
  UPDATE items SET status = 'assigned', run = held.id, park_reason = '', not_before = '' FROM held
  WHERE items.id = held.item AND items.id = ANY (ARRAY (SELECT item FROM held)))
SELECT n, item, id AS run, epoch FROM held
UNION ALL
SELECT {FALLBACK}, '', '', 0 FROM due WHERE due.due OR EXISTS (SELECT 1 FROM next WHERE footprint <> '')
  OR (NOT EXISTS (SELECT 1 FROM next) AND EXISTS (SELECT 1 FROM items WHERE status = 'queued' AND labels > ''))
"""  # noqa: S608 — ours
# CLAIM zips requests and items by position: a join of two lists without an index would compare all pairs.
#
# Plans are cached (decision 36), possibly from when the tables were empty. Joined ids are therefore also given as an
# array, which bounds the rows that any plan reads, and `ended_at || ''` keeps the planner off the index of all leases.
# The checksum is that of `core.ledger`, which verifies it on reading. Rows are locked in the global order: items by id,
# then runs, then workers.
COMPLETE = f"""
WITH given AS MATERIALIZED (
  SELECT * FROM json_to_recordset(CAST(? AS JSON)) AS given (
    item TEXT, run TEXT, epoch BIGINT, kind TEXT, data TEXT, at TEXT)),
mine AS MATERIALIZED (SELECT id FROM items WHERE id = ANY (ARRAY (SELECT item FROM given)) ORDER BY id FOR UPDATE),
was AS MATERIALIZED (
  SELECT id, item, epoch, length, head FROM runs
  WHERE id = ANY (ARRAY (SELECT run FROM given)) AND item = ANY (ARRAY (SELECT id FROM mine)) AND status = 'running'
  FOR UPDATE),
sealed AS MATERIALIZED (
  SELECT was.length + 1 AS seq, was.head AS prev, given.*, encode(sha256(convert_to(
    concat_ws(chr(10), was.head, given.run, was.length + 1, given.at, given.epoch, given.kind, given.data), 'UTF8'
  )), 'hex') AS sum FROM was JOIN given ON given.run = was.id AND given.item = was.item AND given.epoch = was.epoch),
ended AS (
  UPDATE runs SET length = seq, head = sum, status = 'completed' FROM sealed
  WHERE runs.id = sealed.run AND runs.id = ANY (ARRAY (SELECT run FROM sealed))),
event AS (
  INSERT INTO events (run, seq, at, epoch, kind, data, prev, sum, place)
  SELECT run, seq, at, epoch, kind, convert_to(data, 'UTF8'), prev, sum,
         {PLACE.format(run="sealed.run", before="sealed.seq - 1")} FROM sealed),
moved AS (
  UPDATE items SET status = 'completed', park_reason = '', not_before = '', detail = '' FROM sealed
  WHERE items.id = sealed.item AND items.run = sealed.run AND items.id = ANY (ARRAY (SELECT item FROM sealed))),
worker AS (
  UPDATE workers SET status = 'completed', ended_at = sealed.at, detail = '' FROM sealed
  WHERE workers.run = sealed.run AND workers.epoch = sealed.epoch AND workers.ended_at || '' = ''
    AND workers.run = ANY (ARRAY (SELECT run FROM sealed))),
unlocked AS (DELETE FROM locks WHERE run = ANY (ARRAY (SELECT run FROM sealed))),
settled AS (
  UPDATE reservations SET status = 'settled' WHERE run = ANY (ARRAY (SELECT run FROM sealed)) AND status = 'held')
SELECT run, epoch,
  (SELECT pg_notify('ratchet_work', '') WHERE EXISTS (SELECT 1 FROM needs WHERE need = sealed.item)) AS notified
FROM sealed
"""  # noqa: S608 — ours
