"""Workers: how each claim ended. Every end is one transaction: ledger, item, lease, locks, reservations and worker."""

from __future__ import annotations

from collections.abc import Sequence

from ratchet.core import events as ev
from ratchet.core.events import kind_of
from ratchet.core.failure import Reason
from ratchet.core.lease import Lease, WorkerRow, WorkerStatus
from ratchet.core.retry import DELAYS_S, After, Retry
from ratchet.core.signal import Topic
from ratchet.errors import LeaseLost, NotFound
from ratchet.store.database import Row, Transaction, reads, stamp, writes
from ratchet.store.ledger import LOCK_ITEM, hold, holder_of, lost
from ratchet.store.queue import Queue


class Workers(Queue):
    def complete(self, lease: Lease, *, commits: int, head: str) -> None:
        """Raises LeaseLost; saying it twice is saying it once."""
        event = ev.RunCompleted(commits=commits, head=head)
        try:
            self._append(lease, [event])
        except LeaseLost:
            if not self._said(lease, WorkerStatus.COMPLETED):
                self._note_late(lease, kind_of(event), head=head, detail="")
                raise

    def fail(self, lease: Lease, reason: Reason, detail: str, *, delays_s: Sequence[float] = DELAYS_S) -> Retry:
        """Give the run up: again later, to a person, or to its end, as `core.retry` decides.

        Raises LeaseLost; saying it twice is saying it once.
        """
        try:
            return self._fail(lease, reason, detail, delays_s)
        except LeaseLost:
            if said := self._read(lambda db: _given_up(db, lease, detail)):
                return said
            self._note_late(lease, kind_of(ev.RunFailed), head="", detail=f"{reason}: {detail}")
            raise

    @writes
    def _fail(self, db: Transaction, lease: Lease, reason: Reason, detail: str, delays_s: Sequence[float]) -> Retry:
        if db.doubt and (said := _given_up(db, lease, detail)):
            return said
        return self._give_up(db, lease, reason, detail, delays_s)

    @writes
    def stuck(
        self, db: Transaction, lease: Lease, detail: str, *, delays_s: Sequence[float] = DELAYS_S
    ) -> Retry | None:
        """No progress. The first time, None: nudge it. The second time the run goes back for a fresh context."""
        db.hold(LOCK_ITEM, lease.item)
        hold(db, lease)  # a heartbeat has the lease before its worker: so have we
        row = db.one(_STUCK, detail, lease.run, lease.epoch)
        if row is None:
            raise lost(lease)
        return None if row["nudges"] == 1 else self._give_up(db, lease, Reason.NO_PROGRESS, detail, delays_s)

    @writes
    def kill(self, db: Transaction, worker: str, *, by: str) -> bool:
        """Take its run away from a worker, which hears so at its next heartbeat. False: it was over before."""
        row = db.one("SELECT run, epoch, item FROM workers WHERE id = ?", worker)
        if row is None:
            raise NotFound(f"there is no worker {worker}", hint="`ratchet workers` lists them", worker=worker)
        why = f"killed by {by}"
        held = {**row, "expires_at": _EVER}
        back = self._return(db, held, Reason.WORKER_LOST, why, now=self._clock(), status=WorkerStatus.KILLED)
        db.tell(Topic.STOP)
        return back is not None

    @reads
    def workers(self, db: Transaction, *, live: bool = False, limit: int = 500) -> list[WorkerRow]:
        """Newest first. Who is dead, or whose time is up, is not live, though nobody has taken its run back yet."""
        if not live:
            return [worker_row(row) for row in db.all(_WORKERS, limit)]
        rows = db.all(_LIVE_WORKERS, stamp(self._clock()), limit)
        return [worker_row(row) for row in rows if not self._gone(holder_of({**row, "worker": row["name"]}))]

    @reads
    def worker(self, db: Transaction, worker: str) -> WorkerRow:
        row = db.one("SELECT * FROM workers WHERE id = ?", worker)
        if row is None:
            raise NotFound(f"there is no worker {worker}", hint="`ratchet workers` lists them", worker=worker)
        return worker_row(row)

    def _give_up(self, db: Transaction, lease: Lease, reason: Reason, detail: str, delays_s: Sequence[float]) -> Retry:
        held = {"run": lease.run, "epoch": lease.epoch, "item": lease.item, "expires_at": _EVER}
        back = self._return(db, held, reason, detail, now=self._clock(), delays_s=delays_s)
        if back is None:
            raise lost(lease)
        return back

    @reads
    def _said(self, db: Transaction, lease: Lease, status: WorkerStatus) -> bool:
        row = db.one("SELECT status FROM workers WHERE run = ? AND epoch = ?", lease.run, lease.epoch)
        return bool(row and row["status"] == status)


def _given_up(db: Transaction, lease: Lease, detail: str) -> Retry | None:
    """How this very `fail` ended when it was said before: in a try whose answer was lost, or by who says it again."""
    row = db.one(_GIVEN_UP, lease.run, lease.epoch, detail)
    if row is None:
        return None
    after = {"failed": After.FAIL, "cancelled": After.FAIL, "parked": After.PARK}.get(row["status"], After.RETRY)
    return Retry(after=after, attempts=row["attempts"], returns=row["returns"])


def worker_row(row: Row) -> WorkerRow:
    fields = {name: row[name] for name in WorkerRow.__struct_fields__}
    return WorkerRow(**fields | {"status": WorkerStatus(row["status"])})


_EVER = "9999"
_STUCK = """
UPDATE workers SET status = 'stuck', nudges = nudges + 1, detail = ?
WHERE run = ? AND epoch = ? AND ended_at = '' RETURNING nudges
"""
_GIVEN_UP = """
SELECT items.status, items.attempts, items.returns FROM workers JOIN items ON items.id = workers.item
WHERE workers.run = ? AND workers.epoch = ? AND workers.status = 'failed' AND workers.detail = ?
"""
_WORKERS = "SELECT * FROM workers ORDER BY started_at DESC, id LIMIT ?"
_LIVE_WORKERS = "SELECT * FROM workers WHERE ended_at = '' AND expires_at > ? ORDER BY started_at DESC, id LIMIT ?"
