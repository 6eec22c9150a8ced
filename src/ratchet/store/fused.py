"""The three verbs every item needs, each in one statement: on a server, round trips are what a verb costs.

They do what the plain verbs do when nothing is special, and hand over to those when something is: an item that is there
already or waits for others, limits, a footprint, a lease that ran out, a lease that was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from ratchet.core import events as ev
from ratchet.core.events import encode, kind_of
from ratchet.core.item import Item
from ratchet.core.lease import Holder, Lease
from ratchet.core.ledger import GENESIS
from ratchet.core.queue import Limits, NoWork, Why
from ratchet.store.database import Single, T, stamp
from ratchet.store.ledger import claimed, hash_of, names
from ratchet.store.queue import ADD_ITEM, DUE, NEXT
from ratchet.store.workers import Workers


class Fused(Workers):
    def _write_one(self, act: Callable[[Single], T]) -> T:
        raise NotImplementedError

    def _add_all(self, items: Sequence[Item]) -> list[Item]:
        if len(items) == 1 and not items[0].needs and self._write_one(lambda db: db.one(ADD, *self._row(items[0]))):
            return [*items]
        return super()._add_all(items)

    def claim_next(self, holder: Holder, *, run: str, ttl_s: float, limits: Limits | None = None) -> Lease | NoWork:
        if limits is None or not limits.any:
            got = self._write_one(lambda db: self._claim_plain(db, holder, run, ttl_s))
            if got is not None:
                return got
        return super().claim_next(holder, run=run, ttl_s=ttl_s, limits=limits)

    def _claim_plain(self, db: Single, holder: Holder, run: str, ttl_s: float) -> Lease | NoWork | None:
        """None: the plain verb has to look."""
        if db.doubt and (held := claimed(db, holder)):
            return held
        now = self._clock()
        at, until, (worker, token) = stamp(now), stamp(now + timedelta(seconds=ttl_s)), names(db.key)
        who = (holder.worker, holder.machine, holder.pid, holder.born)
        row = db.one(CLAIM, at, at, at, -1, "", run, at, GENESIS, worker, *who, hash_of(token), at, at, until)
        assert row
        if row["run"]:
            return Lease(
                run=row["run"], item=row["item"], epoch=row["epoch"], holder=holder, worker=worker, token=token
            )
        return None if row["due"] or row["item"] else NoWork(why=Why.EMPTY)

    def complete(self, lease: Lease, *, commits: int, head: str) -> None:
        event = ev.RunCompleted(commits=commits, head=head)
        sealed = (lease.run, lease.epoch, kind_of(event), encode(event))
        if not self._write_one(lambda db: db.one(COMPLETE, lease.item, *sealed, db.began_at)):
            super().complete(lease, commits=commits, head=head)


ADD = f"""
WITH added AS ({ADD_ITEM} RETURNING id)
SELECT id, pg_notify('ratchet_work', '') AS told FROM added
"""  # noqa: S608 — ours
CLAIM = f"""
WITH due AS MATERIALIZED ({DUE}),
next AS ({NEXT.format(more="")}),
picked AS (SELECT next.id, next.run FROM next, due WHERE NOT due.due AND next.footprint = ''),
started AS (
  INSERT INTO runs SELECT ?, id, 'running', ?, 0, ?, 1, '' FROM picked WHERE run IS NULL RETURNING id, epoch),
again AS (
  UPDATE runs SET epoch = epoch + 1 FROM picked WHERE runs.id = picked.run AND runs.status = 'running'
  RETURNING runs.id, runs.epoch),
held AS (SELECT * FROM started UNION ALL SELECT * FROM again),
worker AS (
  INSERT INTO workers (id, name, machine, pid, born, token_sha256, item, run, epoch, status, started_at, beat_at,
                       expires_at)
  SELECT ?, ?, ?, CAST(? AS BIGINT), ?, ?, picked.id, held.id, held.epoch, 'starting', ?, ?, ? FROM picked, held),
moved AS (
  UPDATE items SET status = 'assigned', run = held.id, park_reason = '', not_before = '' FROM picked, held
  WHERE items.id = picked.id)
SELECT due.due, next.id AS item, held.id AS run, held.epoch
FROM due LEFT JOIN next ON TRUE LEFT JOIN held ON TRUE
"""  # noqa: S608 — ours
# The sum is the one of `core.ledger`: who reads the ledger checks it there. What hangs on the lease is read from its
# deletion: parts of a statement are done in no order of their own, and a heartbeat has the lease before its worker.
COMPLETE = """
WITH said AS (SELECT CAST(? AS TEXT) AS item, CAST(? AS TEXT) AS run, CAST(? AS BIGINT) AS epoch,
                     CAST(? AS TEXT) AS kind, CAST(? AS BYTEA) AS data, CAST(? AS TEXT) AS at),
mine AS (SELECT id FROM items WHERE id = (SELECT item FROM said) FOR UPDATE),
was AS (
  SELECT runs.id, runs.length, runs.head FROM runs
  WHERE runs.id = (SELECT run FROM said) AND runs.item = (SELECT id FROM mine)
    AND runs.epoch = (SELECT epoch FROM said) AND runs.status = 'running' FOR UPDATE),
sealed AS (
  SELECT was.length + 1 AS seq, was.head AS prev, said.*, encode(sha256(convert_to(
    concat_ws(chr(10), was.head, said.run, was.length + 1, said.at, said.epoch, said.kind) || chr(10), 'UTF8'
  ) || said.data), 'hex') AS sum FROM was, said),
ended AS (
  UPDATE runs SET length = seq, head = sum, status = 'completed' FROM sealed WHERE runs.id = sealed.run),
event AS (
  INSERT INTO events (run, seq, at, epoch, kind, data, prev, sum)
  SELECT run, seq, at, epoch, kind, data, prev, sum FROM sealed),
moved AS (
  UPDATE items SET status = 'completed', park_reason = '', not_before = '', detail = '' FROM sealed
  WHERE items.id = sealed.item AND items.run = sealed.run),
worker AS (
  UPDATE workers SET status = 'completed', ended_at = sealed.at, detail = '' FROM sealed
  WHERE workers.run = sealed.run AND workers.epoch = sealed.epoch AND workers.ended_at = ''),
unlocked AS (DELETE FROM locks USING sealed WHERE locks.run = sealed.run),
settled AS (
  UPDATE reservations SET status = 'settled' FROM sealed
  WHERE reservations.run = sealed.run AND reservations.epoch = sealed.epoch AND reservations.status = 'held')
SELECT seq, (SELECT pg_notify('ratchet_work', '') WHERE EXISTS (SELECT 1 FROM needs WHERE need = sealed.item)) AS told
FROM sealed
"""
