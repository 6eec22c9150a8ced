"""Budgets: spending is reserved before, metered during and settled after. Every sum is a sum of rows."""

from __future__ import annotations

from datetime import timedelta

from ratchet.core.budget import KINDS, Amount, Caps, OverBudget, Reservation, Scope, amount, overspent, refusal
from ratchet.core.lease import Lease
from ratchet.store.database import Database, Row, Transaction, local_midnight, name_in, reads, stamp, writes
from ratchet.store.ledger import hold, lost

HALF_A_DAY = timedelta(hours=12)


class Budgets(Database):
    @writes
    def reserve(self, db: Transaction, lease: Lease, asked: Amount, *, caps: Caps) -> Reservation | OverBudget:
        """Raises LeaseLost."""
        name = f"reservation-{name_in(db.key)}"
        if db.doubt and db.one("SELECT id FROM reservations WHERE id = ?", name):
            return Reservation(id=name, run=lease.run, epoch=lease.epoch, held=asked)
        db.alone("budget")  # the day is shared by all: two that both fit alone may not fit together
        hold(db, lease)
        item = db.one("SELECT repo FROM items WHERE id = ?", lease.item)
        if item is None:
            raise lost(lease)
        if over := _over(db, asked, caps, item=lease.item, repo=item["repo"], day=self._day()):
            return over
        db.run(_RESERVE, name, lease.run, lease.epoch, lease.item, item["repo"], self._today(), *asked.units())
        return Reservation(id=name, run=lease.run, epoch=lease.epoch, held=asked)

    @writes
    def meter(self, db: Transaction, reservation: Reservation, spent: Amount) -> str:
        """Write down what was spent so far; returns what there is too much of, or '': who hears it must stop.

        Spending never shrinks, and the truth is written even when it is too much. Raises nothing for a lease that was
        lost meanwhile: money spent is spent.
        """
        db.run(_METER, *_twice(spent), reservation.id)
        return overspent(spent, reservation.held)

    @writes
    def settle(self, db: Transaction, reservation: Reservation, spent: Amount) -> None:
        """The step is over: what was not spent is free again. Settling twice changes nothing."""
        db.run(f"{_METER} AND status = 'held'", *_twice(spent), reservation.id)
        db.run("UPDATE reservations SET status = 'settled' WHERE id = ? AND status = 'held'", reservation.id)

    def _day(self) -> tuple[str, str]:
        """Between which midnights a day has begun that is today's: a machine in another time zone has the same day, and
        not a budget of its own."""
        midnight = local_midnight(self._clock())
        return stamp(midnight - HALF_A_DAY), stamp(midnight + HALF_A_DAY)

    def spent(self, scope: Scope, name: str = "") -> Amount:
        """On a run or an item in its life, on a repository today, or on all today; not what is only reserved."""
        return self._sums(scope, name, _SPENT)

    def used(self, scope: Scope, name: str = "") -> Amount:
        """The same with what is reserved now: what a cap is compared with."""
        return self._sums(scope, name, _USED)

    @reads
    def _sums(self, db: Transaction, scope: Scope, name: str, sums: str) -> Amount:
        day = self._day()
        values = {Scope.REPO: (*day, name), Scope.DAY: day}.get(scope, (name,))
        return _sum(db.one(f"SELECT {sums} FROM reservations {_WHERE[scope]}", *values))  # noqa: S608 — ours


def _over(
    db: Transaction, asked: Amount, caps: Caps, *, item: str, repo: str, day: tuple[str, str]
) -> OverBudget | None:
    scopes = {Scope.ITEM: (caps.item, (item,)), Scope.REPO: (caps.repo, (*day, repo)), Scope.DAY: (caps.day, day)}
    for scope, (cap, values) in scopes.items():
        if cap == type(cap)():
            continue
        used = _sum(db.one(f"SELECT {_USED} FROM reservations {_WHERE[scope]}", *values))  # noqa: S608 — ours
        if over := refusal(asked, used, cap, scope):
            return over
    return None


def _sum(row: Row | None) -> Amount:
    assert row
    cost, tokens, seconds, iterations = (int(row[kind]) for kind in KINDS)
    return amount(cost, tokens, seconds, iterations)


def _twice(spent: Amount) -> list[int]:
    return [unit for unit in spent.units() for _ in range(2)]


_WHERE = {
    Scope.RUN: "WHERE run = ?",
    Scope.ITEM: "WHERE item = ?",
    Scope.REPO: "WHERE day > ? AND day <= ? AND repo = ?",
    Scope.DAY: "WHERE day > ? AND day <= ?",
}
_SPENT = ", ".join(f"COALESCE(sum(spent_{kind}), 0) AS {kind}" for kind in KINDS)
# While it is held, a reservation uses what it holds, or what was spent if that is more already.
_USED = ", ".join(
    f"COALESCE(sum(CASE WHEN status = 'held' AND held_{kind} > spent_{kind} THEN held_{kind} ELSE spent_{kind} END), 0)"
    f" AS {kind}"
    for kind in KINDS
)
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
