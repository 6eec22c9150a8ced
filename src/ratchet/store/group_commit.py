"""Group commit: calls that arrive during a write are executed together by the next writer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Generic, TypeVar

GROUP_MAX = 64
GATHER_S = 0.001


class PendingCall:
    """A call that waits for its turn. `wake` stays locked until the call leads a group (`leads`) or was executed.

    Each executed call wakes the `next` one of its group. Waking all at once would be slower: only one thread runs at a
    time, and each wake-up of a thread that must sleep again costs two context switches.
    """

    def __init__(self) -> None:
        self.wake, self.leads, self.abandoned = threading.Lock(), False, False
        self.next: PendingCall | None = None
        self.wake.acquire()


A = TypeVar("A", bound=PendingCall)


class GroupCommit(Generic[A]):
    """Calls `execute` from one thread at a time, with that thread's call and all calls that are waiting.

    `execute` must store a result or an error in every call; it may raise only interrupts of its own thread. Then calls
    may be left without either, and it is unknown whether they were executed: their callers submit them again.
    """

    def __init__(self, execute: Callable[[list[A]], None], *, limit: Callable[[], int] = lambda: GROUP_MAX) -> None:
        self._execute, self._limit = execute, limit
        self._turn, self._busy = threading.Lock(), False
        self._idle = threading.Condition(self._turn)
        self._waiting, self._executing, self._last = deque[A](), 0, 1
        self._gathering: A | None = None
        self._wanted = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def pending(self) -> int:
        """The number of calls that wait or are being executed."""
        return len(self._waiting) + self._executing

    def submit(self, call: A, *, gather: bool = True) -> None:
        """Block until the call was executed. Without `gather`, do not wait for other calls to join the group."""
        try:
            if self._wait_for_turn(call):
                self._execute_group(call, gather=gather)
        finally:
            if call.next:
                call.next.wake.release()
            if call.leads:
                self._hand_over()

    def drain(self, then: Callable[[], None]) -> None:
        """Call `then` while nothing is being executed."""
        with self._idle:
            self._idle.wait_for(lambda: not self._busy)
            then()

    def _wait_for_turn(self, call: A) -> bool:
        """Return True if this call leads the next group, False if another leader executed it."""
        try:
            if not self._try_lead(call):
                call.wake.acquire()
        except BaseException:  # interrupted: no other call may wait for this one
            with self._turn, suppress(ValueError):
                call.abandoned = True
                self._waiting.remove(call)
            raise
        return call.leads

    def _try_lead(self, call: A) -> bool:
        with self._turn:
            if not self._busy:
                self._busy = call.leads = True
                return True
            self._waiting.append(call)
            if self._gathering and len(self._waiting) >= self._wanted:
                self._gathering.wake.release()
                self._gathering = None
            return False

    def _hand_over(self) -> None:
        """Make the first waiting call the next leader and wake only that one."""
        with self._turn:
            self._busy = bool(self._waiting)
            if not self._waiting:
                self._idle.notify_all()
                return
            call = self._waiting.popleft()
            call.leads = True
            call.wake.release()

    def _execute_group(self, own: A, *, gather: bool) -> None:
        if gather:
            self._gather(own)
        with self._turn:
            self._executing = 1
            joining = min(len(self._waiting), self._limit() - 1)
            calls = [own, *(self._waiting.popleft() for _ in range(joining))]
            self._executing = len(calls)
        self._last = max(len(calls), self._last - 1)
        try:
            self._execute(calls)
        finally:
            with self._turn:
                self._executing = 0
                present = [own, *(call for call in calls[1:] if not call.abandoned)]
                for call, following in pairwise(present):
                    call.next = following

    def _gather(self, own: A) -> None:
        """Wait up to `GATHER_S` for the callers of the last group to return: they tend to call again at the same time,
        and the wait is shorter than a disk flush."""
        with self._turn:
            self._wanted = self._last - 1
            if len(self._waiting) >= self._wanted:
                return
            self._gathering = own
        own.wake.acquire(timeout=GATHER_S)
        with self._turn:
            self._gathering = None
