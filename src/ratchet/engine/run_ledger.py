"""The ledger of one run, as its worker writes it: the state folded from it, its receipts, and the files derived."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from ratchet.core import events as ev
from ratchet.core import state
from ratchet.core.item import Item
from ratchet.core.lease import Lease
from ratchet.core.ledger import GENESIS, Entry
from ratchet.core.locks import Blocked, Locked, overlaps
from ratchet.core.receipt import Receipt
from ratchet.core.redact import Redactor
from ratchet.core.state import RunState, advance
from ratchet.core.workflows.workflow import Workflow
from ratchet.engine.blocking import run_blocking
from ratchet.engine.lease_keeper import LeaseHandle
from ratchet.errors import Conflict, UsageError
from ratchet.store.protocols import (
    Artifacts,
    Budgets,
    FencedWrites,
    Leases,
    Ledger,
    LedgerCheckpoint,
    PathLocks,
    ProviderSlots,
)
from ratchet.store.run_directory import RunDirectory

CHECKPOINT_ENTRIES = 256
RELOADED_MAX = 1_000


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    state: RunState
    announced_at: str


def fold_version(workflow: Workflow) -> str:
    """Name the code that folds a ledger: a state that other code folded is not used."""
    code = b"".join(Path(module.__file__ or "").read_bytes() for module in (state, ev))
    table = sorted(f"{phase} {kind.__name__} {to}" for (phase, kind), to in workflow.table.items())
    return hashlib.sha256(code + "\n".join([workflow.name, *table]).encode()).hexdigest()


class RunStore(Artifacts, Ledger, Leases, FencedWrites, PathLocks, Budgets, ProviderSlots, Protocol):
    """The store verbs that driving a run needs."""


class EventCallback(Protocol):
    """Called with every event after it is durable."""

    def __call__(self, entry: Entry, event: ev.Event, state: RunState, /) -> None: ...


MakeEntries = Callable[[int], tuple[Sequence[ev.Event], Receipt | None]]


class RunLedger:
    """Appends events under a lease and keeps state, receipts and the run directory in step with them."""

    def __init__(
        self,
        store: RunStore,
        lease: Lease,
        item: Item,
        workflow: Workflow,
        directory: RunDirectory,
        *,
        on_event: EventCallback,
        lease_handle: LeaseHandle | None = None,
    ) -> None:
        self.store, self.lease, self.item, self.workflow, self.directory = store, lease, item, workflow, directory
        self.on_event, self.lease_handle = on_event, lease_handle or LeaseHandle()
        self.state = RunState(run=lease.run)
        self.receipts: list[Receipt] = []
        self.length, self.head = 0, GENESIS
        self.announced_at = ""  # when the step in progress was announced
        self._locked_paths: list[str] = []
        self._history, self._answered = "", 0  # the answers in receipts never change
        self._version, self._checkpointed = fold_version(workflow), 0
        self._writing = asyncio.Lock()

    @property
    def anchor(self) -> str:
        """The last entry as `seq:sum`, which covers all entries before it."""
        return f"{self.length}:{self.head}"

    async def load(self) -> None:
        """Fold the ledger, from its last checkpoint on, and bring the run directory up to date."""
        tail = await run_blocking(self.store.ledger_tail, self.lease.run, version=self._version)
        self.receipts = await run_blocking(self.store.receipts, self.lease.run)
        self._start_from(tail.checkpoint)
        for entry in tail.entries:
            self._apply(entry, ev.decode(entry.kind, entry.data))
        self._report_iteration()
        if self.length:
            await run_blocking(self.export)

    def _start_from(self, checkpoint: LedgerCheckpoint | None) -> None:
        self.state, self.length, self.head = RunState(run=self.lease.run), 0, GENESIS
        self.announced_at = ""
        if checkpoint:
            kept = msgspec.json.decode(checkpoint.state, type=Checkpoint)
            self.state, self.announced_at = kept.state, kept.announced_at
            self.length, self.head = checkpoint.seq, checkpoint.sum
        self._checkpointed = self.length

    def _apply(self, entry: Entry, event: ev.Event | ev.UnknownEvent) -> None:
        self.state = advance(self.state, self.workflow.table, event)
        self.length, self.head = entry.seq, entry.sum
        if isinstance(event, ev.StepStarted):
            self.announced_at = entry.at

    async def reload(self) -> RunState:
        """Read events that other processes appended to this ledger, such as a failure or an abort."""
        known = self.length
        await self.load()
        for entry in await run_blocking(self.store.entries_after, self.lease.run, after=known, limit=RELOADED_MAX):
            event = ev.decode(entry.kind, entry.data)
            if isinstance(event, ev.Event):
                self.on_event(entry, event, self.state)
        return self.state

    async def append(self, events: Sequence[ev.Event], receipt: Receipt | None = None) -> list[Entry]:
        """Append events and a receipt in one transaction, with secrets redacted."""
        return await self.append_made(lambda _first: (events, receipt))

    async def append_made(self, make: MakeEntries) -> list[Entry]:
        """Append what `make` returns for the number of the first entry."""
        async with self._writing:
            entries, events, receipt = await self._append(make)
            for entry, event in zip(entries, events, strict=True):
                self._apply(entry, event)
                self.on_event(entry, event, self.state)
            self._report_iteration()
            if receipt:
                self.receipts.append(receipt)
            await run_blocking(self._mirror, entries, receipt)
            if self.length >= self._checkpointed + CHECKPOINT_ENTRIES:
                await run_blocking(self._checkpoint)
        return entries

    async def _append(self, make: MakeEntries) -> tuple[list[Entry], list[ev.Event], Receipt | None]:
        """Append behind the last known entry, so that a call that is sent again finds what it has written."""
        while True:
            made, receipt = make(self.length + 1)
            events = [_redacted(event, self.directory.redact) for event in made]
            try:
                entries = await run_blocking(self.store.append, self.lease, events, receipt, after=self.length)
                return entries, events, receipt
            except Conflict:
                if not await self._catch_up():
                    raise

    async def _catch_up(self) -> bool:
        """Apply entries that others have appended; returns whether there were any."""
        missing = await run_blocking(self.store.entries_after, self.lease.run, after=self.length, limit=RELOADED_MAX)
        for entry in missing:
            event = ev.decode(entry.kind, entry.data)
            self._apply(entry, event)
            if isinstance(event, ev.Event):
                self.on_event(entry, event, self.state)
        await run_blocking(self._mirror, missing, None)
        return bool(missing)

    def _checkpoint(self) -> None:
        content = msgspec.json.encode(Checkpoint(state=self.state, announced_at=self.announced_at))
        self.store.checkpoint_ledger(
            LedgerCheckpoint(run=self.lease.run, seq=self.length, sum=self.head, version=self._version, state=content)
        )
        self._checkpointed = self.length

    async def record(self, event: ev.Event) -> None:
        """Append an event of the step in progress before the step has ended."""
        await self.append([event])

    def turn(self, action: str) -> int:
        """Return how often this run has asked for this action, this time included; a repeated step counts once."""
        return 1 + sum(1 for receipt in self.receipts if receipt.action == action)

    def history(self) -> str:
        """Return the recorded answers of all roles, oldest first."""
        self._history += self.directory.history(self.receipts[self._answered :])
        self._answered = len(self.receipts)
        return self._history

    def _report_iteration(self) -> None:
        # One iteration after the last allowed one finds that nothing is left to do. Policy ends it, not a heartbeat.
        self.lease_handle.iteration = min(self.state.iteration, self.item.max_iterations or self.state.iteration)

    # --- locks -----------------------------------------------------------------------------------------------

    async def lock_footprint(self) -> Blocked | None:
        """Lock all paths of the item's footprint; returns the run that holds one of them, if any."""
        if not self.item.footprint:
            return None
        answer = await run_blocking(self.store.lock, self.lease, self.item.footprint)
        if not isinstance(answer, Locked):
            return answer
        self._locked_paths = answer.paths
        return None

    def lock(self, paths: list[str]) -> list[str]:
        """Lock paths that were written outside the footprint; returns those that another run has locked.

        An item without a footprint locks nothing: conflicts are found when its changes land.
        """
        outside = [path for path in paths if not any(overlaps(path, locked) for locked in self._locked_paths)]
        return [path for path in outside if not self._lock_one(path)] if self._locked_paths else []

    def _lock_one(self, path: str) -> bool:
        try:
            answer = self.store.lock(self.lease, [path])
        except UsageError:  # the name cannot be written as a lock
            return False
        if isinstance(answer, Locked):
            self._locked_paths = answer.paths
        return isinstance(answer, Locked)

    # --- the run directory, derived ----------------------------------------------------------------------------

    def export(self) -> None:
        """Bring the run directory up to date; write it anew if it is not a part of this ledger."""
        seq, checksum = self.directory.last_mirrored()
        there = self.store.entries_after(self.lease.run, after=seq - 1, limit=1) if seq else []
        if not there or there[0].sum != checksum:
            self.directory.export(self.store.entries(self.lease.run), self.receipts, self.state)
            return
        self.directory.mirror_entries(self._entries_after(seq))
        self.directory.mirror_missing(self._entries_after, self.receipts, self.state)

    def _entries_after(self, seq: int) -> list[Entry]:
        found: list[Entry] = []
        while True:
            page = self.store.entries_after(self.lease.run, after=seq, limit=RELOADED_MAX)
            found += page
            if len(page) < RELOADED_MAX:
                return found
            seq = page[-1].seq

    def _mirror(self, entries: list[Entry], receipt: Receipt | None) -> None:
        self.directory.mirror_entries(entries)
        if receipt:
            self.directory.mirror_receipt(receipt)
        if receipt or self.state.final or self.state.parked:
            self.directory.mirror_history(self._entries_after, self.receipts)
        self.directory.mirror_state(self.state)


def _redacted(event: ev.Event, redact: Redactor) -> ev.Event:
    written = ev.encode(event)
    clean = redact.document(written)
    if clean == written:
        return event
    again = ev.decode(ev.kind_of(event), clean)
    assert isinstance(again, ev.Event)
    return again
