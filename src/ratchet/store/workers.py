"""Workers: how each claim ended. Every end is one transaction: ledger, item, lease, locks, reservations and worker."""

from __future__ import annotations

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.lease import Lease, WorkerRow, WorkerStatus
from ratchet.core.retry import Retry
from ratchet.errors import NotFound
from ratchet.store.database import Row, Transaction
from ratchet.store.ledger import lost
from ratchet.store.queue import Queue


class Workers(Queue):
    def complete(self, lease: Lease, *, commits: int, head: str) -> None:
        """Raises LeaseLost; saying it twice is saying it once."""
        if self._said(lease, WorkerStatus.COMPLETED):
            return
        self.append(lease, [ev.RunCompleted(commits=commits, head=head)])

    def fail(self, lease: Lease, reason: Reason, detail: str) -> Retry:
        """Give the run up: again later, to a person, or to its end, as `core.retry` decides. Raises LeaseLost."""
        with self._write() as db:
            return self._give_up(db, lease, reason, detail)

    def stuck(self, lease: Lease, detail: str) -> Retry | None:
        """No progress. The first time, None: nudge it. The second time the run goes back for a fresh context."""
        with self._write() as db:
            row = db.one(_STUCK, detail, lease.run, lease.epoch)
            if row is None:
                raise lost(lease)
            return None if row["nudges"] == 1 else self._give_up(db, lease, Reason.NO_PROGRESS, detail)

    def kill(self, worker: str, *, by: str) -> bool:
        """Take its run away from a worker, which hears so at its next heartbeat. False: it was over before."""
        with self._write() as db:
            row = db.one("SELECT run, epoch, item FROM workers WHERE id = ?", worker)
            if row is None:
                raise NotFound(f"there is no worker {worker}", hint="`ratchet workers` lists them", worker=worker)
            why = f"killed by {by}"
            held = {**row, "expires_at": _EVER}
            back = self._return(db, held, Reason.WORKER_LOST, why, now=self._clock(), status=WorkerStatus.KILLED)
            return back is not None

    def workers(self, *, live: bool = False, limit: int = 500) -> list[WorkerRow]:
        """Newest first."""
        with self._read() as db:
            return [worker_row(row) for row in db.all(_LIVE_WORKERS if live else _WORKERS, limit)]

    def worker(self, worker: str) -> WorkerRow:
        with self._read() as db:
            row = db.one("SELECT * FROM workers WHERE id = ?", worker)
        if row is None:
            raise NotFound(f"there is no worker {worker}", hint="`ratchet workers` lists them", worker=worker)
        return worker_row(row)

    def _give_up(self, db: Transaction, lease: Lease, reason: Reason, detail: str) -> Retry:
        held = {"run": lease.run, "epoch": lease.epoch, "item": lease.item, "expires_at": _EVER}
        back = self._return(db, held, reason, detail, now=self._clock())
        if back is None:
            raise lost(lease)
        return back

    def _said(self, lease: Lease, status: WorkerStatus) -> bool:
        with self._read() as db:
            row = db.one("SELECT status FROM workers WHERE run = ? AND epoch = ?", lease.run, lease.epoch)
        return bool(row and row["status"] == status)


def worker_row(row: Row) -> WorkerRow:
    fields = {name: row[name] for name in WorkerRow.__struct_fields__}
    return WorkerRow(**fields | {"status": WorkerStatus(row["status"])})


_EVER = "9999"
_STUCK = """
UPDATE workers SET status = 'stuck', nudges = nudges + 1, detail = ?
WHERE run = ? AND epoch = ? AND ended_at = '' RETURNING nudges
"""
_WORKERS = "SELECT * FROM workers ORDER BY started_at DESC, id LIMIT ?"
_LIVE_WORKERS = "SELECT * FROM workers WHERE ended_at = '' ORDER BY started_at DESC, id LIMIT ?"
