"""Leases: who may write to a run, and who no longer may."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

_NO_NUL = r"^[^\u0000]*$"


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a lease. `machine` and `born` let another process on the same machine see that it is gone."""

    worker: Annotated[str, msgspec.Meta(max_length=200, pattern=_NO_NUL)]
    machine: Annotated[str, msgspec.Meta(max_length=200, pattern=_NO_NUL)]
    pid: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    born: Annotated[str, msgspec.Meta(max_length=200, pattern=_NO_NUL)]


class Named(Holder, frozen=True, kw_only=True):
    """One that is told to people. Whoever only keeps something for us, such as a namespace, has no name."""

    worker: Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=_NO_NUL)]


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to write to a run. `epoch` grows with every claim and fences whoever held it before.

    `worker` is the id of this claim in the list of workers; `token` proves the right over a wire, and only its hash
    is stored.
    """

    run: str
    item: str
    epoch: int
    holder: Holder
    worker: str = ""
    token: str = ""


class Beat(msgspec.Struct, frozen=True, kw_only=True):
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


class Late(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker said of a run that was no longer its own: nothing of the run moved, but it is not thrown away.

    `kind` is the event it would have been, `head` the commit it speaks of. Whoever verifies that commit says with
    `check_late` whether it was kept.
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


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One claim of a run: who worked on it, how far it came and how it ended."""

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
