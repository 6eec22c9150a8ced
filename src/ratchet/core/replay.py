"""Replays a recorded run under another policy: the recorded answers, other bounds, gates and agents, and no tokens.

A recorded step answers a step of the replay when both have the same action, inputs and tree: the same work has the same
answer. Where the recording has none, the replay ends, and what would have come next is unknown.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from ratchet.core import events as ev
from ratchet.core.gates import Gate, GateStatus, OnFail
from ratchet.core.receipt import Price, Usage
from ratchet.core.state import DECISIONS, OUTCOMES, RunState, RunStatus, advance
from ratchet.core.workflows.workflow import Workflow

_DECIDED: tuple[type[ev.Event], ...] = (*DECISIONS, ev.Escalated, ev.RunCompleted, ev.RunFailed)
_ENDS: tuple[type[ev.Event], ...] = (*OUTCOMES, ev.RunFailed, ev.RunAborted)
AnyEvent = ev.Event | ev.UnknownEvent


class GateChange(msgspec.Struct, frozen=True, kw_only=True):
    """Changed settings of a gate; `other` are settings whose effect only a run can show, such as a threshold."""

    on: bool | None = None
    on_fail: OnFail | None = None
    other: list[str] = []


class Routing(msgspec.Struct, frozen=True, kw_only=True):
    """The agent that would have answered, and what its model costs; None if that is not known."""

    agent: str
    price: Price | None = None


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """Another policy. `agents` are by role; the empty role stands for all others."""

    name: str
    bounds: dict[str, int] = {}
    gates: dict[str, GateChange] = {}
    agents: dict[str, Routing] = {}
    escalate_after: dict[str, int] = {}


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A step with its outcome, or a decision between two steps. `step` is the last step's number."""

    step: int
    phase: str
    what: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.what} ({self.detail})" if self.detail else self.what


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first place at which recording and replay differ; empty where one of them has ended."""

    step: int
    phase: str
    recorded: str
    replayed: str


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a replay. `unknown` says from where, and why, nothing is known; empty if it ended.

    `usage` counts the answers that were used, at the prices of the alternative's models; without `priced` the cost of
    some is not known.
    """

    name: str
    status: RunStatus
    detail: str
    moves: list[Move]
    steps: int
    commits: int
    reverts: int
    usage: Usage
    priced: bool
    difference: Difference | None = None
    unknown: str = ""


class _Answer(msgspec.Struct, kw_only=True):
    """A recorded step with its events, and the retry that followed a failure after it."""

    identity: bytes
    started: ev.StepStarted
    events: list[AnyEvent]
    retried: ev.RunReturned | None = None

    @property
    def outcome(self) -> ev.Event | None:
        return next((event for event in self.events if isinstance(event, _ENDS)), None)


class _Recording(msgspec.Struct, kw_only=True):
    opening: list[AnyEvent]
    answers: list[_Answer]
    moves: list[Move]
    state: RunState


def replay(
    run: str, workflow: Workflow, events: Iterable[AnyEvent], alternatives: Sequence[Alternative]
) -> tuple[Replayed, list[Replayed]]:
    """Return how the run went, and how it would have gone under each alternative."""
    recording = _read(run, workflow, events)
    recorded = _result("recorded", recording.state, recording.moves)
    return recorded, [_Replay(workflow, recording, other).run(run) for other in alternatives]


def _read(run: str, workflow: Workflow, events: Iterable[AnyEvent]) -> _Recording:
    """Split a ledger into its steps. Events outside of steps, such as a claim, belong to the step before them."""
    read = _Recording(opening=[], answers=[], moves=[], state=RunState(run=run))
    for event in events:
        state = read.state
        between = state.in_doubt is None
        if isinstance(event, ev.StepStarted):
            read.answers.append(_Answer(identity=_identity(workflow, state), started=event, events=[]))
        elif between and isinstance(event, _DECIDED):
            read.moves.append(_decided(state, event))
        elif isinstance(event, ev.RunReturned) and between and isinstance(workflow.decide(state), ev.RunFailed):
            read.answers[-1].retried = event
            read.moves.append(_decided(state, event))
        else:
            (read.answers[-1].events if read.answers else read.opening).append(event)
            if read.answers and event is read.answers[-1].outcome:
                read.moves.append(_stepped(state, read.answers[-1]))
        read.state = advance(state, workflow.table, event)
    return read


