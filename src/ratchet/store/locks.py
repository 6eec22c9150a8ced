"""Locks on paths: all that was asked for or none of it, and gone with the lease they were taken under."""

from __future__ import annotations

from collections.abc import Iterable

from ratchet.core.lease import Lease
from ratchet.core.locks import Blocked, Locked, normalised
from ratchet.errors import UsageError
from ratchet.store.database import Database, Transaction, reads, stamp, writes
from ratchet.store.ledger import LOCK, blocks, hold, lost


class Locks(Database):
    @writes
    def lock(self, db: Transaction, lease: Lease, paths: Iterable[str]) -> Locked | Blocked:
        """Nobody waits and nobody holds a part, so nobody can wait for a ring. Raises LeaseLost, UsageError."""
        wanted = _normal(paths)
        repo = _repo(db, lease)
        if blocked := blocks(db, repo, lease.run, wanted, at=stamp(self._clock())):
            hold(db, lease)
            return blocked
        hold(db, lease)
        db.many(LOCK, [(repo, path, lease.run) for path in wanted])
        return Locked(paths=_held(db, lease.run))

    @writes
    def unlock(self, db: Transaction, lease: Lease, paths: Iterable[str] | None = None) -> list[str]:
        """Let go of these, or of all; returns what is still held. Raises LeaseLost."""
        hold(db, lease)
        if paths is None:
            db.run("DELETE FROM locks WHERE run = ?", lease.run)
        else:
            db.many("DELETE FROM locks WHERE run = ? AND path = ?", [(lease.run, path) for path in _normal(paths)])
        return _held(db, lease.run)

    @reads
    def locks(self, db: Transaction, repo: str) -> dict[str, list[str]]:
        """Paths by the run that holds them."""
        held: dict[str, list[str]] = {}
        for row in db.all(_ALL, repo, stamp(self._clock())):
            held.setdefault(row["run"], []).append(row["path"])
        return held


def _normal(paths: Iterable[str]) -> list[str]:
    try:
        return normalised(list(paths))
    except ValueError as error:
        raise UsageError(str(error), hint="name paths as git does: src/a.py, src/, docs/**/*.md") from error


def _repo(db: Transaction, lease: Lease) -> str:
    row = db.one("SELECT repo FROM items WHERE id = ?", lease.item)
    if row is None:
        raise lost(lease)
    return str(row["repo"])


def _held(db: Transaction, run: str) -> list[str]:
    return [row["path"] for row in db.all("SELECT path FROM locks WHERE run = ? ORDER BY path", run)]


_ALL = """
SELECT locks.path, locks.run FROM locks JOIN leases ON leases.run = locks.run
WHERE locks.repo = ? AND leases.expires_at > ? ORDER BY locks.run, locks.path
"""
