"""The `swarm` workflow: many attempts at one failure at a time; the first that passes full verification is kept."""

from __future__ import annotations

from enum import StrEnum

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.roles import Role
from ratchet.core.state import Phase, RunState, Table
from ratchet.core.workflows.fix import still_red
from ratchet.core.workflows.workflow import PhaseAction, Workflow, attempts_summary, default_inputs, run_failed


class SwarmPhase(StrEnum):
    BASELINE = "baseline"
    ANALYSE = "analyse"
    SWARM = "swarm"
    JUDGE = "judge"
    VERIFY = "verify"
    FINAL = "final"
    LAND = "land"
    DONE = "done"


NEXT: Table = {
    (SwarmPhase.BASELINE, ev.BaselineTaken): SwarmPhase.ANALYSE,
    (SwarmPhase.ANALYSE, ev.FailuresAnalysed): SwarmPhase.SWARM,
    (SwarmPhase.ANALYSE, ev.TreeFoundGreen): SwarmPhase.FINAL,
    (SwarmPhase.SWARM, ev.ChangeProposed): SwarmPhase.JUDGE,
    (SwarmPhase.SWARM, ev.AttemptFailed): SwarmPhase.SWARM,
    (SwarmPhase.JUDGE, ev.StepCommitted): SwarmPhase.VERIFY,
    (SwarmPhase.JUDGE, ev.StepReverted): SwarmPhase.SWARM,
    (SwarmPhase.VERIFY, ev.StepVerified): SwarmPhase.ANALYSE,
    (SwarmPhase.VERIFY, ev.StepReverted): SwarmPhase.SWARM,
    (SwarmPhase.FINAL, ev.FinalVerified): SwarmPhase.LAND,
    (SwarmPhase.LAND, ev.Landed): SwarmPhase.DONE,
}

# What won in its fork is tested once more where it is kept: the commit's proof is made from that run alone.
ACTIONS: dict[Phase, PhaseAction] = {
    SwarmPhase.BASELINE: PhaseAction(does="look"),
    SwarmPhase.ANALYSE: PhaseAction(does="analyse"),
    SwarmPhase.SWARM: PhaseAction(does="swarm", role=Role.FIXER, action="fix"),
    SwarmPhase.JUDGE: PhaseAction(does="judge"),
    SwarmPhase.VERIFY: PhaseAction(does="verify"),
    SwarmPhase.FINAL: PhaseAction(does="finish"),
    SwarmPhase.LAND: PhaseAction(does="land"),
}


def bounds(state: RunState) -> ev.Event | None:
    policy = state.policy
    match state.phase:
        case SwarmPhase.SWARM if state.attempts >= policy.attempts:
            return run_failed(Reason.NO_PROGRESS, f"{still_red(state)}: {attempts_summary(state)}")
        case SwarmPhase.SWARM if state.iteration > policy.iterations:
            return run_failed(Reason.BUDGET_SPENT, f"{still_red(state)} after {policy.iterations} swarms")
    return None


SWARM = Workflow(name="swarm", table=NEXT, actions=ACTIONS, bounds=bounds, inputs=default_inputs)
