"""The `swarm` workflow: many attempts at one failure at a time; the first that passes full verification is kept."""

from __future__ import annotations

from enum import StrEnum

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.fix import still_red
from ratchet.core.roles import Role
from ratchet.core.state import Phase, RunState, Table
from ratchet.core.workflow import Act, Workflow, counts, fail, summary


class P(StrEnum):
    BASELINE = "baseline"
    ANALYSE = "analyse"
    SWARM = "swarm"
    JUDGE = "judge"
    VERIFY = "verify"
    FINAL = "final"
    LAND = "land"
    DONE = "done"


NEXT: Table = {
    (P.BASELINE, ev.BaselineTaken): P.ANALYSE,
    (P.ANALYSE, ev.FailuresAnalysed): P.SWARM,
    (P.ANALYSE, ev.TreeFoundGreen): P.FINAL,
    (P.SWARM, ev.ChangeProposed): P.JUDGE,
    (P.SWARM, ev.AttemptFailed): P.SWARM,
    (P.JUDGE, ev.StepCommitted): P.VERIFY,
    (P.JUDGE, ev.StepReverted): P.SWARM,
    (P.VERIFY, ev.StepVerified): P.ANALYSE,
    (P.VERIFY, ev.StepReverted): P.SWARM,
    (P.FINAL, ev.FinalVerified): P.LAND,
    (P.LAND, ev.Landed): P.DONE,
}

# What won in its fork is tested once more where it is kept: the commit's proof is made from that run alone.
ACTS: dict[Phase, Act] = {
    P.BASELINE: Act(does="look"),
    P.ANALYSE: Act(does="analyse"),
    P.SWARM: Act(does="swarm", role=Role.FIXER, action="fix"),
    P.JUDGE: Act(does="judge"),
    P.VERIFY: Act(does="verify"),
    P.FINAL: Act(does="finish"),
    P.LAND: Act(does="land"),
}


def bounds(state: RunState) -> ev.Event | None:
    policy = state.policy
    match state.phase:
        case P.SWARM if state.attempts >= policy.attempts:
            return fail(Reason.NO_PROGRESS, f"{still_red(state)}: {summary(state)}")
        case P.SWARM if state.iteration > policy.iterations:
            return fail(Reason.BUDGET_SPENT, f"{still_red(state)} after {policy.iterations} swarms")
    return None


SWARM = Workflow(name="swarm", table=NEXT, acts=ACTS, bounds=bounds, inputs=counts)