def _identity(workflow: Workflow, state: RunState) -> bytes:
    """Return what makes a step the same work: action, inputs and tree, and the agent that is asked."""
    plan = workflow.plan(state)
    attempts = state.policy.parallel if plan.act.does == "swarm" else 0
    escalated = state.escalated == plan.role and bool(plan.role)
    work = [state.phase, plan.action, plan.inputs, state.tree, escalated, attempts]
    return msgspec.json.encode(work, order="deterministic")


def _decided(state: RunState, event: ev.Event) -> Move:
    reason = getattr(event, "reason", None)
    return Move(step=state.step, phase=state.phase, what=ev.kind_of(event), detail=str(reason) if reason else "")


def _stepped(state: RunState, answer: _Answer) -> Move:
    assert answer.outcome
    outcome, step, action = answer.outcome, state.step, answer.started.action
    return Move(step=step, phase=state.phase, what=f"{action} → {ev.kind_of(outcome)}", detail=_why(outcome))


def _why(outcome: ev.Event) -> str:
    return str(getattr(outcome, "why", "") or getattr(outcome, "detail", "")).partition("\n")[0][:160]


class _Replay:
    """One replay: decides as the workflow does, and takes the answers from the recording."""

    def __init__(self, workflow: Workflow, recording: _Recording, other: Alternative) -> None:
        self.workflow, self.recording, self.other = workflow, recording, other
        self.moves: list[Move] = []
        self.last: _Answer | None = None
        self.answers: dict[bytes, deque[_Answer]] = defaultdict(deque)
        for answer in recording.answers:
            if answer.outcome:
                self.answers[answer.identity].append(answer)

    def run(self, run: str) -> Replayed:
        self.state = RunState(run=run)
        for event in self.recording.opening:
            self._apply(_vary(event, self.other))
        unknown = ""
        while not (self.state.final or unknown):
            decision = self.workflow.decide(self.state)
            if decision is None:
                unknown = self._step()
            else:
                self._decide(decision)
        return _result(self.other.name, self.state, self.moves, self._difference(), unknown)

    def _apply(self, event: AnyEvent) -> None:
        self.state = advance(self.state, self.workflow.table, event)

    def _decide(self, decision: ev.Event) -> None:
        """Apply a decision; a failure that was retried in the recording is retried here too."""
        retried = self.last.retried if self.last else None
        if isinstance(decision, ev.RunFailed) and retried and retried.reason is decision.reason:
            decision, self.last = retried, None
        self.moves.append(_decided(self.state, decision))
        self._apply(decision)

    def _step(self) -> str:
        """Take the recorded answer of the next step; returns why there is none, or an empty string."""
        plan, waiting = self.workflow.plan(self.state), self.answers[_identity(self.workflow, self.state)]
        place = f"step {self.state.step + 1} ({plan.action})"
        if not waiting:
            self._unknown(f"{plan.action} → ?", "no recorded answer")
            return f"{place}: the recording has no answer for it"
        answer = waiting.popleft()
        events = _without_gates(answer.events, self.other.gates)
        if why := _other_verdict(answer.events, self.other.gates, self._planned_gates()):
            self._unknown(f"{plan.action} → ?", why)
            return f"{place}: {why}"
        self.last = answer
        self._apply(replace(answer.started, step=self.state.step + 1))
        self.moves.append(_stepped(self.state, answer))
        for event in events:
            self._apply(_repriced(event, self.other.agents))
            if self.state.final:
                break
        return ""

    def _unknown(self, what: str, why: str) -> None:
        self.moves.append(Move(step=self.state.step + 1, phase=self.state.phase, what=what, detail=why))

    def _planned_gates(self) -> set[str]:
        texts = self.state.started.gates if self.state.started else []
        return {msgspec.json.decode(text, type=Gate).name for text in texts}

    def _difference(self) -> Difference | None:
        recorded, replayed = self.recording.moves, self.moves
        for at in range(max(len(recorded), len(replayed))):
            there = recorded[at] if at < len(recorded) else None
            here = replayed[at] if at < len(replayed) else None
            if there is None and not self.recording.state.final:
                return None  # the run goes on
            if here is None or there is None or (here.phase, here.what) != (there.phase, there.what):
                first = here or there
                assert first
                return Difference(
                    step=first.step, phase=first.phase, recorded=str(there or ""), replayed=str(here or "")
                )
        return None


