"""Data shown on every page: inbox, workers, today's spending. Read at most every two seconds."""

from __future__ import annotations

import platform
import shutil
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ratchet.app.queue import StoreQueueService
from ratchet.config import Config
from ratchet.core.board import BoardColumn
from ratchet.core.budget import BudgetScope
from ratchet.core.inbox import InboxEntry, LowDisk, SpentBudget, inbox_entries, visible

KEPT_S = 2.0
ROWS_MAX = 200


class InboxState(msgspec.Struct, frozen=True, kw_only=True):
    entries: list[InboxEntry]
    hidden: list[InboxEntry]
    workers_busy: int
    spent_usd: float
    used_usd: float


class Shell(msgspec.Struct, frozen=True, kw_only=True):
    needed: int
    busy: int
    spent_usd: float
    cap_usd: float
    csrf: str
    place: str
    host: str
    store: str
    pages: tuple[str, ...]


class Vitals:
    def __init__(self, service: StoreQueueService, settings: Config, folder: Path) -> None:
        self.service, self.settings, self.folder = service, settings, folder
        self._lock = threading.Lock()
        self._at, self._state = -KEPT_S, None  # type: float, InboxState | None

    def forget(self) -> None:
        """Read again for the next page: something was changed."""
        self._at = -KEPT_S

    def state(self) -> InboxState:
        with self._lock:
            if self._state is None or time.monotonic() - self._at >= KEPT_S:
                self._state, self._at = self._read(), time.monotonic()
            return self._state

    def _read(self) -> InboxState:
        store = self.service.store
        rows = store.board((BoardColumn.PARKED, BoardColumn.FAILED), limit=ROWS_MAX)
        workers = store.workers(live=True)
        spent, used = store.spent(BudgetScope.DAY), store.used(BudgetScope.DAY)
        found = inbox_entries(
            rows, workers=workers, budgets=self._budgets(used.cost_usd), disks=low_disks(self.settings, self.folder)
        )
        away = {one.entry for one in store.snoozes()}
        shown = visible(found, away)
        return InboxState(
            entries=shown,
            hidden=[entry for entry in found if entry.key in away],
            workers_busy=len(workers),
            spent_usd=spent.cost_usd,
            used_usd=used.cost_usd,
        )

    def _budgets(self, used_usd: float) -> list[SpentBudget]:
        cap = self.settings.budget.day.cost_usd
        if not cap or used_usd < cap * 0.999:
            return []
        day = f"{datetime.now(UTC).astimezone():%Y-%m-%d}"
        return [SpentBudget(repo="", day=day, spent_usd=used_usd, cap_usd=cap)]

    def shell(self, csrf: str, place: str) -> Shell:
        state = self.state()
        return Shell(
            needed=len(state.entries),
            busy=state.workers_busy,
            spent_usd=state.spent_usd,
            cap_usd=self.settings.budget.day.cost_usd,
            csrf=csrf,
            place=place,
            host=platform.node() or "this machine",
            store="PostgreSQL" if "Postgres" in type(self.service.store).__name__ else "SQLite",
            pages=("inbox", "board", "runs", "figures", "learnings", "workers", "budgets"),
        )


def low_disks(settings: Config, folder: Path) -> list[LowDisk]:
    """Return the disks that have too little room for a new workspace."""
    wanted = int(settings.workspace.min_free_disk_mb * 1_000_000)
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return []
    return [LowDisk(path=str(folder), free_bytes=free, wanted_bytes=wanted)] if free < wanted else []
