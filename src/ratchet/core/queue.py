"""Queue rules: order, concurrency limits and dependency cycles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from ratchet.core.item import RANK, Item, ItemStatus, ParkReason, Priority

AGING_S = 86_400.0
NEVER_S = 100 * 365 * 86_400.0
CLAIMABLE_MAX = 1_000


class ClaimLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on claims. None means no limit. All are counted from rows on each claim."""

    workers: int | None = None
    per_repo: int | None = None
    awaiting_review: int | None = None
    daily_iterations: int | None = None
    cooldown_s: float = 0.0

    @property
    def any(self) -> bool:
        return self != ClaimLimits()


class NoWorkReason(StrEnum):
    EMPTY = "empty"
    WORKERS = "workers"
    PER_REPO = "per_repo"  # all claimable items are of repositories at their limit
    AWAITING_REVIEW = "awaiting_review"
    COOLDOWN = "cooldown"
    DAILY_ITERATIONS = "daily_iterations"
    LABELS = "labels"  # all claimable items require labels that this worker lacks
    LOCKED = "locked"  # all claimable items overlap locks of other runs


class NoWork(msgspec.Struct, frozen=True, kw_only=True):
    """No item can be claimed now. `until` is set if one can be claimed after that time without other changes."""

    why: NoWorkReason
    until: str = ""


class Claimable(msgspec.Struct, frozen=True, kw_only=True):
    """An item that a worker with these labels could claim now."""

    item: str
    require_labels: list[str] = []


class ItemRow(msgspec.Struct, frozen=True, kw_only=True):
    """An item and its status."""

    item: Item
    status: ItemStatus
    run: str
    attempts: int
    returns: int
    not_before: str
    park_reason: ParkReason | None
    detail: str


class ItemPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of items. Pass `after` to get the next page; it is empty on the last one."""

    rows: list[ItemRow]
    after: str


class QueueCount(msgspec.Struct, frozen=True, kw_only=True):
    status: ItemStatus
    priority: Priority
    items: int


def queue_position(queued_at_s: float, priority: Priority, *, aging_s: float = AGING_S) -> int:
    """Return the position of an item in the queue, in microseconds: the smallest is claimed first.

    Each priority level is worth `aging_s` of waiting (a day by default), so that no item starves. The position is fixed
    when the item is queued, so a claim is one index lookup at any queue length. 0 switches aging off.
    """
    return int((queued_at_s + RANK[priority] * (aging_s or NEVER_S)) * 1_000_000)


def find_cycle(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the items of a dependency cycle in order; empty if there is none."""
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
