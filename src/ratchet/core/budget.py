"""Budgets: amounts, caps per scope, and the check whether a reservation fits."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

NotNegative = Annotated[float, msgspec.Meta(ge=0)]
KINDS = ("cost_usd", "tokens", "seconds", "iterations")
UNITS = {"cost_usd": 1_000_000, "tokens": 1, "seconds": 1_000, "iterations": 1}
UNITS_MAX = 10**15  # a database sums thousands of these in 64 bits


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    cost_usd: NotNegative = 0.0
    tokens: NotNegative = 0
    seconds: NotNegative = 0.0
    iterations: NotNegative = 0

    def units(self) -> tuple[int, int, int, int]:
        """Return integers (millionths of a dollar, milliseconds), whose sums are exact in any order."""
        cost, tokens, seconds, iterations = (_to_units(getattr(self, kind), UNITS[kind]) for kind in KINDS)
        return cost, tokens, seconds, iterations


def _to_units(amount: float, unit: int) -> int:
    return round(min(amount * unit, UNITS_MAX))


def from_units(cost_usd: int, tokens: int, seconds: int, iterations: int) -> Amount:
    """Convert integer units back to an amount."""
    return Amount(cost_usd=cost_usd / 1_000_000, tokens=tokens, seconds=seconds / 1_000, iterations=iterations)


class Cap(msgspec.Struct, frozen=True, kw_only=True):
    """A cap per kind; None means no cap."""

    cost_usd: float | None = None
    tokens: int | None = None
    seconds: float | None = None
    iterations: int | None = None


class BudgetScope(StrEnum):
    RUN = "run"
    ITEM = "item"
    REPO = "repo"
    DAY = "day"


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """Caps for an item in total (`item`), for a repository per day (`repo`) and for everything per day (`day`)."""

    item: Cap = Cap()
    repo: Cap = Cap()
    day: Cap = Cap()


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    run: str
    epoch: int
    held: Amount


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """What a repository spent today, or an item in total; `used_usd` includes what is reserved."""

    scope: BudgetScope
    name: str
    spent_usd: float
    used_usd: float


class OverBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A rejected reservation: `used` plus `asked` exceeds `cap`."""

    scope: BudgetScope
    kind: str
    cap: float
    used: float
    asked: float


def check_cap(asked: Amount, used: Amount, cap: Cap, scope: BudgetScope) -> OverBudget | None:
    for kind, more, have in zip(KINDS, asked.units(), used.units(), strict=True):
        most = getattr(cap, kind)
        if most is not None and more and more + have > round(most * UNITS[kind]):
            return OverBudget(
                scope=scope, kind=kind, cap=most, used=getattr(used, kind), asked=float(getattr(asked, kind))
            )
    return None


def overspent(spent: Amount, held: Amount) -> str:
    """Return the first kind whose spending exceeds the reservation, or ''."""
    both = zip(KINDS, spent.units(), held.units(), strict=True)
    return next((kind for kind, much, most in both if much > most), "")
