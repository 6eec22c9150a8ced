"""Collects the events of a turn and decides its outcome. Pure.

An exit code or a reported `success` does not decide: a missing end event is a failure, and so is an error that no
further work followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ratchet.agents.protocol import (
    AgentRequest,
    FileChange,
    OnEvent,
    Text,
    ToolCall,
    TurnCancelled,
    TurnEvent,
    TurnFailed,
    TurnFinished,
    TurnOutcome,
    UsageReported,
)
from ratchet.agents.provider_errors import classify_error
from ratchet.core.failure import Reason
from ratchet.core.prices import price_of
from ratchet.core.receipt import Price, Usage


class UsageSample(msgspec.Struct, frozen=True, kw_only=True):
    """Usage reported by a program: for one message, or for the `whole` turn, which replaces the sum of messages.

    `of` identifies the message, since some are reported twice. `cost_usd` is None if not reported.
    """

    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float | None = None
    of: str = ""
    whole: bool = False


class RetryAfter(msgspec.Struct, frozen=True):
    """The provider's retry time, reported separately from the failure."""

    until: str


StreamEvent = TurnEvent | TurnOutcome | UsageSample | RetryAfter
Read = Callable[[bytes], Iterable[StreamEvent]]


class TurnUsage:
    """Converts usage samples into increments. `before` is the usage of a resumed session up to now."""

    def __init__(self, price: Price | None, before: Usage) -> None:
        self.price, self.before = price, before
        self.parts: dict[str, UsageSample] = {}
        self.whole: UsageSample | None = None
        self.reported = Usage()

    def add(self, metered: UsageSample) -> Usage:
        """Add a sample and return the increment to report."""
        if metered.whole:
            self.whole = metered
        else:
            self.parts[metered.of or str(len(self.parts))] = metered
        total, reported = self.total, self.reported
        # Never decreases: reported usage has been spent.
        self.reported = Usage(
            tokens_in=max(total.tokens_in, reported.tokens_in),
            tokens_out=max(total.tokens_out, reported.tokens_out),
            cost_usd=max(total.cost_usd, reported.cost_usd),
        )
        return _subtract(self.reported, reported)

    @property
    def total(self) -> Usage:
        if self.whole:
            return _subtract(self._priced(self.whole), self.before)
        return sum((self._priced(part) for part in self.parts.values()), Usage())

    @property
    def priced(self) -> bool:
        """Whether the cost is known: reported by the program, or computed from a known price."""
        samples = [self.whole] if self.whole else [*self.parts.values()]
        return self.price is not None or not samples or any(sample.cost_usd is not None for sample in samples)

    def _priced(self, metered: UsageSample) -> Usage:
        counted = Usage(tokens_in=metered.tokens_in, tokens_out=metered.tokens_out).sane
        cost = metered.cost_usd if metered.cost_usd is not None else self.price.of(counted) if self.price else 0.0
        return msgspec.structs.replace(counted, cost_usd=cost).sane


def _subtract(usage: Usage, other: Usage) -> Usage:
    return Usage(
        tokens_in=max(0, usage.tokens_in - other.tokens_in),
        tokens_out=max(0, usage.tokens_out - other.tokens_out),
        cost_usd=max(0.0, round(usage.cost_usd - other.cost_usd, 6)),
    )


class TurnRecorder:
    """Records the events of a turn and decides its outcome."""

    def __init__(
        self,
        request: AgentRequest,
        on_event: OnEvent,
        *,
        model: str = "",
        must_speak: bool = False,
        before: Usage | None = None,
    ) -> None:
        self.request, self._on_event, self.must_speak = request, on_event, must_speak
        self.meter = TurnUsage(price_of(model, request.prices), before or Usage())
        self.outcome: TurnOutcome | None = None
        self.until = ""
        self.texts: list[str] = []
        self.acted = self.spoke = self.overspent = False

    def add(self, event: StreamEvent) -> None:
        match event:
            case UsageSample():
                self._on_event(UsageReported(self.meter.add(event), self.meter.priced))
                self.overspent = _over(self.meter.total, self.request.allowance)
            case RetryAfter():
                self.until = event.until
            case TurnFailed() | TurnCancelled():
                self.outcome = event
            case TurnFinished():
                # An error that no further work followed stands, whatever the last line says.
                self.outcome = self.outcome or event
            case _:
                self._work(event)
                self._on_event(event)

    def _work(self, event: TurnEvent) -> None:
        if isinstance(event, Text):
            if not event.continues and self.texts:
                self.texts.append("\n")
            self.texts.append(event.text)
            self.spoke = self.spoke or bool(event.text.strip())
        elif isinstance(event, ToolCall | FileChange):
            self.acted = True
        if isinstance(event, ToolCall):
            self.texts = []
        if isinstance(event, Text | ToolCall):
            self.outcome = None  # the agent continued: an earlier error is over

    def close(self, *, ended: str, stderr: str = "") -> TurnOutcome:
        """Return the outcome of the turn. `ended` describes the end of the process, used if there was no end event."""
        if self.overspent:
            return TurnFailed(reason=Reason.BUDGET_SPENT, detail=f"stopped after {_format_usage(self.meter.total)}")
        match self.outcome:
            case TurnFailed() as failed:
                return msgspec.structs.replace(failed, until=failed.until or self.until)
            case TurnCancelled() as cancelled:
                return cancelled
            case TurnFinished() as finished if self._silent(finished):
                return TurnFailed(reason=Reason.AGENT_CRASHED, detail="the agent ended without output")
            case TurnFinished() as finished:
                return TurnFinished(text=finished.text or "".join(self.texts).strip())
        # Classify stderr only: an agent's own text may mention rate limits without being limited.
        failed = classify_error(stderr.strip()[-2_000:])
        if failed.reason is not Reason.AGENT_CRASHED:
            return msgspec.structs.replace(failed, until=self.until)
        detail = f"{ended} without an end event: {failed.detail}".rstrip(": ")
        return TurnFailed(reason=Reason.AGENT_CRASHED, detail=detail)

    def _silent(self, finished: TurnFinished) -> bool:
        spoke = self.spoke or bool(finished.text.strip())
        return not spoke and (self.must_speak or not self.acted)


def _over(spent: Usage, allowance: Usage) -> bool:
    tokens = allowance.tokens_in + allowance.tokens_out
    too_much = tokens and spent.tokens_in + spent.tokens_out >= tokens
    return bool(too_much or (allowance.cost_usd and spent.cost_usd >= allowance.cost_usd))


def _format_usage(usage: Usage) -> str:
    return (
        f"{usage.tokens_in + usage.tokens_out:,} tokens and {usage.cost_usd:.4f} USD: the limit of the turn is reached"
    )
