"""Those who ask while another is being served are served together by whoever is next: one wait for all of them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Generic, TypeVar

MOST = 64
GATHER_S = 0.001


class Ask:
    """Something that waits for its turn. `wake` is held until its turn has come (then it `leads`) or it was served.

    Then it wakes the one `after` it. All of them woken at once would only wait for each other: one thread runs at a
    time, and what a crowd of threads costs is the going to sleep and waking up again.
    """

    def __init__(self) -> None:
        self.wake, self.leads, self.left = threading.Lock(), False, False
        self.after: Ask | None = None
        self.wake.acquire()


A = TypeVar("A", bound=Ask)


class Together(Generic[A]):
    """`serve` is called by one thread at a time, for its own ask and for those that have come meanwhile.

    It has to leave an answer in every ask, an error among them, and may raise only what interrupts its own thread.
    """

    def __init__(self, serve: Callable[[list[A]], None], *, most: Callable[[], int] = lambda: MOST) -> None:
        self._serve, self._most = serve, most
        self._turn, self._busy = threading.Lock(), False
        self._idle = threading.Condition(self._turn)
        self._waiting, self._served, self._last = deque[A](), 0, 1
        self._gathering: A | None = None
        self._wanted = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def asking(self) -> int:
        """Those who wait and those who are being served."""
        return len(self._waiting) + self._served

    def join(self, ask: A, *, gather: bool = True) -> None:
        """Until it was served. Who does not `gather` waits for nobody to come along."""
        try:
            if self._leads(ask):
                self._lead(ask, gather=gather)
        finally:
            if ask.after:
                ask.after.wake.release()
            if ask.leads:
                self._pass_on()

    def drain(self, then: Callable[[], None]) -> None:
        """Do it when nobody is being served."""
        with self._idle:
            self._idle.wait_for(lambda: not self._busy)
            then()

    def _leads(self, ask: A) -> bool:
        """Wait for the turn. False: whoever had it before us took the ask along."""
        try:
            if not self._first(ask):
                ask.wake.acquire()
        except BaseException:  # an interrupt: nobody may wait for who does not wait any more
            with self._turn, suppress(ValueError):
                ask.left = True
                self._waiting.remove(ask)
            raise
        return ask.leads

    def _first(self, ask: A) -> bool:
        with self._turn:
            if not self._busy:
                self._busy = ask.leads = True
                return True
            self._waiting.append(ask)
            if self._gathering and len(self._waiting) >= self._wanted:
                self._gathering.wake.release()
                self._gathering = None
            return False

    def _pass_on(self) -> None:
        """To one of those who wait, and nobody else wakes."""
        with self._turn:
            self._busy = bool(self._waiting)
            if not self._waiting:
                self._idle.notify_all()
                return
            ask = self._waiting.popleft()
            ask.leads = True
            ask.wake.release()

    def _lead(self, own: A, *, gather: bool) -> None:
        if gather:
            self._gather(own)
        with self._turn:
            self._served = 1
            along = min(len(self._waiting), self._most() - 1)
            asks = [own, *(self._waiting.popleft() for _ in range(along))]
            self._served = len(asks)
        self._last = max(len(asks), self._last - 1)
        try:
            self._serve(asks)
        finally:
            with self._turn:
                self._served = 0
                there = [own, *(ask for ask in asks[1:] if not ask.left)]
                for ask, after in pairwise(there):
                    ask.after = after

    def _gather(self, own: A) -> None:
        """Who was answered together asks again together, once all are awake: a moment, and less than the disk takes."""
        with self._turn:
            self._wanted = self._last - 1
            if len(self._waiting) >= self._wanted:
                return
            self._gathering = own
        own.wake.acquire(timeout=GATHER_S)
        self._gathering = None
