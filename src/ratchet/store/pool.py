"""Connections lent to one thread at a time: made when needed, never more than `most`, thrown away when they broke."""

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
    def borrow(self) -> Iterator[C]:
        """The one used last first: it is the warmest, and those that are too many stay unused."""
        with self._room:
            one = self._take() or self._connect()
            try:
                yield one
            finally:
                self._give_back(one)

    def keep(self, one: C) -> None:
        with self._guard:
            self._idle.append(one)

    def forget(self) -> None:
        """Throw away what is idle: when one connection was lost, the others of the same server were too."""
        with self._guard:
            idle, self._idle = self._idle, []
        for one in idle:
            one.close()

    def close(self) -> None:
        self._closed = True
        self.forget()

    def _take(self) -> C | None:
        with self._guard:
            return self._idle.pop() if self._idle else None

    def _give_back(self, one: C) -> None:
        if self._closed or not self._sound(one):
            one.close()
        else:
            self.keep(one)
