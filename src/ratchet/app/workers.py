"""The worker pool: keeps `count` child processes running; each claims one item, drives its run and exits.

The pool holds no connection, lease or list, so nothing is lost when it dies, and a child that dies affects no other.
Children die with the pool; the next worker that claims their runs continues them.
"""

from __future__ import annotations

import asyncio
import gc
import mmap
import os
import secrets
import signal
import struct
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path

import msgspec

from ratchet import config, plugins
from ratchet.agents.protocol import TurnEvent
from ratchet.app.runs import RunService
from ratchet.checks import formats
from ratchet.config import Config
from ratchet.core.failure import Reason
from ratchet.core.item import Item, new_id
from ratchet.core.lease import POOL_ANNOUNCE_S, Lease, WorkerPool
from ratchet.core.queue import NoWork
from ratchet.core.repo import RepoKind, repo_kind
from ratchet.core.retry import RetryAction, RetryDecision
from ratchet.core.signal import POLL_S, Topic
from ratchet.core.state import RunState, RunStatus
from ratchet.engine.blocking import run_blocking
from ratchet.engine.lease_keeper import AbortRequested, LeaseHandle, Pulse, keep_lease, wait_for_signal
from ratchet.engine.run_ledger import EventCallback
from ratchet.errors import LeaseLost, UsageError
from ratchet.files import make_private_dir
from ratchet.paths import clones, user_state
from ratchet.process.spawn import ForkedWorkers, is_gone, python_program, this_process
from ratchet.process.supervise import supervise
from ratchet.store.protocols import Store, open_store
from ratchet.workspace.git import repository

PAUSE_S, PAUSE_MAX_S = 0.1, 30.0
AT_ONCE_S = 1.0  # a child that fails sooner failed at start-up
EXIT_WORKED, EXIT_IDLE = 0, 64


