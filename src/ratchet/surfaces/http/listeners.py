"""Who listens to events: each goes on after the last event it had, at its own pace, with nothing lost or told twice.

A listener keeps nothing but its place in the feed. One look for all of them says whether there is more to read.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from ratchet.core.ledger import Told
from ratchet.desk import entry_answer
from ratchet.errors import RatchetError, UsageError
from ratchet.surfaces.http.refusals import Refusal

if TYPE_CHECKING:
    from ratchet.surfaces.http.house import House

START = "start"
LOOK_S = 0.2
ALIVE_S = 15.0
SEATS = 100
PIECE = 100
_PLACE = re.compile(r"[0-9]{1,18}\.[A-Za-z0-9_~-]{1,128}\.[0-9]{1,18}")


class Listeners:
    def __init__(self, house: House) -> None:
        self._house = house
        self._seats = 0
        self._end = ""
        self._moved = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    async def listen(self, after: str, *, run: str = "") -> AsyncIterator[bytes]:
        store = self._house.desk.store
        async with self._seat():
            place = _place(after) if after else await self._house.cross(store.feed_end)
            # Who loses the connection before anything has happened comes back to here, too.
            yield b"retry: 1000\nid: %s\n\n" % (place or START).encode()
            while not self._house.stopping.is_set():
                seen = self._moved
                if told := await self._house.cross(store.feed, place, run=run, limit=PIECE):
                    yield b"".join(_line(one) for one in told)
                    place = told[-1].place
                elif not await _happens(seen, ALIVE_S):
                    yield b": still here\n\n"

    def wake(self) -> None:
        """There may be more to read, or an end to it."""
        self._moved.set()
        self._moved = asyncio.Event()

    @asynccontextmanager
    async def _seat(self) -> AsyncIterator[None]:
        if self._seats >= SEATS:
            raise Refusal(
                429, "too_many", f"{SEATS} listen already", hint="share a stream", headers={"retry-after": "5"}
            )
        self._seats += 1
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            self._seats -= 1
            if not self._seats and self._looking:
                self._looking.cancel()
                self._looking = None

    async def _look(self) -> None:
        """While anybody listens."""
        while True:
            with suppress(RatchetError, Refusal):  # a store that is away is looked at again
                end = await self._house.cross(self._house.desk.store.feed_end)
                if end != self._end:
                    self._end = end
                    self.wake()
            await asyncio.sleep(LOOK_S)


def _place(after: str) -> str:
    """Where to begin, as the store names it. A wrong one is told before anything is sent."""
    if after == START:
        return ""
    if not _PLACE.fullmatch(after):
        raise UsageError(f"{after!r} is no place in the feed", hint="send the `id` of an event, or `start`")
    return after


async def _happens(event: asyncio.Event, within_s: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await event.wait()
    return event.is_set()


def _line(told: Told) -> bytes:
    """JSON has no raw newlines, so one `data:` line holds it."""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (
        told.place.encode(),
        told.entry.kind.encode(),
        msgspec.json.encode(entry_answer(told.entry)),
    )
