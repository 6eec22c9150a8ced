"""State shared by all routes: queue service, thread pool, authentication cache, counters."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from ratchet import __version__
from ratchet.app.queue import StoreQueueService, lease_of
from ratchet.app.test_workspaces import WorkspaceService
from ratchet.config import Config
from ratchet.core import api
from ratchet.core.lease import Lease, LeaseRenewal
from ratchet.errors import RatchetError
from ratchet.interfaces.http import auth
from ratchet.interfaces.http.errors import HttpError, unauthorized
from ratchet.interfaces.http.event_stream import EventStreams
from ratchet.interfaces.http.guard import mark_authenticated
from ratchet.interfaces.http.sessions import Sessions
from ratchet.interfaces.http.signal_stream import SignalStreams

T = TypeVar("T")
THREADS = 4
QUEUED_MAX = 512  # further requests get 429 instead of waiting
WORKERS_CACHED_MAX = 20_000
BATCH_MAX = 500
HEALTH_S = 1.0
GATHER_S = 0.001


class AuthenticatedWorker(msgspec.Struct, frozen=True, kw_only=True):
    """The worker of a lease token. Cached, since it never changes; each write checks the lease itself."""

    lease: Lease


class AppState:
    def __init__(
        self,
        queue_service: StoreQueueService,
        *,
        token: str,
        settings: Config | None = None,
        folder: Path | None = None,
        sessions: Sessions | None = None,
    ) -> None:
        """`folder` is the repository the server was started in; `settings` is the host's configuration."""
        self.queue_service, self.folder = queue_service, folder or Path.cwd()
        self.settings = settings or Config()
        self.sessions = sessions or Sessions(token)
        self.workspaces = WorkspaceService(self.settings, learn=queue_service.learn)
        self.stopping = asyncio.Event()
        self.answered: dict[tuple[str, str, int], int] = {}
        self.heartbeats = HeartbeatBatcher(self)
        self.event_streams = EventStreams(self)
        self.signal_streams = SignalStreams(self)
        self._token = token.encode()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="ratchet-desk")
        self._waiting = 0
        self._workers: OrderedDict[bytes, AuthenticatedWorker] = OrderedDict()
        self._health: tuple[float, bool] = (-HEALTH_S, False)

    def close(self) -> None:
        self.signal_streams.close()
        self._pool.shutdown(cancel_futures=True)
        self.queue_service.lessons.library.close()  # the store is closed next

    async def run_blocking(self, verb: Callable[..., T], *args: object, **named: object) -> T:
        """Call a blocking store function in the thread pool."""
        if self._waiting >= QUEUED_MAX:
            raise HttpError(
                429, "too_many", "too many concurrent requests", hint="retry later", headers={"retry-after": "1"}
            )
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, partial(verb, *args, **named))
        finally:
            self._waiting -= 1

    # --- authentication ------------------------------------------------------------------------------------

    async def authenticate_owner(self, token: bytes) -> None:
        if auth.is_same_token(token, self._token):
            mark_authenticated()
            return
        if await self._worker(token):
            raise HttpError(
                403, "forbidden", "a worker's token is valid only for its own routes", hint="use the server's token"
            )
        raise unauthorized("this route requires the server's token", "send `Authorization: Bearer TOKEN`")

    async def authenticate_worker(self, token: bytes, worker: str) -> AuthenticatedWorker:
        proven = await self._worker(token)
        if proven and proven.lease.worker == worker:
            return proven
        if proven or auth.is_same_token(token, self._token):
            raise HttpError(
                403,
                "forbidden",
                f"this token does not belong to {worker}",
                hint="use the token of the worker's own lease",
            )
        raise unauthorized(
            "this route requires a lease token", "register first: the response contains a worker id and its token"
        )

    async def _worker(self, token: bytes) -> AuthenticatedWorker | None:
        if not token:
            return None
        name = hashlib.sha256(token).digest()
        if found := self._workers.get(name):
            mark_authenticated()
            return found
        proven = await self.run_blocking(self._look_up_worker, token.decode("latin-1"))
        if proven:
            mark_authenticated()
            self._workers[name] = proven
            while len(self._workers) > WORKERS_CACHED_MAX:
                self._workers.popitem(last=False)
        return proven

    def _look_up_worker(self, token: str) -> AuthenticatedWorker | None:
        row = self.queue_service.store.worker_by_token(token)
        if row is None:
            return None
        return AuthenticatedWorker(lease=lease_of(row))

    # --- health -------------------------------------------------------------------------------------------

    def count(self, method: str, path: str, status: int) -> None:
        key = (method, path, status)
        self.answered[key] = self.answered.get(key, 0) + 1

    async def health(self) -> api.Health:
        """Report health. Unauthenticated, so the store is queried at most once a second."""
        at, well = self._health
        if time.monotonic() - at >= HEALTH_S:
            well = await self.run_blocking(self._store_answers)
            self._health = (time.monotonic(), well)
        return api.Health(status="ok" if well else "degraded", version=__version__, store=well)

    def _store_answers(self) -> bool:
        try:
            self.queue_service.store.feed_end()
        except RatchetError:
            return False
        return True


class _WaitingBeat(NamedTuple):
    beat: LeaseRenewal
    ttl_s: float
    answer: asyncio.Future[str | None]


class HeartbeatBatcher:
    """Batches heartbeats: those that arrive during a write go into one transaction with the next write."""

    def __init__(self, app_state: AppState) -> None:
        self._app_state = app_state
        self._waiting: list[_WaitingBeat] = []
        self._writer: asyncio.Task[None] | None = None
        self._gathered = asyncio.Event()
        self._together = 0

    async def beat(self, beat: LeaseRenewal, *, ttl_s: float = 0.0) -> str | None:
        """Renew a lease. Return who requested a stop, an empty string if none, or None when the lease is lost."""
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_WaitingBeat(beat, ttl_s or self._app_state.queue_service.lease_s, answer))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())
        elif len(self._waiting) == self._together:
            self._gathered.set()
        return await answer

    async def _write(self) -> None:
        try:
            while self._waiting:
                await self._gather()
                ttl_s = self._waiting[0].ttl_s
                batch = [one for one in self._waiting if one.ttl_s == ttl_s][:BATCH_MAX]
                taken = set(map(id, batch))
                self._waiting = [one for one in self._waiting if id(one) not in taken]
                self._together = max(len(batch), self._together - 1)
                await self._answer([one.beat for one in batch], [one.answer for one in batch], ttl_s)
        finally:
            self._writer = None

    async def _gather(self) -> None:
        """Workers answered together send their next heartbeats together: wait up to `GATHER_S` for the same number."""
        self._gathered.clear()
        if len(self._waiting) < self._together:
            late = asyncio.get_running_loop().call_later(GATHER_S, self._gathered.set)
            await self._gathered.wait()
            late.cancel()

    async def _answer(
        self, beats: Sequence[LeaseRenewal], answers: Sequence[asyncio.Future[str | None]], ttl_s: float
    ) -> None:
        store = self._app_state.queue_service.store
        try:
            stops = await self._app_state.run_blocking(store.renew_all, beats, ttl_s=ttl_s)
        except Exception as error:  # noqa: BLE001 — passed on to every waiting request
            for answer in answers:
                if not answer.done():
                    answer.set_exception(error)
            return
        for answer, stop in zip(answers, stops, strict=True):
            if not answer.done():  # the client may have disconnected
                answer.set_result(stop)
