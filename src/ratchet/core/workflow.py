"""What a workflow is: a table that moves, bounds that decide, and for each phase what is done there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.roles import Role, Writes, writes_of
from ratchet.core.state import DONE, Phase, RunState, Table

E = TypeVar("E", bound=ev.Event)


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """What is done in a phase. `does` names an entry point of `ratchet.steps`.

    One that asks has a `role`, and says by which word of the line protocol (`action`, the phase's own name when
    empty), with which prompt (`prompt`, the template of that action when empty), what the role may write here (by its
    name when None), and whether it hears what others said before.
    """

    does: str
    role: str = ""
    action: str = ""
    prompt: str = ""
    writes: Writes | None = None
    paths: tuple[str, ...] = ()
    history: bool = True


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The next thing to do. `inputs` is all that makes this work different from other work, and nothing of the clock:
    a commit id has the time in it, so commits are counted, not named. `outcomes` are those the table knows here."""

    phase: Phase
    act: Act
    inputs: dict[str, Any]
    outcomes: tuple[type[ev.Event], ...] = ()

    @property
    def action(self) -> str:
        return self.act.action or self.phase

    @property
    def role(self) -> str:
        return self.act.role

    @property
    def writes(self) -> Writes:
        return self.act.writes or writes_of(self.act.role)

    def one_of(self, *kinds: type[E]) -> type[E]:
        """The one of these that may happen in this phase: how a step that many workflows use ends in this one."""
        return next(kind for kind in kinds if kind in self.outcomes)


class Workflow(msgspec.Struct, frozen=True, kw_only=True):
    """`bounds` says what follows from the state alone, before anything is done; `inputs` what makes a step its own."""

    name: str
    table: Table
    acts: dict[Phase, Act]
    bounds: Callable[[RunState], ev.Event | None]
    inputs: Callable[[RunState], dict[str, Any]]

    @property
    def roles(self) -> list[str]:
        return list(dict.fromkeys(act.role for act in self.acts.values() if act.role))

    def plan(self, state: RunState) -> Step:
        """What to do in this phase."""
        outcomes = tuple(event for phase, event in self.table if phase == state.phase)
        return Step(phase=state.phase, act=self.acts[state.phase], inputs=self.inputs(state), outcomes=outcomes)

    def decide(self, state: RunState) -> ev.Event | None:
        """The bounds that hold in every workflow, then its own."""
        if state.phase == DONE:
            return ev.RunCompleted(commits=len(state.commits), head=state.head)
        role = self.acts[state.phase].role if state.phase in self.acts and not state.in_doubt else ""
        return _lost(state) or (_spent(state) if role else None) or self.bounds(state) or _stronger(state, role)


def _stronger(state: RunState, role: str) -> ev.Event | None:
    """Whoever failed often enough hands over to the agent that was named for that."""
    after = state.started.escalate.get(role) if state.started else None
    if after is None or tries(state, role) < after or state.escalated == role:
        return None
    return ev.Escalated(role=role, tries=tries(state, role))


def tries(state: RunState, role: str) -> int:
    """How often the role has tried in vain what it is asked now."""
    counts: dict[str, int] = {Role.AUDITOR: state.audit_tries, Role.REVIEWER: state.review_tries}
    return counts.get(role, state.attempts)


def _lost(state: RunState) -> ev.Event | None:
    if state.resumes <= state.policy.resumes:
        return None
    return fail(Reason.WORKER_LOST, f"step {state.step} lost its worker {state.resumes} times")


def _spent(state: RunState) -> ev.Event | None:
    """Looked at before an agent is asked: what is announced is finished, and what is approved may still be landed."""
    if state.step >= state.policy.steps:
        return fail(Reason.BUDGET_SPENT, f"{state.step} steps are done, {summary(state)}")
    if state.usage.cost_usd * 100 >= state.policy.cents:
        return fail(Reason.BUDGET_SPENT, f"${state.usage.cost_usd:.2f} are spent, {summary(state)}")
    if state.usage.seconds >= state.policy.agent_s:
        return fail(Reason.BUDGET_SPENT, f"agents took {state.usage.seconds:.0f} s, {summary(state)}")
    return None


def fail(reason: Reason, detail: str) -> ev.RunFailed:
    return ev.RunFailed(reason=reason, detail=detail)


def last(state: RunState) -> str:
    return state.feedback[-1] if state.feedback else "no reason was given"


def summary(state: RunState) -> str:
    """What was tried and did not count, for who takes over."""
    return f"{state.attempts} attempts in vain. {tried(state)}" if state.feedback else "nothing was refused"


def tried(state: RunState) -> str:
    """Why each attempt did not count; a reason that several have is given once."""
    alike: dict[str, list[str]] = {}
    for attempt, why in enumerate(state.feedback, start=1):
        alike.setdefault(why, []).append(str(attempt))
    return "; ".join(f"attempt {', '.join(attempts)}: {why}" for why, attempts in alike.items())


def counts(state: RunState) -> dict[str, Any]:
    """Inputs that tell any step of a run from any other: where it stands, and what it is to do better."""
    return {
        "iteration": state.iteration,
        "task": state.task,
        "try": state.audit_tries + state.review_tries + 1,
        "attempt": state.attempts + 1,
        "round": state.review_rounds,
        "kept": len(state.commits),
        "tests": state.red,
        "feedback": state.feedback,
        "findings": state.findings,
    }
