"""Runs each item as a task of a Ray cluster: Ray decides where, and starts nodes; leases alone decide who owns a run.

So a task that Ray loses, delays or repeats costs time only: its item is claimable again when its lease has ended, and
gets another task. The pool knows nothing that could be lost.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import deque
from collections.abc import Sequence
from contextlib import closing, suppress
from importlib import import_module
from typing import Any

import msgspec

from ratchet import config
from ratchet.app.launchers.remote_worker import setting, store_variables, worker_environment, worker_options
from ratchet.app.workers import EXIT_WORKED, Slot, Until, WorkerSettings
from ratchet.config import RayConfig
from ratchet.core.item import ItemStatus
from ratchet.core.lease import POOL_ANNOUNCE_S, WorkerPool
from ratchet.core.queue import Claimable
from ratchet.core.signal import POLL_S, Topic
from ratchet.errors import EnvironmentCannot, RatchetError
from ratchet.files import make_private_dir
from ratchet.paths import user_state
from ratchet.plugins import install_extra
from ratchet.process.spawn import python_program, this_process
from ratchet.process.supervise import supervise
from ratchet.store.protocols import Listener, Store, open_store

AT_ONCE_S = 15.0  # a task that fails sooner failed at start-up
LINES = 20
LABEL_AMOUNT = 0.001  # of a label's resource, so that a node with one of it runs any number of tasks
_EVER_S = 10 * 365 * 86_400.0
_OF_ITEM = ("ray.cpus", "ray.memory_mb", "ray.resources")


class RayTask(msgspec.Struct):
    """A task for one item, whose worker may have claimed it."""

    ref: Any
    begun: float
    claimed: bool = False


def launch(post: WorkerSettings, *, count: int) -> int:
    """Keep up to `count` tasks running or waiting for a node; see `Launcher`."""
    if "://" not in str(post.store):
        raise EnvironmentCannot(
            f"the nodes of a Ray cluster cannot reach {post.store}",
            hint="use a postgresql:// store, or a server: ratchet worker --server URL --launcher ray",
        )
    ray = _connect(post.config.ray.address)
    try:
        with (
            closing(open_store(post.store, token=post.token, redis=post.config.redis)) as store,
            store.listen(Topic.WORK) as work,
        ):
            return RayPool(ray, post, store, work, count).run()
    finally:
        ray.shutdown()


def _connect(address: str) -> Any:
    try:
        ray = import_module("ray")
    except ImportError as error:
        raise EnvironmentCannot(
            f"`--launcher ray` needs the `ray` extra: {error}", hint=install_extra("ray")
        ) from error
    try:
        ray.init(address=address or "auto", log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise EnvironmentCannot(
            f"there is no Ray cluster at {address or 'this machine'}: {error}",
            hint="this machine must be a node of it: ray start --address=HOST:6379 --num-cpus=0",
        ) from error
    return ray


class RayPool:
    def __init__(self, ray: Any, post: WorkerSettings, store: Store, work: Listener, count: int) -> None:
        self.ray, self.post, self.store, self.work = ray, post, store, work
        self.left = 1 if post.until in (Until.ONCE, Until.ONE_ITEM) else None  # tasks to start
        self.count = min(count, self.left or count)
        self.tasks: dict[str, RayTask] = {}
        self.lost: list[Any] = []  # tasks whose worker no longer has the lease
        self.slot, self.code, self.signals, self.announced = Slot(), 0, 0, -POOL_ANNOUNCE_S

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        while not self.signals:
            try:
                if self._round():
                    return self.code
            except RatchetError as error:  # the tasks go on without the pool
                self.post.log(f"{error.message}; trying again")
            if not self.signals:
                self.work.wait(POLL_S)
        return self._stop()

    def _round(self) -> bool:
        """Collect tasks that have ended and start others. True: nothing is left to do."""
        self._collect()
        self.store.expire()
        suitable = {
            one.item: one
            for one in self.store.claimable(limits=self.post.config.limits.counted)
            if set(one.require_labels) <= set(self.post.labels)
        }
        self._drop_lost(suitable)
        for item, one in suitable.items():
            if item not in self.tasks and len(self.tasks) < self.count and self._may_start():
                self._start(one)
        if time.monotonic() - self.announced >= POOL_ANNOUNCE_S:
            self.announced = time.monotonic()
            self.store.announce(WorkerPool(holder=this_process(), workers=self.count, labels=self.post.labels))
        return not self.tasks and self._is_over()

    def _is_over(self) -> bool:
        if self.post.until is Until.DRAINED:
            return self.store.is_drained(self.post.labels)
        return self.left == 0 or self.post.until is Until.ONCE

    def _may_start(self) -> bool:
        return self.left != 0 and self.slot.due <= time.monotonic()

    def _start(self, one: Claimable) -> None:
        wanted = self._wanted(one.item)
        argv = ["worker", "--once", "--item", one.item, *worker_options(self.post, one.require_labels)]
        env = worker_environment(self.post, wanted.env) | store_variables(str(self.post.store), self.post.token)
        task = self.ray.remote(run_worker).options(
            **task_options(wanted, one.require_labels), max_retries=0, name=f"ratchet {one.item}"
        )
        ref = task.remote(one.item, argv, env, self.post.config.worker.stop_s)
        ref.future().add_done_callback(lambda _ended: self.work.wake())
        self.tasks[one.item] = RayTask(ref, time.monotonic())
        self.left = self.left and self.left - 1

    def _wanted(self, item: str) -> RayConfig:
        """Return what a run of the item needs: the item's own settings, else the pool's."""
        pools = [f"{key}={setting(self.post, key)}" for key in _OF_ITEM]
        own = [line for line in self.store.item(item).settings if line.partition("=")[0] in _OF_ITEM]
        with suppress(RatchetError):
            wanted = config.load(user_state() / "none", environ={}, flags=[*pools, *own]).config.ray
            return msgspec.structs.replace(wanted, env=self.post.config.ray.env)
        self.post.log(f"{item} asks for resources that cannot be read, and gets the pool's")
        return self.post.config.ray

    def _drop_lost(self, claimable: dict[str, Claimable]) -> None:
        """Forget tasks whose claim has ended before them: their item is claimable again, and gets another."""
        for item, task in list(self.tasks.items()):
            if item not in claimable:
                status = self.store.item_row(item).status
                task.claimed = task.claimed or status in (ItemStatus.ASSIGNED, ItemStatus.IN_PROGRESS)
            elif task.claimed:
                self.post.log(f"{item} is claimable again, although its task has not ended")
                self.lost.append(self.tasks.pop(item).ref)

    def _collect(self) -> None:
        refs = [*(task.ref for task in self.tasks.values()), *self.lost]
        ended = set(self.ray.wait(refs, num_returns=len(refs), timeout=0)[0]) if refs else set()
        self.lost = [ref for ref in self.lost if ref not in ended]
        for item in [item for item, task in self.tasks.items() if task.ref in ended]:
            task = self.tasks.pop(item)
            code = self._print_end(item, task.ref)
            self.code = self.code or code
            self.slot.begun = task.begun
            self.slot.ended(EXIT_WORKED if code == 0 else 1, time.monotonic(), at_once_s=AT_ONCE_S)

    def _print_end(self, item: str, ref: Any) -> int:
        """Print how a task ended; returns the exit code of its worker."""
        try:
            code, lines = self.ray.get(ref)
        except self.ray.exceptions.RayError as error:
            self.post.log(f"{item}: {type(error).__name__}: {str(error).strip().splitlines()[0]}")
            return 1
        for line in lines:
            self.post.log(line)
        if code:
            self.post.log(f"{item}: its worker ended with {code}")
        return int(code)

    # --- stopping ---

    def _signalled(self, *_: object) -> None:
        self.signals += 1
        self.work.wake()

    def _stop(self) -> int:
        """Cancel all tasks: each worker finishes its step. After another signal, or too long, they are killed."""
        self.post.log("stopping after the current steps; repeat the signal to stop at once")
        refs = [*(task.ref for task in self.tasks.values()), *self.lost]
        deadline = time.monotonic() + self.post.config.worker.stop_s + 20
        for force in (False, True):
            for ref in refs:
                with suppress(Exception):  # it has ended, or its node is gone
                    self.ray.cancel(ref, force=force)
            while refs and time.monotonic() < deadline and self.signals < 2 + force:
                refs = self.ray.wait(refs, num_returns=len(refs), timeout=0.2)[1]
            deadline = time.monotonic() + 10
        return 0


def task_options(wanted: RayConfig, labels: Sequence[str]) -> dict[str, Any]:
    """Return what Ray is asked for: a label that the item requires is a resource of the same name."""
    amounts = dict.fromkeys(labels, LABEL_AMOUNT)
    amounts |= {name: float(amount) for name, _, amount in (each.partition("=") for each in wanted.resources)}
    gpus = {"num_gpus": amounts.pop("GPU")} if "GPU" in amounts else {}
    memory = {"memory": wanted.memory_mb << 20} if wanted.memory_mb else {}
    return {"num_cpus": wanted.cpus, "resources": amounts} | gpus | memory


def run_worker(item: str, argv: list[str], env: dict[str, str], stop_s: float) -> tuple[int, list[str]]:
    """Run the worker of one item, on the node: returns its exit code and its last lines.

    Ray interrupts a task that is cancelled; the worker then finishes its step.
    """
    folder, lines = make_private_dir(user_state() / "ray-logs"), deque[str](maxlen=LINES)

    def keep(line: bytes) -> bool:
        lines.append(line.decode(errors="replace").rstrip())
        return False

    worker = supervise(
        [*python_program("ratchet"), *argv],
        cwd=folder,
        env={**os.environ, **env},
        output=folder / f"{item}.log",
        timeout_s=_EVER_S,
        grace_s=stop_s + 10,
        on_line=keep,
    )
    return asyncio.run(worker).exit_code, list(lines)
