"""The watchdog: interrupts an agent that is stuck, loops or asks a question, and sends it a message; fails the turn if
it happens again.

An agent is stuck when it is silent for `idle_s` and no tool call is running. It loops when it repeats a call with the
same result. Heartbeats come from the supervisor, so silence alone does not mean that the process died.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime

import msgspec
from msgspec.structs import replace

from ratchet.agents.protocol import (
    Agent,
    AgentRequest,
    Notice,
    OnEvent,
    Question,
    SessionStarted,
    ToolCall,
    ToolResult,
    TurnCancelled,
    TurnEvent,
    TurnFailed,
    TurnOutcome,
    TurnResult,
    UsageReported,
    reports_as_it_works,
)
from ratchet.agents.provider_errors import classify_error, with_retry_time
from ratchet.core.failure import FAULT, FaultOwner, Reason

NUDGES = 1
ANSWERS = 3
UNRESPONSIVE_S = 30.0  # adapters enforce the deadline themselves; ours is this much later


class WatchdogLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the watchdog. `answer` is sent in reply to questions; empty: questions fail the turn."""

    idle_s: float
    repeats: int
    answer: str = ""


class Intervention(msgspec.Struct, frozen=True, kw_only=True):
    """Why the agent is interrupted, the message to send it, and the failure reason if it happens again."""

    why: str
    message: str
    reason: Reason


class ProgressMonitor:
    """Detects stalls, loops and questions from the events of a turn. Pure: time is an argument."""

    def __init__(self, limits: WatchdogLimits, *, last_event_at: float | None = None) -> None:
        """`last_event_at`: count silence from then on; without it, from the first event."""
        self.limits = limits
        self.session = ""
        self.limited: TurnFailed | None = None  # a provider error that no progress followed
        self.intervention: Intervention | None = None
        self._last_event_at = last_event_at  # None before the first event: some agents report nothing
        self._call: ToolCall | None = None
        self._last: tuple[ToolCall, str] | None = None
        self._times = 0

    def add(self, event: TurnEvent, now: float) -> None:
        self._last_event_at = now
        match event:
            case SessionStarted(session=session):
                self.session = session
            case ToolCall():
                self._call, self.limited = event, None
            case ToolResult(result=result) if self._call:
                self._count(self._call, result)
                self._call = None
            case Question(text=text):
                self.intervention = self.intervention or self._asked(text)
            case Notice(text=text):
                self.limited = _limit(text) or self.limited
            case UsageReported() | ToolResult():
                pass
            case _:
                self._call = self.limited = None  # new text: the call and the provider error are over

    def _count(self, call: ToolCall, result: str) -> None:
        self._times = self._times + 1 if self._last == (call, result) else 1
        self._last = (call, result)
        if self._times >= self.limits.repeats:
            what = f"{call.name} {call.detail}".strip()
            self.intervention = self.intervention or Intervention(
                why=f"repeated the same call with the same result {self._times} times: {what}"[:500],
                message=f"You have called {what} {self._times} times with the same result. Do something else.",
                reason=Reason.NO_PROGRESS,
            )

    def _asked(self, text: str) -> Intervention:
        message = f"You asked: {text}\n\nThe answer is: {self.limits.answer}"
        return Intervention(why=f"the agent asked: {text}"[:2_000], message=message, reason=Reason.QUESTION)

    def check_silence(self, now: float) -> float | None:
        """Return the seconds until silence counts as a stall, None while it does not count; record a stall."""
        if self._last_event_at is None or self._call:
            return None
        left = self._last_event_at + self.limits.idle_s - now
        if left <= 0:
            self.intervention = self.intervention or Intervention(
                why=f"silent for {self.limits.idle_s:.0f} s with no tool call running",
                message="You were silent for a long time. Continue in small steps.",
                reason=Reason.AGENT_TIMED_OUT,
            )
        return max(0.0, left)


OnIntervention = Callable[[Intervention], Awaitable[None]]


