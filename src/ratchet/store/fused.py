"""The three verbs every item needs, each in one statement: on a server, round trips are what a verb costs.

They do what the plain verbs do when nothing is special, and hand over to those when something is: an item that is there
already or waits for others, limits, a footprint, a lease that ran out, a lease that was lost, a connection that broke.

Claims and completions that threads of one process ask for at the same time are rows of one statement: its commit, its
round trip and its start are paid for once. So is a claim by each of the workers that ask a server over HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from ratchet.core import events as ev
from ratchet.core.events import encode, kind_of
from ratchet.core.item import Item
from ratchet.core.lease import Holder, Lease
from ratchet.core.ledger import GENESIS
from ratchet.core.queue import Limits, NoWork, Why
from ratchet.store.database import Row, Single, T, new_key, stamp
from ratchet.store.ledger import claimed, hash_of, names
from ratchet.store.queue import ADD_ITEM, DUE, NEXT
from ratchet.store.together import Ask, Together
from ratchet.store.workers import Workers

FEW, MOST = 4, 32  # fewer rows in a statement are not worth a second one, more make a row no cheaper
SPECIAL = 0  # the number of a row that says: whoever got nothing has to look by the plain verb


class Failed(Exception):
    """A statement was not done, or, if there is `doubt`, may have been."""

    def __init__(self, *, doubt: bool) -> None:
        super().__init__()
        self.doubt = doubt


class _Asked(Ask):
    """What one caller asks a statement for, as one of its rows. Nothing is sure until it was answered."""

    def __init__(self, **values: object) -> None:
        super().__init__()
        self.values = values
        self.answer: Row | None = None
        self.failed = self.doubt = True

    def answered(self, row: Row | None) -> None:
        self.answer, self.failed, self.doubt = row, False, False


class Fused(Workers):
    def __init__(self) -> None:
        self._claims = Together(self._claim_all, most=self._half)
        self._completions = Together(self._complete_all, most=self._half)

    def _half(self) -> int:
        """Of those who ask: while these are served, the others come back and ask for what is next."""
        return min(MOST, max(FEW, -(-(self._claims.asking + self._completions.asking) // 2)))

    def _write_one(self, act: Callable[[Single], T]) -> T:
        raise NotImplementedError

    def _try_once(self, sql: str, *values: object) -> list[Row]:
        """Raises Failed."""
        raise NotImplementedError

    def _now(self) -> datetime:
        """May ask the server: not while a connection of ours is held."""
        raise NotImplementedError

    def _add_all(self, items: Sequence[Item]) -> list[Item]:
        if len(items) == 1 and not items[0].needs and self._write_one(lambda db: db.one(ADD, *self._row(items[0]))):
            return [*items]
        return super()._add_all(items)

    # --- claiming --------------------------------------------------------------------------------------------

    def claim_next(self, holder: Holder, *, run: str, ttl_s: float, limits: Limits | None = None) -> Lease | NoWork:
        if limits is None or not limits.any:
            got = self._claim_plain(holder, run, ttl_s)
            if got is not None:
                return got
        return super().claim_next(holder, run=run, ttl_s=ttl_s, limits=limits)

    def _claim_plain(self, holder: Holder, run: str, ttl_s: float) -> Lease | NoWork | None:
        """None: the plain verb has to look."""
        key, until = new_key(), stamp(self._now() + timedelta(seconds=ttl_s))
        worker, token = names(key)
        ask = _Asked(
            asked_run=run,
            worker=worker,
            name=holder.worker,
            machine=holder.machine,
            pid=holder.pid,
            born=holder.born,
            token=hash_of(token),
            until=until,
        )
        self._claims.join(ask)
        if ask.failed:
            return self._read(lambda db: claimed(db, holder, key)) if ask.doubt else None
        row = ask.answer
        if row is None:
            return NoWork(why=Why.EMPTY)
        if row["n"] == SPECIAL:
            return None
        return Lease(run=row["run"], item=row["item"], epoch=row["epoch"], holder=holder, worker=worker, token=token)

    def _claim_all(self, asks: list[_Asked]) -> None:
        at = stamp(self._clock())
        told = msgspec.json.encode([ask.values for ask in asks]).decode()
        rows = self._rows(asks, CLAIM, at, at, at, -1, "", len(asks), at, told, GENESIS)
        if rows is not None:
            given = {row["n"]: row for row in rows}
            for n, ask in enumerate(asks, 1):
                ask.answered(given.get(n, given.get(SPECIAL)))

    # --- completing ------------------------------------------------------------------------------------------

    def complete(self, lease: Lease, *, commits: int, head: str) -> None:
        event, at = ev.RunCompleted(commits=commits, head=head), stamp(self._now())
        data = encode(event).decode()
        ask = _Asked(item=lease.item, run=lease.run, epoch=lease.epoch, kind=kind_of(event), data=data, at=at)
        self._completions.join(ask)
        if ask.answer is None:
            super().complete(lease, commits=commits, head=head)

    def _complete_all(self, asks: list[_Asked]) -> None:
        once = {ask.values["run"]: ask.values for ask in reversed(asks)}
        rows = self._rows(asks, COMPLETE, msgspec.json.encode([*once.values()]).decode())
        if rows is not None:
            given = {(row["run"], row["epoch"]): row for row in rows}
            for ask in asks:
                ask.answered(given.get((ask.values["run"], ask.values["epoch"])))

    def _rows(self, asks: list[_Asked], sql: str, *values: object) -> list[Row] | None:
        """None: nobody was answered. Each of them goes on with the plain verb, which tries again."""
        try:
            return self._try_once(sql, *values)
        except Failed as error:
            for ask in asks:
                ask.doubt = error.doubt
            return None


ADD = f"""
WITH added AS ({ADD_ITEM} RETURNING id)
SELECT id, pg_notify('ratchet_work', '') AS told FROM added
"""  # noqa: S608 — ours
CLAIM = f"""
WITH due AS MATERIALIZED ({DUE}),
next AS MATERIALIZED ({NEXT.format(more="", most="(SELECT CAST(? AS BIGINT))")}),
picked AS MATERIALIZED (
  SELECT zipped.*, CAST(? AS TEXT) AS at FROM due, ROWS FROM (
    unnest(ARRAY (SELECT id FROM next), ARRAY (SELECT run FROM next), ARRAY (SELECT footprint FROM next)),
    json_to_recordset(CAST(? AS JSON)) AS (
      asked_run TEXT, worker TEXT, name TEXT, machine TEXT, pid BIGINT, born TEXT, token TEXT, until TEXT)
  ) WITH ORDINALITY AS zipped (item, run, footprint, asked_run, worker, name, machine, pid, born, token, until, n)
  WHERE NOT due.due AND zipped.footprint = ''),
