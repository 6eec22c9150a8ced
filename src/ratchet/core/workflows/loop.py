"""The `loop` workflow: fresh context each time, one task of the checklist an iteration, stuck after a few in vain."""

from __future__ import annotations

from enum import StrEnum

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.roles import Role, Writes
from ratchet.core.state import Phase, RunState, Table
from ratchet.core.workflows.workflow import PhaseAction, Workflow, default_inputs, last_feedback, run_failed


class LoopPhase(StrEnum):
    """In `task` nothing is done: what comes next follows from which tasks are finished."""

    BASELINE = "baseline"
    TASK = "task"
    WORK = "work"
    JUDGE = "judge"
    VERIFY = "verify"
    CHECK = "check"
    FINAL = "final"
    LAND = "land"
    DONE = "done"


NEXT: Table = {
    (LoopPhase.BASELINE, ev.BaselineTaken): LoopPhase.TASK,
    (LoopPhase.TASK, ev.TaskBegun): LoopPhase.WORK,
    (LoopPhase.TASK, ev.TasksDone): LoopPhase.FINAL,
    (LoopPhase.WORK, ev.ChangeProposed): LoopPhase.JUDGE,
    (LoopPhase.WORK, ev.NothingChanged): LoopPhase.CHECK,
    (LoopPhase.WORK, ev.AttemptFailed): LoopPhase.TASK,
    (LoopPhase.JUDGE, ev.StepCommitted): LoopPhase.VERIFY,
    (LoopPhase.JUDGE, ev.StepReverted): LoopPhase.TASK,
    (LoopPhase.VERIFY, ev.StepVerified): LoopPhase.CHECK,
    (LoopPhase.VERIFY, ev.StepReverted): LoopPhase.TASK,
    (LoopPhase.CHECK, ev.TaskFinished): LoopPhase.TASK,
    (LoopPhase.CHECK, ev.TaskUnfinished): LoopPhase.TASK,
    (LoopPhase.FINAL, ev.FinalVerified): LoopPhase.LAND,
    (LoopPhase.LAND, ev.Landed): LoopPhase.DONE,
}

ACTIONS: dict[Phase, PhaseAction] = {
    LoopPhase.BASELINE: PhaseAction(does="baseline"),
    LoopPhase.WORK: PhaseAction(
        does="propose",
        role=Role.IMPLEMENTER,
        action="implement",
        prompt="work",
        writes=Writes.ADDITIONS,
        history=False,
    ),
    LoopPhase.JUDGE: PhaseAction(does="judge"),
    LoopPhase.VERIFY: PhaseAction(does="verify"),
    LoopPhase.CHECK: PhaseAction(does="check_task"),
    LoopPhase.FINAL: PhaseAction(does="finish"),
    LoopPhase.LAND: PhaseAction(does="land"),
}


def bounds(state: RunState) -> ev.Event | None:
    return _next_task(state) if state.phase == LoopPhase.TASK else None


def _next_task(state: RunState) -> ev.Event:
    policy, pending = state.policy, state.pending
    if not pending:
        return ev.TasksDone(count=len(state.finished))
    if state.idle >= policy.idle:
        return run_failed(
            Reason.NO_PROGRESS,
            f"stuck: {state.idle} iterations without a finished task; {pending[0].id}: {last_feedback(state)}",
        )
    if state.idle + len(state.finished) and state.iteration >= policy.iterations:
        return run_failed(Reason.BUDGET_SPENT, f"{len(pending)} tasks are left after {policy.iterations} iterations")
    return ev.TaskBegun(task=pending[0].id, title=pending[0].title)


LOOP = Workflow(name="loop", table=NEXT, actions=ACTIONS, bounds=bounds, inputs=default_inputs)
