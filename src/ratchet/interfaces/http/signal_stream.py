"""Streams of store signals: one listener of the store for each topic serves all streams of that topic."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from ratchet.core.signal import Topic
from ratchet.interfaces.http import sse
from ratchet.store.protocols import Listener

if TYPE_CHECKING:
    from ratchet.interfaces.http.app_state import AppState

log = logging.getLogger("ratchet.signals")
CHECK_S = 1.0


class SignalStreams:
    def __init__(self, app_state: AppState) -> None:
        self._app_state = app_state
        self._topics: dict[Topic, _TopicStreams] = {}

    async def listen(self, topic: Topic) -> AsyncIterator[bytes]:
        """Yield a first block once the store is listened to, then one event for each signal."""
        streams = self._topics.get(topic)
        if streams is None:
            listener = await self._app_state.run_blocking(self._app_state.queue_service.store.listen, topic)
            # Another stream may have opened one meanwhile: two listeners do no harm, the first is kept.
            streams = self._topics.setdefault(topic, _TopicStreams(listener, asyncio.get_running_loop()))
        signal = asyncio.Event()
        streams.waiting.add(signal)
        try:
            yield sse.encode_start()
            while not self._app_state.stopping.is_set():
                if await _is_set(signal):
                    signal.clear()
                    yield sse.encode_line(b"signal")
                else:
                    yield sse.KEEP_ALIVE
        finally:
            streams.waiting.discard(signal)

    def close(self) -> None:
        for streams in self._topics.values():
            streams.close()


class _TopicStreams:
    """A thread that waits for one topic's signals and sets the event of each stream."""

    def __init__(self, listener: Listener, loop: asyncio.AbstractEventLoop) -> None:
        self.waiting: set[asyncio.Event] = set()
        self._listener, self._loop, self._closing = listener, loop, False
        self._thread = threading.Thread(target=self._follow, name="ratchet-signals", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing = True
        self._listener.wake()
        self._thread.join()
        self._listener.close()

    def _follow(self) -> None:
        while not self._closing:
            try:
                if self._listener.wait(CHECK_S) and not self._closing:
                    self._loop.call_soon_threadsafe(self._pass_on)
            except Exception:
                log.exception("cannot listen to the store")
                time.sleep(CHECK_S)

    def _pass_on(self) -> None:
        for signal in self.waiting:
            signal.set()


async def _is_set(signal: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(CHECK_S):
            await signal.wait()
    except TimeoutError:
        return False
    return True
