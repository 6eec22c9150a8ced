"""What is told to the outside: all events in one order, runs by the page, today in numbers, many heartbeats at once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from ratchet.core.feed import START, Beat, Today, Told
from ratchet.core.lease import WorkerRow
from ratchet.core.ledger import Entry
from ratchet.core.state import RunStatus
from ratchet.errors import NotFound, UsageError
from ratchet.store import RunRow
from ratchet.store.database import Row, Transaction, reads, stamp
from ratchet.store.ledger import Ledger, entry, hash_of, run_row
from ratchet.store.workers import worker_row

FEED_MAX = 500


class Feed(Ledger):
    # --- the feed --------------------------------------------------------------------------------------------

    @reads
    def feed(self, db: Transaction, after: str, *, limit: int = 100) -> list[Told]:
        """What came after a place, in the order that everybody sees. Raises UsageError."""
        place, run, seq = _place(after)
        return [_told(row) for row in db.all(_FEED, place, place, run, seq, max(1, min(limit, FEED_MAX)))]

    @reads
    def feed_end(self, db: Transaction) -> str:
        """The place of the newest event that is told."""
        row = db.one(_FEED_END)
        return _told(row).place if row else START

    # --- workers ---------------------------------------------------------------------------------------------

    @reads
    def proven(self, db: Transaction, token: str) -> WorkerRow | None:
        """The worker a token proves, also when its lease is over: every write is fenced by its epoch anyway."""
        row = db.one("SELECT * FROM workers WHERE token_sha256 = ?", hash_of(token))
        return worker_row(row) if row else None

    def renew_all(self, beats: Sequence[Beat], *, ttl_s: float) -> list[str | None]:
        """Keep many leases in one transaction: for each who asked for the run to be stopped, or None: it is lost.

        It does not wait for the disk: a lease that a power cut made a few seconds older is renewed by the next beat.
        """
        return self._write(lambda db: self._renew_all(db, beats, ttl_s=ttl_s), durable=False)

    def _renew_all(self, db: Transaction, beats: Sequence[Beat], *, ttl_s: float) -> list[str | None]:
        now = self._clock()
        kept = _renewed(db, beats, expires_at=stamp(now + timedelta(seconds=ttl_s)), at=stamp(now))
        missing = {(beat.run, beat.epoch) for beat in beats} - kept.keys()
        kept |= {one: "" for one in missing if db.one(_FINISHED, *one)}
        return [kept.get((beat.run, beat.epoch)) for beat in beats]

    # --- looking ---------------------------------------------------------------------------------------------

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
        return [entry(row) for row in db.all(_PIECE, run, after, limit)]

    @reads
    def today(self, db: Transaction) -> Today:
        counted, ran = db.all(_TOLD_TODAY, self._today()), db.all(_RAN_TODAY, self._today())
        return Today(events={row["kind"]: row["n"] for row in counted}, average_run_s=_average(ran))

    @reads
    def oldest_queued_at(self, db: Transaction) -> str:
        row = db.one("SELECT min(created_at) AS at FROM items WHERE status = 'queued'")
        return str(row["at"] or "") if row else ""


def _created(db: Transaction, run: str) -> tuple[str, str]:
    row = db.one("SELECT created_at FROM runs WHERE id = ?", run)
    if row is None:
        raise NotFound(f"there is no run {run}", hint="take `after` from the page before", run=run)
    return row["created_at"], run


def _renewed(db: Transaction, beats: Sequence[Beat], *, expires_at: str, at: str) -> dict[tuple[str, int], str]:
    rows = ", ".join("(CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT))" for _ in beats)
    values = [value for beat in beats for value in (beat.run, beat.epoch, beat.iteration)]
    kept = db.all(_RENEW_ALL.format(rows=rows), *values, expires_at)
    db.run(_BEAT_ALL.format(rows=rows), *values, at)
    return {(row["run"], row["epoch"]): row["abort_by"] for row in kept}


def _place(after: str) -> tuple[int, str, int]:
    if after == START:
        return -1, "", -1
    place, _, rest = after.partition(":")
    run, _, seq = rest.rpartition(":")
    if not (_number(place) and _number(seq) and run):
        raise UsageError(f"{after!r} is no place in the feed", hint="send the `id` of an event, or `start`")
    return int(place), run, int(seq)


def _number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18


def _told(row: Row) -> Told:
    return Told(place=f"{row['place']}:{row['run']}:{row['seq']}", entry=entry(row))


def _average(rows: Sequence[Row]) -> float:
    took = [(datetime.fromisoformat(r["at"]) - datetime.fromisoformat(r["created_at"])).total_seconds() for r in rows]
    return sum(took) / len(took) if took else 0.0


_FEED = """
SELECT * FROM feed WHERE place >= ? AND (place, run, seq) > (?, ?, ?) ORDER BY place, run, seq LIMIT ?
"""
_FEED_END = "SELECT * FROM feed ORDER BY place DESC, run DESC, seq DESC LIMIT 1"
_RENEW_ALL = """
WITH beats (run, epoch, iteration) AS (VALUES {rows})
UPDATE leases SET expires_at = ? FROM beats WHERE leases.run = beats.run AND leases.epoch = beats.epoch
RETURNING leases.run, leases.epoch, (SELECT abort_by FROM runs WHERE runs.id = leases.run) AS abort_by
"""
_BEAT_ALL = """
WITH beats (run, epoch, iteration) AS (VALUES {rows})
UPDATE workers SET beat_at = ?, iteration = COALESCE(beats.iteration, workers.iteration),
       status = CASE workers.status WHEN 'starting' THEN 'running' ELSE workers.status END
FROM beats WHERE workers.run = beats.run AND workers.epoch = beats.epoch AND workers.ended_at = ''
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
_TOLD_TODAY = """
SELECT kind, count(*) AS n FROM events WHERE kind IN
  ('run_completed', 'run_failed', 'run_aborted', 'run_returned', 'red_confirmed', 'step_committed', 'step_reverted')
AND at >= ? GROUP BY kind
"""
_RAN_TODAY = """
SELECT runs.created_at, events.at FROM events JOIN runs ON runs.id = events.run
WHERE kind IN
  ('run_completed', 'run_failed', 'run_aborted', 'run_returned', 'red_confirmed', 'step_committed', 'step_reverted')
AND events.at >= ? AND kind = 'run_completed' ORDER BY events.at DESC LIMIT 1000
"""
