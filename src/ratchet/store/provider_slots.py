"""Slots of providers in SQL: how many agents of one provider work at once, over all hosts.

A slot belongs to a lease and counts while that is live: those of dead hosts become free by themselves, and a host that
lost its lease has stopped its agent before another takes the slot.
"""

from __future__ import annotations

from ratchet.core.lease import Lease
from ratchet.core.rate_limit import ConcurrencyLimit, ProviderUse, halve_limit, raise_limit
from ratchet.core.timestamps import format_timestamp
from ratchet.store.database import Database, Transaction, reads, writes
from ratchet.store.ledger import require_lease, to_holder


class SqlProviderSlots(Database):
    def take_slot(self, lease: Lease, provider: str, slot: str, *, limit: int, quiet_s: float) -> bool:
        """Take a slot of the provider. False: none is free. Idempotent. Raises LeaseLost."""
        if not self.gate.admit(provider, slot, limit):
            return False
        if self._read(lambda db: len(self._held(db, provider)) < limit):
            held = self._take(lease, provider, slot, limit=limit, quiet_s=quiet_s)
            if held is None:
                return True
        else:
            held = limit
        self.gate.leave(provider, slot, room=held)
        return False

    @writes
    def _take(
        self, db: Transaction, lease: Lease, provider: str, slot: str, *, limit: int, quiet_s: float
    ) -> int | None:
        """Take the slot; return how many are held if none is free."""
        db.advisory_lock(f"slots {provider}")
        require_lease(db, lease)
        held = self._held(db, provider)
        if slot in held:
            return None
        now = self._clock().timestamp()
        was = _limit(db, provider) or ConcurrencyLimit(limit=limit, at=now)
        pace = raise_limit(was, now=now, top=limit, quiet_s=quiet_s)
        _save(db, provider, pace)
        if len(held) >= pace.limit:
            return len(held)
        db.execute(_FORGET_ENDED, provider)
        db.execute(_TAKE, slot, provider, lease.run, lease.epoch, now)
        return None

    def free_slot(self, provider: str, slot: str, *, refused: bool) -> None:
        """Free the slot; `refused` halves the provider's limit. Idempotent; a slot that was not taken is no error."""
        self._free(provider, slot, refused=refused)
        self.gate.leave(provider, slot)

    @writes
    def _free(self, db: Transaction, provider: str, slot: str, *, refused: bool) -> None:
        db.advisory_lock(f"slots {provider}")
        row = db.fetch_one("DELETE FROM provider_slots WHERE id = ? RETURNING taken_at", slot)
        pace = _limit(db, provider)
        if row and pace and refused:
            now = self._clock().timestamp()
            _save(db, provider, halve_limit(pace, began=row["taken_at"], now=now))

    @reads
    def provider_uses(self, db: Transaction) -> list[ProviderUse]:
        """List the providers in use, with their current limits."""
        rows = db.fetch_all('SELECT provider, "limit" FROM provider_limits ORDER BY provider')
        found = [(row["provider"], row["limit"], len(self._held(db, row["provider"]))) for row in rows]
        return [ProviderUse(provider=name, limit=limit, held=held) for name, limit, held in found]

    def _held(self, db: Transaction, provider: str) -> list[str]:
        """Return the slots whose leases are live."""
        rows = db.fetch_all(_HELD, provider, format_timestamp(self._clock()))
        return [row["slot"] for row in rows if not self._is_dead(to_holder(row))]


def _limit(db: Transaction, provider: str) -> ConcurrencyLimit | None:
    row = db.fetch_one('SELECT "limit", changed_at, refused_at FROM provider_limits WHERE provider = ?', provider)
    return ConcurrencyLimit(limit=row["limit"], at=row["changed_at"], refused_at=row["refused_at"]) if row else None


def _save(db: Transaction, provider: str, pace: ConcurrencyLimit) -> None:
    db.execute(_SAVE, provider, pace.limit, pace.at, pace.refused_at)


_HELD = """
SELECT provider_slots.id AS slot, leases.worker, leases.machine, leases.pid, leases.born
FROM provider_slots JOIN leases ON leases.run = provider_slots.run AND leases.epoch = provider_slots.epoch
WHERE provider_slots.provider = ? AND leases.expires_at > ?
"""
_TAKE = "INSERT INTO provider_slots (id, provider, run, epoch, taken_at) VALUES (?, ?, ?, ?, ?)"
_FORGET_ENDED = """
DELETE FROM provider_slots WHERE provider = ? AND NOT EXISTS (
  SELECT 1 FROM leases WHERE leases.run = provider_slots.run AND leases.epoch = provider_slots.epoch)
"""
_SAVE = """
INSERT INTO provider_limits (provider, "limit", changed_at, refused_at) VALUES (?, ?, ?, ?)
ON CONFLICT (provider) DO UPDATE SET "limit" = excluded."limit", changed_at = excluded.changed_at,
  refused_at = excluded.refused_at
"""
