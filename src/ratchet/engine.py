"""Executes a run: next step → announce → do → record. There is no resume code.

Whoever claims a run folds its ledger and does the first undone step; a fresh start is a resume from an empty ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Protocol

import msgspec

from ratchet.config import Budget
from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.item import Item, ParkReason
from ratchet.core.keys import idempotency_key
from ratchet.core.lease import Lease
from ratchet.core.ledger import Entry
from ratchet.core.locks import Locked, overlap
from ratchet.core.receipt import Artifact, Receipt, digest
from ratchet.core.redact import Redactor
from ratchet.core.signal import Topic
from ratchet.core.snapshot import Manifest
from ratchet.core.state import OUTCOMES, RunState, advance, fold
from ratchet.core.workflow import Workflow
from ratchet.errors import LeaseLost, RatchetError, UsageError
from ratchet.spending import Purse
from ratchet.steps import Doing, Done, Parked, Work, cross, do
from ratchet.store import Listener, Store
from ratchet.store.database import stamp
from ratchet.store.rundir import RunDirectory
from ratchet.workspace import Workspace

BEAT_S = 2.0
BLOCKED_S = 10.0
MANIFESTS_KEPT = 4


class Watcher(Protocol):
    """Hears of every event once it is durable."""

    def __call__(self, entry: Entry, event: ev.Event, state: RunState, /) -> None: ...


class AbortAsked(RatchetError):
    """Somebody asked for the run to be stopped; `ids["by"]` says who."""


class Hold:
    """A lease that somebody keeps for us. `ending` is set before the run is given up, after which the lease is not
    missed; `iteration` is what its heartbeats tell of the run."""

    def __init__(self) -> None:
        self.ending = asyncio.Event()
        self.iteration: int | None = None


@asynccontextmanager
async def kept(store: Store, lease: Lease, *, lease_s: float) -> AsyncIterator[Hold]:
    """Renew the lease from here while the work under it goes on, so that the silence of a model, a clone or a test is
    not death. The work is stopped when the lease is lost or somebody asks for that; given back it is in any case.

    Raises LeaseLost, AbortAsked (which is recorded by then), or whatever the work raised.
    """
    hold = Hold()
    try:
        async with asyncio.TaskGroup() as group:
            beat = group.create_task(_beat(store, lease, lease_s, hold))
            try:
                yield hold
            finally:
                beat.cancel()
    except BaseExceptionGroup as group_error:
        error = group_error.exceptions[0]
        if isinstance(error, AbortAsked):
            await cross(store.append, lease, [ev.RunAborted(by=str(error.ids["by"]))])
        raise error from None
    finally:
        await cross(store.release, lease)


async def _beat(store: Store, lease: Lease, lease_s: float, hold: Hold) -> None:
    with store.listen(Topic.STOP) as stop:
        while True:
            try:
                by = await cross(store.renew, lease, ttl_s=lease_s, iteration=hold.iteration)
            except LeaseLost:
                if hold.ending.is_set():
                    return
                raise
            if by:
                raise AbortAsked(f"{lease.run} was aborted by {by}", by=by)
            await heard(stop, min(BEAT_S, lease_s / 3))


async def heard(listener: Listener, timeout_s: float) -> bool:
    """Wait to be told. The thread that waits is called back when we are cancelled, and is gone when this returns."""
    waiting = asyncio.ensure_future(cross(listener.wait, timeout_s))
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        listener.ring()
        await waiting
        raise


class Engine:
    """`retry_s` are the waits before a failure is tried again by whoever claims the run then; without them it is the
    end. Once `stop` is set no further step is begun."""

    def __init__(
        self,
        *,
        store: Store,
        lease: Lease,
        item: Item,
        directory: RunDirectory,
        workflow: Workflow,
        start: Callable[[], ev.RunStarted],
        workspace: Callable[[RunState], Workspace],
        work: Callable[[Engine, Workspace], Work],
        watch: Watcher,
        budget: Budget,
        retry_s: Sequence[float] | None = None,
        stop: asyncio.Event | None = None,
        hold: Hold | None = None,
    ) -> None:
        self.store, self.lease, self.item, self.directory, self.start = store, lease, item, directory, start
        self.workflow, self._open_workspace, self._set_up = workflow, workspace, work
        self.watch, self.retry_s, self.stop = watch, retry_s, stop or asyncio.Event()
        self._hold = hold or Hold()
        self.purse = Purse(store, lease, budget, repo=item.repo)
        self.receipts: list[Receipt] = []
        self.state = RunState(run=lease.run)
        self._held: list[str] = []
        self._manifests: dict[str, Manifest] = {}
        self._announced_at = ""
        self._length = 0
        self._given_up = False
        self._writing = asyncio.Lock()

    async def run(self) -> RunState:
        """Work until the run ends, parks, is given up, or is to stop. The lease is somebody else's to keep."""
        await self._load()
        if self.state.final:
            return self.state
        claimed = ev.RunClaimed(worker=self.lease.holder.worker)
        await self._append([claimed] if self.state.started else [await cross(self.start), claimed])
        await cross(self._mirror_all)
        await self._record_lost_spending()
        if await self._has_locks():
            await self._steps()
        return self.state

    async def _steps(self) -> None:
        self.workspace = await cross(self._open_workspace, self.state)
        if self.state.tree:
            await cross(self.workspace.reset, self.state.tree)
        work = self._set_up(self, self.workspace)
        while not (self.state.final or self.state.parked or self.stop.is_set() or self._given_up):
            if decision := self.workflow.decide(self.state):
                await self._end([decision])
            else:
                await self._step(work)

    async def refresh(self) -> RunState:
        """Take in what others wrote to our ledger: how it was given up or aborted."""
        known = self._length
        await self._load()
        for entry in (await cross(self.store.entries, self.lease.run))[known:]:
            event = ev.decode(entry.kind, entry.data)
            if isinstance(event, ev.Event):
                self.watch(entry, event, self.state)
        await cross(self._mirror_all)
        return self.state

    # --- endings ---------------------------------------------------------------------------------------------

    async def _end(self, events: Sequence[ev.Event]) -> None:
        """Append; an end that is a failure is given up instead, where it may be tried again."""
        *facts, last = events
        if isinstance(last, ev.RunCompleted):
            await self._record_lost_spending()
        if not (isinstance(last, ev.RunFailed) and self.retry_s is not None):
            if isinstance(last, ev.RunParked):
                self._hold.ending.set()  # the lease ends with it, in the same transaction
            await self._append([*facts, last])
            await cross(self._check_late)
            return
        if facts:
            await self._append(facts)
        await self.give_up(last.reason, last.detail)

    async def give_up(self, reason: Reason, detail: str) -> None:
        self._hold.ending.set()
        await cross(self.store.fail, self.lease, reason, detail, delays_s=self.retry_s or ())
        self._given_up = True
        await self.refresh()

    def _check_late(self) -> None:
        """What fenced workers said of this run: a commit of theirs that was found by its key and verified is kept."""
        if self.state.final:
            kept = {commit.commit for commit in self.state.commits}
            for late in self.store.late(self.lease.run):
                self.store.check_late(late.id, kept=late.head in kept)

    async def _record_lost_spending(self) -> None:
        if lost := await self.purse.unrecorded(self.state):
            await self._append([lost])

    # --- locks -----------------------------------------------------------------------------------------------

    async def _has_locks(self) -> bool:
        """All of the footprint before anything is done. Somebody else's is no failure: it is waited for."""
        if not self.item.footprint:
            return True
        answer = await cross(self.store.lock, self.lease, self.item.footprint)
        if isinstance(answer, Locked):
            self._held = answer.paths
            return True
        detail = f"{answer.asked} is held by {answer.run} ({answer.worker})"
        await self._end([ev.RunParked(reason=ParkReason.BLOCKED, detail=detail, until=_in(BLOCKED_S))])
        return False

    def lock(self, paths: list[str]) -> list[str]:
        """Ask for what was written outside the footprint; names what is somebody else's. Who declared nothing, locks
        nothing: its changes meet those of others when they land."""
        outside = [path for path in paths if not any(overlap(path, held) for held in self._held)]
        return [path for path in outside if not self._locked(path)] if self._held else []

    def _locked(self, path: str) -> bool:
        try:
            answer = self.store.lock(self.lease, [path])
        except UsageError:  # a name that cannot be written as a claim
            return False
        if isinstance(answer, Locked):
            self._held = answer.paths
        return isinstance(answer, Locked)

    # --- steps -----------------------------------------------------------------------------------------------

    async def _load(self) -> None:
        entries = await cross(self.store.entries, self.lease.run)
        self.receipts = await cross(self.store.receipts, self.lease.run)
        self.state = fold(self.lease.run, self.workflow.table, (ev.decode(entry.kind, entry.data) for entry in entries))
        self._length = len(entries)
        self._tell_iteration()
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
            await self._end([*parked.facts, parked.event])
            return
        await self._record(started, done)

    async def _announce(self) -> None:
        step = self.workflow.plan(self.state)
        tree = await cross(self._settled_tree)
        manifest = await self._manifest(tree)
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

    async def _manifest(self, tree: str) -> Manifest:
        """Read once for each content: most steps begin and end with a tree that was there before."""
        if tree not in self._manifests:
            while len(self._manifests) >= MANIFESTS_KEPT:
                del self._manifests[next(iter(self._manifests))]
            self._manifests[tree] = await cross(self.workspace.manifest, tree)
        return self._manifests[tree]

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
            await self._end(done.events)
            return
        receipt = Receipt(
            run=self.lease.run,
            item=self.lease.item,
            step=started.step,
            action=started.action,
            key=started.key,
            outcome=ev.kind_of(outcome),
            snapshot_before=started.snapshot,
            snapshot_after=(await self._manifest(moved.tree)).snapshot_id,
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
        await self._nudge(outcome)

    async def _nudge(self, outcome: ev.Event) -> None:
        """An agent that ran out of time may be stuck. Once, it is asked again and told so; twice, the run goes back for
        a fresh context, which is a failed attempt; after the last of those it has failed."""
        if self.retry_s is None or getattr(outcome, "reason", None) is not Reason.AGENT_TIMED_OUT:
            return
        detail = str(getattr(outcome, "why", ""))
        self._hold.ending.set()
        if await cross(self.store.stuck, self.lease, detail, delays_s=self.retry_s):
            self._given_up = True
            await self.refresh()
        else:
            self._hold.ending.clear()

    async def _append(self, events: Sequence[ev.Event], receipt: Receipt | None = None) -> list[Entry]:
        events = [_redacted(event, self.directory.redact) for event in events]
        async with self._writing:
            entries = await cross(self.store.append, self.lease, events, receipt)
            for entry, event in zip(entries, events, strict=True):
                self.state = advance(self.state, self.workflow.table, event)
                self._length = entry.seq
                self.watch(entry, event, self.state)
            self._tell_iteration()
            if receipt:
                self.receipts.append(receipt)
            await cross(self._mirror, entries, receipt)
        return entries

    def _tell_iteration(self) -> None:
        # The one after the last allowed finds out that nothing is left to do: policy ends it, not a heartbeat.
        self._hold.iteration = min(self.state.iteration, self.item.max_iterations or self.state.iteration)

    async def record(self, fact: ev.Event) -> None:
        """A fact of the step that goes on, in the ledger before the step is over."""
        await self._append([fact])

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


def _redacted(event: ev.Event, redact: Redactor) -> ev.Event:
    written = ev.encode(event)
    clean = redact.bytes(written)
    if clean == written:
        return event
    again = ev.decode(ev.kind_of(event), clean)
    assert isinstance(again, ev.Event)
    return again


def _in(seconds: float) -> str:
    return stamp(datetime.now(UTC) + timedelta(seconds=seconds))


def _unique(artifacts: list[Artifact]) -> list[Artifact]:
    return list({artifact.path: artifact for artifact in artifacts}.values())
