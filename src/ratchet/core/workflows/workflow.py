"""Workflows: a transition table, bounds that decide from the state alone, and an action per phase."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.roles import Role, Writes, default_writes
from ratchet.core.state import DONE, Phase, RunState, Table

E = TypeVar("E", bound=ev.Event)


class PhaseAction(msgspec.Struct, frozen=True, kw_only=True):
    """The action of a phase. `does` names an entry point of `ratchet.steps`.

    An action that calls an agent has a `role`, the `action` of the line protocol (default: the phase's name), the
    `prompt` template (default: that of the action), what the role `writes` here (default: by role), and whether the
    prompt includes the `history` of earlier answers.
    """

    does: str
    role: str = ""
    action: str = ""
    prompt: str = ""
    writes: Writes | None = None
    paths: tuple[str, ...] = ()
    history: bool = True


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True):
    """The next step to execute. `inputs` identifies the work independent of time: commit ids contain the time, so
    commits are counted, not named. `outcomes` are the events that the table allows here."""

    phase: Phase
    act: PhaseAction
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
        return self.act.writes or default_writes(self.act.role)

    def one_of(self, *kinds: type[E]) -> type[E]:
        """Return the first of these events that the table allows in this phase, for steps shared by workflows."""
        return next(kind for kind in kinds if kind in self.outcomes)


class Workflow(msgspec.Struct, frozen=True, kw_only=True):
    """`bounds` returns the event that follows from the state alone; `inputs` returns what identifies a step."""

    name: str
    table: Table
    actions: dict[Phase, PhaseAction]
    bounds: Callable[[RunState], ev.Event | None]
    inputs: Callable[[RunState], dict[str, Any]]

    @property
    def roles(self) -> list[str]:
        return list(dict.fromkeys(act.role for act in self.actions.values() if act.role))

    def plan(self, state: RunState) -> PlannedStep:
        """Return the step to execute in this phase."""
        outcomes = tuple(event for phase, event in self.table if phase == state.phase)
        return PlannedStep(
            phase=state.phase, act=self.actions[state.phase], inputs=self.inputs(state), outcomes=outcomes
        )

    def decide(self, state: RunState) -> ev.Event | None:
        """Apply the bounds common to all workflows, then those of this one."""
        if state.phase == DONE:
            return ev.RunCompleted(commits=len(state.commits), head=state.head, doubts=state.doubts)
        role = self.actions[state.phase].role if state.phase in self.actions and not state.in_doubt else ""
        return (
            _resume_limit(state)
            or (_budget_limit(state) or _disclosure_limit(state) if role else None)
            or self.bounds(state)
            or _escalation(state, role)
        )


def _escalation(state: RunState, role: str) -> ev.Event | None:
    """Escalate to the role's stronger agent after the configured number of failed tries."""
    after = state.started.escalate.get(role) if state.started else None
    if after is None or tries(state, role) < after or state.escalated == role:
        return None
    return ev.Escalated(role=role, tries=tries(state, role))


def tries(state: RunState, role: str) -> int:
    """Return how often the role has failed at its current task."""
    counts: dict[str, int] = {Role.AUDITOR: state.audit_tries, Role.REVIEWER: state.review_tries}
    return counts.get(role, state.attempts)


def _resume_limit(state: RunState) -> ev.Event | None:
    if state.resumes <= state.policy.resumes:
        return None
    return run_failed(Reason.WORKER_LOST, f"step {state.step} lost its worker {state.resumes} times")


def _budget_limit(state: RunState) -> ev.Event | None:
    """Check limits before an agent is called only: a started step is finished, and approved work may still land."""
    if state.step >= state.policy.steps:
        return run_failed(Reason.BUDGET_SPENT, f"{state.step} steps are done, {attempts_summary(state)}")
    if state.usage.cost_usd * 100 >= state.policy.cents:
        return run_failed(Reason.BUDGET_SPENT, f"${state.usage.cost_usd:.2f} are spent, {attempts_summary(state)}")
    if state.usage.seconds >= state.policy.agent_s:
        return run_failed(Reason.BUDGET_SPENT, f"agents took {state.usage.seconds:.0f} s, {attempts_summary(state)}")
    return None


def _disclosure_limit(state: RunState) -> ev.Event | None:
    if state.disclosures < state.policy.disclosures:
        return None
    return run_failed(Reason.NO_PROGRESS, f"the verdict of the sealed tests was disclosed {state.disclosures} times")


def run_failed(reason: Reason, detail: str) -> ev.RunFailed:
    return ev.RunFailed(reason=reason, detail=detail)


def last_feedback(state: RunState) -> str:
    return state.feedback[-1] if state.feedback else "no reason was given"


def attempts_summary(state: RunState) -> str:
    """Summarise the failed attempts for the person who takes over."""
    return (
        f"{state.attempts} attempts in vain. {feedback_by_attempt(state)}" if state.feedback else "nothing was refused"
    )


def feedback_by_attempt(state: RunState) -> str:
    """Return why each attempt failed; attempts with the same reason are grouped."""
    alike: dict[str, list[str]] = {}
    for attempt, why in enumerate(state.feedback, start=1):
        alike.setdefault(why, []).append(str(attempt))
    return "; ".join(f"attempt {', '.join(attempts)}: {why}" for why, attempts in alike.items())


def default_inputs(state: RunState) -> dict[str, Any]:
    """Return inputs that distinguish the steps of a run: its counters and feedback."""
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
