"""Event streams: each client resumes after its last event and receives every event exactly once.

A stream stores only its position in the feed. One poll of the store serves all streams.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from ratchet.app.queue import entry_answer
from ratchet.core.ledger import FeedEntry
from ratchet.errors import RatchetError, UsageError
from ratchet.interfaces.http import sse
from ratchet.interfaces.http.errors import HttpError

if TYPE_CHECKING:
    from ratchet.interfaces.http.app_state import AppState

log = logging.getLogger("ratchet.events")
START = "start"
POLL_S, RETRY_S = 0.2, 5.0
STREAMS_MAX = 100
BATCH = 100
_PLACE = re.compile(r"[0-9]{1,18}\.[A-Za-z0-9_~-]{1,128}\.[0-9]{1,18}")


class EventStreams:
    def __init__(self, app_state: AppState) -> None:
        self._app_state = app_state
        self._streams = 0
        self._end = ""
        self._changed = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None

    async def listen(
        self, after: str, *, run: str = "", encode: Callable[[FeedEntry], bytes] | None = None
    ) -> AsyncIterator[bytes]:
        """Yield encoded blocks; `encode` is for streams that send something else than the whole entry."""
        encode = encode or _encode
        store = self._app_state.queue_service.store
        async with self._open_stream():
            place = _place(after) if after else await self._app_state.run_blocking(store.feed_end)
            # Sent first, so that a client that disconnects before any event resumes from here.
            yield sse.encode_start(place or START)
            while not self._app_state.stopping.is_set():
                seen = self._changed
                if entries := await self._app_state.run_blocking(store.feed, place, run=run, limit=BATCH):
                    yield b"".join(encode(entry) for entry in entries)
                    place = entries[-1].place
                elif not await _happens(seen, sse.KEEP_ALIVE_S):
                    yield sse.KEEP_ALIVE

    def wake(self) -> None:
        """Make all streams check for new events or shutdown."""
        self._changed.set()
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def _open_stream(self) -> AsyncIterator[None]:
        if self._streams >= STREAMS_MAX:
            raise HttpError(
                429,
                "too_many",
                f"the limit of {STREAMS_MAX} event streams is reached",
                hint="share a stream",
                headers={"retry-after": "5"},
            )
        self._streams += 1
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll())
        try:
            yield
        finally:
            self._streams -= 1
            if not self._streams and self._poller:
                self._poller.cancel()
                self._poller = None

    async def _poll(self) -> None:
        """Poll the end of the feed while there is at least one stream."""
        while True:
            pause_s = POLL_S
            try:
                end = await self._app_state.run_blocking(self._app_state.queue_service.store.feed_end)
                if end != self._end:
                    self._end = end
                    self.wake()
            except (RatchetError, HttpError):
                pass  # the store may be unavailable: try again
            except Exception:
                log.exception("cannot look for new events")
                pause_s = RETRY_S
            await asyncio.sleep(pause_s)


def _place(after: str) -> str:
    """Return the feed position to start from; reject an invalid one before the response starts."""
    if after == START:
        return ""
    if not _PLACE.fullmatch(after):
        raise UsageError(f"invalid feed position {after!r}", hint="send the `id` of an event, or `start`")
    return after


async def _happens(event: asyncio.Event, within_s: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await event.wait()
    return event.is_set()


def _encode(found: FeedEntry) -> bytes:
    return sse.encode_event(id=found.place, event=found.entry.kind, data=entry_answer(found.entry))
