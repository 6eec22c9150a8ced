"""The `tdd` workflow: audit → verify_red → implement → judge → verify → … → review → land, as a table.

Policy decides (`bounds`), an event records, `NEXT` moves, the shell does what `Workflow.plan` says.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.roles import Role
from ratchet.core.state import Phase, RunState, Table
from ratchet.core.workflow import Act, Workflow, fail, last, tried


class P(StrEnum):
    """Each phase has exactly one action."""

    BASELINE = "baseline"
    AUDIT = "audit"
    VERIFY_RED = "verify_red"
    IMPLEMENT = "implement"
    JUDGE = "judge"
    VERIFY = "verify"
    REFACTOR = "refactor"
    JUDGE_REFACTOR = "judge_refactor"
    VERIFY_REFACTOR = "verify_refactor"
    REVIEW = "review"
    REVISE = "revise"
    JUDGE_REVISION = "judge_revision"
    VERIFY_REVISION = "verify_revision"
    FINAL = "final"
    LAND = "land"
    DONE = "done"


NEXT: Table = {
    (P.BASELINE, ev.BaselineTaken): P.AUDIT,
    (P.AUDIT, ev.TestWritten): P.VERIFY_RED,
    (P.AUDIT, ev.AuditFailed): P.AUDIT,
    (P.AUDIT, ev.RequirementsMet): P.REVIEW,
    (P.AUDIT, ev.RefactorFellDue): P.REFACTOR,
    (P.VERIFY_RED, ev.RedConfirmed): P.IMPLEMENT,
    (P.VERIFY_RED, ev.RedRefused): P.AUDIT,
    (P.IMPLEMENT, ev.ChangeProposed): P.JUDGE,
    (P.IMPLEMENT, ev.AttemptFailed): P.IMPLEMENT,
    (P.IMPLEMENT, ev.TestAbandoned): P.AUDIT,
    (P.JUDGE, ev.StepCommitted): P.VERIFY,
    (P.JUDGE, ev.StepReverted): P.IMPLEMENT,
    (P.VERIFY, ev.StepVerified): P.AUDIT,
    (P.VERIFY, ev.StepReverted): P.IMPLEMENT,
    (P.REFACTOR, ev.ChangeProposed): P.JUDGE_REFACTOR,
    (P.REFACTOR, ev.RefactorFailed): P.AUDIT,
    (P.JUDGE_REFACTOR, ev.StepCommitted): P.VERIFY_REFACTOR,
    (P.JUDGE_REFACTOR, ev.RefactorReverted): P.AUDIT,
    (P.VERIFY_REFACTOR, ev.StepVerified): P.AUDIT,
    (P.VERIFY_REFACTOR, ev.RefactorReverted): P.AUDIT,
    (P.REVIEW, ev.ReviewApproved): P.FINAL,
    (P.REVIEW, ev.ChangesRequested): P.REVISE,
    (P.REVIEW, ev.ReviewFailed): P.REVIEW,
    (P.REVISE, ev.ChangeProposed): P.JUDGE_REVISION,
    (P.REVISE, ev.AttemptFailed): P.REVISE,
    (P.JUDGE_REVISION, ev.StepCommitted): P.VERIFY_REVISION,
    (P.JUDGE_REVISION, ev.RevisionReverted): P.REVISE,
    (P.VERIFY_REVISION, ev.RevisionVerified): P.REVIEW,
    (P.VERIFY_REVISION, ev.RevisionReverted): P.REVISE,
    (P.FINAL, ev.FinalVerified): P.LAND,
    (P.FINAL, ev.FinalRefused): P.REVISE,
    (P.LAND, ev.Landed): P.DONE,
}

ACTS: dict[Phase, Act] = {
    P.BASELINE: Act(does="baseline"),
    P.AUDIT: Act(does="audit", role=Role.AUDITOR),
    P.VERIFY_RED: Act(does="verify_red"),
    P.IMPLEMENT: Act(does="propose", role=Role.IMPLEMENTER),
    P.JUDGE: Act(does="judge"),
    P.VERIFY: Act(does="verify"),
    P.REFACTOR: Act(does="propose", role=Role.ARCHITECT),
    P.JUDGE_REFACTOR: Act(does="judge"),
    P.VERIFY_REFACTOR: Act(does="verify"),
    P.REVIEW: Act(does="review", role=Role.REVIEWER),
    P.REVISE: Act(does="propose", role=Role.IMPLEMENTER, action="implement_changes"),
    P.JUDGE_REVISION: Act(does="judge"),
    P.VERIFY_REVISION: Act(does="verify"),
    P.FINAL: Act(does="finish"),
    P.LAND: Act(does="land"),
}


def bounds(state: RunState) -> ev.Event | None:
    policy = state.policy
    match state.phase:
        # Not before the audit: the one after the last iteration may still say that all is done.
        case P.VERIFY_RED if state.iteration > policy.iterations:
            return fail(Reason.BUDGET_SPENT, f"{policy.iterations} iterations did not meet the requirements")
        case P.AUDIT if state.audit_tries >= policy.audit_tries:
            return fail(Reason.NO_PROGRESS, f"no acceptable test in {state.audit_tries} tries: {last(state)}")
        case P.AUDIT if 0 < policy.refactor_interval <= state.greens_since_refactor:
            return ev.RefactorFellDue(greens=state.greens)
        case P.IMPLEMENT if state.attempts >= policy.attempts:
            red = ", ".join(state.red)
            return ev.TestAbandoned(why=f"{red} could not be made to pass in {state.attempts} attempts. {tried(state)}")
        case P.REVISE if state.review_rounds > policy.review_rounds:
            return fail(Reason.NO_PROGRESS, f"still refused in the end: {state.findings[-1]}")
        case P.REVISE if state.attempts >= policy.attempts:
            return fail(Reason.NO_PROGRESS, f"the reviewer's findings were not met: {last(state)}")
        case P.REVIEW if state.review_rounds >= policy.review_rounds:
            return fail(Reason.NO_PROGRESS, f"changes still requested after {state.review_rounds} reviews")
        case P.REVIEW if state.review_tries >= policy.review_tries:
            return fail(Reason.NO_PROGRESS, f"no verdict in {state.review_tries} tries: {last(state)}")
    return None


def inputs(state: RunState) -> dict[str, Any]:
    match state.phase:
        case P.AUDIT:
            return {
                "iteration": state.iteration,
                "try": state.audit_tries + 1,
                "feedback": state.feedback,
                "commits": [kept.subject for kept in state.commits],
            }
        case P.IMPLEMENT:
            return {
                "iteration": state.iteration,
                "attempt": state.attempts + 1,
                "feedback": state.feedback,
                "tests": state.red,
                "fingerprint": state.fingerprint,
            }
        case P.REVISE:
            return {
                "round": state.review_rounds,
                "attempt": state.attempts + 1,
                "feedback": state.feedback,
                "findings": state.findings,
            }
        case P.REVIEW:
            return {
                "round": state.review_rounds + 1,
                "try": state.review_tries + 1,
                "feedback": state.feedback,
                "kept": len(state.commits),
                "findings": state.findings,
            }
        case P.REFACTOR:
            return {"iteration": state.iteration, "greens": state.greens, "kept": len(state.commits)}
        case _:
            return {
                "iteration": state.iteration,
                "try": state.audit_tries + 1,
                "attempt": state.attempts + 1,
                "round": state.review_rounds,
                "kept": len(state.commits),
                "tests": state.red,
            }


TDD = Workflow(name="tdd", table=NEXT, acts=ACTS, bounds=bounds, inputs=inputs)
