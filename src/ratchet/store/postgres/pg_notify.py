"""Signals over PostgreSQL's LISTEN and NOTIFY: one connection and one thread per store, for any number of listeners.

A notification is sent with its transaction, so it is never early, and never lost while the connection lives. After a
lost connection all listeners are woken, because notifications may have been missed.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psycopg

from ratchet.core.signal import POLL_S, Topic

CHANNEL = "ratchet_"
READY_S = 10.0
LOOK_S = 0.05


class PgListener:
    """A listener that remembers signals since its creation or its last wait."""

    def __init__(self, leave: Callable[[PgListener], None], topic: Topic) -> None:
        self.topic, self._leave, self._rung = topic, leave, threading.Event()

    def wake(self) -> None:
        self._rung.set()

    def wait(self, timeout_s: float) -> bool:
        rung = self._rung.wait(timeout_s)
        self._rung.clear()
        return rung

    def close(self) -> None:
        self._leave(self)

    def __enter__(self) -> PgListener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PollingListener:
    """A listener that polls a value, for topics that change too often for a notification each."""

    def __init__(self, look: Callable[[], str]) -> None:
        self._look, self._seen, self._rung = look, look(), threading.Event()

    def wait(self, timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        while (now := self._look()) == self._seen and not self._rung.is_set():
            if time.monotonic() >= until:
                return False
            self._rung.wait(min(LOOK_S, max(0.0, until - time.monotonic())))
        self._seen = now
        self._rung.clear()
        return True

    def wake(self) -> None:
        self._rung.set()

    def close(self) -> None:
        """Nothing to release."""

    def __enter__(self) -> PollingListener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PgNotifications:
    def __init__(self, connect: Callable[[], psycopg.Connection[dict[str, object]]]) -> None:
        self._connect = connect
        self._bells: set[PgListener] = set()
        self._guard, self._ready = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._stop, self._stopping = os.pipe()

    def listen(self, topic: Topic) -> PgListener:
        bell = PgListener(self._leave, topic)
        with self._guard:
            self._bells.add(bell)
            if self._thread is None:
                self._thread = threading.Thread(target=self._receive_all, name="ratchet-notices", daemon=True)
                self._thread.start()
        self._ready.wait(READY_S)  # after the timeout continue as if the server were away: listeners poll anyway
        return bell

    def close(self) -> None:
        if self._stopping < 0:
            return
        os.close(self._stopping)
        if self._thread:
            self._thread.join()
        os.close(self._stop)
        self._stopping = -1

    def _leave(self, bell: PgListener) -> None:
        with self._guard:
            self._bells.discard(bell)

    def _ring(self, channel: str = "") -> None:
        with self._guard:
            bells = [bell for bell in self._bells if channel in ("", f"{CHANNEL}{bell.topic}")]
        for bell in bells:
            bell.wake()

    def _receive_all(self) -> None:
        while not self._over(0):
            with suppress(psycopg.Error, OSError):
                self._receive()
            self._over(POLL_S)
            self._ring()

    def _receive(self) -> None:
        """Dispatch notifications until the store is closed or the connection is lost."""
        with self._connect() as db:
            for topic in Topic:
                db.execute(f'LISTEN "{CHANNEL}{topic}"')
            if self._ready.is_set():
                self._ring()  # reconnected: notifications may have been missed
            self._ready.set()
            while not self._over(None, db.fileno()):
                for notice in db.notifies(timeout=0):
                    self._ring(notice.channel)

    def _over(self, timeout_s: float | None, *also: int) -> bool:
        ready = select.poll()
        for end in (self._stop, *also):
            ready.register(end, select.POLLIN | select.POLLHUP)
        return any(end == self._stop for end, _ in ready.poll(None if timeout_s is None else timeout_s * 1000))
