"""What all routes share: the desk, the way to it from the event loop, who was proven, and what was answered."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from ratchet import __version__
from ratchet.config import Config
from ratchet.core import api
from ratchet.core.lease import Beat, Lease
from ratchet.desk import StoreDesk, lease_of
from ratchet.errors import RatchetError
from ratchet.surfaces.http import auth
from ratchet.surfaces.http.listeners import Listeners
from ratchet.surfaces.http.refusals import Refusal, unauthorized
from ratchet.workbench import Workbench

T = TypeVar("T")
THREADS = 4
WAITING_MAX = 512  # who comes after them is told to come later, rather than left waiting
PROVEN_MAX = 20_000
BATCH_MAX = 500
HEALTH_S = 1.0
GATHER_S = 0.001


class Proven(msgspec.Struct, frozen=True, kw_only=True):
    """A token's worker never changes, so it is looked up once; whether its lease still holds is in every write."""

    lease: Lease
    max_iterations: int | None


class House:
    def __init__(
        self, desk: StoreDesk, *, token: str, settings: Config | None = None, folder: Path | None = None
    ) -> None:
        """`folder` is what the server was started for; `settings` those of its host."""
        self.desk, self.folder = desk, folder or Path.cwd()
        self.workbench = Workbench(settings or Config(), learn=desk.learn)
        self.stopping = asyncio.Event()
        self.answered: dict[tuple[str, str, int], int] = {}
        self.beats = Beats(self)
        self.listeners = Listeners(self)
        self._token = token.encode()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="ratchet-desk")
        self._waiting = 0
        self._proven: OrderedDict[bytes, Proven] = OrderedDict()
        self._health: tuple[float, bool] = (-HEALTH_S, False)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    async def cross(self, verb: Callable[..., T], *args: object, **named: object) -> T:
        """Over to the store, which waits, and back."""
        if self._waiting >= WAITING_MAX:
            raise Refusal(429, "too_many", "too many requests at once", hint="later", headers={"retry-after": "1"})
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, partial(verb, *args, **named))
        finally:
            self._waiting -= 1

    # --- who -------------------------------------------------------------------------------------------------

    async def admit_owner(self, token: bytes) -> None:
        if auth.same(token, self._token):
            return
        if await self._worker(token):
            raise Refusal(403, "forbidden", "a worker's token opens only its own routes", hint="use the server's token")
        raise unauthorized("the server's token is needed", "send `Authorization: Bearer TOKEN`")

    async def admit_worker(self, token: bytes, worker: str) -> Proven:
        proven = await self._worker(token)
        if proven and proven.lease.worker == worker:
            return proven
        if proven or auth.same(token, self._token):
            raise Refusal(403, "forbidden", f"this token is not of {worker}", hint="use the token of its own lease")
        raise unauthorized("the token of a lease is needed", "register: the answer has a worker's id and its token")

    async def _worker(self, token: bytes) -> Proven | None:
        if not token:
            return None
        name = hashlib.sha256(token).digest()
        if found := self._proven.get(name):
            return found
        proven = await self.cross(self._prove, token.decode("latin-1"))
        if proven:
            self._proven[name] = proven
            while len(self._proven) > PROVEN_MAX:
                self._proven.popitem(last=False)
        return proven

    def _prove(self, token: str) -> Proven | None:
        row = self.desk.store.proven(token)
        if row is None:
            return None
        return Proven(lease=lease_of(row), max_iterations=self.desk.store.item(row.item).max_iterations)

    # --- how it is -------------------------------------------------------------------------------------------

    def count(self, method: str, path: str, status: int) -> None:
        key = (method, path, status)
        self.answered[key] = self.answered.get(key, 0) + 1

    async def health(self) -> api.Health:
        """Anybody may ask, so the store is asked at most once a second."""
        at, well = self._health
        if time.monotonic() - at >= HEALTH_S:
            well = await self.cross(self._store_answers)
            self._health = (time.monotonic(), well)
        return api.Health(status="ok" if well else "degraded", version=__version__, store=well)

    def _store_answers(self) -> bool:
        try:
            self.desk.store.feed_end()
        except RatchetError:
            return False
        return True


class Beats:
    """Heartbeats are gathered while the last ones are being written: one transaction for all that came meanwhile."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._waiting: list[tuple[Beat, asyncio.Future[str | None]]] = []
        self._writer: asyncio.Task[None] | None = None
        self._gathered = asyncio.Event()
        self._together = 0

    async def beat(self, beat: Beat) -> str | None:
        """Who asked for the run to be stopped, or None when the lease is lost."""
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((beat, answer))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())
        elif len(self._waiting) == self._together:
            self._gathered.set()
        return await answer

    async def _write(self) -> None:
        try:
            while self._waiting:
                await self._gather()
                batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
                self._together = max(len(batch), self._together - 1)
                await self._answer([beat for beat, _ in batch], [answer for _, answer in batch])
        finally:
            self._writer = None

    async def _gather(self) -> None:
        """Who was answered together asks again together: wait for as many, but hardly at all."""
        self._gathered.clear()
        if len(self._waiting) < self._together:
            late = asyncio.get_running_loop().call_later(GATHER_S, self._gathered.set)
            await self._gathered.wait()
            late.cancel()

    async def _answer(self, beats: Sequence[Beat], answers: Sequence[asyncio.Future[str | None]]) -> None:
        desk = self._house.desk
        try:
            heard = await self._house.cross(desk.store.renew_all, beats, ttl_s=desk.lease_s)
        except Exception as error:  # noqa: BLE001 — whatever it is, it is for those who asked
            for answer in answers:
                if not answer.done():
                    answer.set_exception(error)
            return
        for answer, stop in zip(answers, heard, strict=True):
            if not answer.done():  # its client may be gone
                answer.set_result(stop)
