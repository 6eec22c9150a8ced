"""The `build` workflow: for each task implement → review ⇄ implement_changes → update_spec; then land."""

from __future__ import annotations

from enum import StrEnum

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.roles import Role, Writes
from ratchet.core.state import Phase, RunState, Table
from ratchet.core.workflows.workflow import (
    PhaseAction,
    Workflow,
    attempts_summary,
    default_inputs,
    last_feedback,
    run_failed,
)


class BuildPhase(StrEnum):
    """In `task` nothing is done: what comes next follows from which tasks are finished."""

    BASELINE = "baseline"
    TASK = "task"
    IMPLEMENT = "implement"
    JUDGE = "judge"
    VERIFY = "verify"
    REVIEW = "review"
    REVISE = "revise"
    JUDGE_REVISION = "judge_revision"
    VERIFY_REVISION = "verify_revision"
    UPDATE_SPEC = "update_spec"
    JUDGE_SPEC = "judge_spec"
    FINAL = "final"
    LAND = "land"
    DONE = "done"


NEXT: Table = {
    (BuildPhase.BASELINE, ev.BaselineTaken): BuildPhase.TASK,
    (BuildPhase.TASK, ev.TaskBegun): BuildPhase.IMPLEMENT,
    (BuildPhase.TASK, ev.TaskFinished): BuildPhase.TASK,
    (BuildPhase.TASK, ev.TasksDone): BuildPhase.FINAL,
    (BuildPhase.IMPLEMENT, ev.ChangeProposed): BuildPhase.JUDGE,
    (BuildPhase.IMPLEMENT, ev.AttemptFailed): BuildPhase.IMPLEMENT,
    (BuildPhase.JUDGE, ev.StepCommitted): BuildPhase.VERIFY,
    (BuildPhase.JUDGE, ev.StepReverted): BuildPhase.IMPLEMENT,
    (BuildPhase.VERIFY, ev.StepVerified): BuildPhase.REVIEW,
    (BuildPhase.VERIFY, ev.StepReverted): BuildPhase.IMPLEMENT,
    (BuildPhase.REVIEW, ev.ReviewApproved): BuildPhase.UPDATE_SPEC,
    (BuildPhase.REVIEW, ev.ChangesRequested): BuildPhase.REVISE,
    (BuildPhase.REVIEW, ev.ReviewFailed): BuildPhase.REVIEW,
    (BuildPhase.REVISE, ev.ChangeProposed): BuildPhase.JUDGE_REVISION,
    (BuildPhase.REVISE, ev.AttemptFailed): BuildPhase.REVISE,
    (BuildPhase.JUDGE_REVISION, ev.StepCommitted): BuildPhase.VERIFY_REVISION,
    (BuildPhase.JUDGE_REVISION, ev.RevisionReverted): BuildPhase.REVISE,
    (BuildPhase.VERIFY_REVISION, ev.RevisionVerified): BuildPhase.REVIEW,
    (BuildPhase.VERIFY_REVISION, ev.RevisionReverted): BuildPhase.REVISE,
    (BuildPhase.UPDATE_SPEC, ev.ChangeProposed): BuildPhase.JUDGE_SPEC,
    (BuildPhase.UPDATE_SPEC, ev.SpecUnchanged): BuildPhase.TASK,
    (BuildPhase.UPDATE_SPEC, ev.SpecRefused): BuildPhase.UPDATE_SPEC,
    (BuildPhase.UPDATE_SPEC, ev.SpecLeft): BuildPhase.TASK,
    (BuildPhase.JUDGE_SPEC, ev.StepCommitted): BuildPhase.TASK,
    (BuildPhase.JUDGE_SPEC, ev.RevisionReverted): BuildPhase.UPDATE_SPEC,
    (BuildPhase.FINAL, ev.FinalVerified): BuildPhase.LAND,
    (BuildPhase.FINAL, ev.FinalRefused): BuildPhase.REVISE,
    (BuildPhase.LAND, ev.Landed): BuildPhase.DONE,
}

ACTIONS: dict[Phase, PhaseAction] = {
    BuildPhase.BASELINE: PhaseAction(does="baseline"),
    BuildPhase.IMPLEMENT: PhaseAction(does="propose", role=Role.IMPLEMENTER, prompt="build", writes=Writes.ADDITIONS),
    BuildPhase.JUDGE: PhaseAction(does="judge"),
    BuildPhase.VERIFY: PhaseAction(does="verify"),
    BuildPhase.REVIEW: PhaseAction(does="review", role=Role.REVIEWER),
    BuildPhase.REVISE: PhaseAction(
        does="propose", role=Role.IMPLEMENTER, action="implement_changes", writes=Writes.ADDITIONS
    ),
    BuildPhase.JUDGE_REVISION: PhaseAction(does="judge"),
    BuildPhase.VERIFY_REVISION: PhaseAction(does="verify"),
    BuildPhase.UPDATE_SPEC: PhaseAction(does="update_spec", role=Role.SCRIBE),
    BuildPhase.JUDGE_SPEC: PhaseAction(does="judge"),
    BuildPhase.FINAL: PhaseAction(does="finish"),
    BuildPhase.LAND: PhaseAction(does="land"),
}


def bounds(state: RunState) -> ev.Event | None:
    policy = state.policy
    match state.phase:
        case BuildPhase.TASK:
            return _next_task(state)
        case BuildPhase.IMPLEMENT if state.attempts >= policy.attempts:
            return run_failed(Reason.NO_PROGRESS, f"{state.task} was not built: {attempts_summary(state)}")
        case BuildPhase.REVISE if state.review_rounds > policy.review_rounds:
            return run_failed(Reason.NO_PROGRESS, f"still refused in the end: {state.findings[-1]}")
        case BuildPhase.REVISE if state.attempts >= policy.attempts:
            return run_failed(Reason.NO_PROGRESS, f"the reviewer's findings were not met: {last_feedback(state)}")
        case BuildPhase.REVIEW if state.review_rounds >= policy.review_rounds:
            return run_failed(Reason.NO_PROGRESS, f"changes still requested after {state.review_rounds} reviews")
        case BuildPhase.REVIEW if state.review_tries >= policy.review_tries:
            return run_failed(Reason.NO_PROGRESS, f"no verdict in {state.review_tries} tries: {last_feedback(state)}")
        case BuildPhase.UPDATE_SPEC if state.attempts >= policy.spec_tries:
            return ev.SpecLeft(
                why=f"no acceptable change of the spec in {state.attempts} tries: {last_feedback(state)}"
            )
    return None


def _next_task(state: RunState) -> ev.Event:
    """Only an approved task comes back here, so one that is at hand is finished."""
    if state.task:
        return ev.TaskFinished(task=state.task, how="tested, and approved by the reviewer")
    if not state.pending:
        return ev.TasksDone(count=len(state.finished))
    return ev.TaskBegun(task=state.pending[0].id, title=state.pending[0].title)


BUILD = Workflow(name="build", table=NEXT, actions=ACTIONS, bounds=bounds, inputs=default_inputs)
