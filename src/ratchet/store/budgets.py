"""Budgets in SQL: reservations are made before spending, updated during and settled after. Totals are sums of rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from ratchet.core.budget import (
    KINDS,
    Amount,
    BudgetScope,
    Caps,
    OverBudget,
    Reservation,
    Spending,
    check_cap,
    from_units,
    overspent,
)
from ratchet.core.lease import Lease
from ratchet.core.timestamps import format_timestamp
from ratchet.store.database import Database, Row, Transaction, local_midnight, public_part, reads, writes
from ratchet.store.ledger import lease_lost, require_lease

HALF_A_DAY = timedelta(hours=12)


class SqlBudgets(Database):
    @writes
    def reserve(
        self, db: Transaction, lease: Lease, asked: Amount, *, caps: Caps, key: str = ""
    ) -> Reservation | OverBudget:
        """Raises LeaseLost."""
        name = f"reservation-{public_part(key or db.key)}"
        db.advisory_lock("budget")  # caps per day are global: two reservations may fit alone but not together
        if (key or db.maybe_committed) and db.fetch_one("SELECT id FROM reservations WHERE id = ?", name):
            return Reservation(id=name, run=lease.run, epoch=lease.epoch, held=asked)
        require_lease(db, lease)
        item = db.fetch_one("SELECT repo FROM items WHERE id = ?", lease.item)
        if item is None:
            raise lease_lost(lease)
        if over := _over_cap(db, asked, caps, item=lease.item, repo=item["repo"], day=self._day()):
            return over
        db.execute(_RESERVE, name, lease.run, lease.epoch, lease.item, item["repo"], self._today(), *asked.units())
        return Reservation(id=name, run=lease.run, epoch=lease.epoch, held=asked)

    @writes
    def record_spending(self, db: Transaction, reservation: Reservation, spent: Amount) -> str:
        """Record the total spent so far; return the first kind that exceeds the reservation, or ''. On excess, stop.

        Recorded spending never decreases and may exceed the reservation. A lost lease is no error: the money is spent.
        """
        db.execute(_METER, *_twice(spent), reservation.id)
        return overspent(spent, reservation.held)

    @writes
    def settle(self, db: Transaction, reservation: Reservation, spent: Amount) -> None:
        """Record the final amount and free the rest of the reservation. Idempotent."""
        db.execute(f"{_METER} AND status = 'held'", *_twice(spent), reservation.id)
        db.execute("UPDATE reservations SET status = 'settled' WHERE id = ? AND status = 'held'", reservation.id)

    def _day(self) -> tuple[str, str]:
        """Return the range of start times that count as today: half a day around local midnight, so that machines in
        other time zones share one daily budget."""
        midnight = local_midnight(self._clock())
        return format_timestamp(midnight - HALF_A_DAY), format_timestamp(midnight + HALF_A_DAY)

    def spent(self, scope: BudgetScope, name: str = "") -> Amount:
        """Return what was spent, without open reservations: on a run or item in total, else today."""
        return self._sums(scope, name, _SPENT)

    def used(self, scope: BudgetScope, name: str = "") -> Amount:
        """Return what was spent or is reserved: the amount that caps are checked against."""
        return self._sums(scope, name, _USED)

    @reads
    def spending(self, db: Transaction, items: Sequence[str] = ()) -> list[Spending]:
        """Return what each repository spent today and each of the items in total, in one query."""
        query, values = _SPENDING.format(scope="repo", where=_WHERE[BudgetScope.DAY]), [*self._day()]
        if items:
            marks = ", ".join("?" * len(items))
            query += f" UNION ALL {_SPENDING.format(scope='item', where=f'WHERE item IN ({marks})')}"
        return [
            Spending(
                scope=BudgetScope(row["scope"]),
                name=row["name"],
                spent_usd=from_units(int(row["spent"]), 0, 0, 0).cost_usd,
                used_usd=from_units(int(row["used"]), 0, 0, 0).cost_usd,
            )
            for row in db.fetch_all(query, *values, *items)
        ]

    @reads
    def _sums(self, db: Transaction, scope: BudgetScope, name: str, sums: str) -> Amount:
        day = self._day()
        values = {BudgetScope.REPO: (*day, name), BudgetScope.DAY: day}.get(scope, (name,))
        return _sum(db.fetch_one(f"SELECT {sums} FROM reservations {_WHERE[scope]}", *values))  # noqa: S608 — ours


def _over_cap(
    db: Transaction, asked: Amount, caps: Caps, *, item: str, repo: str, day: tuple[str, str]
) -> OverBudget | None:
    scopes = {
        BudgetScope.ITEM: (caps.item, (item,)),
        BudgetScope.REPO: (caps.repo, (*day, repo)),
        BudgetScope.DAY: (caps.day, day),
    }
    for scope, (cap, values) in scopes.items():
        if cap == type(cap)():
            continue
        used = _sum(db.fetch_one(f"SELECT {_USED} FROM reservations {_WHERE[scope]}", *values))  # noqa: S608 — ours
        if over := check_cap(asked, used, cap, scope):
            return over
    return None


def _sum(row: Row | None) -> Amount:
    assert row
    cost, tokens, seconds, iterations = (int(row[kind]) for kind in KINDS)
    return from_units(cost, tokens, seconds, iterations)


def _twice(spent: Amount) -> list[int]:
    return [unit for unit in spent.units() for _ in range(2)]


_WHERE = {
    BudgetScope.RUN: "WHERE run = ?",
    BudgetScope.ITEM: "WHERE item = ?",
    BudgetScope.REPO: "WHERE day > ? AND day <= ? AND repo = ?",
    BudgetScope.DAY: "WHERE day > ? AND day <= ?",
}
_SPENT = ", ".join(f"COALESCE(sum(spent_{kind}), 0) AS {kind}" for kind in KINDS)
# An open reservation counts as its amount, or as what was spent if that is more.
_USED = ", ".join(
    f"COALESCE(sum(CASE WHEN status = 'held' AND held_{kind} > spent_{kind} THEN held_{kind} ELSE spent_{kind} END), 0)"
    f" AS {kind}"
    for kind in KINDS
)
_SPENDING = """
SELECT '{scope}' AS scope, {scope} AS name, sum(spent_cost_usd) AS spent,
       sum(CASE WHEN status = 'held' AND held_cost_usd > spent_cost_usd THEN held_cost_usd
                ELSE spent_cost_usd END) AS used
FROM reservations {where} GROUP BY {scope}
"""
_METER = """
UPDATE reservations SET
  spent_cost_usd   = CASE WHEN spent_cost_usd   < ? THEN ? ELSE spent_cost_usd   END,
  spent_tokens     = CASE WHEN spent_tokens     < ? THEN ? ELSE spent_tokens     END,
  spent_seconds    = CASE WHEN spent_seconds    < ? THEN ? ELSE spent_seconds    END,
  spent_iterations = CASE WHEN spent_iterations < ? THEN ? ELSE spent_iterations END
WHERE id = ?
"""
_RESERVE = """
INSERT INTO reservations (id, run, epoch, item, repo, day, status, held_cost_usd, held_tokens, held_seconds,
                          held_iterations) VALUES (?, ?, ?, ?, ?, ?, 'held', ?, ?, ?, ?)
"""
