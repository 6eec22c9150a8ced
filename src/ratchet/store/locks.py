"""Path locks in SQL: taken all or none, and released with the lease they were taken under."""

from __future__ import annotations

from collections.abc import Iterable

from ratchet.core.lease import Lease
from ratchet.core.locks import Blocked, HeldLock, Locked, normalise_all
from ratchet.core.timestamps import format_timestamp
from ratchet.errors import UsageError
from ratchet.store.database import Database, Transaction, reads, writes
from ratchet.store.ledger import LOCK, find_blocking_lock, lease_lost, require_lease


class SqlLocks(Database):
    @writes
    def lock(self, db: Transaction, lease: Lease, paths: Iterable[str]) -> Locked | Blocked:
        """Lock all paths or none, without waiting, so that no deadlock is possible. Raises LeaseLost, UsageError."""
        wanted = _normal(paths)
        repo = _repo(db, lease)
        if blocked := find_blocking_lock(db, repo, lease.run, wanted, at=format_timestamp(self._clock())):
            require_lease(db, lease)
            return blocked
        require_lease(db, lease)
        db.execute_many(LOCK, [(repo, path, lease.run) for path in wanted])
        return Locked(paths=_held(db, lease.run))

    @writes
    def unlock(self, db: Transaction, lease: Lease, paths: Iterable[str] | None = None) -> list[str]:
        """Unlock these paths, or all; return the paths still locked. Raises LeaseLost."""
        require_lease(db, lease)
        if paths is None:
            db.execute("DELETE FROM locks WHERE run = ?", lease.run)
        else:
            db.execute_many(
                "DELETE FROM locks WHERE run = ? AND path = ?", [(lease.run, path) for path in _normal(paths)]
            )
        return _held(db, lease.run)

    @reads
    def locks(self, db: Transaction, repo: str) -> dict[str, list[str]]:
        """Return locked paths by run."""
        held: dict[str, list[str]] = {}
        for row in db.fetch_all(_ALL, repo, format_timestamp(self._clock())):
            held.setdefault(row["run"], []).append(row["path"])
        return held

    @reads
    def held_locks(self, db: Transaction) -> list[HeldLock]:
        """List all locked paths with their holders."""
        rows = db.fetch_all(_HOLDERS, format_timestamp(self._clock()))
        return [HeldLock(**{name: row[name] for name in HeldLock.__struct_fields__}) for row in rows]


def _normal(paths: Iterable[str]) -> list[str]:
    try:
        return normalise_all(list(paths))
    except ValueError as error:
        raise UsageError(str(error), hint="write paths as git does: src/a.py, src/, docs/**/*.md") from error


def _repo(db: Transaction, lease: Lease) -> str:
    row = db.fetch_one("SELECT repo FROM items WHERE id = ?", lease.item)
    if row is None:
        raise lease_lost(lease)
    return str(row["repo"])


def _held(db: Transaction, run: str) -> list[str]:
    return [row["path"] for row in db.fetch_all("SELECT path FROM locks WHERE run = ? ORDER BY path", run)]


_ALL = """
SELECT locks.path, locks.run FROM locks JOIN leases ON leases.run = locks.run
WHERE locks.repo = ? AND leases.expires_at > ? ORDER BY locks.run, locks.path
"""
_HOLDERS = """
SELECT locks.repo, locks.path, locks.run, workers.id AS worker FROM locks
JOIN leases ON leases.run = locks.run JOIN workers ON workers.run = leases.run AND workers.epoch = leases.epoch
WHERE leases.expires_at > ? ORDER BY locks.repo, locks.path
"""
