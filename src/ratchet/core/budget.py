"""Budgets: what may be spent, on what, and whether one more reservation fits."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

NotNegative = Annotated[float, msgspec.Meta(ge=0)]
KINDS = ("cost_usd", "tokens", "seconds", "iterations")
UNITS = {"cost_usd": 1_000_000, "tokens": 1, "seconds": 1_000, "iterations": 1}


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    cost_usd: NotNegative = 0.0
    tokens: NotNegative = 0
    seconds: NotNegative = 0.0
    iterations: NotNegative = 0

    def units(self) -> tuple[int, int, int, int]:
        """As whole numbers (millionths of a dollar, milliseconds): sums of those are exact in any order."""
        cost, tokens, seconds, iterations = (round(getattr(self, kind) * UNITS[kind]) for kind in KINDS)
        return cost, tokens, seconds, iterations


def amount(cost_usd: int, tokens: int, seconds: int, iterations: int) -> Amount:
    """From whole units."""
    return Amount(cost_usd=cost_usd / 1_000_000, tokens=tokens, seconds=seconds / 1_000, iterations=iterations)


class Cap(msgspec.Struct, frozen=True, kw_only=True):
    """None is no cap."""

    cost_usd: float | None = None
    tokens: int | None = None
    seconds: float | None = None
    iterations: int | None = None


class Scope(StrEnum):
    RUN = "run"
    ITEM = "item"
    REPO = "repo"
    DAY = "day"


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """`item` is for its whole life, `repo` for one repository in a day, `day` for all of them together in a day."""

    item: Cap = Cap()
    repo: Cap = Cap()
    day: Cap = Cap()


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    run: str
    epoch: int
    held: Amount


class OverBudget(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing was reserved: `used` and what was asked for are more than `cap`."""

    scope: Scope
    kind: str
    cap: float
    used: float
    asked: float


def refusal(asked: Amount, used: Amount, cap: Cap, scope: Scope) -> OverBudget | None:
    for kind, more, have in zip(KINDS, asked.units(), used.units(), strict=True):
        most = getattr(cap, kind)
        if most is not None and more and more + have > round(most * UNITS[kind]):
            return OverBudget(
                scope=scope, kind=kind, cap=most, used=getattr(used, kind), asked=float(getattr(asked, kind))
            )
    return None


def overspent(spent: Amount, held: Amount) -> str:
    """The first kind of which more was spent than reserved, or ''."""
    both = zip(KINDS, spent.units(), held.units(), strict=True)
    return next((kind for kind, much, most in both if much > most), "")
