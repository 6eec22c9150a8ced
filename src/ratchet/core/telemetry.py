"""Spans and measurements of a run, folded from its ledger, in the terms of OpenTelemetry's GenAI conventions.

Ids are digests of the run's id and the event's number, and times are those of the ledger: every fold of a ledger
gives the same trace, however often its worker was killed. All names of the conventions are in this module.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from functools import singledispatchmethod

import msgspec

from ratchet.core import events as ev
from ratchet.core.gates import GateStatus
from ratchet.core.picture import is_overfitted
from ratchet.core.state import OUTCOMES
from ratchet.core.timestamps import format_timestamp

AttributeValue = str | int | float | bool
WORKFLOW_DURATION, AGENT_DURATION = "gen_ai.workflow.duration", "gen_ai.invoke_agent.duration"
TOKEN_USAGE, COST, CHANGES = "gen_ai.client.token.usage", "ratchet.cost", "ratchet.changes"
# Each instrument: its unit, what it measures, and the bounds of its histogram; without bounds it is a counter.
INSTRUMENTS: dict[str, tuple[str, str, tuple[float, ...]]] = {
    WORKFLOW_DURATION: ("s", "Duration of runs.", (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 28800)),
    AGENT_DURATION: ("s", "Duration of agent calls.", (0.1, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 3600)),
    TOKEN_USAGE: ("{token}", "Tokens of agent calls.", tuple(4**power for power in range(14))),
    COST: ("USD", "Known cost of agent calls.", ()),
    CHANGES: ("{change}", "Changes that were kept or reverted.", ()),
}
_PROVIDERS = (
    ("claude", "anthropic"), ("anthropic", "anthropic"), ("codex", "openai"), ("gpt", "openai"), ("openai", "openai"),
    ("o1", "openai"), ("o3", "openai"), ("o4", "openai"), ("gemini", "gcp.gemini"), ("vertex", "gcp.vertex_ai"),
    ("bedrock", "aws.bedrock"), ("azure", "azure.ai.openai"), ("mistral", "mistral_ai"), ("deepseek", "deepseek"),
    ("grok", "x_ai"), ("xai", "x_ai"), ("groq", "groq"),
)  # fmt: skip


class TraceSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A finished part of a run. `error` is its `error.type`; `marks` are times and names of what happened within it."""

    trace: str
    id: str
    parent: str = ""
    name: str
    began: str
    ended: str
    attributes: dict[str, AttributeValue]
    error: str = ""
    detail: str = ""
    marks: list[tuple[str, str]] = []


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """A value for one of `INSTRUMENTS`."""

    instrument: str
    value: float
    attributes: dict[str, AttributeValue]