def _result(
    name: str, state: RunState, moves: list[Move], difference: Difference | None = None, unknown: str = ""
) -> Replayed:
    return Replayed(
        name=name,
        status=state.status,
        detail=state.detail,
        moves=moves,
        steps=state.step,
        commits=len(state.commits),
        reverts=state.reverts,
        usage=state.usage,
        priced=state.priced,
        difference=difference,
        unknown=unknown,
    )


# --- what the alternative changes ------------------------------------------------------------------------------------


def _vary(event: AnyEvent, other: Alternative) -> AnyEvent:
    if not isinstance(event, ev.RunStarted):
        return event
    return replace(event, policy={**event.policy, **other.bounds}, escalate={**event.escalate, **other.escalate_after})


def _repriced(event: AnyEvent, agents: dict[str, Routing]) -> AnyEvent:
    """Return the usage at the price of the model that would have answered, with as many tokens."""
    if not isinstance(event, ev.UsageMetered):
        return event
    routing = agents.get(event.role) or agents.get("")
    if routing is None:
        return event
    used = Usage(tokens_in=event.tokens_in, tokens_out=event.tokens_out)
    cost = routing.price.of(used) if routing.price else 0.0
    return replace(event, agent=routing.agent, cost_usd=cost, priced=routing.price is not None)


def _without_gates(events: Sequence[AnyEvent], changes: dict[str, GateChange]) -> list[AnyEvent]:
    """Leave out gates that are off, with what their judges cost."""
    kept: list[AnyEvent] = []
    since: list[AnyEvent] = []  # since the last gate: a judge's usage comes before its verdict
    for event in events:
        since.append(event)
        if isinstance(event, ev.GateRan):
            change = changes.get(event.gate)
            off = change is not None and change.on is False
            kept += [fact for fact in since if not isinstance(fact, ev.GateRan | ev.UsageMetered)] if off else since
            since = []
    return kept + since


def _other_verdict(events: Sequence[AnyEvent], changes: dict[str, GateChange], planned: set[str]) -> str:
    """Return why the gates of a recorded step would have decided otherwise, or could have; empty if they would not."""
    ran = {event.gate: event for event in events if isinstance(event, ev.GateRan)}
    if not ran:
        return ""
    for gate, change in changes.items():
        if why := _other_result(gate, ran.get(gate), change, gate in planned):
            return why
    return ""


def _other_result(gate: str, ran: ev.GateRan | None, change: GateChange, planned: bool) -> str:
    if change.on and not planned:
        return f"gate {gate} never ran in the recording"
    if ran is None:
        return ""
    if change.on is False and ran.status in (GateStatus.FAILED, GateStatus.MISCONFIGURED):
        return f"gate {gate} refused the change, and is off here"
    if change.on_fail is OnFail.WARN and ran.status is GateStatus.FAILED:
        return f"gate {gate} refused the change, and only warns here"
    if change.on_fail is OnFail.REVERT and ran.status is GateStatus.WARNED:
        return f"gate {gate} only warned, and refuses the change here"
    if change.other and change.on is not False:
        return f"gate {gate} ran with another {', '.join(change.other)}"
    return ""
