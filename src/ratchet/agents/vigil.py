"""An agent under watch: a stall, a loop or a question is met with a message, and the second time with its end.

Heartbeats are the supervisor's, so the silence of a model is not death. Stuck is who says nothing for too long with no
call of its own under way, or makes the same call with the same result again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime

import msgspec
from msgspec.structs import replace

from ratchet.agents import (
    Agent,
    Answered,
    Ask,
    Cancelled,
    Failed,
    Noticed,
    Outcome,
    Question,
    Said,
    SessionOpened,
    Spent,
    Tell,
    ToolCall,
    ToolEnded,
)
from ratchet.agents.faults import complaint, dated
from ratchet.core.failure import FAULT, Fault, Reason

NUDGES = 1
ANSWERS = 3
DEAF_S = 30.0  # an adapter keeps its own deadline; this much later ours holds


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """`answer` is what questions are answered with; without one they are not."""

    idle_s: float
    repeats: int
    answer: str = ""


class Wrong(msgspec.Struct, frozen=True, kw_only=True):
    """Why it was stopped, and what to tell it. `reason` is its failure, should it happen again."""

    why: str
    message: str
    reason: Reason


class Watch:
    """What an agent says, as far as it shows whether it gets on. Plain: time is an argument."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.session = ""
        self.limited: Failed | None = None  # its provider's complaint, which nothing followed yet
        self.wrong: Wrong | None = None
        self._heard_at: float | None = None  # who has said nothing at all may be one that never does
        self._call: ToolCall | None = None
        self._last: tuple[ToolCall, str] | None = None
        self._times = 0

    def take(self, said: Said, now: float) -> None:
        self._heard_at = now
        match said:
            case SessionOpened(session=session):
                self.session = session
            case ToolCall():
                self._call, self.limited = said, None
            case ToolEnded(result=result) if self._call:
                self._count(self._call, result)
                self._call = None
            case Question(text=text):
                self.wrong = self.wrong or self._asked(text)
            case Noticed(text=text):
                self.limited = _limit(text) or self.limited
            case Spent() | ToolEnded():
                pass
            case _:
                self._call = self.limited = None  # it speaks again, so what it called and met is over

    def _count(self, call: ToolCall, result: str) -> None:
        self._times = self._times + 1 if self._last == (call, result) else 1
        self._last = (call, result)
        if self._times >= self.limits.repeats:
            what = f"{call.name} {call.detail}".strip()
            self.wrong = self.wrong or Wrong(
                why=f"the same call with the same result {self._times} times: {what}"[:500],
                message=f"You have called {what} {self._times} times with the same result. Do something else.",
                reason=Reason.NO_PROGRESS,
            )

    def _asked(self, text: str) -> Wrong:
        message = f"You asked: {text}\n\nThe answer is: {self.limits.answer}"
        return Wrong(why=f"it asked: {text}"[:2_000], message=message, reason=Reason.QUESTION)

    def look(self, now: float) -> float | None:
        """How long until silence would be a stall; None when it is not counted. Too long is wrong."""
        if self._heard_at is None or self._call:
            return None
        left = self._heard_at + self.limits.idle_s - now
        if left <= 0:
            self.wrong = self.wrong or Wrong(
                why=f"silent for {self.limits.idle_s:.0f} s with no call under way",
                message="You said and did nothing for a long time. Go on, in small steps.",
                reason=Reason.AGENT_TIMED_OUT,
            )
        return max(0.0, left)


Nudged = Callable[[Wrong], Awaitable[None]]


async def watched(agent: Agent, ask: Ask, tell: Tell, limits: Limits, nudged: Nudged) -> Answered:
    """Ask within the ask's own time. `nudged` hears of every interruption before the agent is asked again."""
    loop = asyncio.get_running_loop()
    deadline, nudges, answers = loop.time() + ask.timeout_s, 0, 0
    prompt = ask.prompt
    while True:
        watch = Watch(limits)
        turn = _Turn(agent, ask, tell, watch)
        outcome = await turn.end(deadline + DEAF_S)
        if outcome is None:
            return Failed(reason=Reason.AGENT_TIMED_OUT, detail=f"no end after {ask.timeout_s:.0f} s")
        if not isinstance(outcome, Wrong):
            return outcome
        if watch.limited and outcome.reason is Reason.AGENT_TIMED_OUT:
            return watch.limited  # it waits for its provider: no message of ours ends that
        is_question = outcome.reason is Reason.QUESTION
        nudges, answers = nudges + (not is_question), answers + is_question
        if nudges > NUDGES or answers > (ANSWERS if limits.answer else 0):
            return Failed(reason=outcome.reason, detail=outcome.why)
        await nudged(outcome)
        left = max(1.0, deadline - loop.time())
        session = watch.session or ask.session
        ask = replace(ask, prompt=f"{outcome.message}\n\n{prompt}", session=session, timeout_s=left)


class _Turn:
    """One turn, ended as soon as something is wrong with it."""

    def __init__(self, agent: Agent, ask: Ask, tell: Tell, watch: Watch) -> None:
        self.watch, self._tell = watch, tell
        self._loop, self._stopped = asyncio.get_running_loop(), False
        self._task = asyncio.ensure_future(agent.ask(ask, self._hear))

    def _hear(self, said: Said) -> None:
        self._tell(said)
        self.watch.take(said, self._loop.time())
        if self.watch.wrong:
            self._stop()  # at once: it may be about to do more of the same

    def _stop(self) -> None:
        """Once: a second time would hit the adapter while it ends its program."""
        if not self._stopped:
            self._stopped = True
            self._task.cancel()

    async def end(self, deadline: float) -> Answered | Wrong | None:
        try:
            while not (self._task.done() or self.watch.wrong) and (left := deadline - self._loop.time()) > 0:
                quiet = self.watch.look(self._loop.time())
                # Whoever is not counted now may be later, when its call is over.
                wait = min(left, self.watch.limits.idle_s if quiet is None else quiet)
                await asyncio.wait({self._task}, timeout=wait)
                self.watch.look(self._loop.time())
        finally:
            if not self._task.done():
                self._stop()
                await asyncio.wait({self._task})
        wrong = self.watch.wrong
        # Who asks and goes on regardless has still asked; who looped and came to an end has ended.
        if self._task.cancelled() or (wrong and wrong.reason is Reason.QUESTION):
            return wrong
        return _answer(self._task.result())


def _limit(text: str) -> Failed | None:
    found = complaint(text)
    is_limit = FAULT[found.reason] is Fault.PROVIDER
    return dated(found, now=datetime.now().astimezone()) if is_limit else None


def _answer(outcome: Outcome) -> Answered:
    if isinstance(outcome, Cancelled):  # nobody here told it to: we cancel by ending it
        return Failed(reason=Reason.AGENT_CRASHED, detail=f"it stopped before its end: {outcome.detail}")
    return outcome