class Until(StrEnum):
    """When a worker exits: when stopped, after one item if there is one, after one item for which it waits, or when the
    queue is drained."""

    STOPPED = "stopped"
    ONCE = "once"
    ONE_ITEM = "one item"
    DRAINED = "drained"


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a worker: store, configuration, and overrides that take precedence over an item's settings.

    With `item` it takes no other."""

    store: str | Path
    token: str = ""
    config: Config
    settings: list[str] = []
    until: Until = Until.STOPPED
    watch: Callable[[Item, Lease], EventCallback]
    log: Callable[[str], None]
    labels: list[str] = []
    item: str = ""
    pool: WorkerPool | None = None


# --- worker pool -----------------------------------------------------------------------------------------------------


class Heartbeats:
    """When each child was last known to make progress, in memory that the dispatcher and its children share."""

    def __init__(self, count: int) -> None:
        self._memory = mmap.mmap(-1, 8 * count)

    def beat(self, slot: int) -> None:
        struct.pack_into("d", self._memory, 8 * slot, time.monotonic())

    def silent_s(self, slot: int) -> float:
        return float(time.monotonic() - struct.unpack_from("d", self._memory, 8 * slot)[0])


class Slot(msgspec.Struct):
    """A slot for one child. A child that fails at start-up is restarted with exponential backoff."""

    number: int = 0
    child: int = 0
    begun: float = 0.0
    due: float = 0.0
    pause_s: float = 0.0

    def ended(self, code: int, now: float, *, at_once_s: float = AT_ONCE_S) -> None:
        failed_at_once = code not in (EXIT_WORKED, EXIT_IDLE) and now - self.begun < at_once_s
        self.pause_s = min(PAUSE_MAX_S, self.pause_s * 2 or PAUSE_S) if failed_at_once else 0.0
        self.child, self.due = 0, now + self.pause_s


def run_workers(post: WorkerSettings, *, count: int) -> int:
    """Keep `count` workers running until they have nothing left to do or a signal arrives.

    After the first signal each finishes its current step; the second stops them at once. Returns the exit code.
    """
    plugins.load_all()
    formats.load_all()
    gc.collect()
    gc.freeze()  # keeps memory pages shared with the children
    pool = WorkerPool(holder=this_process(), workers=count, labels=post.labels)
    post = msgspec.structs.replace(post, pool=pool)
    slots, hearts, exit_code = [Slot(number=number) for number in range(count)], Heartbeats(count), 0
    with ForkedWorkers() as children:
        while slots:
            _fill(slots, children, post, hearts)
            ended, stop = children.wait(min(_seconds_until_due(slots), post.config.worker.stall_s / 4))
            if stop:
                return _stop(children, post)
            for slot in [slot for slot in slots if slot.child in ended]:
                code = ended[slot.child]
                slot.ended(code, time.monotonic())
                if post.until in (Until.ONCE, Until.ONE_ITEM):
                    exit_code = exit_code or _exit_code(code)
                    slots.remove(slot)
                elif post.until is Until.DRAINED and code == EXIT_IDLE:
                    slots.remove(slot)
            _kill_stalled(slots, children, post, hearts)
    return exit_code


def _exit_code(code: int) -> int:
    """Return the pool's exit code for a child's: that of a shell, for one that was killed."""
    if code in (EXIT_WORKED, EXIT_IDLE):
        return 0
    return 128 - code if code < 0 else code


def _fill(slots: list[Slot], children: ForkedWorkers, post: WorkerSettings, hearts: Heartbeats) -> None:
    now = time.monotonic()
    for slot in slots:
        if not slot.child and slot.due <= now:
            beat = partial(hearts.beat, slot.number)
            beat()
            slot.child, slot.begun = children.start(partial(work_once, post, beat)), now


def _kill_stalled(slots: list[Slot], children: ForkedWorkers, post: WorkerSettings, hearts: Heartbeats) -> None:
    """Kill children that make no progress. Their leases expire, and others continue their runs."""
    for slot in slots:
        if slot.child and (silent_s := hearts.silent_s(slot.number)) > post.config.worker.stall_s:
            post.log(f"worker {slot.child} has made no progress for {silent_s:.0f} s: killed and replaced")
            children.kill(slot.child)


def _seconds_until_due(slots: list[Slot]) -> float:
    waits = [slot.due - time.monotonic() for slot in slots if not slot.child]
    return max(0.0, min([PAUSE_MAX_S, *waits]))


def _stop(children: ForkedWorkers, post: WorkerSettings) -> int:
    """Stop the children. Each keeps its own deadline; the one here is later, for a child that hangs."""
    post.log("stopping after the current steps; repeat the signal to stop at once")
    children.send(signal.SIGTERM)
    deadline = time.monotonic() + post.config.worker.stop_s + 30
    while children.alive and (left := deadline - time.monotonic()) > 0:
        _, again = children.wait(left)
        if again:
            children.send(signal.SIGTERM)
            deadline = min(deadline, time.monotonic() + 10)
    return 0


async def serve_workers(
    folder: Path,
    loaded: Config,
    *,
    count: int,
    stop: asyncio.Event,
    settings: Sequence[str] = (),
    log: Callable[[str], None],
) -> None:
    """Run a worker pool as a child process in `folder` until `stop`; restart it with backoff if it exits.

    `settings` are the `--set` overrides to pass on. `log` receives each line that the pool prints.
    """
    stopped = asyncio.ensure_future(stop.wait())
    slot = Slot()
    while not stop.is_set():
        slot.begun = time.monotonic()
        ended = asyncio.ensure_future(_dispatcher(folder, loaded, count, settings, log))
        try:
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            await asyncio.wait({ended})
        slot.ended(1, time.monotonic())
        await asyncio.wait({stopped}, timeout=slot.pause_s)


async def _dispatcher(
    folder: Path, loaded: Config, count: int, settings: Sequence[str], log: Callable[[str], None]
) -> None:
    def print_line(line: bytes) -> bool:
        log(line.decode(errors="replace").rstrip())
        return False

    flags = [word for setting in settings for word in ("--set", setting)]
    await supervise(
        [*python_program("ratchet"), "worker", "--count", str(count), "-C", str(folder), *flags],
        cwd=folder,
        env=os.environ,
        output=make_private_dir(user_state()) / "workers.log",
        timeout_s=_EVER_S,
        grace_s=loaded.worker.stop_s + 10,
        on_line=print_line,
    )


_EVER_S = 10 * 365 * 86_400.0

# --- worker: one item -------------------------------------------------------------------------------------------------


def work_once(post: WorkerSettings, beat: Callable[[], None] = lambda: None) -> int:
    """Wait for an item and drive its run. The first signal stops after the current step, the second at once."""
    return asyncio.run(_stoppable(post, beat))


async def _stoppable(post: WorkerSettings, beat: Callable[[], None]) -> int:
    pulse = Pulse(beat)
    beating = asyncio.ensure_future(pulse.keep())
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
        return EXIT_WORKED if await work_on_next_item(post, stop, pulse) else EXIT_IDLE
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
        return EXIT_WORKED
    finally:
        beating.cancel()


async def work_on_next_item(post: WorkerSettings, stop: asyncio.Event, pulse: Pulse | None = None) -> bool:
    """Process the next item. False: there is none to wait for."""
    store = open_store(post.store, token=post.token, is_dead=is_gone, redis=post.config.redis)
    try:
        return await Worker(post, store, stop, pulse).pull()
    finally:
        store.close()


class Worker:
    def __init__(self, post: WorkerSettings, store: Store, stop: asyncio.Event, pulse: Pulse | None = None) -> None:
        self.post, self.store, self.stop, self.pulse = post, store, stop, pulse
        self.lease_s, self.retry_s = post.config.lease_s, post.config.worker.retry_s

    async def pull(self) -> bool:
        lease = await self._claim_next()
        if lease is None:
            return False
        item = await run_blocking(self.store.item, lease.item)
        self.post.log(f"{lease.run} claimed: {item.title} ({item.repo})")
        try:
            async with keep_lease(self.store, lease, lease_s=self.lease_s, pulse=self.pulse) as hold:
                self.post.log(f"{lease.run} {await self._drive_run(lease, item, hold)}")
        except AbortRequested as asked:
            self.post.log(asked.message)
        except LeaseLost as lost:
            self.post.log(f"{lost.message}; another worker continues it")
        return True

    async def _claim_next(self) -> Lease | None:
        until, labels = self.post.until, self.post.labels
        wanted = {"ttl_s": self.lease_s, "limits": self.post.config.limits.counted, "item": self.post.item}
        announced = -POOL_ANNOUNCE_S
        with self.store.listen(Topic.WORK) as work:
            while not self.stop.is_set():
                # Take over at once from workers known to be dead, before their leases expire.
                await run_blocking(self.store.expire)
                run = new_id("run", datetime.now(UTC), secrets.token_hex(4))
                answer = await run_blocking(self.store.claim_next, this_process(), run=run, labels=labels, **wanted)
                if not isinstance(answer, NoWork):
                    return answer
                if until is Until.ONCE or (
                    until is Until.DRAINED and await run_blocking(self.store.is_drained, labels)
                ):
                    return None
                if self.post.pool and time.monotonic() - announced >= POOL_ANNOUNCE_S:
                    announced = time.monotonic()
                    await run_blocking(self.store.announce, self.post.pool)
                await wait_for_signal(work, POLL_S)
        return None

    async def _drive_run(self, lease: Lease, item: Item, hold: LeaseHandle) -> str:
        """Drive the run and return its outcome as text. Reports errors to the store, which decides about a retry."""
        try:
            with await run_blocking(open_for_item, item, self.store, self.post.settings, self.post.log) as service:
                watch = self.post.watch(item, lease)
                state = await service.drive(
                    lease, watch=watch, on_agent_event=_ignore_event, retry_s=self.retry_s, stop=self.stop, hold=hold
                )
            return await run_blocking(self._outcome, item.id, state)
        except LeaseLost:
            raise
        except Exception as error:  # noqa: BLE001 — even a bug in Ratchet must not requeue the item forever
            hold.ending.set()
            reason = Reason.MISCONFIGURED if isinstance(error, UsageError) else Reason.WORKSPACE
            detail = f"{type(error).__name__}: {error}"[:2_000]
            retry = await run_blocking(self.store.fail, lease, reason, detail, delays_s=self.retry_s)
            return f"failed: {detail}; {_next_try(retry)}"

    def _outcome(self, item: str, state: RunState) -> str:
        if state.parked:
            again = f"until {state.parked.until}" if state.parked.until else f"then: ratchet requeue {item}"
            return f"parked: {state.parked.detail}; {again}"
        detail = f": {state.detail}" if state.detail else ""
        if state.status is RunStatus.RUNNING:
            due = self.store.item_row(item).not_before
            return f"back in the queue{detail}; {f'next try at {due}' if due else 'next try at once'}"
        end = f"; not retried, then: ratchet requeue {item}" if state.status is RunStatus.FAILED else ""
        return f"{state.status}{detail}{end}"


def _next_try(retry: RetryDecision) -> str:
    if retry.after is RetryAction.RETRY:
        return f"next try in {retry.delay_s:.0f} s"
    return "not retried: mend the cause, then requeue it"


def _ignore_event(_event: TurnEvent) -> None:
    """Ignore agent events: they are in the run's logs."""


def open_for_item(
    item: Item, store: Store, settings: Sequence[str] = (), log: Callable[[str], None] = lambda _: None
) -> RunService:
    """Open the run service for an item: clone a remote repository and apply the item's settings, then the worker's."""
    repo = _repository_of(item)
    loaded = config.load(repo.root, flags=[*item.settings, *settings])
    if loaded.ignored:
        names = ", ".join(loaded.ignored)
        log(f"ratchet.toml of {item.repo} does not decide {names}: set it with --set, or for the item")
    return RunService(repo, loaded.config, store=store)


def _repository_of(item: Item) -> repository.Repository:
    """Return the item's repository; one of elsewhere is fetched, and stands where the item's branch does there."""
    if repo_kind(item.repo) is RepoKind.PATH:
        return repository.find_repository(Path(item.repo))
    found = repository.find_repository(repository.fetch_repository(item.repo, clones=clones()))
    if not item.branch:
        return found
    head = repository.commit_of(found.root, f"refs/remotes/origin/{item.branch}")
    if head is None:
        raise UsageError(f"no such branch in {item.repo}: {item.branch}", hint=f"git ls-remote {item.repo}")
    return msgspec.structs.replace(found, head=head)
