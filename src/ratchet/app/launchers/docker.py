"""Runs each worker in a container of its own, on an engine that speaks Docker's HTTP API: Docker or Podman.

A container takes one item and ends; the pool then starts the next. The pool knows nothing that could be lost: a
container that outlives it carries its labels, and the next pool removes it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from ratchet.app.launchers.remote_worker import store_variables, worker_environment, worker_options
from ratchet.app.workers import EXIT_WORKED, Slot, Until, WorkerSettings
from ratchet.config import environment_name
from ratchet.core.failure import Reason
from ratchet.core.lease import Holder, Lease
from ratchet.errors import RatchetError, UsageError
from ratchet.files import make_private_dir
from ratchet.paths import user_state
from ratchet.process import containers
from ratchet.process.containers import ContainerEnd, ContainerEngine, ContainerSpec, EngineAway
from ratchet.store.protocols import open_store

T = TypeVar("T")
OWNER = "ratchet.owner"  # the label with the pool's process
AT_ONCE_S = 15.0  # a worker that fails sooner failed at start-up
LOG_LINES, LOGS_KEPT, LOG_KEPT_BYTES = 10_000, 100, 4 << 20
_HOME = "/tmp/home"  # noqa: S108 — inside the container
# A worker in a container has no engine, so its steps cannot be containers, whatever the repository says.
_WITHOUT_ENGINE = {environment_name("workspace.kind"): "auto"}


def launch(post: WorkerSettings, *, count: int) -> int:
    """Keep `count` containers running; see `Launcher`."""
    wanted = post.config.containers
    engine = containers.find_engine(wanted.engine)
    containers.require_image(engine, wanted.image)
    return asyncio.run(ContainerPool(post, engine, count).run())


class ContainerPool:
    def __init__(self, post: WorkerSettings, engine: ContainerEngine, count: int) -> None:
        self.post, self.engine, self.count = post, engine, count
        self.spec = worker_spec(post, engine)
        self.names: set[str] = set()  # of containers that this pool has started, or is about to
        self.stopping = False
        self._threads = ThreadPoolExecutor(2 * count + 2)

    async def run(self) -> int:
        stop, again = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _signalled, stop, again)
        await self._in_thread(self._reap)
        slots = asyncio.gather(*(self._keep(Slot(number=number), stop) for number in range(self.count)))
        stopping = asyncio.ensure_future(self._stop_on_signal(stop, again))
        codes = await slots
        stopping.cancel()
        self._threads.shutdown()
        return next(filter(None, codes), 0)

    async def _keep(self, slot: Slot, stop: asyncio.Event) -> int:
        """Keep one container running; returns the exit code of the last."""
        stopped = asyncio.ensure_future(stop.wait())
        while not stop.is_set():
            slot.begun = time.monotonic()
            end = await self._in_thread(self._run_worker)
            if self.post.until is Until.DRAINED and end.succeeded:
                break
            if self.post.until in (Until.ONCE, Until.ONE_ITEM):
                stopped.cancel()
                return end.code
            slot.ended(EXIT_WORKED if end.succeeded else 1, time.monotonic(), at_once_s=AT_ONCE_S)
            await asyncio.wait({stopped}, timeout=slot.pause_s)
        stopped.cancel()
        return 0

    async def _stop_on_signal(self, stop: asyncio.Event, again: asyncio.Event) -> None:
        await stop.wait()
        self.stopping = True
        self.post.log("stopping after the current steps; repeat the signal to stop at once")
        patience = asyncio.ensure_future(
            self._each(partial(self.engine.stop, grace_s=self.post.config.worker.stop_s + 10))
        )
        second_signal = asyncio.ensure_future(again.wait())
        await asyncio.wait({patience, second_signal}, return_when=asyncio.FIRST_COMPLETED)
        while True:  # until cancelled: one may have been started meanwhile
            await self._each(self.engine.kill)
            await asyncio.sleep(0.5)

    async def _each(self, act: Callable[[str], None]) -> None:
        await asyncio.gather(*(self._in_thread(act, name) for name in sorted(self.names)), return_exceptions=True)

    async def _in_thread(self, work: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    # --- one container, in a thread ---

    def _run_worker(self) -> ContainerEnd:
        """Run one worker in a container to its end, keep its log and remove it."""
        name = containers.new_name()
        try:
            with self._named(name):
                end, log = self._run_container(name)
            self._report_end(name, end, log)
        except RatchetError as error:
            self.post.log(f"{name} could not be run: {error.message}")
            return ContainerEnd(code=1)
        except Exception as error:  # noqa: BLE001 — what one container did must not end the pool
            self.post.log(f"{name}: how it ended cannot be told: {type(error).__name__}: {error}"[:500])
            return ContainerEnd(code=1)
        return end

    @contextmanager
    def _named(self, name: str) -> Iterator[None]:
        self.names.add(name)
        try:
            yield
        finally:
            self._remove(name)
            self.names.discard(name)

    def _run_container(self, name: str) -> tuple[ContainerEnd, bytes]:
        labels = {OWNER: containers.mark(name, user_state())}
        self.engine.create(msgspec.structs.replace(self.spec, labels=labels), name)
        if self.stopping:
            return ContainerEnd(code=0), b""
        self.engine.start(name)
        state = self.engine.wait(name)
        log = self.engine.logs(name, lines=LOG_LINES)[-LOG_KEPT_BYTES:] if state else b""
        return containers.how_it_ended(state, log), log

    def _remove(self, name: str) -> None:
        """Remove a container; while the engine is away, wait for it, but not for ever."""
        for _ in range(100):
            with suppress(EngineAway):
                return self.engine.remove(name)
            time.sleep(containers.AWAY_S)
        self.post.log(f"{name} is not removed, because the engine is away; the next start does it")
        return None

    def _report_end(self, name: str, end: ContainerEnd, log: bytes) -> None:
        _keep_log(name, log)
        lines = log.decode(errors="replace").splitlines()
        for line in lines if end.succeeded else lines[-20:]:
            if not line.startswith("ratchet-container: "):
                self.post.log(f"{name} {line}")
        if reason := end.reason(self.spec.memory_mb):
            self.post.log(f"{name}: {reason}")
            if not self.stopping:
                self._give_back(name, reason)
        elif end.memory_kills:
            self.post.log(f"{name}: {end.memory_kills} of its processes were killed, out of memory")

    def _give_back(self, name: str, reason: str) -> None:
        """End the lease of a worker that died, with the reason. Through a server the lease expires by itself."""
        if str(self.post.store).startswith(("http://", "https://")):
            return
        with suppress(RatchetError), closing(open_store(self.post.store)) as store:
            for row in store.workers(live=True):
                if row.name.startswith(f"{name}:"):
                    holder = Holder(worker=row.name, machine="", pid=0, born="")
                    lease = Lease(run=row.run, item=row.item, epoch=row.epoch, holder=holder, worker=row.id)
                    store.fail(lease, Reason.WORKER_LOST, reason, delays_s=self.post.config.worker.retry_s)

    def _reap(self) -> None:
        """Stop and remove containers of pools that have died. Their runs go on from where they stopped."""
        for row in containers.abandoned(self.engine, OWNER, user_state()):
            self.engine.stop(row.id, grace_s=self.post.config.worker.stop_s)
            self.engine.remove(row.id)
            self.post.log(f"{row.name} was left by a pool that has died: removed")


def _signalled(stop: asyncio.Event, again: asyncio.Event) -> None:
    (again if stop.is_set() else stop).set()


def _keep_log(name: str, log: bytes) -> None:
    folder = make_private_dir(user_state() / "container-logs")
    (folder / f"{name}.log").write_bytes(log)
    for old in sorted(folder.glob("*.log"), key=lambda path: path.stat().st_mtime)[:-LOGS_KEPT]:
        old.unlink(missing_ok=True)


# --- what runs in a container -----------------------------------------------------------------------------------------


def worker_spec(post: WorkerSettings, engine: ContainerEngine) -> ContainerSpec:
    """Return the container of a worker. Raises UsageError for settings that cannot work."""
    wanted = post.config.containers
    access, mounts = _store_access(post)
    containers.refuse_socket(wanted.mounts, engine)
    info = engine.info()
    return ContainerSpec(
        image=wanted.image,
        command=containers.with_init(_worker_command(post)),
        env=worker_environment(post, wanted.env) | _WITHOUT_ENGINE | {"HOME": _HOME} | access,
        user=wanted.user or containers.unprivileged_user(),
        mounts=[*mounts, *wanted.mounts],
        network=wanted.network,
        memory_mb=wanted.memory_mb,
        cpus=wanted.cpus,
        processes=wanted.max_processes,
        tmp_mb=wanted.tmp_mb,
        same_user=info.rootless and info.name == "Podman",
    )


def _worker_command(post: WorkerSettings) -> list[str]:
    until = {Until.ONCE: ["--once"], Until.DRAINED: ["--drain", "--count", "1"]}.get(post.until, ["--once", "--wait"])
    return ["ratchet", "worker", *until, *worker_options(post, post.labels)]


def _store_access(post: WorkerSettings) -> tuple[dict[str, str], list[str]]:
    """Return the variables by which a worker finds its items, and the mounts that it needs for it."""
    address = str(post.store)
    if "://" not in address:
        folder = Path(address).absolute().parent
        if not os.getuid() and not post.config.containers.user:
            raise UsageError(
                f"workers in containers are not root and cannot write {address}",
                hint="use a postgresql:// store, or a server: ratchet worker --server URL --launcher docker",
            )
        return store_variables(address, ""), [f"{folder}:{folder}"]
    _refuse_loopback(address, post.config.containers.network)
    return store_variables(address, post.token), []


def _refuse_loopback(address: str, network: str) -> None:
    host = urlsplit(address).hostname or ""
    if network != "host" and (host == "localhost" or _is_loopback(host)):
        raise UsageError(
            f"a container cannot reach {host} of this machine",
            hint="give the store or server by a name that others reach, or set containers.network = host",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
