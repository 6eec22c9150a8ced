"""The queue's rules: whose turn it is, how much may go on at once, and what waits for what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from ratchet.core.item import RANK, Item, ItemStatus, ParkReason, Priority

AGING_S = 86_400.0
NEVER_S = 100 * 365 * 86_400.0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much may go on at once. None is no limit. All are counted from rows, none is a counter."""

    workers: int | None = None
    per_repo: int | None = None
    awaiting_review: int | None = None
    daily_iterations: int | None = None
    cooldown_s: float = 0.0

    @property
    def any(self) -> bool:
        return self != Limits()


class Why(StrEnum):
    EMPTY = "empty"
    WORKERS = "workers"
    PER_REPO = "per_repo"  # the repositories of all that waits are as busy as they may be
    AWAITING_REVIEW = "awaiting_review"
    COOLDOWN = "cooldown"
    DAILY_ITERATIONS = "daily_iterations"
    LOCKED = "locked"  # all that waits would touch what others hold


class NoWork(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing may be claimed now, and why. `until` is set when time alone will change that."""

    why: Why
    until: str = ""


class ItemRow(msgspec.Struct, frozen=True, kw_only=True):
    """An item and where it stands."""

    item: Item
    status: ItemStatus
    run: str
    attempts: int
    returns: int
    not_before: str
    park_reason: ParkReason | None
    detail: str


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """`after` asks for the next page; empty when this is the last."""

    rows: list[ItemRow]
    after: str


class Count(msgspec.Struct, frozen=True, kw_only=True):
    status: ItemStatus
    priority: Priority
    items: int


def turn(queued_at_s: float, priority: Priority, *, aging_s: float = AGING_S) -> int:
    """Whose turn it is: the smallest goes first. In microseconds.

    Each step of priority is a head start of `aging_s`: higher goes first unless the lower has waited that much longer,
    a day for each step by default. So nothing starves, and the order is fixed when the item is queued, which keeps a
    claim one index probe however deep the queue is. 0 switches aging off.
    """
    return int((queued_at_s + RANK[priority] * (aging_s or NEVER_S)) * 1_000_000)


def cycle(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Items that wait for each other in a ring, in order; empty when there is none."""
    done: set[str] = set()
    for start in needs:
        path: list[str] = []
        stack = [(start, iter(needs.get(start, ())))]
        while stack:
            name, rest = stack[-1]
            if name not in path:
                path.append(name)
            step = next((other for other in rest if other not in done), None)
            if step is None:
                done.add(name)
                path.pop()
                stack.pop()
            elif step in path:
                return [*path[path.index(step) :], step]
            else:
                stack.append((step, iter(needs.get(step, ()))))
    return []
