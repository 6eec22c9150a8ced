"""The table of routes: method, path, authentication, request and response types, and handler.

Each module in `_MODULES` has a tuple `ROUTES`. This module does not import the server's libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from ratchet.core.lease import Lease

if TYPE_CHECKING:
    from ratchet.interfaces.http.app_state import AppState, AuthenticatedWorker

# Worker routes first: most requests are heartbeats.
_MODULES = ("worker_routes", "queue_routes", "read_routes", "test_workspace_routes", "store_routes")

JSON, TEXT, EVENTS = "application/json", "text/plain; version=0.0.4; charset=utf-8", "text/event-stream"
HTML = "text/html; charset=utf-8"


class Auth(StrEnum):
    ANYBODY = "anybody"
    OWNER = "owner"  # the server's token
    WORKER = "worker"  # the token of the lease named in the path


class RouteCall(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded request. `id` is the path parameter; `idempotency_key` and `last_event_id` are headers; `user` asks
    which user of this machine sent it."""

    state: AppState
    id: str = ""
    body: Any = None
    query: Any = None
    worker: AuthenticatedWorker | None = None
    idempotency_key: str = ""
    last_event_id: str = ""
    user: Callable[[], str] = str

    @property
    def lease(self) -> Lease:
        assert self.worker, "only worker routes have a lease"
        return self.worker.lease


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A response whose status differs from the route's default."""

    answer: Any
    status: int


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A route. `handler` is a plain function, run in a thread, or a coroutine function that must not block.

    `ends_with_client`: a call that takes long and is worth nothing to anybody else is cancelled when its client
    disconnects. `refuses` are its specific error statuses, besides those common to all routes. `internal` routes are
    not described.
    """

    method: str
    path: str
    summary: str
    handler: Callable[[RouteCall], Any]
    answer: Any
    auth: Auth = Auth.OWNER
    body: Any = None
    query: Any = None
    status: int = 200
    keyed: bool = False
    media: str = JSON
    refuses: tuple[int, ...] = ()
    internal: bool = False
    ends_with_client: bool = False
    body_max_bytes: int = 1_000_000

    @property
    def name(self) -> str:
        words = self.path.strip("/").replace("{id}", "one").replace("/", "_")
        return f"{self.method.lower()}_{words}".replace("-", "_").replace(".", "_")


def table() -> tuple[Route, ...]:
    modules = [import_module(f"ratchet.interfaces.http.{name}") for name in _MODULES]
    return tuple(route for module in modules for route in module.ROUTES)
