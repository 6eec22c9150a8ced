"""Data shown on every page: inbox, workers, today's spending. Read at most every two seconds."""

from __future__ import annotations

import platform
import threading
import time
from pathlib import Path

import msgspec

from ratchet.app.inbox import InboxState, read_inbox
from ratchet.app.queue import StoreQueueService
from ratchet.config import Config

KEPT_S = 2.0
PAGES = ("inbox", "board", "runs", "figures", "learnings", "workers", "budgets", "watch")


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
                self._state = read_inbox(self.service.store, self.settings, self.folder)
                self._at = time.monotonic()
            return self._state

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
            pages=PAGES,
        )
