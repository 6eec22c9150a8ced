"""Where items, runs, ledgers, receipts and leases are kept, behind verbs of the domain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ratchet.core.events import Event
from ratchet.core.item import Item, ItemStatus
from ratchet.core.lease import Holder, Lease
from ratchet.core.ledger import Entry
from ratchet.core.receipt import Receipt
from ratchet.core.state import RunStatus


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a list of runs shows, without folding each ledger."""

    run: str
    item: str
    title: str
    status: RunStatus
    item_status: ItemStatus
    created_at: str
    length: int
    head: str
    epoch: int
    holder: Holder | None
    expires_at: str
    abort_by: str


class Store(Protocol):
    """Every backend passes the one suite in `tests/contract`."""

    def add(self, item: Item) -> Item:
        """Queue an item; while one with the same repo and source_ref is open, return that one instead."""
        ...

    def item(self, item: str) -> Item: ...

    def claim(self, item: str, *, run: str, holder: Holder, ttl_s: float) -> Lease:
        """Take the lease on an item's run, starting `run` if there is none. Raises LeaseHeld."""
        ...

    def renew(self, lease: Lease, *, ttl_s: float) -> str:
        """Keep the lease; returns who asked for the run to be aborted, or ''. Raises LeaseLost."""
        ...

    def release(self, lease: Lease) -> None:
        """Give the lease back. Releasing what is no longer held is success."""
        ...

    def append(self, lease: Lease, events: Sequence[Event], receipt: Receipt | None = None) -> list[Entry]:
        """Durably add events, in one transaction with the rows they move and the receipt. Raises LeaseLost."""
        ...

    def entries(self, run: str) -> list[Entry]:
        """The ledger, checked. Raises LedgerBroken."""
        ...

    def receipts(self, run: str) -> list[Receipt]: ...

    def runs(self) -> list[RunRow]:
        """Newest first."""
        ...

    def run(self, run: str) -> RunRow:
        """Raises NotFound."""
        ...

    def ask_abort(self, run: str, *, by: str) -> None:
        """Tell whoever holds the run to stop."""
        ...

    def close(self) -> None: ...
