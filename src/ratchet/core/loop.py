"""The `loop` workflow: fresh context each time, one task of the checklist an iteration, stuck after a few in vain."""

from __future__ import annotations

from enum import StrEnum

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.roles import Role, Writes
from ratchet.core.state import Phase, RunState, Table
from ratchet.core.workflow import Act, Workflow, counts, fail, last


class P(StrEnum):
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
    (P.BASELINE, ev.BaselineTaken): P.TASK,
    (P.TASK, ev.TaskBegun): P.WORK,
    (P.TASK, ev.TasksDone): P.FINAL,
    (P.WORK, ev.ChangeProposed): P.JUDGE,
    (P.WORK, ev.NothingChanged): P.CHECK,
    (P.WORK, ev.AttemptFailed): P.TASK,
    (P.JUDGE, ev.StepCommitted): P.VERIFY,
    (P.JUDGE, ev.StepReverted): P.TASK,
    (P.VERIFY, ev.StepVerified): P.CHECK,
    (P.VERIFY, ev.StepReverted): P.TASK,
    (P.CHECK, ev.TaskFinished): P.TASK,
    (P.CHECK, ev.TaskUnfinished): P.TASK,
    (P.FINAL, ev.FinalVerified): P.LAND,
    (P.LAND, ev.Landed): P.DONE,
}

ACTS: dict[Phase, Act] = {
    P.BASELINE: Act(does="baseline"),
    P.WORK: Act(
        does="propose",
        role=Role.IMPLEMENTER,
        action="implement",
        prompt="work",
        writes=Writes.ADDITIONS,
        history=False,
    ),
    P.JUDGE: Act(does="judge"),
    P.VERIFY: Act(does="verify"),
    P.CHECK: Act(does="check_task"),
    P.FINAL: Act(does="finish"),
    P.LAND: Act(does="land"),
}


def bounds(state: RunState) -> ev.Event | None:
    return _next_task(state) if state.phase == P.TASK else None


def _next_task(state: RunState) -> ev.Event:
    policy, pending = state.policy, state.pending
    if not pending:
        return ev.TasksDone(count=len(state.finished))
    if state.idle >= policy.idle:
        return fail(
            Reason.NO_PROGRESS,
            f"stuck: {state.idle} iterations without a finished task; {pending[0].id}: {last(state)}",
        )
    if state.idle + len(state.finished) and state.iteration >= policy.iterations:
        return fail(Reason.BUDGET_SPENT, f"{len(pending)} tasks are left after {policy.iterations} iterations")
    return ev.TaskBegun(task=pending[0].id, title=pending[0].title)


LOOP = Workflow(name="loop", table=NEXT, acts=ACTS, bounds=bounds, inputs=counts)
