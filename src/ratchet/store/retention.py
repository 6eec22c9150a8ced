"""Removal of finished runs in SQL."""

from __future__ import annotations

from ratchet.errors import Conflict
from ratchet.store.artifacts import SqlArtifacts
from ratchet.store.database import Transaction, reads, writes
from ratchet.store.metrics import count_run


class SqlRetention(SqlArtifacts):
    @reads
    def finished_runs(self, db: Transaction, repo: str, *, before: str) -> list[str]:
        """Return the runs of a repository that finished before a time, oldest first."""
        return [row["id"] for row in db.fetch_all(_FINISHED, repo, before, before)]

    @writes
    def forget_run(self, db: Transaction, run: str) -> None:
        """Delete a finished run with its ledger, receipts, workers and spending; its item and figures stay.

        Raises Conflict.
        The run with the newest event stays: places in the feed continue from it.
        """
        db.lock_rows("SELECT id FROM runs WHERE id = ? FOR UPDATE", run)
        if db.fetch_one("SELECT 1 AS ok FROM runs WHERE id = ? AND status = 'running'", run):
            raise Conflict(f"{run} has not finished", run=run)
        last = db.fetch_one("SELECT run FROM events ORDER BY place DESC LIMIT 1")
        if last and last["run"] == run:
            raise Conflict(f"{run} has the newest event of this store", run=run)
        count_run(db, run)
        for table in _TABLES:
            db.execute(f"DELETE FROM {table} WHERE run = ?", run)  # noqa: S608 — names above
        db.execute("UPDATE items SET run = NULL WHERE id = (SELECT item FROM runs WHERE id = ?) AND run = ?", run, run)
        db.execute("DELETE FROM runs WHERE id = ?", run)


_TABLES = (
    "events", "receipts", "reservations", "workers", "late", "checkpoints", "locks", "artifacts", "tallied_runs",
)  # fmt: skip
_FINISHED = """
SELECT runs.id FROM runs JOIN items ON items.id = runs.item
WHERE items.repo = ? AND runs.status <> 'running' AND runs.created_at < ?
  AND NOT EXISTS (SELECT 1 FROM workers WHERE workers.run = runs.id AND workers.ended_at >= ?)
ORDER BY runs.created_at, runs.id
"""
