"""What asking agents may cost: set aside before, metered while they work, stopped before it is too much, settled after.

The store's reservations and the ledger's `usage_metered` say the same. What a lost worker had metered and could not
record is recorded by whoever continues the run.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from ratchet.agents import Answered, Failed
from ratchet.config import Budget, BudgetCap
from ratchet.core import events as ev
from ratchet.core.budget import KINDS, Amount, Cap, Caps, OverBudget, Reservation, Scope, amount, overspent
from ratchet.core.failure import Reason
from ratchet.core.item import ParkReason
from ratchet.core.lease import Lease
from ratchet.core.receipt import Usage
from ratchet.core.state import RunState
from ratchet.steps.work import Asking, Doing, Parked, cross
from ratchet.store import Store
from ratchet.store.database import local_midnight, stamp

TICK_S = 1.0
IDLE_TICK_S = 15.0  # of who spends nothing but time
RESERVED_ELSEWHERE_S = 30.0
SLACK_S = 60.0  # a role's own deadline comes first
UNBOUNDED = Amount(cost_usd=1e9, tokens=1e12, seconds=1e9)
LOST = "lost"  # who spent it: a worker that could not say so


class Purse:
    """What one run may spend."""

    def __init__(self, store: Store, lease: Lease, budget: Budget, *, repo: str) -> None:
        self._store, self._lease, self._repo = store, lease, repo
        self._step, self._caps = budget.step, caps_of(budget)
        self._iterations = 0.0

    async def meter(self, doing: Doing, timeout_s: float, asking: Asking) -> tuple[Answered, Usage]:
        """Ask within a reservation. Raises Parked when there is nothing left to reserve."""
        reservation = await self._reserve(doing.state, timeout_s)
        tally = Tally(reservation.held)
        outcome = await self._watched(reservation, tally, asking)
        self._iterations += reservation.held.iterations
        return outcome, tally.usage()

    async def unrecorded(self, state: RunState) -> ev.UsageMetered | None:
        """What was metered for this run and is not in its ledger."""
        spent = await cross(self._store.spent, Scope.RUN, self._lease.run)
        self._iterations = spent.iterations
        usage = state.usage
        told = Amount(cost_usd=usage.cost_usd, tokens=usage.tokens_in + usage.tokens_out, seconds=usage.seconds)
        units = [max(0, much - said) for much, said in zip(spent.units(), told.units(), strict=True)]
        if not any(units[:3]):
            return None
        more = amount(*units)
        return ev.UsageMetered(
            step=state.step, role="", agent=LOST, tokens_out=int(more.tokens), cost_usd=more.cost_usd,
            seconds=more.seconds,
        )  # fmt: skip

    async def _watched(self, reservation: Reservation, tally: Tally, asking: Asking) -> Answered:
        task = tally.task = asyncio.ensure_future(asking(tally.add, _allowance(reservation.held)))
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=TICK_S)
                tally.look()
                if not task.done() and tally.is_due():
                    await cross(self._store.meter, reservation, tally.amount())
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            # Our lease may be lost and its reservations settled: money spent is spent.
            await cross(self._store.meter, reservation, tally.close())
            raise
        finally:
            await cross(self._store.settle, reservation, tally.close())
        return Failed(reason=Reason.BUDGET_SPENT, detail=tally.over) if tally.over else task.result()

    # --- reserving -------------------------------------------------------------------------------------------

    async def _reserve(self, state: RunState, timeout_s: float) -> Reservation:
        """As much as a step may take, or what is left of that."""
        wanted = _wanted(self._step, seconds=timeout_s + SLACK_S, iterations=state.iteration - self._iterations)
        for _ in range(len(KINDS) * len(Scope)):
            answer = await cross(self._store.reserve, self._lease, wanted, caps=self._caps)
            if isinstance(answer, Reservation):
                return answer
            left = answer.cap - answer.used
            if left <= 0 or answer.kind == "iterations":
                break
            wanted = replace(wanted, **{answer.kind: left})
        assert isinstance(answer, OverBudget)
        raise Parked(await self._nothing_left(answer), [])

    async def _nothing_left(self, over: OverBudget) -> ev.RunParked | ev.RunFailed:
        """An item's own budget is its end. A day's is a matter of time; what others only reserved, of a short one."""
        what = f"budget spent: {over.kind} of this {over.scope}: {over.used:g} of {over.cap:g}"
        if over.scope is Scope.ITEM:
            return ev.RunFailed(reason=Reason.BUDGET_SPENT, detail=what)
        spent = await cross(self._store.spent, over.scope, self._repo)
        now = datetime.now(UTC)
        gone = getattr(spent, over.kind) >= over.cap
        until = local_midnight(now, days=1) if gone else now + timedelta(seconds=RESERVED_ELSEWHERE_S)
        return ev.RunParked(reason=ParkReason.QUOTA, detail=what, until=stamp(until))


class Tally:
    """What one asking has spent so far. More than was set aside, and it is stopped at that very report."""

    def __init__(self, held: Amount) -> None:
        self.held, self.over = held, ""
        self.task: asyncio.Future[Answered] | None = None
        self._spent = Usage()
        self._loop = asyncio.get_running_loop()
        self._began, self._ended = self._loop.time(), 0.0
        self._written, self._written_at = Usage(), self._began

    def add(self, usage: Usage) -> None:
        self._spent += usage
        self.look()

    def look(self) -> None:
        if self.over or not (kind := overspent(self.amount(), self.held)):
            return
        self.over = f"stopped: {kind} {getattr(self.amount(), kind):g}, of which {getattr(self.held, kind):g} were left"
        if self.task:
            self.task.cancel()

    def is_due(self) -> bool:
        """Whether to write down what was spent: money and tokens at once, mere time now and then."""
        now = self._loop.time()
        if self._spent == self._written and now < self._written_at + IDLE_TICK_S:
            return False
        self._written, self._written_at = self._spent, now
        return True

    def close(self) -> Amount:
        self._ended = self._ended or self._loop.time()
        return self.amount()

    def usage(self) -> Usage:
        seconds = (self._ended or self._loop.time()) - self._began
        return replace(self._spent, cost_usd=round(self._spent.cost_usd, 6), seconds=round(seconds, 3))

    def amount(self) -> Amount:
        usage = self.usage()
        tokens = usage.tokens_in + usage.tokens_out
        return Amount(cost_usd=usage.cost_usd, tokens=tokens, seconds=usage.seconds, iterations=self.held.iterations)


def _allowance(held: Amount) -> Usage:
    """What an agent that can bound itself is told; 0 is no bound."""
    tokens = int(held.tokens) if held.tokens < UNBOUNDED.tokens else 0
    return Usage(tokens_in=tokens, cost_usd=held.cost_usd if held.cost_usd < UNBOUNDED.cost_usd else 0.0)


def _wanted(step: BudgetCap, *, seconds: float, iterations: float) -> Amount:
    return Amount(
        cost_usd=step.cost_usd or UNBOUNDED.cost_usd,
        tokens=step.tokens or UNBOUNDED.tokens,
        seconds=min(seconds, step.seconds or seconds),
        iterations=max(0, iterations),
    )


def caps_of(budget: Budget) -> Caps:
    return Caps(item=_cap(budget.item), repo=_cap(budget.repo), day=_cap(budget.day))


def _cap(cap: BudgetCap) -> Cap:
    return Cap(
        cost_usd=cap.cost_usd or None,
        tokens=cap.tokens or None,
        seconds=cap.seconds or None,
        iterations=cap.iterations or None,
    )
