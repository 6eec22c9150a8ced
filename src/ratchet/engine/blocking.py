"""Call blocking functions (disk, git, store) from async code; keep tasks in the background running."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ratchet.process.spawn import stoppable

T = TypeVar("T")
_numbers = itertools.count()
_begun: dict[int, float] = {}


def oldest_call_s() -> float:
    """Return how long the oldest call that has not returned is under way."""
    return time.monotonic() - min(_begun.values(), default=time.monotonic())


@contextmanager
def log_errors(log: logging.Logger, what: str) -> Iterator[None]:
    """Log any error in the block and go on: a task in the background must not end unnoticed."""
    try:
        yield
    except Exception:
        log.exception("%s", what)


async def run_blocking(function: Callable[..., T], *args: object, **kwargs: object) -> T:
    """Run a blocking function in a thread and return its result.

    When the caller is cancelled, it still waits for the thread to end: nothing else may touch the files, rows or
    branches that the function is working on. What waits for a server ends at once.
    """
    number = next(_numbers)
    _begun[number] = time.monotonic()
    with stoppable() as stop:
        task = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    task.add_done_callback(lambda _task: _begun.pop(number, None))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # retrieve it: asyncio logs an exception that was never retrieved as a defect
        raise
