"""The `tdd` workflow: audit → verify_red → implement → judge → verify → … → review → land, as a table.

Policy decides (`bounds`), an event records, `NEXT` moves, the shell does what `Workflow.plan` says.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from ratchet.core import events as ev
from ratchet.core.failure import Reason, RevertOutcome
from ratchet.core.roles import Role
from ratchet.core.state import Phase, RunState, Table
from ratchet.core.workflows.workflow import PhaseAction, Workflow, feedback_by_attempt, last_feedback, run_failed


class TddPhase(StrEnum):
    """Each phase has exactly one action."""

    BASELINE = "baseline"
    AUDIT = "audit"
    VERIFY_RED = "verify_red"
    IMPLEMENT = "implement"
    JUDGE = "judge"
    CONTEST = "contest"
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
    (TddPhase.BASELINE, ev.BaselineTaken): TddPhase.AUDIT,
    (TddPhase.AUDIT, ev.TestWritten): TddPhase.VERIFY_RED,
    (TddPhase.AUDIT, ev.AuditFailed): TddPhase.AUDIT,
    (TddPhase.AUDIT, ev.RequirementsMet): TddPhase.REVIEW,
    (TddPhase.AUDIT, ev.RefactorFellDue): TddPhase.REFACTOR,
    (TddPhase.VERIFY_RED, ev.RedConfirmed): TddPhase.IMPLEMENT,
    (TddPhase.VERIFY_RED, ev.RedRefused): TddPhase.AUDIT,
    (TddPhase.IMPLEMENT, ev.ChangeProposed): TddPhase.JUDGE,
    (TddPhase.IMPLEMENT, ev.AttemptFailed): TddPhase.IMPLEMENT,
    (TddPhase.IMPLEMENT, ev.TestAbandoned): TddPhase.AUDIT,
    (TddPhase.IMPLEMENT, ev.SealedContested): TddPhase.CONTEST,
    (TddPhase.CONTEST, ev.SealedUpheld): TddPhase.AUDIT,
    (TddPhase.CONTEST, ev.SealedReplaced): TddPhase.JUDGE,
    (TddPhase.JUDGE, ev.StepCommitted): TddPhase.VERIFY,
    (TddPhase.JUDGE, ev.StepReverted): TddPhase.IMPLEMENT,
    (TddPhase.VERIFY, ev.StepVerified): TddPhase.AUDIT,
    (TddPhase.VERIFY, ev.StepReverted): TddPhase.IMPLEMENT,
    (TddPhase.REFACTOR, ev.ChangeProposed): TddPhase.JUDGE_REFACTOR,
    (TddPhase.REFACTOR, ev.RefactorFailed): TddPhase.AUDIT,
    (TddPhase.JUDGE_REFACTOR, ev.StepCommitted): TddPhase.VERIFY_REFACTOR,
    (TddPhase.JUDGE_REFACTOR, ev.RefactorReverted): TddPhase.AUDIT,
    (TddPhase.VERIFY_REFACTOR, ev.StepVerified): TddPhase.AUDIT,
    (TddPhase.VERIFY_REFACTOR, ev.RefactorReverted): TddPhase.AUDIT,
    (TddPhase.REVIEW, ev.ReviewApproved): TddPhase.FINAL,
    (TddPhase.REVIEW, ev.ChangesRequested): TddPhase.REVISE,
    (TddPhase.REVIEW, ev.ReviewFailed): TddPhase.REVIEW,
    (TddPhase.REVISE, ev.ChangeProposed): TddPhase.JUDGE_REVISION,
    (TddPhase.REVISE, ev.AttemptFailed): TddPhase.REVISE,
    (TddPhase.JUDGE_REVISION, ev.StepCommitted): TddPhase.VERIFY_REVISION,
    (TddPhase.JUDGE_REVISION, ev.RevisionReverted): TddPhase.REVISE,
    (TddPhase.VERIFY_REVISION, ev.RevisionVerified): TddPhase.REVIEW,
    (TddPhase.VERIFY_REVISION, ev.RevisionReverted): TddPhase.REVISE,
    (TddPhase.FINAL, ev.FinalVerified): TddPhase.LAND,
    (TddPhase.FINAL, ev.FinalRefused): TddPhase.REVISE,
    (TddPhase.LAND, ev.Landed): TddPhase.DONE,
}

ACTIONS: dict[Phase, PhaseAction] = {
    TddPhase.BASELINE: PhaseAction(does="baseline"),
    TddPhase.AUDIT: PhaseAction(does="audit", role=Role.AUDITOR),
    TddPhase.VERIFY_RED: PhaseAction(does="verify_red"),
    TddPhase.IMPLEMENT: PhaseAction(does="propose", role=Role.IMPLEMENTER),
    TddPhase.JUDGE: PhaseAction(does="judge"),
    TddPhase.CONTEST: PhaseAction(does="contest", role=Role.AUDITOR, action="audit.contest", prompt="contest"),
    TddPhase.VERIFY: PhaseAction(does="verify"),
    TddPhase.REFACTOR: PhaseAction(does="propose", role=Role.ARCHITECT),
    TddPhase.JUDGE_REFACTOR: PhaseAction(does="judge"),
    TddPhase.VERIFY_REFACTOR: PhaseAction(does="verify"),
    TddPhase.REVIEW: PhaseAction(does="review", role=Role.REVIEWER),
    TddPhase.REVISE: PhaseAction(does="propose", role=Role.IMPLEMENTER, action="implement_changes"),
    TddPhase.JUDGE_REVISION: PhaseAction(does="judge"),
    TddPhase.VERIFY_REVISION: PhaseAction(does="verify"),
    TddPhase.FINAL: PhaseAction(does="finish"),
    TddPhase.LAND: PhaseAction(does="land"),
}


def bounds(state: RunState) -> ev.Event | None:
    policy = state.policy
    match state.phase:
        # Not before the audit: the one after the last iteration may still say that all is done.
        case TddPhase.VERIFY_RED if state.iteration > policy.iterations:
            return run_failed(Reason.BUDGET_SPENT, f"{policy.iterations} iterations did not meet the requirements")
        case TddPhase.AUDIT if state.audit_tries >= policy.audit_tries:
            return run_failed(
                Reason.NO_PROGRESS, f"no acceptable test in {state.audit_tries} tries: {last_feedback(state)}"
            )
        case TddPhase.AUDIT if 0 < policy.refactor_interval <= state.greens_since_refactor:
            return ev.RefactorFellDue(greens=state.greens)
        case TddPhase.IMPLEMENT if state.attempts >= policy.attempts and _may_be_contested(state):
            return ev.SealedContested(why=f"{state.requirement}: {last_feedback(state)}")
        case TddPhase.IMPLEMENT if state.attempts >= policy.attempts:
            red = ", ".join(state.red)
            return ev.TestAbandoned(
                why=f"{red} could not be made to pass in {state.attempts} attempts. {feedback_by_attempt(state)}"
            )
        case TddPhase.REVISE if state.review_rounds > policy.review_rounds:
            return run_failed(Reason.NO_PROGRESS, f"still refused in the end: {state.findings[-1]}")
        case TddPhase.REVISE if state.attempts >= policy.attempts:
            return run_failed(Reason.NO_PROGRESS, f"the reviewer's findings were not met: {last_feedback(state)}")
        case TddPhase.REVIEW if state.review_rounds >= policy.review_rounds:
            return run_failed(Reason.NO_PROGRESS, f"changes still requested after {state.review_rounds} reviews")
        case TddPhase.REVIEW if state.review_tries >= policy.review_tries:
            return run_failed(Reason.NO_PROGRESS, f"no verdict in {state.review_tries} tries: {last_feedback(state)}")
    return None


def _may_be_contested(state: RunState) -> bool:
    """Whether a sealed test refused the last attempt; the auditor is asked about one test once."""
    return bool(state.sealed) and state.reverted_as is RevertOutcome.OVERFITTED and not state.contested


def inputs(state: RunState) -> dict[str, Any]:
    match state.phase:
        case TddPhase.AUDIT:
            return {
                "iteration": state.iteration,
                "try": state.audit_tries + 1,
                "feedback": state.feedback,
                "commits": [kept.subject for kept in state.commits],
            }
        case TddPhase.IMPLEMENT:
            return {
                "iteration": state.iteration,
                "attempt": state.attempts + 1,
                "feedback": state.feedback,
                "tests": state.red,
                "fingerprint": state.fingerprint,
            }
        case TddPhase.REVISE:
            return {
                "round": state.review_rounds,
                "attempt": state.attempts + 1,
                "feedback": state.feedback,
                "findings": state.findings,
            }
        case TddPhase.REVIEW:
            return {
                "round": state.review_rounds + 1,
                "try": state.review_tries + 1,
                "feedback": state.feedback,
                "kept": len(state.commits),
                "findings": state.findings,
            }
        case TddPhase.REFACTOR:
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


TDD = Workflow(name="tdd", table=NEXT, actions=ACTIONS, bounds=bounds, inputs=inputs)
