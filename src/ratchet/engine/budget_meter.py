"""Budgets: reserve before an agent is called, meter while it works, stop it at its limit, settle afterwards.

The store's reservations and the ledger's `usage_metered` events agree. Usage that a lost worker metered but could not
record is recorded by the worker that continues the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from ratchet.agents.protocol import TurnFailed, TurnResult
from ratchet.config import Budget, BudgetCap
from ratchet.core import events as ev
from ratchet.core.budget import KINDS, Amount, BudgetScope, Caps, OverBudget, Reservation, from_units, overspent
from ratchet.core.failure import Reason
from ratchet.core.item import ParkReason
from ratchet.core.lease import Lease
from ratchet.core.receipt import Usage
from ratchet.core.state import RunState
from ratchet.core.timestamps import format_timestamp
from ratchet.engine.blocking import run_blocking
from ratchet.engine.parked import Parked
from ratchet.store.database import local_midnight
from ratchet.store.protocols import Budgets

TICK_S = 1.0
IDLE_TICK_S = 15.0  # for an agent that spends nothing but time
RESERVED_ELSEWHERE_S = 30.0
SLACK_S = 60.0  # so that the role's own deadline comes first
BELIEVED = 3  # a call is settled with this many times what was reserved for it, at most
UNBOUNDED = Amount(cost_usd=1e9, tokens=1e12, seconds=1e9)
LOST = "lost"  # agent name for the usage of a worker that could not record it


class BudgetMeter:
    """Reserves and meters the budget of one run."""

    def __init__(self, store: Budgets, lease: Lease, budget: Budget, *, repo: str) -> None:
        self._store, self._lease, self._repo = store, lease, repo
        self._step, self._caps = budget.step, caps_of(budget)
        self._iterations = 0.0

    @asynccontextmanager
    async def reserve(self, state: RunState, timeout_s: float) -> AsyncIterator[UsageMeter]:
        """Reserve the budget of one agent call; settle it with what was spent when left.

        Raises Parked when there is nothing left to reserve.
        """
        reservation = await self._reserve(state, timeout_s)
        meter = UsageMeter(self._store, reservation)
        try:
            yield meter
        except asyncio.CancelledError:
            # The lease may be lost and its reservations settled by others. What was spent still has to be counted.
            await run_blocking(self._store.record_spending, reservation, meter.close())
            raise
        finally:
            await run_blocking(self._store.settle, reservation, meter.close())
        self._iterations += reservation.held.iterations

    async def unrecorded(self, state: RunState) -> ev.UsageMetered | None:
        """Return the usage that was metered for this run and is missing in its ledger."""
        spent = await run_blocking(self._store.spent, BudgetScope.RUN, self._lease.run)
        self._iterations = spent.iterations
        usage = state.usage
        recorded = Amount(cost_usd=usage.cost_usd, tokens=usage.tokens_in + usage.tokens_out, seconds=usage.seconds)
        units = [max(0, much - known) for much, known in zip(spent.units(), recorded.units(), strict=True)]
        if not any(units[:3]):
            return None
        more = from_units(*units)
        return ev.UsageMetered(
            step=state.step, role="", agent=LOST, tokens_out=int(more.tokens), cost_usd=more.cost_usd,
            seconds=more.seconds, priced=more.cost_usd > 0 or not more.tokens,
        )  # fmt: skip

    # --- reserving -------------------------------------------------------------------------------------------

    async def _reserve(self, state: RunState, timeout_s: float) -> Reservation:
        """Reserve as much as a step may take, or what is left of it."""
        wanted = _wanted(self._step, seconds=timeout_s + SLACK_S, iterations=state.iteration - self._iterations)
        for _ in range(len(KINDS) * len(BudgetScope)):
            answer = await run_blocking(self._store.reserve, self._lease, wanted, caps=self._caps)
            if isinstance(answer, Reservation):
                return answer
            left = answer.cap - answer.used
            if left <= 0 or answer.kind == "iterations":
                break
            wanted = replace(wanted, **{answer.kind: left})
        assert isinstance(answer, OverBudget)
        raise Parked(await self._nothing_left(answer), [])

    async def _nothing_left(self, over: OverBudget) -> ev.RunParked | ev.RunFailed:
        """Fail when the item's own budget is spent; park until midnight when the repository's or day's is.

        Park only briefly when the rest is reserved by others: they may not spend it.
        """
        what = f"budget spent: {over.kind} of this {over.scope}: {over.used:g} of {over.cap:g}"
        if over.scope is BudgetScope.ITEM:
            return ev.RunFailed(reason=Reason.BUDGET_SPENT, detail=what)
        spent = await run_blocking(self._store.spent, over.scope, self._repo)
        now = datetime.now(UTC)
        gone = getattr(spent, over.kind) >= over.cap
        until = local_midnight(now, days=1) if gone else now + timedelta(seconds=RESERVED_ELSEWHERE_S)
        return ev.RunParked(reason=ParkReason.QUOTA, detail=what, until=format_timestamp(until))


class UsageMeter:
    """What one agent call has spent so far. The call is stopped at the first report that exceeds its reservation."""

    def __init__(self, store: Budgets, reservation: Reservation) -> None:
        self.held, self.over = reservation.held, ""
        self._store, self._reservation = store, reservation
        self._task: asyncio.Future[TurnResult] | None = None
        self._spent, self._reported, self.priced = Usage(), Usage(), True
        self._loop = asyncio.get_running_loop()
        self._began, self._ended = self._loop.time(), 0.0
        self._written, self._written_at = Usage(), self._began

    @property
    def allowance(self) -> Usage:
        """The reservation as a limit for agents that can limit themselves; 0 is no limit."""
        tokens = int(self.held.tokens) if self.held.tokens < UNBOUNDED.tokens else 0
        return Usage(tokens_in=tokens, cost_usd=self.held.cost_usd if self.held.cost_usd < UNBOUNDED.cost_usd else 0.0)

    async def enforce(self, turn: Awaitable[TurnResult]) -> TurnResult:
        """Await an agent's turn, write down what it spends, and stop it when it exceeds the reservation."""
        task = self._task = asyncio.ensure_future(turn)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=TICK_S)
                self.check()
                if not task.done() and self.is_due():
                    await run_blocking(self._store.record_spending, self._reservation, self.amount())
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        finally:
            self.close()
        return TurnFailed(reason=Reason.BUDGET_SPENT, detail=self.over) if self.over else task.result()

    def add(self, usage: Usage, *, priced: bool = True) -> None:
        self._reported += usage
        self._spent = self._believed(self._reported)
        self.priced = priced
        self.check()

    def _believed(self, usage: Usage) -> Usage:
        """Bound what an agent reports: a forged bill must not use up the budgets of a repository or a day. Honest turns
        that report only at their end exceed what was reserved a little."""
        most = int(self.held.tokens * BELIEVED)
        tokens_in = min(usage.tokens_in, most)
        tokens_out = min(usage.tokens_out, most - tokens_in)
        cost_usd = min(usage.cost_usd, self.held.cost_usd * BELIEVED)
        return replace(usage, tokens_in=tokens_in, tokens_out=tokens_out, cost_usd=cost_usd)

    def check(self) -> None:
        """Stop the call when it has spent more than was reserved."""
        if self.over or not (kind := overspent(self.amount(), self.held)):
            return
        spent, held = getattr(self.amount(), kind), getattr(self.held, kind)
        self.over = f"stopped: {kind} {spent:g}, of which {held:g} were left"
        if self._spent != self._reported:
            reported = self._reported.tokens_in + self._reported.tokens_out
            self.over += f"; not believed: it reported {self._reported.cost_usd:g} USD and {reported:g} tokens"
        if self._task:
            self._task.cancel()

    def is_due(self) -> bool:
        """Whether to write down what was spent: money and tokens at once, time alone every `IDLE_TICK_S`."""
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


def _wanted(step: BudgetCap, *, seconds: float, iterations: float) -> Amount:
    return Amount(
        cost_usd=step.cost_usd or UNBOUNDED.cost_usd,
        tokens=step.tokens or UNBOUNDED.tokens,
        seconds=min(seconds, step.seconds or seconds),
        iterations=max(0, iterations),
    )


def caps_of(budget: Budget) -> Caps:
    return Caps(item=budget.item.counted, repo=budget.repo.counted, day=budget.day.counted)
