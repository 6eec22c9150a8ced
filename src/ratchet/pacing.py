"""How many agents of one provider work at once on this machine: a small file for each provider, shared by its workers.

A place is held by a process; that of one which died is free. Who finds none free waits, and asks nobody meanwhile.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec

from ratchet.agents import Answered, Failed
from ratchet.config import QuotaConfig
from ratchet.core.failure import Reason
from ratchet.core.lease import Holder
from ratchet.core.pace import Pace, eased, refused
from ratchet.files import make_private_dir
from ratchet.process import is_gone, this_process
from ratchet.steps import cross

LIMITED = (Reason.RATE_LIMITED, Reason.OVERLOADED)
LOOK_EVERY_S = 0.5


class Book(msgspec.Struct, frozen=True, kw_only=True):
    pace: Pace
    holders: list[Holder] = []


class Paces:
    def __init__(self, folder: Path, quota: QuotaConfig) -> None:
        self._folder, self._quota = folder, quota

    @asynccontextmanager
    async def asking(self, agent: str) -> AsyncIterator[Callable[[Answered], None]]:
        """A place among those who ask this agent's provider; what came of it is to be told."""
        if not (self._quota.concurrency and provider_of(agent)):
            yield lambda _outcome: None
            return
        path, began = self._folder / f"{provider_of(agent)}.json", time.time()
        while not await cross(self._enter, path):  # noqa: ASYNC110 — the places are held by other processes
            await asyncio.sleep(LOOK_EVERY_S)
        outcomes: list[Answered] = []
        try:
            yield outcomes.append
        finally:
            await cross(self._leave, path, began, any(map(is_limit, outcomes)))

    def _enter(self, path: Path) -> bool:
        with self._open(path) as (book, keep):
            if len(book.holders) >= book.pace.limit:
                return False
            keep(msgspec.structs.replace(book, holders=[*book.holders, this_process()]))
        return True

    def _leave(self, path: Path, began: float, was_refused: bool) -> None:
        with self._open(path) as (book, keep):
            pace = refused(book.pace, began=began, now=time.time()) if was_refused else book.pace
            holders = list(book.holders)
            if (me := this_process()) in holders:
                holders.remove(me)
            keep(Book(pace=pace, holders=holders))

    @contextmanager
    def _open(self, path: Path) -> Iterator[tuple[Book, Callable[[Book], None]]]:
        """The provider's book as it stands now, nobody else's hands on it."""
        handle = os.open(make_private_dir(path.parent) / f"{path.name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield self._read(path), lambda book: _write(path, book)
        finally:
            os.close(handle)

    def _read(self, path: Path) -> Book:
        now, top = time.time(), self._quota.concurrency
        try:
            book = msgspec.json.decode(path.read_bytes(), type=Book)
        except (FileNotFoundError, msgspec.MsgspecError):
            return Book(pace=Pace(limit=top, at=now))
        alive = [holder for holder in book.holders if not is_gone(holder)]
        return Book(pace=eased(book.pace, now=now, top=top, quiet_s=self._quota.quiet_s), holders=alive)


def _write(path: Path, book: Book) -> None:
    """Not durably: after a power cut nobody holds a place, and the provider says again what it thinks."""
    made = path.with_suffix(".new")
    made.write_bytes(msgspec.json.encode(book))
    made.replace(path)


def is_limit(outcome: Answered) -> bool:
    return isinstance(outcome, Failed) and outcome.reason in LIMITED


def provider_of(agent: str) -> str:
    """As far as it can be told from the agent's name: its program. Of `claude:opus` and `claude` it is the same; a
    script has none."""
    kind, _, rest = agent.partition(":")
    if kind == "scripted":
        return ""
    name = f"{kind}-{rest.split(' ')[0]}" if kind in ("acp", "command", "line") else kind
    return re.sub(r"[^\w.-]", "_", name)[:100]
