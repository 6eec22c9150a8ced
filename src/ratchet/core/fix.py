"""The `fix` workflow: test → analyse → fix → test, until green or out of tries, time or money."""

from __future__ import annotations

from enum import StrEnum

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.roles import Role
from ratchet.core.state import Phase, RunState, Table
from ratchet.core.workflow import Act, Workflow, counts, fail, summary


class P(StrEnum):
    BASELINE = "baseline"
    ANALYSE = "analyse"
    FIX = "fix"
    JUDGE = "judge"
    VERIFY = "verify"
    FINAL = "final"
    LAND = "land"
    DONE = "done"


NEXT: Table = {
    (P.BASELINE, ev.BaselineTaken): P.ANALYSE,
    (P.ANALYSE, ev.FailuresAnalysed): P.FIX,
    (P.ANALYSE, ev.TreeFoundGreen): P.FINAL,
    (P.FIX, ev.ChangeProposed): P.JUDGE,
    (P.FIX, ev.AttemptFailed): P.FIX,
    (P.JUDGE, ev.StepCommitted): P.VERIFY,
    (P.JUDGE, ev.StepReverted): P.FIX,
    (P.VERIFY, ev.StepVerified): P.ANALYSE,
    (P.VERIFY, ev.StepReverted): P.FIX,
    (P.FINAL, ev.FinalVerified): P.LAND,
    (P.LAND, ev.Landed): P.DONE,
}

ACTS: dict[Phase, Act] = {
    P.BASELINE: Act(does="look"),
    P.ANALYSE: Act(does="analyse"),
    P.FIX: Act(does="propose", role=Role.FIXER),
    P.JUDGE: Act(does="judge_fix"),
    P.VERIFY: Act(does="verify"),
    P.FINAL: Act(does="finish"),
    P.LAND: Act(does="land"),
}


def bounds(state: RunState) -> ev.Event | None:
    policy = state.policy
    match state.phase:
        case P.FIX if state.attempts >= policy.attempts:
            return fail(Reason.NO_PROGRESS, f"{still_red(state)}: {summary(state)}")
        case P.FIX if state.iteration > policy.iterations:
            return fail(Reason.BUDGET_SPENT, f"{still_red(state)}: {policy.iterations} iterations were not enough")
    return None


def still_red(state: RunState) -> str:
    shown = ", ".join(state.red[:5]) or "the tests cannot be run"
    return f"still red: {shown}" + (f" and {len(state.red) - 5} more" if len(state.red) > 5 else "")


FIX = Workflow(name="fix", table=NEXT, acts=ACTS, bounds=bounds, inputs=counts)