started AS (
  INSERT INTO runs SELECT asked_run, item, 'running', at, 0, ?, 1, '' FROM picked WHERE run IS NULL),
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
SELECT {SPECIAL}, '', '', 0 FROM due WHERE due.due OR EXISTS (SELECT 1 FROM next WHERE footprint <> '')
"""  # noqa: S608 — ours
# Above, what is asked and what is there are laid side by side: a join of two lists without an index is their product.
#
# A plan is kept (decision 36), and when it was made the tables may have been empty: what is joined is also named as a
# list, so that no plan can read past more than that; and `ended_at` is asked for in a way that the index of all leases
# does not answer. The sum is the one of `core.ledger`: who reads the ledger checks it there. Rows are locked as
# everywhere: items in the order of their ids, then runs, then workers.
COMPLETE = """
WITH said AS MATERIALIZED (
  SELECT * FROM json_to_recordset(CAST(? AS JSON)) AS said (
    item TEXT, run TEXT, epoch BIGINT, kind TEXT, data TEXT, at TEXT)),
mine AS MATERIALIZED (SELECT id FROM items WHERE id = ANY (ARRAY (SELECT item FROM said)) ORDER BY id FOR UPDATE),
was AS MATERIALIZED (
  SELECT id, item, epoch, length, head FROM runs
  WHERE id = ANY (ARRAY (SELECT run FROM said)) AND item = ANY (ARRAY (SELECT id FROM mine)) AND status = 'running'
  FOR UPDATE),
sealed AS MATERIALIZED (
  SELECT was.length + 1 AS seq, was.head AS prev, said.*, encode(sha256(convert_to(
    concat_ws(chr(10), was.head, said.run, was.length + 1, said.at, said.epoch, said.kind, said.data), 'UTF8'
  )), 'hex') AS sum FROM was JOIN said ON said.run = was.id AND said.item = was.item AND said.epoch = was.epoch),
ended AS (
  UPDATE runs SET length = seq, head = sum, status = 'completed' FROM sealed
  WHERE runs.id = sealed.run AND runs.id = ANY (ARRAY (SELECT run FROM sealed))),
event AS (
  INSERT INTO events (run, seq, at, epoch, kind, data, prev, sum)
  SELECT run, seq, at, epoch, kind, convert_to(data, 'UTF8'), prev, sum FROM sealed),
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
  (SELECT pg_notify('ratchet_work', '') WHERE EXISTS (SELECT 1 FROM needs WHERE need = sealed.item)) AS told
FROM sealed
"""
