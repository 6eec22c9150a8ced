"""The `build` workflow: for each task implement → review ⇄ implement_changes → update_spec; then land."""

from __future__ import annotations

from enum import StrEnum

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.roles import Role, Writes
from ratchet.core.state import Phase, RunState, Table
from ratchet.core.workflow import Act, Workflow, counts, fail, last, summary


class P(StrEnum):
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
    (P.BASELINE, ev.BaselineTaken): P.TASK,
    (P.TASK, ev.TaskBegun): P.IMPLEMENT,
    (P.TASK, ev.TaskFinished): P.TASK,
    (P.TASK, ev.TasksDone): P.FINAL,
    (P.IMPLEMENT, ev.ChangeProposed): P.JUDGE,
    (P.IMPLEMENT, ev.AttemptFailed): P.IMPLEMENT,
    (P.JUDGE, ev.StepCommitted): P.VERIFY,
    (P.JUDGE, ev.StepReverted): P.IMPLEMENT,
    (P.VERIFY, ev.StepVerified): P.REVIEW,
    (P.VERIFY, ev.StepReverted): P.IMPLEMENT,
    (P.REVIEW, ev.ReviewApproved): P.UPDATE_SPEC,
    (P.REVIEW, ev.ChangesRequested): P.REVISE,
    (P.REVIEW, ev.ReviewFailed): P.REVIEW,
    (P.REVISE, ev.ChangeProposed): P.JUDGE_REVISION,
    (P.REVISE, ev.AttemptFailed): P.REVISE,
    (P.JUDGE_REVISION, ev.StepCommitted): P.VERIFY_REVISION,
    (P.JUDGE_REVISION, ev.RevisionReverted): P.REVISE,
    (P.VERIFY_REVISION, ev.RevisionVerified): P.REVIEW,
    (P.VERIFY_REVISION, ev.RevisionReverted): P.REVISE,
    (P.UPDATE_SPEC, ev.ChangeProposed): P.JUDGE_SPEC,
    (P.UPDATE_SPEC, ev.SpecUnchanged): P.TASK,
    (P.UPDATE_SPEC, ev.SpecRefused): P.UPDATE_SPEC,
    (P.UPDATE_SPEC, ev.SpecLeft): P.TASK,
    (P.JUDGE_SPEC, ev.StepCommitted): P.TASK,
    (P.JUDGE_SPEC, ev.RevisionReverted): P.UPDATE_SPEC,
    (P.FINAL, ev.FinalVerified): P.LAND,
    (P.FINAL, ev.FinalRefused): P.REVISE,
    (P.LAND, ev.Landed): P.DONE,
}

ACTS: dict[Phase, Act] = {
    P.BASELINE: Act(does="baseline"),
    P.IMPLEMENT: Act(does="propose", role=Role.IMPLEMENTER, prompt="build", writes=Writes.ADDITIONS),
    P.JUDGE: Act(does="judge"),
    P.VERIFY: Act(does="verify"),
    P.REVIEW: Act(does="review", role=Role.REVIEWER),
    P.REVISE: Act(does="propose", role=Role.IMPLEMENTER, action="implement_changes", writes=Writes.ADDITIONS),
    P.JUDGE_REVISION: Act(does="judge"),
    P.VERIFY_REVISION: Act(does="verify"),
    P.UPDATE_SPEC: Act(does="update_spec", role=Role.SCRIBE),
    P.JUDGE_SPEC: Act(does="judge"),
    P.FINAL: Act(does="finish"),
    P.LAND: Act(does="land"),
}


def bounds(state: RunState) -> ev.Event | None:
    policy = state.policy
    match state.phase:
        case P.TASK:
            return _next_task(state)
        case P.IMPLEMENT if state.attempts >= policy.attempts:
            return fail(Reason.NO_PROGRESS, f"{state.task} was not built: {summary(state)}")
        case P.REVISE if state.review_rounds > policy.review_rounds:
            return fail(Reason.NO_PROGRESS, f"still refused in the end: {state.findings[-1]}")
        case P.REVISE if state.attempts >= policy.attempts:
            return fail(Reason.NO_PROGRESS, f"the reviewer's findings were not met: {last(state)}")
        case P.REVIEW if state.review_rounds >= policy.review_rounds:
            return fail(Reason.NO_PROGRESS, f"changes still requested after {state.review_rounds} reviews")
        case P.REVIEW if state.review_tries >= policy.review_tries:
            return fail(Reason.NO_PROGRESS, f"no verdict in {state.review_tries} tries: {last(state)}")
        case P.UPDATE_SPEC if state.attempts >= policy.spec_tries:
            return ev.SpecLeft(why=f"no acceptable change of the spec in {state.attempts} tries: {last(state)}")
    return None


def _next_task(state: RunState) -> ev.Event:
    """Only an approved task comes back here, so one that is at hand is finished."""
    if state.task:
        return ev.TaskFinished(task=state.task, how="tested, and approved by the reviewer")
    if not state.pending:
        return ev.TasksDone(count=len(state.finished))
    return ev.TaskBegun(task=state.pending[0].id, title=state.pending[0].title)


BUILD = Workflow(name="build", table=NEXT, acts=ACTS, bounds=bounds, inputs=counts)
