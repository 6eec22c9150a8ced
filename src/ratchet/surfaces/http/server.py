"""The server: uvicorn held to limits, from the first byte of a request to a graceful end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ratchet.config import Config
from ratchet.desk import StoreDesk
from ratchet.errors import EnvironmentCannot
from ratchet.surfaces.http.app import make_app
from ratchet.surfaces.http.house import House

HEAD_MAX_BYTES = 32_768
REQUEST_S = 30.0
KEEP_ALIVE_S = 75
CONNECTIONS_MAX = 4_096
BACKLOG = 2_048
GRACE_S = 10

Workers = Callable[[asyncio.Event], Awaitable[None]]


async def serve(
    desk: StoreDesk,
    listening: socket.socket,
    *,
    token: str,
    stop: asyncio.Event,
    workers: Workers | None = None,
    settings: Config | None = None,
    folder: Path | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Answer until `stop`; then finish what is under way. `settings` are the host's, `folder` is what it serves."""
    house = House(desk, token=token, settings=settings, folder=folder)
    server = _Server(_settings(house), ready)
    try:
        async with asyncio.TaskGroup() as tasks:
            answering = tasks.create_task(server.serve(sockets=[listening]))
            answering.add_done_callback(lambda _: stop.set())
            tasks.create_task(_end(server, house, stop))
            tasks.create_task(_sweep(house, stop))
            if workers:
                working = tasks.create_task(_working(workers, stop))
                working.add_done_callback(lambda _: stop.set())  # without its workers it is not the factory asked for
    finally:
        house.close()


def stop_on_signals() -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; a second one ends this task now."""
    stop, task = asyncio.Event(), asyncio.current_task()
    assert task

    def hear() -> None:
        task.cancel() if stop.is_set() else stop.set()

    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, hear)
    return stop


def listen(host: str, port: int) -> socket.socket:
    """The address is taken here, so that what is wrong with it is told in words."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise EnvironmentCannot(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="is a server running there? take another --port",
        ) from error


def _settings(house: House) -> uvicorn.Config:
    return uvicorn.Config(
        make_app(house),
        interface="asgi3",
        http=Held,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
    )


async def _working(workers: Workers, stop: asyncio.Event) -> None:
    await workers(stop)


async def _sweep(house: House, stop: asyncio.Event) -> None:
    sweeping = asyncio.create_task(house.workbench.keep_swept())
    await stop.wait()
    sweeping.cancel()


async def _end(server: uvicorn.Server, house: House, stop: asyncio.Event) -> None:
    await stop.wait()
    house.stopping.set()
    house.listeners.wake()
    server.should_exit = True


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """They are ours: streams and workers end with them too."""
        yield


class Held(HttpToolsProtocol):
    """A request has a time, and its head a size: who sends it byte by byte keeps no connection open."""

    _looks: asyncio.TimerHandle | None = None
    _due: float | None = None
    _in_head = True
    _bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._due = self.loop.time() + REQUEST_S
        self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._looks:
            self._looks.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._bytes += len(data)
        super().data_received(data)
        if self._in_head and self._bytes > HEAD_MAX_BYTES:
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._due is None:
            self._due = self.loop.time() + REQUEST_S

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._due, self._in_head, self._bytes = None, True, 0
        super().on_message_complete()

    def _look(self) -> None:
        if self._due is not None and self._due <= self.loop.time():
            self.transport.close()
        else:
            self._look_again()

    def _look_again(self) -> None:
        """One timer for a connection, not one for each request: a request that begins meanwhile is due after it."""
        self._looks = self.loop.call_at(self._due or self.loop.time() + REQUEST_S, self._look)
