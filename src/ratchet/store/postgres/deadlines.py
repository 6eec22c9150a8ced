"""Ends waits for a server that no longer answers: a host that vanished does not even close its connections."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ratchet.store.postgres.libpq import Connection

TICK_S = 0.5


class AnswerDeadlines:
    """Shuts down the socket of a connection that is used past its deadline, which ends any wait on it with an error.

    One thread watches all connections of a store.
    """

    def __init__(self) -> None:
        self._due: dict[int, float] = {}
        self._guard, self._closed = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def limit(self, db: Connection, seconds: float) -> Iterator[None]:
        """Lose the connection if the block takes longer."""
        # A handle of our own: libpq closes its when the connection breaks, and the number may then name another file.
        wire = os.dup(db.fileno())
        with self._guard:
            self._due[wire] = time.monotonic() + seconds
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._watch, name="ratchet-deadlines", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._guard:
                del self._due[wire]
                os.close(wire)

    def close(self) -> None:
        self._closed.set()
        if self._thread:
            self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(TICK_S):
            with self._guard:
                for wire in [wire for wire, until in self._due.items() if until <= time.monotonic()]:
                    _shut_down(wire)


def _shut_down(wire: int) -> None:
    with suppress(OSError), socket.socket(fileno=os.dup(wire)) as end:
        end.shutdown(socket.SHUT_RDWR)