class RunTrace:
    """Folds the events of one run. `take` returns what has ended since it was last called."""

    def __init__(self, run: str) -> None:
        self.run, self.trace, self.root = run, _digest(16, run), _digest(8, run, "run")
        self._started: ev.RunStarted | None = None
        self._began, self._step, self._step_began = "", _NO_STEP, ""
        self._marks, self._step_marks = list[tuple[str, str]](), list[tuple[str, str]]()
        self._spans, self._measured = list[TraceSpan](), list[Measurement]()

    def take(self) -> tuple[list[TraceSpan], list[Measurement]]:
        found = self._spans, self._measured
        self._spans, self._measured = [], []
        return found

    def add(self, seq: int, at: str, event: object) -> None:
        self._began = self._began or at
        self._fold(event, at, seq)
        if type(event) in OUTCOMES and self._step is not _NO_STEP:
            self._end_step(at, event)

    @property
    def _workflow(self) -> str:
        return self._started.workflow if self._started else ""

    def _named(self, operation: str) -> dict[str, AttributeValue]:
        return {
            "gen_ai.operation.name": operation,
            "gen_ai.workflow.name": self._workflow,
            "gen_ai.conversation.id": self.run,
        }

    # --- what ends ---------------------------------------------------------------------------------------------

    def _end_step(self, at: str, event: object) -> None:
        step, self._step = self._step, _NO_STEP
        outcome = ev.kind_of(event) if isinstance(event, ev.Event) else ""
        # A step of an agent holds calls; any other is the factory's own tool.
        named = {} if step.role else self._named("execute_tool") | _tool(step.action)
        found: dict[str, AttributeValue] = {
            "ratchet.step": step.step,
            "ratchet.action": step.action,
            "ratchet.outcome": outcome,
        }
        self._span(
            self._step_id(step.step),
            f"step {step.action}" if step.role else f"execute_tool {step.action}",
            self._step_began,
            at,
            named | found | ({"ratchet.role": step.role} if step.role else {}),
            parent=self.root,
            error=outcome if getattr(event, "reason", None) else "",
            detail=str(getattr(event, "why", "")),
            marks=self._step_marks,
        )
        self._step_marks = []

    def _end_run(self, at: str, status: str, *, error: str = "", detail: str = "") -> None:
        started = self._started
        named = self._named("invoke_workflow")
        about: dict[str, AttributeValue] = {"ratchet.status": status}
        if started:
            about |= {"ratchet.item": started.item, "ratchet.repo": started.repo, "ratchet.branch": started.branch}
        self._span(
            self.root,
            f"invoke_workflow {self._workflow}",
            self._began,
            at,
            named | about,
            error=error,
            detail=detail,
            marks=self._marks,
        )
        measured: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": self._workflow,
        }
        self._measure(WORKFLOW_DURATION, _seconds(self._began, at), measured | _error(error))

    def _span(
        self,
        id: str,
        name: str,
        began: str,
        ended: str,
        attributes: dict[str, AttributeValue],
        *,
        parent: str = "",
        error: str = "",
        detail: str = "",
        marks: list[tuple[str, str]] | None = None,
    ) -> None:
        self._spans.append(
            TraceSpan(
                trace=self.trace,
                id=id,
                parent=parent,
                name=name,
                began=began,
                ended=max(began, ended),
                attributes={name: value for name, value in attributes.items() if value != ""} | _error(error),
                error=error,
                detail=detail,
                marks=marks or [],
            )
        )

    def _measure(self, instrument: str, value: float, attributes: dict[str, AttributeValue]) -> None:
        known = {name: value for name, value in attributes.items() if value != ""}
        self._measured.append(Measurement(instrument=instrument, value=value, attributes=known))

    def _step_id(self, step: int) -> str:
        return _digest(8, self.run, f"step {step}")

    # --- events ------------------------------------------------------------------------------------------------

    @singledispatchmethod
    def _fold(self, _event: object, _at: str, _seq: int) -> None:
        """Events that end nothing."""

    @_fold.register
    def _(self, event: ev.RunStarted, _at: str, _seq: int) -> None:
        self._started = event

    @_fold.register
    def _(self, event: ev.RunClaimed, at: str, _seq: int) -> None:
        self._marks.append((at, f"claimed by {event.worker}"))

    @_fold.register
    def _(self, event: ev.RunParked, at: str, _seq: int) -> None:
        self._marks.append((at, f"parked: {event.reason}"))

    @_fold.register
    def _(self, event: ev.RunReturned, at: str, _seq: int) -> None:
        self._marks.append((at, f"returned to the queue: {event.reason}"))

    @_fold.register
    def _(self, event: ev.StepStarted, at: str, _seq: int) -> None:
        self._step, self._step_began, self._step_marks = event, at, []

    @_fold.register
    def _(self, _event: ev.StepResumed, at: str, _seq: int) -> None:
        self._step_marks.append((at, "interrupted; resumed"))

    @_fold.register
    def _(self, _event: ev.AgentNudged, at: str, _seq: int) -> None:
        self._step_marks.append((at, "stopped and asked again"))

    @_fold.register
    def _(self, event: ev.UsageMetered, at: str, seq: int) -> None:
        asked: dict[str, AttributeValue] = {
            "gen_ai.agent.name": event.agent,
            "gen_ai.provider.name": provider_of(event.agent, event.model),
            "gen_ai.request.model": event.model,
        }
        used: dict[str, AttributeValue] = {
            "gen_ai.usage.input_tokens": event.tokens_in,
            "gen_ai.usage.output_tokens": event.tokens_out,
            "gen_ai.usage.cache_read.input_tokens": event.tokens_cached,
            "ratchet.role": event.role,
            **({"ratchet.cost_usd": event.cost_usd} if event.priced else {}),
        }
        began = max(_earlier(at, event.seconds), self._step_began)
        self._span(
            _digest(8, self.run, f"event {seq}"),
            f"invoke_agent {event.agent}",
            began,
            at,
            self._named("invoke_agent") | asked | used,
            parent=self._step_id(event.step),
        )
        metered = {"gen_ai.operation.name": "invoke_agent"} | asked
        self._measure(AGENT_DURATION, event.seconds, metered)
        for kind, tokens in (("input", event.tokens_in), ("output", event.tokens_out)):
            self._measure(TOKEN_USAGE, tokens, metered | {"gen_ai.token.type": kind})
        if event.priced:
            self._measure(COST, max(0.0, event.cost_usd), metered | {"gen_ai.workflow.name": self._workflow})

    @_fold.register
    def _(self, event: ev.GateRan, at: str, seq: int) -> None:
        failed = "gate_failed" if event.status is GateStatus.FAILED else ""
        self._span(
            _digest(8, self.run, f"event {seq}"),
            f"execute_tool gate {event.gate}",
            max(_earlier(at, event.seconds), self._step_began),
            at,
            self._named("execute_tool") | _tool(f"gate {event.gate}") | {"ratchet.status": str(event.status)},
            parent=self._step_id(event.step),
            error=failed,
            detail=event.detail,
        )

    @_fold.register
    def _(self, _event: ev.StepCommitted, _at: str, _seq: int) -> None:
        self._change("kept")

    @_fold.register(ev.StepReverted)
    @_fold.register(ev.RefactorReverted)
    @_fold.register(ev.RevisionReverted)
    def _(self, event: ev.StepReverted | ev.RefactorReverted | ev.RevisionReverted, _at: str, _seq: int) -> None:
        self._change("overfitted" if is_overfitted(event) else "reverted")

    def _change(self, outcome: str) -> None:
        self._measure(CHANGES, 1, {"ratchet.outcome": outcome, "gen_ai.workflow.name": self._workflow})

    @_fold.register
    def _(self, _event: ev.RunCompleted, at: str, _seq: int) -> None:
        self._end_run(at, "completed")

    @_fold.register
    def _(self, event: ev.RunFailed, at: str, _seq: int) -> None:
        self._end_run(at, "failed", error=str(event.reason), detail=event.detail)

    @_fold.register
    def _(self, _event: ev.RunAborted, at: str, _seq: int) -> None:
        self._end_run(at, "aborted", error="aborted")


def provider_of(agent: str, model: str) -> str:
    """Return the provider by the model's name, else by the agent's: a well-known name where there is one."""
    for name in (model.lower(), agent.partition(":")[0].lower()):
        if found := next((provider for prefix, provider in _PROVIDERS if name.startswith(prefix)), ""):
            return found
    owner, slash, _ = model.partition("/")
    return owner if slash else agent.partition(":")[0]


def _tool(name: str) -> dict[str, AttributeValue]:
    return {"gen_ai.tool.name": name, "gen_ai.tool.type": "function"}


def _error(error: str) -> dict[str, AttributeValue]:
    return {"error.type": error} if error else {}


def _digest(size: int, *parts: str) -> str:
    """Return an id of `size` bytes in hex."""
    return hashlib.sha256("\0".join(("ratchet", *parts)).encode()).digest()[:size].hex()


def _earlier(at: str, seconds: float) -> str:
    seconds = min(max(0.0, seconds), 86_400.0 * 30)
    return format_timestamp(datetime.fromisoformat(at) - timedelta(seconds=seconds))


def _seconds(began: str, ended: str) -> float:
    return max(0.0, (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds())


_NO_STEP = ev.StepStarted(step=0, action="", role="", key="", tree="", snapshot="")
