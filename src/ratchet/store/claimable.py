"""Items that could be claimed now, in SQL: what schedulers start workers for."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator

from ratchet.core.locks import overlaps
from ratchet.core.queue import CLAIMABLE_MAX, Claimable, ClaimLimits
from ratchet.core.timestamps import format_timestamp
from ratchet.store.database import Row, Transaction, reads
from ratchet.store.labels import labels_of
from ratchet.store.ledger import footprint
from ratchet.store.queue import NEXT, PAGE_MAX, WORKING, SqlQueue


class SqlClaimable(SqlQueue):
    @reads
    def claimable(
        self, db: Transaction, *, limits: ClaimLimits | None = None, limit: int = CLAIMABLE_MAX
    ) -> list[Claimable]:
        """Return items that claims could take now, next first: as many as the limits have room for.

        Items in progress do not count. Items whose lease has expired or whose park is over do: a claim takes them.
        """
        limits, now = limits or ClaimLimits(), self._clock()
        if self._limit_reached(db, limits, now):
            return []
        at = format_timestamp(now)
        if limits.workers is not None:
            limit = min(limit, limits.workers - _working(db, at))
        room = _Room(db, at, 1 if limits.cooldown_s else limit, limits.per_repo)
        waiting = heapq.merge(db.fetch_all(_DUE, at, at), _queued(db, at), key=lambda row: (row["turn"], row["id"]))
        found: list[Claimable] = []
        while not room.is_full and (row := next(waiting, None)):
            if room.take(row):
                found.append(Claimable(item=row["id"], require_labels=labels_of(row["labels"])))
        return found


class _Room:
    """What the next claims can take: the limits and path locks, as they are after the claims before."""

    def __init__(self, db: Transaction, at: str, limit: int, per_repo: int | None) -> None:
        self._left, self._per_repo = limit, per_repo
        self._busy = Counter({row["repo"]: int(row["n"]) for row in db.fetch_all(_BUSY_REPOS, at)})
        self._locks: defaultdict[str, list[Row]] = defaultdict(list)
        for row in db.fetch_all(_HELD, at):
            self._locks[row["repo"]].append(row)
        self._blocked: dict[tuple[str, str, str], bool] = {}

    @property
    def is_full(self) -> bool:
        return self._left <= 0

    def take(self, row: Row) -> bool:
        if self._per_repo is not None and self._busy[row["repo"]] >= self._per_repo:
            return False
        key = row["repo"], row["run"] or "", row["footprint"]
        if key not in self._blocked:
            self._blocked[key] = self._is_locked(row)
        if self._blocked[key]:
            return False
        self._left -= 1
        self._busy[row["repo"]] += 1
        # Of waiting items with the same footprint one can be claimed. Overlaps of different ones are not looked for.
        self._blocked[key] = bool(row["footprint"])
        return True

    def _is_locked(self, row: Row) -> bool:
        others = [lock["path"] for lock in self._locks[row["repo"]] if lock["run"] != row["run"]]
        return any(overlaps(path, other) for path in footprint(row) for other in others)


def _working(db: Transaction, at: str) -> int:
    row = db.fetch_one(WORKING, at)
    return int(row["n"]) if row else 0


def _queued(db: Transaction, at: str) -> Iterator[Row]:
    """Page through the claimable items of the queue in order."""
    sql = NEXT.format(more="", most=PAGE_MAX).replace("FOR UPDATE OF items SKIP LOCKED", "")
    place, name = -1, ""
    while rows := db.fetch_all(sql, at, place, name):
        yield from rows
        place, name = rows[-1]["turn"], rows[-1]["id"]


# What a claim requeues before it chooses: parks that are over, and runs with expired leases.
_DUE = """
SELECT id, run, repo, turn, footprint, labels FROM items WHERE id IN (
  SELECT id FROM items WHERE status = 'parked' AND not_before > '' AND not_before <= ?
  UNION SELECT item FROM leases WHERE expires_at <= ?)
ORDER BY turn, id
"""
_BUSY_REPOS = """
SELECT items.repo, count(*) AS n FROM leases JOIN items ON items.id = leases.item
WHERE leases.expires_at > ? GROUP BY items.repo
"""
_HELD = """
SELECT locks.repo, locks.path, locks.run FROM locks JOIN leases ON leases.run = locks.run WHERE leases.expires_at > ?
"""
