"""Workers in SQL. Ending a claim is one transaction: ledger, item, lease, locks, reservations and worker row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from ratchet.core import events as ev
from ratchet.core.events import kind_of
from ratchet.core.failure import Reason
from ratchet.core.lease import POOL_S, Lease, WorkerPool, WorkerRow, WorkerStatus
from ratchet.core.retry import DELAYS_S, RetryAction, RetryDecision
from ratchet.core.signal import Topic
from ratchet.core.timestamps import format_timestamp
from ratchet.errors import LeaseLost, NotFound
from ratchet.store.database import Row, Transaction, public_part, reads, writes
from ratchet.store.labels import labels_of, labels_text
from ratchet.store.ledger import LOCK_ITEM, lease_lost, require_lease, to_holder
from ratchet.store.queue import SqlQueue


class SqlWorkers(SqlQueue):
    def complete(self, lease: Lease, *, commits: int, head: str) -> None:
        """Complete the run. Idempotent. Raises LeaseLost."""
        event = ev.RunCompleted(commits=commits, head=head)
        try:
            self._append(lease, [event])
        except LeaseLost:
            if not self._ended_with(lease, WorkerStatus.COMPLETED):
                self._record_fenced_write(lease, kind_of(event), head=head, detail="")
                raise

    def fail(self, lease: Lease, reason: Reason, detail: str, *, delays_s: Sequence[float] = DELAYS_S) -> RetryDecision:
        """Give up the run; `core.retry` decides between retry, park and failure. Idempotent. Raises LeaseLost."""
        try:
            return self._fail(lease, reason, detail, delays_s)
        except LeaseLost:
            if recorded := self._read(lambda db: _recorded_failure(db, lease, detail)):
                return recorded
            self._record_fenced_write(lease, kind_of(ev.RunFailed), head="", detail=f"{reason}: {detail}")
            raise

    @writes
    def _fail(
        self, db: Transaction, lease: Lease, reason: Reason, detail: str, delays_s: Sequence[float]
    ) -> RetryDecision:
        if db.maybe_committed:
            db.lock_rows(LOCK_ITEM, lease.item)  # wait for an earlier attempt that is still being committed
            if recorded := _recorded_failure(db, lease, detail):
                return recorded
        return self._give_up(db, lease, reason, detail, delays_s)

    @writes
    def report_stuck(
        self, db: Transaction, lease: Lease, detail: str, *, key: str = "", delays_s: Sequence[float] = DELAYS_S
    ) -> RetryDecision | None:
        """Report no progress. The first time returns None: nudge the agent. The second time gives up the run, so that
        it is retried with a fresh context. A report with the key of the last one is the same report, sent again."""
        db.lock_rows(LOCK_ITEM, lease.item)
        key = key or public_part(db.key)
        if last := db.fetch_one(_REPORTED, lease.run, lease.epoch, key):
            return None if last["nudges"] == 1 else _recorded_failure(db, lease, last["detail"])
        require_lease(db, lease)  # lock the lease before the worker row, as heartbeats do
        row = db.fetch_one(_STUCK, detail, key, lease.run, lease.epoch)
        if row is None:
            raise lease_lost(lease)
        return None if row["nudges"] == 1 else self._give_up(db, lease, Reason.NO_PROGRESS, detail, delays_s)

    @writes
    def kill(self, db: Transaction, worker: str, *, by: str) -> bool:
        """Stop a worker and requeue its run; the worker learns of it at its next heartbeat. False: already finished."""
        row = db.fetch_one("SELECT run, epoch, item FROM workers WHERE id = ?", worker)
        if row is None:
            raise NotFound(f"no worker {worker}", hint="`ratchet workers` lists them", worker=worker)
        why = f"killed by {by}"
        held = {**row, "expires_at": _EVER}
        back = self._return(db, held, Reason.WORKER_LOST, why, now=self._clock(), status=WorkerStatus.KILLED)
        db.notify(Topic.STOP)
        return back is not None

    @reads
    def workers(self, db: Transaction, *, live: bool = False, limit: int = 500) -> list[WorkerRow]:
        """List workers, newest first. A dead worker, or one with an expired lease, is not live even before its run is
        requeued."""
        if not live:
            return [to_worker_row(row) for row in db.fetch_all(_WORKERS, limit)]
        rows = db.fetch_all(_LIVE_WORKERS, format_timestamp(self._clock()), limit)
        return [to_worker_row(row) for row in rows if not self._is_dead(to_holder({**row, "worker": row["name"]}))]

    @writes
    def announce(self, db: Transaction, pool: WorkerPool) -> None:
        """Record that a pool of workers waits for items; repeated every `POOL_ANNOUNCE_S`."""
        now, held = self._clock(), pool.holder
        db.execute(_FORGET_POOLS, format_timestamp(now - timedelta(seconds=POOL_S)))
        who = (held.machine, held.pid, held.born, held.worker)
        db.execute(_ANNOUNCE, *who, pool.workers, format_timestamp(now), labels_text(pool.labels))

    @reads
    def pools(self, db: Transaction) -> list[WorkerPool]:
        """List the pools that are live."""
        rows = db.fetch_all(_POOLS, format_timestamp(self._clock() - timedelta(seconds=POOL_S)))
        found = [_to_pool(row) for row in rows]
        return [pool for pool in found if not self._is_dead(pool.holder)]

    @reads
    def worker(self, db: Transaction, worker: str) -> WorkerRow:
        row = db.fetch_one("SELECT * FROM workers WHERE id = ?", worker)
        if row is None:
            raise NotFound(f"no worker {worker}", hint="`ratchet workers` lists them", worker=worker)
        return to_worker_row(row)

    def _give_up(
        self, db: Transaction, lease: Lease, reason: Reason, detail: str, delays_s: Sequence[float]
    ) -> RetryDecision:
        held = {"run": lease.run, "epoch": lease.epoch, "item": lease.item, "expires_at": _EVER}
        back = self._return(db, held, reason, detail, now=self._clock(), delays_s=delays_s)
        if back is None:
            raise lease_lost(lease)
        return back

    @reads
    def _ended_with(self, db: Transaction, lease: Lease, status: WorkerStatus) -> bool:
        row = db.fetch_one("SELECT status FROM workers WHERE run = ? AND epoch = ?", lease.run, lease.epoch)
        return bool(row and row["status"] == status)


def _recorded_failure(db: Transaction, lease: Lease, detail: str) -> RetryDecision | None:
    """Return the result of this `fail` if it was recorded before: by an unacknowledged attempt or a repeated call."""
    row = db.fetch_one(_GIVEN_UP, lease.run, lease.epoch, detail)
    if row is None:
        return None
    after = {"failed": RetryAction.FAIL, "cancelled": RetryAction.FAIL, "parked": RetryAction.PARK}.get(
        row["status"], RetryAction.RETRY
    )
    return RetryDecision(after=after, attempts=row["attempts"], returns=row["returns"])


def to_worker_row(row: Row) -> WorkerRow:
    fields = {name: row[name] for name in WorkerRow.__struct_fields__}
    return WorkerRow(**fields | {"status": WorkerStatus(row["status"]), "labels": labels_of(row["labels"])})


def _to_pool(row: Row) -> WorkerPool:
    labels = labels_of(row["labels"])
    return WorkerPool(holder=to_holder(row), workers=row["workers"], seen_at=row["seen_at"], labels=labels)


_EVER = "9999"
_STUCK = """
UPDATE workers SET status = 'stuck', nudges = nudges + 1, detail = ?, nudge_key = ?
WHERE run = ? AND epoch = ? AND ended_at = '' RETURNING nudges
"""
_REPORTED = "SELECT nudges, detail FROM workers WHERE run = ? AND epoch = ? AND nudge_key = ?"
_GIVEN_UP = """
SELECT items.status, items.attempts, items.returns FROM workers JOIN items ON items.id = workers.item
WHERE workers.run = ? AND workers.epoch = ? AND workers.status = 'failed' AND workers.detail = ?
"""
_WORKERS = "SELECT * FROM workers ORDER BY started_at DESC, id LIMIT ?"
_LIVE_WORKERS = "SELECT * FROM workers WHERE ended_at = '' AND expires_at > ? ORDER BY started_at DESC, id LIMIT ?"
_FORGET_POOLS = "DELETE FROM pools WHERE seen_at < ?"
_ANNOUNCE = """
INSERT INTO pools (machine, pid, born, worker, workers, seen_at, labels) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (machine, pid, born) DO UPDATE SET workers = excluded.workers, seen_at = excluded.seen_at,
  labels = excluded.labels
"""
_POOLS = "SELECT * FROM pools WHERE seen_at >= ? ORDER BY machine, pid"
