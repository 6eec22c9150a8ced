"""Figures of the factory: all of them counted from rows, so none can drift from what happened."""

from __future__ import annotations

import msgspec

from ratchet.core.budget import Amount
from ratchet.core.queue import Count


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """`today` is since local midnight. None is nothing to divide by yet."""

    active_workers: int
    queue: list[Count]
    oldest_queued_at: str
    completed_today: int
    failed_today: int
    iterations_today: int
    commits_today: int
    reverts_today: int
    recoveries_today: int
    spent_today: Amount
    reserved_today: Amount
    average_completion_s: float | None

    @property
    def success_rate(self) -> float | None:
        return _ratio(self.completed_today, self.completed_today + self.failed_today)

    @property
    def cost_per_commit_usd(self) -> float | None:
        return _ratio(self.spent_today.cost_usd, self.commits_today)

    @property
    def reverts_per_commit(self) -> float | None:
        return _ratio(self.reverts_today, self.commits_today)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
