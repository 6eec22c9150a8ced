"""Verbs for remote workers in SQL: authentication by token, batched heartbeats, pages of runs and ledgers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from ratchet.core.lease import LeaseRenewal, WorkerRow
from ratchet.core.ledger import Entry
from ratchet.core.state import RunStatus
from ratchet.core.timestamps import format_timestamp
from ratchet.errors import UsageError
from ratchet.store.database import Database, Transaction, reads
from ratchet.store.ledger import over_iterations, to_entry, to_run_row, token_hash, worker_id
from ratchet.store.protocols import RunRow
from ratchet.store.workers import to_worker_row


class SqlRemoteWorkers(Database):
    _beats: str  # SQL that unpacks a JSON array to rows (run, epoch, iteration): one prepared statement for any number

    @reads
    def worker_by_token(self, db: Transaction, token: str) -> WorkerRow | None:
        """Return the worker that the token authenticates, even after its lease ended: writes are fenced by epoch."""
        row = db.fetch_one(
            "SELECT * FROM workers WHERE id = ? AND token_sha256 = ?", worker_id(token), token_hash(token)
        )
        return to_worker_row(row) if row else None

    def renew_all(self, renewals: Sequence[LeaseRenewal], *, ttl_s: float) -> list[str | None]:
        """Renew many leases in one transaction. Per lease: who requested an abort, '' if nobody, None if it is lost.

        Does not wait for the disk: after a power cut the next heartbeat renews the lease again.
        """
        return self._write(lambda db: self._renew_all(db, renewals, ttl_s=ttl_s), durable=False)

    def _renew_all(self, db: Transaction, renewals: Sequence[LeaseRenewal], *, ttl_s: float) -> list[str | None]:
        now = self._clock()
        # Sorted: two servers with heartbeats of the same workers lock rows in the same order and cannot deadlock.
        ordered = sorted(renewals, key=lambda beat: (beat.run, beat.epoch))
        rows_json = msgspec.json.encode([(beat.run, beat.epoch, beat.iteration) for beat in ordered]).decode()
        rows = db.fetch_all(
            _RENEW_ALL.format(beats=self._beats),
            rows_json,
            format_timestamp(now),
            format_timestamp(now + timedelta(seconds=ttl_s)),
        )
        kept = {
            (row["run"], row["epoch"]): row["abort_by"] or over_iterations(db, row["item"], row["iteration"])
            for row in rows
        }
        missing = {(beat.run, beat.epoch) for beat in renewals} - kept.keys()
        kept |= {one: "" for one in missing if db.fetch_one(_FINISHED, *one)}
        return [kept.get((beat.run, beat.epoch)) for beat in renewals]

    @reads
    def runs_page(
        self,
        db: Transaction,
        *,
        status: RunStatus | None = None,
        item: str = "",
        repo: str = "",
        after: str = "",
        limit: int = 50,
    ) -> tuple[list[RunRow], str]:
        """Return a page, newest first, and the `after` of the next page. `after` must be an existing run."""
        wanted = {"runs.status": status, "runs.item": item or None, "items.repo": repo or None}
        given = {name: value for name, value in wanted.items() if value is not None}
        where = "".join(f" AND {name} = ?" for name in given)
        begin = _created(db, after) if after else ("9999", "")
        rows = db.fetch_all(_RUNS_PAGE.format(where=where), *begin, *given.values(), limit + 1)
        page = [to_run_row(row) for row in rows[:limit]]
        return page, page[-1].run if len(rows) > limit else ""

    @reads
    def entries_after(self, db: Transaction, run: str, *, after: int, limit: int) -> list[Entry]:
        """Return a page of a ledger without verifying the chain, which needs the whole ledger."""
        return [to_entry(row) for row in db.fetch_all(_PIECE, run, after, limit)]


def _created(db: Transaction, run: str) -> tuple[str, str]:
    row = db.fetch_one("SELECT created_at FROM runs WHERE id = ?", run)
    if row is None:
        raise UsageError(f"{run!r} is not a page cursor", hint="pass the `after` of the previous page")
    return row["created_at"], run


_RENEW_ALL = """
WITH beats (run, epoch, iteration) AS ({beats})
UPDATE workers SET beat_at = ?, expires_at = ?, iteration = COALESCE(beats.iteration, workers.iteration),
       status = CASE workers.status WHEN 'starting' THEN 'running' ELSE workers.status END
FROM beats WHERE workers.run = beats.run AND workers.epoch = beats.epoch AND workers.ended_at = ''
RETURNING workers.run, workers.epoch, workers.item, workers.iteration,
          (SELECT abort_by FROM runs WHERE runs.id = workers.run) AS abort_by
"""
_FINISHED = "SELECT 1 AS ok FROM runs WHERE id = ? AND epoch = ? AND status <> 'running'"
_PIECE = """
SELECT run, seq, at, epoch, kind, data, prev, sum FROM events WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?
"""
_RUNS_PAGE = """
SELECT runs.id AS run, runs.item, runs.status, runs.created_at, runs.length, runs.head, runs.epoch, runs.abort_by,
       items.body, items.status AS item_status,
       leases.worker, leases.machine, leases.pid, leases.born, leases.expires_at
FROM runs JOIN items ON items.id = runs.item LEFT JOIN leases ON leases.run = runs.id
WHERE (runs.created_at, runs.id) < (?, ?){where} ORDER BY runs.created_at DESC, runs.id DESC LIMIT ?
"""
