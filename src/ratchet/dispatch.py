"""Dispatcher and workers: so many children at once, each of which pulls one item, carries its run, and ends.

The dispatcher holds no connection, no lease and no list: it only keeps its children alive, so nothing of it can be
lost, and a child that dies takes nobody along. They die with it, and whoever claims their runs next continues them.
"""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import msgspec

from ratchet import config, plugins, repository
from ratchet.agents import Said
from ratchet.checks import formats
from ratchet.config import Config
from ratchet.core.failure import Reason
from ratchet.core.item import Item, name_of
from ratchet.core.lease import Lease
from ratchet.core.queue import NoWork
from ratchet.core.repo import RepoKind, repo_kind
from ratchet.core.signal import POLL_S, Topic
from ratchet.core.state import RunState, RunStatus
from ratchet.engine import AbortAsked, Hold, Watcher, heard, kept
from ratchet.errors import LeaseLost, UsageError
from ratchet.factory import Factory
from ratchet.places import clones
from ratchet.process import Children, is_gone, this_process
from ratchet.steps import cross
from ratchet.store import Store, open_store
from ratchet.supervision import supervise

PAUSE_S, PAUSE_MAX_S = 0.1, 30.0
AT_ONCE_S = 1.0  # a child that fails sooner than this did not get to work
EXIT_WORKED, EXIT_IDLE = 0, 64


class Until(StrEnum):
    """How long a worker goes on: until it is stopped, for one item, or until nothing is left to do."""

    STOPPED = "stopped"
    ONCE = "once"
    DRAINED = "drained"


class Post(msgspec.Struct, frozen=True, kw_only=True):
    """Where a worker works from: the store, its own configuration, and the settings that win over an item's."""

    store: str | Path
    config: Config
    settings: list[str] = []
    until: Until = Until.STOPPED
    watch: Callable[[Item, Lease], Watcher]
    tell: Callable[[str], None]


# --- the dispatcher ---------------------------------------------------------------------------------------------------


class Slot(msgspec.Struct):
    """A place for one child. One that fails at once is replaced more slowly each time."""

    child: int = 0
    begun: float = 0.0
    due: float = 0.0
    pause_s: float = 0.0

    def ended(self, code: int, now: float) -> None:
        failed_at_once = code not in (EXIT_WORKED, EXIT_IDLE) and now - self.begun < AT_ONCE_S
        self.pause_s = min(PAUSE_MAX_S, self.pause_s * 2 or PAUSE_S) if failed_at_once else 0.0
        self.child, self.due = 0, now + self.pause_s


def dispatch(post: Post, *, count: int) -> int:
    """Keep `count` children at work until there is nothing left to wait for, or until we are stopped.

    The first signal lets each finish the step it is in, the second stops them now.
    """
    plugins.load_all()
    formats.load_all()
    gc.collect()
    gc.freeze()  # what is shared with the children stays shared
    slots = [Slot() for _ in range(count)]
    with Children() as children:
        while slots:
            _fill(slots, children, post)
            ended, stop = children.wait(_patience(slots))
            if stop:
                return _stop(children, post)
            for slot in [slot for slot in slots if slot.child in ended]:
                code = ended[slot.child]
                slot.ended(code, time.monotonic())
                if post.until is Until.ONCE or (post.until is Until.DRAINED and code == EXIT_IDLE):
                    slots.remove(slot)
    return 0


def _fill(slots: list[Slot], children: Children, post: Post) -> None:
    now = time.monotonic()
    for slot in slots:
        if not slot.child and slot.due <= now:
            slot.child, slot.begun = children.start(lambda: work_once(post)), now


def _patience(slots: list[Slot]) -> float:
    waits = [slot.due - time.monotonic() for slot in slots if not slot.child]
    return max(0.0, min([PAUSE_MAX_S, *waits]))


def _stop(children: Children, post: Post) -> int:
    """Each child keeps its own deadline; ours is behind it, for one that does not."""
    post.tell("stopping: each run finishes its step; once more stops now")
    children.send(signal.SIGTERM)
    deadline = time.monotonic() + post.config.worker.stop_s + 30
    while children.alive and (left := deadline - time.monotonic()) > 0:
        _, again = children.wait(left)
        if again:
            children.send(signal.SIGTERM)
            deadline = min(deadline, time.monotonic() + 10)
    return 0


async def serve_workers(factory: Factory, *, count: int, stop: asyncio.Event, settings: Sequence[str] = ()) -> None:
    """A dispatcher of `count` workers for the factory's store, as a process of its own, until `stop`. It ends when we
    do, and is started again, more slowly each time, should it end before. `settings` are the factory's overrides."""
    stopped = asyncio.ensure_future(stop.wait())
    slot = Slot()
    while not stop.is_set():
        slot.begun = time.monotonic()
        ended = asyncio.ensure_future(_dispatcher(factory, count, settings))
        try:
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            await asyncio.wait({ended})
        slot.ended(1, time.monotonic())
        await asyncio.wait({stopped}, timeout=slot.pause_s)


