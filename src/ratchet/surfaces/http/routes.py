"""The table of routes: method, path, who may, what is sent, what is answered, and the verb that answers.

A module with more routes has a tuple `ROUTES` and is named in `_MODULES`. Nothing here needs the server's libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from ratchet.core.lease import Lease

if TYPE_CHECKING:
    from ratchet.surfaces.http.house import House, Proven

_MODULES = ("worker", "work", "looking", "trying")  # a worker's first: heartbeats are most of what is asked

JSON, TEXT, EVENTS = "application/json", "text/plain; version=0.0.4; charset=utf-8", "text/event-stream"


class Who(StrEnum):
    ANYBODY = "anybody"
    OWNER = "owner"  # the server's token
    WORKER = "worker"  # the token of the lease the path names


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request, understood. `id` is the part of the path that names something; `key` and `last` are headers."""

    house: House
    id: str = ""
    body: Any = None
    query: Any = None
    proven: Proven | None = None
    key: str = ""
    last: str = ""

    @property
    def held(self) -> Lease:
        assert self.proven, "only routes for workers have a lease"
        return self.proven.lease


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer whose status is not the route's."""

    answer: Any
    status: int


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """`verb` is a plain function that may wait for the store, or a coroutine function that must not.

    `refuses` are the statuses special to it; those that any route may answer are known.
    """

    method: str
    path: str
    summary: str
    verb: Callable[[Call], Any]
    answer: Any
    who: Who = Who.OWNER
    body: Any = None
    query: Any = None
    status: int = 200
    keyed: bool = False
    media: str = JSON
    refuses: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        words = self.path.strip("/").replace("{id}", "one").replace("/", "_")
        return f"{self.method.lower()}_{words}".replace("-", "_").replace(".", "_")


def table() -> tuple[Route, ...]:
    modules = [import_module(f"ratchet.surfaces.http.{name}") for name in _MODULES]
    return tuple(route for module in modules for route in module.ROUTES)
