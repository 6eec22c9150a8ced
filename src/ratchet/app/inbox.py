"""The use case of the inbox: what needs a person, read from the store, the configuration and the disk."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ratchet.config import Budget, Config
from ratchet.core.board import BoardColumn
from ratchet.core.budget import Spending
from ratchet.core.inbox import InboxEntry, LowDisk, SpentBudget, inbox_entries, visible
from ratchet.store.protocols import Store

ROWS_MAX = 200
_COLUMNS = (BoardColumn.PARKED, BoardColumn.FAILED, BoardColumn.TO_REVIEW)


class InboxState(msgspec.Struct, frozen=True, kw_only=True):
    """`hidden` are the entries that somebody snoozed or acknowledged."""

    entries: list[InboxEntry]
    hidden: list[InboxEntry]
    workers_busy: int
    spent_usd: float


def read_inbox(store: Store, settings: Config, folder: Path) -> InboxState:
    workers, spending = store.workers(live=True), store.spending()
    found = inbox_entries(
        store.board(_COLUMNS, limit=ROWS_MAX),
        workers=workers,
        budgets=spent_budgets(spending, settings.budget, datetime.now(UTC)),
        disks=low_disks(settings, folder),
    )
    away = {one.entry for one in store.snoozes()}
    return InboxState(
        entries=visible(found, away),
        hidden=[entry for entry in found if entry.key in away],
        workers_busy=len(workers),
        spent_usd=sum(one.spent_usd for one in spending),
    )


def spent_budgets(spending: Sequence[Spending], budget: Budget, now: datetime) -> list[SpentBudget]:
    """Return the daily budgets that are used up: that of all repositories, and those of single ones."""
    used = [("", sum(one.used_usd for one in spending), budget.day.cost_usd)]
    used += [(one.name, one.used_usd, budget.repo.cost_usd) for one in spending]
    return [
        SpentBudget(repo=repo, day=f"{now.astimezone():%Y-%m-%d}", spent_usd=usd, cap_usd=cap)
        for repo, usd, cap in used
        if cap and usd >= cap * 0.999
    ]


def low_disks(settings: Config, folder: Path) -> list[LowDisk]:
    """Return the disks that have too little room for a new workspace."""
    wanted = int(settings.workspace.min_free_disk_mb * 1_000_000)
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return []
    return [LowDisk(path=str(folder), free_bytes=free, wanted_bytes=wanted)] if free < wanted else []
