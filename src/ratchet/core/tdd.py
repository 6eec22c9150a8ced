"""The `tdd` workflow: audit → verify_red → implement → judge → verify → … → review → land, as a table.

Policy decides (`decide`), an event records, `NEXT` moves, the shell does what `Workflow.plan` says.
"""

from __future__ import annotations

from typing import Any

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.roles import Role
from ratchet.core.state import Phase, RunState, Table
from ratchet.core.workflow import Workflow

P = Phase

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
    (P.VERIFY, ev.RefactorReverted): P.AUDIT,
    (P.REFACTOR, ev.ChangeProposed): P.JUDGE_REFACTOR,
    (P.REFACTOR, ev.RefactorFailed): P.AUDIT,
    (P.JUDGE_REFACTOR, ev.StepCommitted): P.VERIFY,
    (P.JUDGE_REFACTOR, ev.RefactorReverted): P.AUDIT,
    (P.REVIEW, ev.ReviewApproved): P.LAND,
    (P.REVIEW, ev.ChangesRequested): P.REVISE,
    (P.REVIEW, ev.ReviewFailed): P.REVIEW,
    (P.REVISE, ev.ChangeProposed): P.JUDGE_REVISION,
    (P.REVISE, ev.AttemptFailed): P.REVISE,
    (P.JUDGE_REVISION, ev.StepCommitted): P.VERIFY_REVISION,
    (P.JUDGE_REVISION, ev.RevisionReverted): P.REVISE,
    (P.VERIFY_REVISION, ev.RevisionVerified): P.REVIEW,
    (P.VERIFY_REVISION, ev.RevisionReverted): P.REVISE,
    (P.LAND, ev.Landed): P.DONE,
}

ROLE = {
    P.AUDIT: Role.AUDITOR,
    P.IMPLEMENT: Role.IMPLEMENTER,
    P.REFACTOR: Role.ARCHITECT,
    P.REVIEW: Role.REVIEWER,
    P.REVISE: Role.IMPLEMENTER,
}

# The action an agent is asked for, in the words of the line protocol.
ACTION = {P.REVISE: "implement_changes"}


def decide(state: RunState) -> ev.Event | None:
    """The bounds: what follows from the state alone, before anything is done."""
    policy = state.policy
    if state.resumes > policy.resumes:
        return _fail(Reason.WORKER_LOST, f"step {state.step} lost its worker {state.resumes} times")
    match state.phase:
        # Not before the audit: the one after the last iteration may still say that all is done.
        case P.VERIFY_RED if state.iteration > policy.iterations:
            return _fail(Reason.BUDGET_SPENT, f"{policy.iterations} iterations did not meet the requirements")
        case P.AUDIT if state.audit_tries >= policy.audit_tries:
            return _fail(Reason.NO_PROGRESS, f"no acceptable test in {state.audit_tries} tries: {_last(state)}")
        case P.AUDIT if 0 < policy.refactor_interval <= state.greens_since_refactor:
            return ev.RefactorFellDue(greens=state.greens)
        case P.IMPLEMENT if state.attempts >= policy.attempts:
            return ev.TestAbandoned(why=_summary(state))
        case P.REVISE if state.attempts >= policy.attempts:
            return _fail(Reason.NO_PROGRESS, f"the reviewer's findings were not met: {_last(state)}")
        case P.REVIEW if state.review_rounds >= policy.review_rounds:
            return _fail(Reason.NO_PROGRESS, f"changes still requested after {state.review_rounds} reviews")
        case P.REVIEW if state.review_tries >= policy.review_tries:
            return _fail(Reason.NO_PROGRESS, f"no verdict in {state.review_tries} tries: {_last(state)}")
        case P.DONE:
            return ev.RunCompleted(commits=len(state.commits), head=state.head)
    return None


def _fail(reason: Reason, detail: str) -> ev.RunFailed:
    return ev.RunFailed(reason=reason, detail=detail)


def _last(state: RunState) -> str:
    return state.feedback[-1] if state.feedback else "no reason was given"


def _summary(state: RunState) -> str:
    tried = "; ".join(f"attempt {n}: {why}" for n, why in enumerate(state.feedback, start=1))
    return f"{', '.join(state.red)} could not be made to pass in {state.attempts} attempts. {tried}"


def _inputs(state: RunState) -> dict[str, Any]:
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


TDD = Workflow(name="tdd", table=NEXT, roles=ROLE, actions=ACTION, decide=decide, inputs=_inputs)
