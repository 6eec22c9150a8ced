"""A connection pool: connections are opened on demand, at most `most` of them, and closed when they are broken."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class Pool(Generic[C]):
    def __init__(self, connect: Callable[[], C], *, most: int, sound: Callable[[C], bool] = lambda _one: True) -> None:
        self._connect, self._sound = connect, sound
        self._idle: list[C] = []
        self._guard, self._room = threading.Lock(), threading.BoundedSemaphore(most)
        self._closed = False

    @contextmanager
    def connection(self) -> Iterator[C]:
        """Borrow a connection for one thread, the most recently used first: its caches are warm."""
        with self._room:
            one = self._pop_idle() or self._connect()
            try:
                yield one
            finally:
                self._return(one)

    def put_back(self, one: C) -> None:
        with self._guard:
            self._idle.append(one)

    def close_idle(self) -> None:
        """Close idle connections: when one connection is lost, the others to the same server usually are too."""
        with self._guard:
            idle, self._idle = self._idle, []
        for one in idle:
            one.close()

    def close(self) -> None:
        self._closed = True
        self.close_idle()

    def _pop_idle(self) -> C | None:
        with self._guard:
            return self._idle.pop() if self._idle else None

    def _return(self, one: C) -> None:
        if self._closed or not self._sound(one):
            one.close()
        else:
            self.put_back(one)