async def _dispatcher(factory: Factory, count: int, settings: Sequence[str]) -> None:
    flags = [word for setting in settings for word in ("--set", setting)]
    await supervise(
        [sys.executable, "-m", "ratchet", "worker", "--count", str(count), "-C", str(factory.repo.root), *flags],
        cwd=factory.repo.root,
        env=os.environ,
        output=factory.repo.state / "workers.log",
        timeout_s=_EVER_S,
        grace_s=factory.config.worker.stop_s + 10,
    )


_EVER_S = 10 * 365 * 86_400.0

# --- a worker: one item -----------------------------------------------------------------------------------------------


def work_once(post: Post) -> int:
    """Wait for an item, carry its run, say how it went. Stopped once: after the step in flight, twice: now."""
    return asyncio.run(_stoppable(post))


async def _stoppable(post: Post) -> int:
    task, loop, stop = asyncio.current_task(), asyncio.get_running_loop(), asyncio.Event()
    assert task

    def asked() -> None:
        if stop.is_set():
            task.cancel()
        stop.set()
        loop.call_later(post.config.worker.stop_s, task.cancel)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked)
    try:
        return EXIT_WORKED if await pull(post, stop) else EXIT_IDLE
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
        return EXIT_WORKED


async def pull(post: Post, stop: asyncio.Event) -> bool:
    """One item, as soon as there is one for us. False: there is none to wait for."""
    store = open_store(post.store, gone=is_gone)
    try:
        return await Worker(post, store, stop).pull()
    finally:
        store.close()


class Worker:
    def __init__(self, post: Post, store: Store, stop: asyncio.Event) -> None:
        self.post, self.store, self.stop = post, store, stop
        self.lease_s, self.retry_s = post.config.lease_s, post.config.worker.retry_s

    async def pull(self) -> bool:
        lease = await self._next()
        if lease is None:
            return False
        self.post.tell(f"{lease.run} claimed for {lease.item}")
        try:
            async with kept(self.store, lease, lease_s=self.lease_s) as hold:
                self.post.tell(f"{lease.run} {await self._carried(lease, hold)}")
        except AbortAsked as asked:
            self.post.tell(asked.message)
        except LeaseLost as lost:
            self.post.tell(f"{lost.message}; somebody else continues it")
        return True

    async def _next(self) -> Lease | None:
        until, limits = self.post.until, self.post.config.limits.counted
        with self.store.listen(Topic.WORK) as work:
            while not self.stop.is_set():
                await cross(self.store.expire)  # whose worker is known to be dead need not wait for its lease to end
                run = name_of("run", datetime.now(UTC), secrets.token_hex(4))
                answer = await cross(self.store.claim_next, this_process(), run=run, ttl_s=self.lease_s, limits=limits)
                if not isinstance(answer, NoWork):
                    return answer
                if until is Until.ONCE or (until is Until.DRAINED and await cross(self.store.drained)):
                    return None
                await heard(work, POLL_S)
        return None

    async def _carried(self, lease: Lease, hold: Hold) -> str:
        """Says what came of it. What stopped us is told to the store, which decides when it is tried again."""
        try:
            item = await cross(self.store.item, lease.item)
            with await cross(open_for, item, self.store, self.post.settings) as factory:
                watch = self.post.watch(item, lease)
                state = await factory.carry(
                    lease, watch=watch, tell=_unheard, retry_s=self.retry_s, stop=self.stop, hold=hold
                )
            return _outcome(state)
        except LeaseLost:
            raise
        except Exception as error:  # noqa: BLE001 — also a defect of ours must not make the item come back for ever
            hold.ending.set()
            reason = Reason.MISCONFIGURED if isinstance(error, UsageError) else Reason.WORKSPACE
            detail = f"{type(error).__name__}: {error}"[:2_000]
            retry = await cross(self.store.fail, lease, reason, detail, delays_s=self.retry_s)
            return f"given up ({retry.after}): {detail}"


def _outcome(state: RunState) -> str:
    if state.parked:
        return f"parked: {state.parked.detail}"
    if state.status is RunStatus.RUNNING:
        return f"goes back to the queue: {state.detail}" if state.detail else "goes back to the queue"
    return f"{state.status}: {state.detail}" if state.detail else str(state.status)


def _unheard(_said: Said) -> None:
    """What an agent says is in the run's logs."""


def open_for(item: Item, store: Store, settings: Sequence[str] = ()) -> Factory:
    """Set up from the item alone: its repository, fetched if it is elsewhere, and the settings it was asked with; a
    worker's own win."""
    here = repo_kind(item.repo) is RepoKind.PATH
    repo = repository.find(Path(item.repo) if here else repository.resolve(item.repo, clones=clones()))
    loaded = config.load(repo.root, flags=[*item.settings, *settings])
    return Factory(repo, loaded.config, store=store)
