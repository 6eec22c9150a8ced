"""Renew the lease of a run while work under it continues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from ratchet.core import events as ev
from ratchet.core.lease import Lease
from ratchet.core.signal import Topic
from ratchet.engine.blocking import oldest_call_s, run_blocking
from ratchet.errors import EnvironmentCannot, LeaseLost, RatchetError
from ratchet.store.protocols import Leases, Ledger, Listener, Signals

HEARTBEAT_S, RETRY_S = 2.0, 1.0
MARGIN_S = 10.0  # to stop the agent before the lease ends
STALLED_S = 4_500.0  # longer than any set-up command may take
UNWIND_S = 60.0


class LeaseStore(Signals, Leases, Ledger, Protocol):
    """The store verbs that keeping a lease needs."""


class AbortRequested(RatchetError):
    """A user asked to stop the run; `ids["by"]` names the user."""


class LeaseHandle:
    """A lease that `keep_lease` renews.

    `ending` is set before the run releases the lease itself: from then on a lost lease is no error. `lost` is set when
    the lease was lost. `iteration` is reported with each heartbeat.
    """

    def __init__(self) -> None:
        self.ending = asyncio.Event()
        self.lost = False
        self.iteration: int | None = None


class Pulse:
    """Whether this worker makes progress: its event loop turns, and no blocking call is stuck.

    A worker that lost its lease must end soon: a call that does not return may not keep it.
    """

    def __init__(self, beat: Callable[[], None]) -> None:
        self._beat, self.lost = beat, False

    async def keep(self) -> None:
        while oldest_call_s() < (UNWIND_S if self.lost else STALLED_S):
            self._beat()
            await asyncio.sleep(1.0)


@asynccontextmanager
async def keep_lease(
    store: LeaseStore, lease: Lease, *, lease_s: float, pulse: Pulse | None = None
) -> AsyncIterator[LeaseHandle]:
    """Renew the lease in the background, so that a slow model, clone or test does not look like a dead worker.

    Stops the work when the lease is lost, when it cannot be renewed in time, or when a user asks to abort; always
    releases the lease.
    Raises LeaseLost, AbortRequested (after recording it), or whatever the work raised.
    """
    handle = LeaseHandle()
    try:
        async with asyncio.TaskGroup() as group:
            heartbeat = group.create_task(_renew(store, lease, lease_s, handle))
            heartbeat.add_done_callback(lambda task: _note_loss(task, handle, pulse))
            try:
                yield handle
            finally:
                heartbeat.cancel()
    except BaseExceptionGroup as group_error:
        error = group_error.exceptions[0]
        if isinstance(error, AbortRequested):
            await run_blocking(store.append, lease, [ev.RunAborted(by=str(error.ids["by"]))])
        raise error from None
    finally:
        with suppress(EnvironmentCannot):  # the store cannot be reached: the lease ends by itself
            await run_blocking(store.release, lease)


def _note_loss(heartbeat: asyncio.Task[None], handle: LeaseHandle, pulse: Pulse | None) -> None:
    error = None if heartbeat.cancelled() else heartbeat.exception()
    handle.lost = isinstance(error, LeaseLost)
    if pulse and error:
        pulse.lost = True


async def _renew(store: LeaseStore, lease: Lease, lease_s: float, handle: LeaseHandle) -> None:
    now = asyncio.get_running_loop().time
    with store.listen(Topic.STOP) as stop:
        held_until = now() + lease_s
        while True:
            began = now()
            try:
                by = await _renew_once(store, lease, lease_s, handle, stop_at=held_until - min(MARGIN_S, lease_s / 4))
            except LeaseLost:
                if handle.ending.is_set():
                    return
                raise
            if by:
                raise AbortRequested(f"{lease.run} was aborted by {by}", by=by)
            held_until = began + lease_s
            await wait_for_signal(stop, min(HEARTBEAT_S, lease_s / 3))


async def _renew_once(store: LeaseStore, lease: Lease, lease_s: float, handle: LeaseHandle, *, stop_at: float) -> str:
    """Renew the lease, trying again while the store cannot be reached. Raises LeaseLost at `stop_at`.

    Another worker may claim the run when the lease ends, and the agent must have stopped by then.
    """
    now = asyncio.get_running_loop().time
    while True:
        trying = asyncio.ensure_future(run_blocking(store.renew, lease, ttl_s=lease_s, iteration=handle.iteration))
        trying.add_done_callback(_ignore_outcome)  # if nobody waits: its thread ends with the verb's own deadline
        # Not `wait_for`: before Python 3.12 it forgets a cancellation that comes as the renewal ends. The heartbeat
        # of a completed run would go on for ever, and its worker would wait for that.
        ended, _ = await asyncio.wait({trying}, timeout=max(0.0, stop_at - now()))
        if ended:
            try:
                return trying.result()
            except EnvironmentCannot:
                await asyncio.sleep(min(RETRY_S, max(0.0, stop_at - now())))
        if now() >= stop_at:
            raise LeaseLost(
                f"cannot renew the lease on {lease.run}: the store does not answer",
                hint="the run continues when the store can be reached",
                run=lease.run,
            )


def _ignore_outcome(task: asyncio.Future[str]) -> None:
    if not task.cancelled():
        task.exception()


async def wait_for_signal(listener: Listener, timeout_s: float) -> bool:
    """Wait until the listener is signalled or the time is over; returns whether it was signalled.

    On cancellation the waiting thread is woken and has ended when this returns.
    """
    waiting = asyncio.ensure_future(run_blocking(listener.wait, timeout_s))
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        listener.wake()
        await waiting
        raise
