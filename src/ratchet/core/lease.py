"""Leases: who may write to a run, and who no longer may."""

from __future__ import annotations

import msgspec


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a lease. `machine` and `born` let another process on the same machine see that it is gone."""

    worker: str
    machine: str
    pid: int
    born: str


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to write to a run. `epoch` grows with every claim and fences whoever held it before."""

    run: str
    item: str
    epoch: int
    holder: Holder