async def ask_with_watchdog(
    agent: Agent, request: AgentRequest, on_event: OnEvent, limits: WatchdogLimits, on_intervention: OnIntervention
) -> TurnResult:
    """Run a turn within the request's time limit; `nudged` is called for every intervention before the next attempt."""
    loop = asyncio.get_running_loop()
    deadline, nudges, answers = loop.time() + request.timeout_s, 0, 0
    prompt = request.prompt
    while True:
        # Some programs report their first event only when the model answers, and a resumed session may report nothing
        # new: if the agent is known to report, its silence counts from the start.
        reports = reports_as_it_works(agent) or bool(request.session) or nudges + answers > 0
        watch = ProgressMonitor(limits, last_event_at=loop.time() if reports else None)
        turn = _Turn(agent, request, on_event, watch)
        outcome = await turn.end(deadline + UNRESPONSIVE_S)
        if outcome is None:
            return TurnFailed(reason=Reason.AGENT_TIMED_OUT, detail=f"no end after {request.timeout_s:.0f} s")
        if not isinstance(outcome, Intervention):
            return outcome
        if watch.limited and outcome.reason is Reason.AGENT_TIMED_OUT:
            return watch.limited  # the agent waits for its provider: a message would not help
        is_question = outcome.reason is Reason.QUESTION
        nudges, answers = nudges + (not is_question), answers + is_question
        if nudges > NUDGES or answers > (ANSWERS if limits.answer else 0):
            return TurnFailed(reason=outcome.reason, detail=outcome.why)
        await on_intervention(outcome)
        left = max(1.0, deadline - loop.time())
        session = watch.session or request.session
        request = replace(request, prompt=f"{outcome.message}\n\n{prompt}", session=session, timeout_s=left)


class _Turn:
    """A turn that is cancelled as soon as an intervention is needed."""

    def __init__(self, agent: Agent, request: AgentRequest, on_event: OnEvent, watch: ProgressMonitor) -> None:
        self.watch, self._on_event = watch, on_event
        self._loop, self._stopped = asyncio.get_running_loop(), False
        self._task = asyncio.ensure_future(agent.ask(request, self._handle))

    def _handle(self, event: TurnEvent) -> None:
        self._on_event(event)
        self.watch.add(event, self._loop.time())
        if self.watch.intervention:
            self._stop()  # at once, before it repeats the call

    def _stop(self) -> None:
        """Cancel once: a second cancellation would interrupt the adapter while it stops its program."""
        if not self._stopped:
            self._stopped = True
            self._task.cancel()

    async def end(self, deadline: float) -> TurnResult | Intervention | None:
        try:
            while not (self._task.done() or self.watch.intervention) and (left := deadline - self._loop.time()) > 0:
                quiet = self.watch.check_silence(self._loop.time())
                # Silence may start to count when the running call ends.
                wait = min(left, self.watch.limits.idle_s if quiet is None else quiet)
                await asyncio.wait({self._task}, timeout=wait)
                self.watch.check_silence(self._loop.time())
        finally:
            if not self._task.done():
                self._stop()
                await asyncio.wait({self._task})
        intervention = self.watch.intervention
        # A question counts even if the turn finished; a loop does not if the turn finished anyway.
        if self._task.cancelled() or (intervention and intervention.reason is Reason.QUESTION):
            return intervention
        return _answer(self._task.result())


def _limit(text: str) -> TurnFailed | None:
    found = classify_error(text)
    is_limit = FAULT[found.reason] is FaultOwner.PROVIDER
    return with_retry_time(found, now=datetime.now().astimezone()) if is_limit else None


def _answer(outcome: TurnOutcome) -> TurnResult:
    if isinstance(outcome, TurnCancelled):  # not requested by us: we cancel by ending the process
        return TurnFailed(reason=Reason.AGENT_CRASHED, detail=f"the agent stopped early: {outcome.detail}")
    return outcome
