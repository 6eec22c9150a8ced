"""Executes a run: next step → announce → do → record. There is no resume code.

Whoever claims a run folds its ledger and does the first undone step; a fresh start is a resume from an empty ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from ratchet.core import events as ev
from ratchet.core.keys import idempotency_key
from ratchet.core.lease import Lease
from ratchet.core.ledger import Entry
from ratchet.core.receipt import Artifact, Receipt, digest
from ratchet.core.state import OUTCOMES, RunState, advance, fold
from ratchet.core.workflow import Workflow
from ratchet.errors import RatchetError
from ratchet.steps import Doing, Done, Parked, Work, cross, do
from ratchet.store import Store
from ratchet.store.rundir import RunDirectory
from ratchet.workspace import Workspace

BEAT_S = 2.0


class Watcher(Protocol):
    """Hears of every event once it is durable."""

    def __call__(self, entry: Entry, event: ev.Event, state: RunState, /) -> None: ...


class AbortAsked(RatchetError):
    """Somebody asked for the run to be stopped; `ids["by"]` says who."""


class Engine:
    def __init__(
        self,
        *,
        store: Store,
        lease: Lease,
        directory: RunDirectory,
        workflow: Workflow,
        start: ev.RunStarted,
        workspace: Callable[[RunState], Workspace],
        work: Callable[[Engine, Workspace], Work],
        watch: Watcher,
        lease_s: float,
    ) -> None:
        self.store, self.lease, self.directory, self.start = store, lease, directory, start
        self.workflow, self._open_workspace, self._set_up = workflow, workspace, work
        self.watch, self.lease_s = watch, lease_s
        self.receipts: list[Receipt] = []
        self.state = RunState(run=lease.run)
        self._announced_at = ""
        self._length = 0

    async def run(self) -> RunState:
        """Work until the run ends, parks, or is taken away. The lease is given back in any case."""
        try:
            async with asyncio.TaskGroup() as group:
                beat = group.create_task(self._beat())
                try:
                    await self._work()
                finally:
                    beat.cancel()
        except BaseExceptionGroup as group_error:
            await self._ended_early(group_error.exceptions[0])
        finally:
            await cross(self.store.release, self.lease)
        return self.state

    async def _ended_early(self, error: BaseException) -> None:
        if not isinstance(error, AbortAsked):
            raise error from None
        await self._append([ev.RunAborted(by=str(error.ids["by"]))])

    async def _beat(self) -> None:
        """Renew the lease from here, so that the silence of a model is not death."""
        while True:
            if by := await cross(self.store.renew, self.lease, ttl_s=self.lease_s):
                raise AbortAsked(f"{self.lease.run} was aborted by {by}", by=by)
            await asyncio.sleep(min(BEAT_S, self.lease_s / 3))

    async def _work(self) -> None:
        await self._load()
        if self.state.final:
            return
        claimed = ev.RunClaimed(worker=self.lease.holder.worker)
        await self._append([claimed] if self.state.started else [self.start, claimed])
        await cross(self._mirror_all)
        self.workspace = await cross(self._open_workspace, self.state)
        if self.state.tree:
            await cross(self.workspace.reset, self.state.tree)
        work = self._set_up(self, self.workspace)
        while not (self.state.final or self.state.parked):
            if decision := self.workflow.decide(self.state):
                await self._append([decision])
            else:
                await self._step(work)

    async def _load(self) -> None:
        entries = await cross(self.store.entries, self.lease.run)
        self.receipts = await cross(self.store.receipts, self.lease.run)
        self.state = fold(self.lease.run, self.workflow.table, (ev.decode(entry.kind, entry.data) for entry in entries))
        self._length = len(entries)
        started = [entry.at for entry in entries if entry.kind == ev.kind_of(ev.StepStarted)]
        self._announced_at = started[-1] if started else ""

    async def _step(self, work: Work) -> None:
        step = self.workflow.plan(self.state)
        if self.state.in_doubt:
            await self._append([ev.StepResumed(step=self.state.in_doubt.step)])
            if self.workflow.decide(self.state):
                return
        else:
            await self._announce()
        started = self.state.in_doubt
        assert started
        try:
            doing = Doing(step=step, started=started, at=self._announced_at, state=self.state)
            done = await do(work, doing)
        except Parked as parked:
            await self._append([*parked.facts, parked.event])
            return
        await self._record(started, done)

    async def _announce(self) -> None:
        step = self.workflow.plan(self.state)
        tree = await cross(self._settled_tree)
        manifest = await cross(self.workspace.manifest, tree)
        await cross(self.directory.mirror_manifest, manifest)
        key = idempotency_key(
            action=step.action,
            item=self.lease.item,
            snapshot=manifest.digest,
            inputs=step.inputs,
            expected_outputs=[],
        )
        started = ev.StepStarted(
            step=self.state.step + 1,
            action=step.action,
            role=step.role or "",
            key=key,
            tree=tree,
            snapshot=manifest.snapshot_id,
        )
        entries = await self._append([started])
        self._announced_at = entries[-1].at

    def _settled_tree(self) -> str:
        """What the workspace holds; if something wrote there between two steps, it is undone first."""
        tree = self.workspace.checkpoint()
        if self.state.tree and tree != self.state.tree:
            self.workspace.reset(self.state.tree)
            return self.state.tree
        return tree

    async def _record(self, started: ev.StepStarted, done: Done) -> None:
        """The outcome and its receipt in one transaction: a step with a receipt is never done again."""
        moved = self.state
        for event in done.events:
            moved = advance(moved, self.workflow.table, event)
        outcome = done.events[-1]
        if type(outcome) not in OUTCOMES:
            await self._append(done.events)
            return
        receipt = Receipt(
            run=self.lease.run,
            item=self.lease.item,
            step=started.step,
            action=started.action,
            key=started.key,
            outcome=ev.kind_of(outcome),
            snapshot_before=started.snapshot,
            snapshot_after=(await cross(self.workspace.manifest, moved.tree)).snapshot_id,
            command_id=f"cmd-{started.key[3:15]}",
            artifacts=_unique(done.artifacts),
            events=[],
            usage=moved.step_usage,
            created_at=self._announced_at,
        )
        first = self._length + 1
        receipt = msgspec.structs.replace(receipt, events=list(range(first, first + len(done.events))))
        filed = ev.ReceiptFiled(step=started.step, sha256=digest(receipt))
        await self._append([*done.events, filed], receipt)

    async def _append(self, events: Sequence[ev.Event], receipt: Receipt | None = None) -> list[Entry]:
        entries = await cross(self.store.append, self.lease, events, receipt)
        for entry, event in zip(entries, events, strict=True):
            self.state = advance(self.state, self.workflow.table, event)
            self._length = entry.seq
            self.watch(entry, event, self.state)
        if receipt:
            self.receipts.append(receipt)
        await cross(self._mirror, entries, receipt)
        return entries

    # --- the run directory, derived ----------------------------------------------------------------------------

    def _mirror_all(self) -> None:
        self.directory.export(self.store.entries(self.lease.run), self.receipts, self.state)

    def _mirror(self, entries: list[Entry], receipt: Receipt | None) -> None:
        self.directory.mirror_entries(entries)
        if receipt:
            self.directory.mirror_receipt(receipt)
        self.directory.mirror_state(self.state)

    # --- what steps ask back -----------------------------------------------------------------------------------

    def turn(self, action: str) -> int:
        """How often this run has asked for this action, this time included; a step that is done again counts once."""
        return 1 + sum(1 for receipt in self.receipts if receipt.action == action)

    def history(self) -> str:
        return self.directory.history(self.receipts)


def _unique(artifacts: list[Artifact]) -> list[Artifact]:
    return list({artifact.path: artifact for artifact in artifacts}.values())
