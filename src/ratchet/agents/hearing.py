"""What a stream of printed lines comes to: told as it is heard, weighed at the end. Pure.

An exit code or a program's word `success` is never the verdict: no terminal event is a failure, and so is a complaint
after which nothing more was done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ratchet.agents import (
    Ask,
    Cancelled,
    Failed,
    FileChange,
    Finished,
    Outcome,
    Said,
    Spent,
    Tell,
    Text,
    ToolCall,
)
from ratchet.agents.faults import complaint
from ratchet.core.failure import Reason
from ratchet.core.receipt import Price, Usage


class Metered(msgspec.Struct, frozen=True, kw_only=True):
    """Usage as a program says it: of one message (`of` tells them apart, for some are told twice), or of the whole
    turn, which then replaces what was added up. `cost_usd` of None was not said."""

    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float | None = None
    of: str = ""
    whole: bool = False


class ComeBack(msgspec.Struct, frozen=True):
    """When the provider will take requests again, said apart from any failure."""

    until: str


Heard = Said | Outcome | Metered | ComeBack
Read = Callable[[bytes], Iterable[Heard]]


class Meter:
    """Turns what programs say about usage into what was spent since it was last told. `before` is what a resumed
    session's counters had reached already."""

    def __init__(self, price: Price | None, before: Usage) -> None:
        self.price, self.before = price, before
        self.parts: dict[str, Metered] = {}
        self.whole: Metered | None = None
        self.told = Usage()

    def add(self, metered: Metered) -> Usage:
        """What to tell now."""
        if metered.whole:
            self.whole = metered
        else:
            self.parts[metered.of or str(len(self.parts))] = metered
        total, told = self.total, self.told
        # Never less than was told before: what was metered once has been spent.
        self.told = Usage(
            tokens_in=max(total.tokens_in, told.tokens_in),
            tokens_out=max(total.tokens_out, told.tokens_out),
            cost_usd=max(total.cost_usd, told.cost_usd),
        )
        return _less(self.told, told)

    @property
    def total(self) -> Usage:
        if self.whole:
            return _less(self._priced(self.whole), self.before)
        return sum((self._priced(part) for part in self.parts.values()), Usage())

    def _priced(self, metered: Metered) -> Usage:
        counted = Usage(tokens_in=metered.tokens_in, tokens_out=metered.tokens_out)
        cost = metered.cost_usd if metered.cost_usd is not None else self.price.of(counted) if self.price else 0.0
        return msgspec.structs.replace(counted, cost_usd=round(cost, 6))


def _less(usage: Usage, other: Usage) -> Usage:
    return Usage(
        tokens_in=max(0, usage.tokens_in - other.tokens_in),
        tokens_out=max(0, usage.tokens_out - other.tokens_out),
        cost_usd=max(0.0, round(usage.cost_usd - other.cost_usd, 6)),
    )


class Hearing:
    """One turn of one agent, as far as it has been heard."""

    def __init__(
        self, ask: Ask, tell: Tell, *, model: str = "", must_speak: bool = False, before: Usage | None = None
    ) -> None:
        self.ask, self._tell, self.must_speak = ask, tell, must_speak
        self.meter = Meter(ask.prices.get(model), before or Usage())
        self.outcome: Outcome | None = None
        self.until = ""
        self.texts: list[str] = []
        self.acted = self.spoke = self.overspent = False

    def take(self, heard: Heard) -> None:
        match heard:
            case Metered():
                self._tell(Spent(self.meter.add(heard)))
                self.overspent = _over(self.meter.total, self.ask.allowance)
            case ComeBack():
                self.until = heard.until
            case Failed() | Cancelled():
                self.outcome = heard
            case Finished():
                # A complaint that nothing followed stands, whatever is printed as the last line.
                self.outcome = self.outcome or heard
            case _:
                self._work(heard)
                self._tell(heard)

    def _work(self, said: Said) -> None:
        if isinstance(said, Text):
            if not said.continues and self.texts:
                self.texts.append("\n")
            self.texts.append(said.text)
            self.spoke = self.spoke or bool(said.text.strip())
        elif isinstance(said, ToolCall | FileChange):
            self.acted = True
        if isinstance(said, ToolCall):
            self.texts = []
        if isinstance(said, Text | ToolCall):
            self.outcome = None  # it went on working: what it complained about is over

    def close(self, *, ended: str, stderr: str = "") -> Outcome:
        """The verdict on the turn. `ended` says how the process did, for when it said nothing about its end."""
        if self.overspent:
            return Failed(reason=Reason.BUDGET_SPENT, detail=f"stopped after {_spelled(self.meter.total)}")
        match self.outcome:
            case Failed() as failed:
                return msgspec.structs.replace(failed, until=failed.until or self.until)
            case Cancelled() as cancelled:
                return cancelled
            case Finished() as finished if self._silent(finished):
                return Failed(reason=Reason.AGENT_CRASHED, detail="it ended without a word about what it did")
            case Finished() as finished:
                return Finished(text=finished.text or "".join(self.texts).strip())
        # Not from what it said itself: an agent that writes about rate limits is not limited.
        said = complaint(stderr.strip()[-2_000:])
        if said.reason is not Reason.AGENT_CRASHED:
            return msgspec.structs.replace(said, until=self.until)
        detail = f"{ended} without an end of its turn: {said.detail}".rstrip(": ")
        return Failed(reason=Reason.AGENT_CRASHED, detail=detail)

    def _silent(self, finished: Finished) -> bool:
        spoke = self.spoke or bool(finished.text.strip())
        return not spoke and (self.must_speak or not self.acted)


def _over(spent: Usage, allowance: Usage) -> bool:
    tokens = allowance.tokens_in + allowance.tokens_out
    too_much = tokens and spent.tokens_in + spent.tokens_out >= tokens
    return bool(too_much or (allowance.cost_usd and spent.cost_usd >= allowance.cost_usd))


def _spelled(usage: Usage) -> str:
    return f"{usage.tokens_in + usage.tokens_out:,} tokens and {usage.cost_usd:.4f} USD, which is all it was allowed"
