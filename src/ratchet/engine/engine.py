"""Executes a run: plan the next step, announce it, do it, record it. There is no resume code.

The worker that claims a run folds its ledger and does the first step without a receipt; a fresh start is a resume from
an empty ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import msgspec

from ratchet.agents.protocol import OnEvent
from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.idempotency_keys import idempotency_key
from ratchet.core.item import ParkReason
from ratchet.core.receipt import Artifact, Receipt, receipt_digest
from ratchet.core.snapshot import Manifest
from ratchet.core.state import OUTCOMES, RunState, advance
from ratchet.core.timestamps import format_timestamp
from ratchet.engine.blocking import run_blocking
from ratchet.engine.budget_meter import BudgetMeter
from ratchet.engine.run_ledger import RunLedger
from ratchet.engine.run_owner import RunOwner
from ratchet.engine.run_setup import RunSetup
from ratchet.engine.steps import Parked, RunContext, StepContext, StepResult, branch_moved, run_step
from ratchet.engine.travel import RunTravel
from ratchet.errors import BranchMoved, GitStalled, LeaseLost, RatchetError

BLOCKED_S = 10.0
MANIFESTS_KEPT = 4


class Engine:
    """Carries one run as far as it goes.

    `retry_s` are the delays before a failed run may be claimed again; None makes every failure final. No further step
    is started once `stop` is set.
    """

    def __init__(
        self,
        setup: RunSetup,
        ledger: RunLedger,
        *,
        on_agent_event: OnEvent,
        retry_s: Sequence[float] | None = None,
        stop: asyncio.Event | None = None,
    ) -> None:
        self.setup, self.ledger, self.workflow = setup, ledger, ledger.workflow
        self.on_agent_event, self.retry_s, self.stop = on_agent_event, retry_s, stop or asyncio.Event()
        self.budget = BudgetMeter(ledger.store, ledger.lease, setup.config.budget, repo=ledger.item.repo)
        self._manifests: dict[str, Manifest] = {}
        self._given_up = False
        self.owner = RunOwner(ledger.directory.path / "owners", ledger.lease.run, ledger.lease.epoch)

    @property
    def state(self) -> RunState:
        return self.ledger.state

    async def run(self) -> RunState:
        """Work until the run ends, parks, is given up, or is to stop. The caller keeps the lease."""
        ledger = self.ledger
        await ledger.load()
        if self.state.final:
            return self.state
        claimed = ev.RunClaimed(worker=ledger.lease.holder.worker)
        await ledger.append(
            [claimed] if self.state.started else [await run_blocking(self.setup.started_event), claimed]
        )
        await self._record_lost_spending()
        try:
            if await self._has_locks():
                await self._steps()
        except asyncio.CancelledError:
            # Aborted or interrupted: what the call that was cut off has spent is in the budget already.
            with suppress(RatchetError):
                await self._record_lost_spending()
            raise
        except LeaseLost:
            ledger.lease_handle.lost = True
            raise
        finally:
            if ledger.lease_handle.lost and ledger.store.is_shared:
                await run_blocking(self._discard_workspace)
            await run_blocking(self.owner.leave)
        return self.state

    def _discard_workspace(self) -> None:
        """Remove the workspace, because another host continues the run; not if a later worker of this one does.

        Such a worker ends this process first, as long as it has not left.
        """
        with suppress(LeaseLost):
            self.owner.check()
            self.setup.close()
            self.setup.workspaces.destroy(self.ledger.item.slug)

    async def _steps(self) -> None:
        self.workspace = await run_blocking(self.setup.open_workspace, self.state, self.owner)
        self.travel = RunTravel(self.ledger, self.setup.repo, self.workspace)
        await run_blocking(self.travel.arrive, self.state)
        if self.state.tree:
            await run_blocking(self.workspace.reset, self.state.tree)
        await self._publish()  # a former worker may have ended before it could
        context = self.setup.context(
            self.ledger, self.workspace, self.budget, self.on_agent_event, check_owner=self.owner.check
        )
        while not (self.state.final or self.state.parked or self.stop.is_set() or self._given_up):
            if decision := self.workflow.decide(self.state):
                await self._end([decision])
            else:
                await self._step(context)

    async def _has_locks(self) -> bool:
        """Lock the item's footprint before any step. A footprint that another run holds parks the run for a while."""
        blocked = await self.ledger.lock_footprint()
        if blocked is None:
            return True
        detail = f"{blocked.asked} is held by {blocked.run} ({blocked.worker})"
        await self._end([ev.RunParked(reason=ParkReason.BLOCKED, detail=detail, until=_in(BLOCKED_S))])
        return False

    # --- endings ---------------------------------------------------------------------------------------------

    async def _end(self, events: Sequence[ev.Event]) -> None:
        """Append the last events. A failure that may be retried is given up instead of recorded as final."""
        *facts, last = events
        if isinstance(last, ev.RunCompleted):
            await self._record_lost_spending()
        if not (isinstance(last, ev.RunFailed) and self.retry_s is not None):
            if isinstance(last, ev.RunParked):
                self.ledger.lease_handle.ending.set()  # parking releases the lease in the same transaction
                await run_blocking(self.owner.leave)
            await self.ledger.append([*facts, last])
            await run_blocking(self._resolve_fenced_writes)
            return
        if facts:
            await self.ledger.append(facts)
        await self.give_up(last.reason, last.detail)

    async def give_up(self, reason: Reason, detail: str) -> None:
        """Fail this attempt and release the run; the store decides whether it is retried."""
        ledger = self.ledger
        ledger.lease_handle.ending.set()
        await run_blocking(self.owner.leave)
        await run_blocking(ledger.store.fail, ledger.lease, reason, detail, delays_s=self.retry_s or ())
        self._given_up = True
        await ledger.reload()

    def _resolve_fenced_writes(self) -> None:
        """Mark each write of a fenced worker as kept when its commit was found by key, verified and kept."""
        if self.state.final:
            kept = {commit.commit for commit in self.state.commits}
            for write in self.ledger.store.fenced_writes(self.ledger.lease.run):
                self.ledger.store.resolve_fenced_write(write.id, kept=write.head in kept)

    async def _record_lost_spending(self) -> None:
        if lost := await self.budget.unrecorded(self.state):
            await self.ledger.append([lost])

    # --- steps -----------------------------------------------------------------------------------------------

    async def _step(self, context: RunContext) -> None:
        plan = self.workflow.plan(self.state)
        if self.state.in_doubt:
            resumed = ev.StepResumed(step=self.state.in_doubt.step, workspace_s=self.setup.take_created_s())
            await self.ledger.append([resumed])
            if self.workflow.decide(self.state):
                return
        else:
            await self._announce()
        started = self.state.in_doubt
        assert started
        try:
            step = StepContext(plan=plan, started=started, at=self.ledger.announced_at, state=self.state)
            result = await run_step(context, step)
        except Parked as parked:
            await self._end([*parked.facts, parked.event])
            return
        await self._record(started, result)

    async def _announce(self) -> None:
        plan = self.workflow.plan(self.state)
        tree = await run_blocking(self._clean_tree)
        manifest = await self._manifest(tree)
        await run_blocking(self.ledger.directory.mirror_manifest, manifest)
        key = idempotency_key(
            action=plan.action,
            item=self.ledger.lease.item,
            snapshot=manifest.digest,
            inputs=plan.inputs,
            expected_outputs=[],
        )
        started = ev.StepStarted(
            step=self.state.step + 1,
            action=plan.action,
            role=plan.role or "",
            key=key,
            tree=tree,
            snapshot=manifest.snapshot_id,
            workspace_s=self.setup.take_created_s(),
        )
        entries = await self.ledger.append([started])
        self.ledger.announced_at = entries[-1].at

    async def _manifest(self, tree: str) -> Manifest:
        """Return the manifest of a tree. Cached: most steps start and end with a tree that was seen before."""
        if tree not in self._manifests:
            while len(self._manifests) >= MANIFESTS_KEPT:
                del self._manifests[next(iter(self._manifests))]
            self._manifests[tree] = await run_blocking(self.workspace.manifest, tree)
        return self._manifests[tree]

    def _clean_tree(self) -> str:
        """Return the tree of the workspace, after undoing anything that was written between two steps."""
        try:
            tree = self.workspace.checkpoint()
        except GitStalled:  # on what an agent that was interrupted has left
            tree = ""
        if tree and tree == self.state.tree:
            return tree
        if not self.state.tree:
            return tree or self.workspace.checkpoint()
        self.workspace.reset(self.state.tree)
        return self.state.tree

    async def _record(self, started: ev.StepStarted, result: StepResult) -> None:
        """Append the outcome and its receipt in one transaction: a step with a receipt is never repeated."""
        ledger, after = self.ledger, self.state
        for event in result.events:
            after = advance(after, self.workflow.table, event)
        outcome = result.events[-1]
        if type(outcome) not in OUTCOMES:
            await self._end(result.events)
            return
        receipt = Receipt(
            run=ledger.lease.run,
            item=ledger.lease.item,
            step=started.step,
            action=started.action,
            key=started.key,
            outcome=ev.kind_of(outcome),
            snapshot_before=started.snapshot,
            snapshot_after=(await self._manifest(after.tree)).snapshot_id,
            command_id=f"cmd-{started.key[3:15]}",
            artifacts=_unique(result.artifacts),
            events=[],
            usage=after.step_usage,
            created_at=ledger.announced_at,
        )
        replaced, objects = self.state.objects, await run_blocking(self.travel.store_objects, after)

        def with_receipt(first: int) -> tuple[list[ev.Event], Receipt]:
            numbered = msgspec.structs.replace(receipt, events=list(range(first, first + len(result.events))))
            filed = ev.ReceiptFiled(step=started.step, sha256=receipt_digest(numbered), objects=objects)
            return [*result.events, filed], numbered

        await ledger.append_made(with_receipt)
        await self._publish()
        if objects != replaced:
            await run_blocking(self.travel.forget, replaced)
        await self._handle_timeout(outcome)

    async def _publish(self) -> None:
        try:
            await run_blocking(self.travel.publish, self.state)
        except BranchMoved as moved:
            await self._end([branch_moved(moved)])

    async def _handle_timeout(self, outcome: ev.Event) -> None:
        """Report an agent that ran out of time as stuck.

        The first time, the step is asked again with that feedback. The second time the run is released for a fresh
        context, which counts as a failed attempt; after the last attempt it fails.
        """
        if self.retry_s is None or getattr(outcome, "reason", None) is not Reason.AGENT_TIMED_OUT:
            return
        detail, ledger = str(getattr(outcome, "why", "")), self.ledger
        ledger.lease_handle.ending.set()
        if await run_blocking(ledger.store.report_stuck, ledger.lease, detail, delays_s=self.retry_s):
            self._given_up = True
            await ledger.reload()
        else:
            ledger.lease_handle.ending.clear()


def _in(seconds: float) -> str:
    return format_timestamp(datetime.now(UTC) + timedelta(seconds=seconds))


def _unique(artifacts: list[Artifact]) -> list[Artifact]:
    return list({artifact.path: artifact for artifact in artifacts}.values())
