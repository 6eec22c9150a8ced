"""What is asked from outside: workers by their tokens, many heartbeats at once, runs and ledgers by the page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from ratchet.core.lease import Beat, WorkerRow
from ratchet.core.ledger import Entry
from ratchet.core.state import RunStatus
from ratchet.errors import UsageError
from ratchet.store import RunRow
from ratchet.store.database import Database, Transaction, reads, stamp
from ratchet.store.ledger import entry_of, hash_of, run_row, worker_of
from ratchet.store.workers import worker_row


class Outside(Database):
    _beats: str  # the rows (run, epoch, iteration) of a JSON array: the statement is the same for any number of them

    @reads
    def proven(self, db: Transaction, token: str) -> WorkerRow | None:
        """The worker a token proves, also when its lease is over: every write is fenced by its epoch anyway."""
        row = db.one("SELECT * FROM workers WHERE id = ? AND token_sha256 = ?", worker_of(token), hash_of(token))
        return worker_row(row) if row else None

    def renew_all(self, beats: Sequence[Beat], *, ttl_s: float) -> list[str | None]:
        """Keep many leases in one transaction: for each who asked for the run to be stopped, or None: it is lost.

        It does not wait for the disk: a lease that a power cut made a few seconds older is renewed by the next beat.
        """
        return self._write(lambda db: self._renew_all(db, beats, ttl_s=ttl_s), durable=False)

    def _renew_all(self, db: Transaction, beats: Sequence[Beat], *, ttl_s: float) -> list[str | None]:
        now = self._clock()
        told = msgspec.json.encode([(beat.run, beat.epoch, beat.iteration) for beat in beats]).decode()
        rows = db.all(_RENEW_ALL.format(beats=self._beats), told, stamp(now), stamp(now + timedelta(seconds=ttl_s)))
        kept = {(row["run"], row["epoch"]): row["abort_by"] for row in rows}
        missing = {(beat.run, beat.epoch) for beat in beats} - kept.keys()
        kept |= {one: "" for one in missing if db.one(_FINISHED, *one)}
        return [kept.get((beat.run, beat.epoch)) for beat in beats]

    @reads
    def runs_page(
        self, db: Transaction, *, status: RunStatus | None = None, item: str = "", after: str = "", limit: int = 50
    ) -> tuple[list[RunRow], str]:
        """Newest first, and where the next page begins. `after` is a run that is there."""
        wanted = {"runs.status": status, "runs.item": item or None}
        given = {name: value for name, value in wanted.items() if value is not None}
        where = "".join(f" AND {name} = ?" for name in given)
        begin = _created(db, after) if after else ("9999", "")
        rows = db.all(_RUNS_PAGE.format(where=where), *begin, *given.values(), limit + 1)
        page = [run_row(row) for row in rows[:limit]]
        return page, page[-1].run if len(rows) > limit else ""

    @reads
    def entries_after(self, db: Transaction, run: str, *, after: int, limit: int) -> list[Entry]:
        """A piece of a ledger. Unlike `entries`, the chain is not checked: that takes all of it."""
        return [entry_of(row) for row in db.all(_PIECE, run, after, limit)]


def _created(db: Transaction, run: str) -> tuple[str, str]:
    row = db.one("SELECT created_at FROM runs WHERE id = ?", run)
    if row is None:
        raise UsageError(f"{run!r} is no page", hint="take `after` from the page before")
    return row["created_at"], run


_RENEW_ALL = """
WITH beats (run, epoch, iteration) AS ({beats})
UPDATE workers SET beat_at = ?, expires_at = ?, iteration = COALESCE(beats.iteration, workers.iteration),
       status = CASE workers.status WHEN 'starting' THEN 'running' ELSE workers.status END
FROM beats WHERE workers.run = beats.run AND workers.epoch = beats.epoch AND workers.ended_at = ''
RETURNING workers.run, workers.epoch, (SELECT abort_by FROM runs WHERE runs.id = workers.run) AS abort_by
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
