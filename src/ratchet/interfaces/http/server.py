"""The HTTP server: uvicorn with limits on size, time and connections, and a graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ratchet.app.inbox import read_inbox
from ratchet.app.notifications import open_notifier
from ratchet.app.queue import StoreQueueService
from ratchet.config import Config
from ratchet.core.inbox import InboxEntry
from ratchet.errors import EnvironmentCannot
from ratchet.interfaces.http.app import error_response, make_app
from ratchet.interfaces.http.app_state import AppState
from ratchet.interfaces.http.guard import Guard
from ratchet.interfaces.http.sessions import Sessions
from ratchet.paths import store_address
from ratchet.store.protocols import Store

HEAD_MAX_BYTES = 32_768
PIPELINED_MAX = 8  # requests that wait for the answer to one before them
REQUEST_S = 30.0
READ_MIN_BYTES = 8_192  # what a client must read within REQUEST_S while more than that waits for it
KEEP_ALIVE_S = 75
CONNECTIONS_MAX = 4_096
DESCRIPTORS_KEPT = 256
BACKLOG = 2_048
GRACE_S = 10

Workers = Callable[[asyncio.Event], Awaitable[None]]


async def serve(
    queue_service: StoreQueueService,
    listening: socket.socket,
    *,
    token: str,
    stop: asyncio.Event,
    workers: Workers | None = None,
    settings: Config | None = None,
    folder: Path | None = None,
    sessions: Sessions | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until `stop`, then finish running requests. `settings` are the host's, `folder` is the repository."""
    app_state = AppState(queue_service, token=token, settings=settings, folder=folder, sessions=sessions)
    host = str(listening.getsockname()[0])
    guard = Guard((settings or Config()).server, host=host, connections_max=_connections_max())
    server = _Server(_settings(app_state, guard), ready)
    try:
        async with asyncio.TaskGroup() as tasks:
            answering = tasks.create_task(server.serve(sockets=[listening]))
            answering.add_done_callback(lambda _: stop.set())
            tasks.create_task(_end(server, app_state, stop))
            tasks.create_task(_sweep(app_state, stop))
            tasks.create_task(_notify(queue_service, settings or Config(), app_state.folder, listening, stop))
            if workers:
                working = tasks.create_task(_working(workers, stop))
                working.add_done_callback(lambda _: stop.set())  # stop the server too when its workers have failed
    finally:
        app_state.close()


def _connections_max() -> int:
    """Return how many connections there may be: each has a file descriptor, and the rest of the server needs some."""
    return min(CONNECTIONS_MAX, max(64, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - DESCRIPTORS_KEPT))


def stop_on_signals() -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; a second one ends this task now."""
    stop, task = asyncio.Event(), asyncio.current_task()
    assert task

    def on_signal() -> None:
        task.cancel() if stop.is_set() else stop.set()

    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, on_signal)
    return stop


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket here, so that an error is reported with a hint."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise EnvironmentCannot(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="another server may be running there; choose another --port",
        ) from error


class _Settings(uvicorn.Config):
    guard: Guard


def _settings(app_state: AppState, guard: Guard) -> _Settings:
    settings = _Settings(
        guard.wrap(make_app(app_state), error_response),
        interface="asgi3",
        http=LimitedConnection,
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
    settings.guard = guard
    return settings


async def _working(workers: Workers, stop: asyncio.Event) -> None:
    await workers(stop)


async def _sweep(app_state: AppState, stop: asyncio.Event) -> None:
    sweeping = asyncio.create_task(app_state.workspaces.sweep_forever())
    await stop.wait()
    sweeping.cancel()


async def _notify(
    queue_service: StoreQueueService, settings: Config, folder: Path, listening: socket.socket, stop: asyncio.Event
) -> None:
    host, port = listening.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    read = partial(_visible_entries, queue_service.store, settings, folder)
    notifier = open_notifier(settings.notify, read, address=address, store=str(store_address(settings, folder)))
    if notifier:
        telling = asyncio.create_task(notifier.run())
        await stop.wait()
        telling.cancel()


def _visible_entries(store: Store, settings: Config, folder: Path) -> list[InboxEntry]:
    return read_inbox(store, settings, folder).entries


async def _end(server: uvicorn.Server, app_state: AppState, stop: asyncio.Event) -> None:
    await stop.wait()
    app_state.stopping.set()
    app_state.event_streams.wake()
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
        """Do nothing: `stop_on_signals` handles signals, since they also end streams and workers."""
        yield


class LimitedConnection(HttpToolsProtocol):
    """Limits the time of a request and the size of its head, against clients that send or read slowly."""

    _looks: asyncio.TimerHandle | None = None
    _due: float | None = None
    _in_head = True
    _bytes = _head = 0
    _unread: asyncio.TimerHandle | None = None
    _unsent = 0
    _running: RequestResponseCycle | None = None
    _closing = False

    @property
    def _guard(self) -> Guard:
        assert isinstance(self.config, _Settings)
        return self.config.guard

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's signature
        super().connection_made(transport)
        if self.client and self.server:
            host, port = self.server
            if not self._guard.accepts(self.client, (host, port or 0)):
                transport.close()
        self._due = self.loop.time() + REQUEST_S
        self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._looks, self._unread):
            if timer:
                timer.cancel()
        if self.client:
            self._guard.closed(self.client)
        if self._running:  # uvicorn tells the last of several requests only
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        self._bytes += len(data)
        super().data_received(data)
        if self._in_head and self._bytes > HEAD_MAX_BYTES:
            self.transport.abort()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= PIPELINED_MAX:
            raise ValueError("too many requests before an answer")
        super().on_message_begin()
        if self._due is None:
            self._due = self.loop.time() + REQUEST_S

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count_head(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count_head(name, value)

    def _count_head(self, *parts: bytes) -> None:
        self._head += sum(map(len, parts))
        if self._head > HEAD_MAX_BYTES:
            raise ValueError("the head is too large")  # answered as a malformed request

    def on_headers_complete(self) -> None:
        self._in_head, self._head = False, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._due, self._in_head, self._bytes = None, True, 0
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unsent = self.transport.get_write_buffer_size()
        self._unread = self._unread or self.loop.call_later(REQUEST_S, self._look_at_reader)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread:
            self._unread.cancel()
            self._unread = None

    def _look_at_reader(self) -> None:
        unsent, self._unread = self.transport.get_write_buffer_size(), None
        if self._unsent - unsent < READ_MIN_BYTES:
            self.transport.abort()
        else:
            self._unsent, self._unread = unsent, self.loop.call_later(REQUEST_S, self._look_at_reader)

    def _look(self) -> None:
        # A closing connection stays open until all is sent: a client that reads nothing would keep it.
        if self._closing or (self._due is not None and self._due <= self.loop.time()):
            self.transport.abort()
        else:
            self._closing = self.transport.is_closing()
            self._look_again()

    def _look_again(self) -> None:
        """Restart the timer. One per connection is enough: a request that starts later is due later."""
        self._looks = self.loop.call_at(self._due or self.loop.time() + REQUEST_S, self._look)
