"""The `fix` workflow: test → analyse → fix → test, until green or out of tries, time or money."""

from __future__ import annotations

from enum import StrEnum

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.roles import Role
from ratchet.core.state import Phase, RunState, Table
from ratchet.core.workflows.workflow import PhaseAction, Workflow, attempts_summary, default_inputs, run_failed


class FixPhase(StrEnum):
    BASELINE = "baseline"
    ANALYSE = "analyse"
    FIX = "fix"
    JUDGE = "judge"
    VERIFY = "verify"
    FINAL = "final"
    LAND = "land"
    DONE = "done"


NEXT: Table = {
    (FixPhase.BASELINE, ev.BaselineTaken): FixPhase.ANALYSE,
    (FixPhase.ANALYSE, ev.FailuresAnalysed): FixPhase.FIX,
    (FixPhase.ANALYSE, ev.TreeFoundGreen): FixPhase.FINAL,
    (FixPhase.FIX, ev.ChangeProposed): FixPhase.JUDGE,
    (FixPhase.FIX, ev.AttemptFailed): FixPhase.FIX,
    (FixPhase.JUDGE, ev.StepCommitted): FixPhase.VERIFY,
    (FixPhase.JUDGE, ev.StepReverted): FixPhase.FIX,
    (FixPhase.VERIFY, ev.StepVerified): FixPhase.ANALYSE,
    (FixPhase.VERIFY, ev.StepReverted): FixPhase.FIX,
    (FixPhase.FINAL, ev.FinalVerified): FixPhase.LAND,
    (FixPhase.LAND, ev.Landed): FixPhase.DONE,
}

ACTIONS: dict[Phase, PhaseAction] = {
    FixPhase.BASELINE: PhaseAction(does="look"),
    FixPhase.ANALYSE: PhaseAction(does="analyse"),
    FixPhase.FIX: PhaseAction(does="propose", role=Role.FIXER),
    FixPhase.JUDGE: PhaseAction(does="judge_fix"),
    FixPhase.VERIFY: PhaseAction(does="verify"),
    FixPhase.FINAL: PhaseAction(does="finish"),
    FixPhase.LAND: PhaseAction(does="land"),
}


def bounds(state: RunState) -> ev.Event | None:
    policy = state.policy
    match state.phase:
        case FixPhase.FIX if state.attempts >= policy.attempts:
            return run_failed(Reason.NO_PROGRESS, f"{still_red(state)}: {attempts_summary(state)}")
        case FixPhase.FIX if state.iteration > policy.iterations:
            return run_failed(
                Reason.BUDGET_SPENT, f"{still_red(state)}: {policy.iterations} iterations were not enough"
            )
    return None


def still_red(state: RunState) -> str:
    shown = ", ".join(state.red[:5]) or "the tests cannot be run"
    return f"still red: {shown}" + (f" and {len(state.red) - 5} more" if len(state.red) > 5 else "")


FIX = Workflow(name="fix", table=NEXT, actions=ACTIONS, bounds=bounds, inputs=default_inputs)
