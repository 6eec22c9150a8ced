"""Leases: the exclusive right to write to a run, fenced by epoch."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

_NO_NUL = r"^[^\u0000]*$"


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The process that holds a lease. `machine`, `pid` and `born` let others on the same machine detect its death."""

    worker: Annotated[str, msgspec.Meta(max_length=200, pattern=_NO_NUL)]
    machine: Annotated[str, msgspec.Meta(max_length=200, pattern=_NO_NUL)]
    pid: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    born: Annotated[str, msgspec.Meta(max_length=200, pattern=_NO_NUL)]


class NamedHolder(Holder, frozen=True, kw_only=True):
    """A holder with a name for people. Internal holders, such as of a namespace, have an empty one."""

    worker: Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=_NO_NUL)]


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to write to a run. `epoch` grows with every claim and fences earlier holders.

    `worker` is the id of this claim in the list of workers; `token` authenticates it over HTTP, and only its hash is
    stored.
    """

    run: str
    item: str
    epoch: int
    holder: Holder
    worker: str = ""
    token: str = ""


class LeaseRenewal(msgspec.Struct, frozen=True, kw_only=True):
    """One heartbeat."""

    run: str
    epoch: int
    iteration: int | None = None


class WorkerStatus(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    STUCK = "stuck"
    COMPLETED = "completed"
    FAILED = "failed"
    KILLED = "killed"
    RELEASED = "released"


LIVE = frozenset({WorkerStatus.STARTING, WorkerStatus.RUNNING, WorkerStatus.STUCK})


class FencedWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A write rejected because the lease was lost. It changed nothing in the run, but its commits may be good.

    `kind` is the rejected event, `head` its commit. `resolve_fenced_write` records whether the commit was kept.
    """

    id: str
    run: str
    item: str
    epoch: int
    worker: str
    at: str
    kind: str
    head: str
    detail: str
    checked_at: str = ""
    kept: bool = False


class WorkerPool(msgspec.Struct, frozen=True, kw_only=True):
    """A process that keeps `workers` workers waiting for items. It is live until `POOL_S` after it was last seen."""

    holder: Holder
    workers: int
    seen_at: str = ""
    labels: list[str] = []


POOL_S = 90.0
POOL_ANNOUNCE_S = 20.0


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One claim of a run: its worker, its progress and how it ended."""

    id: str
    name: str
    item: str
    run: str
    epoch: int
    status: WorkerStatus
    started_at: str
    beat_at: str
    ended_at: str
    iteration: int
    nudges: int
    detail: str
    labels: list[str] = []
