"""Failure reasons and who is at fault. Only faults of agent and item count as failed attempts."""

from __future__ import annotations

from enum import StrEnum


class FaultOwner(StrEnum):
    PLATFORM = "platform"
    AGENT = "agent"
    PROVIDER = "provider"
    ITEM = "item"


class RevertOutcome(StrEnum):
    """Why a change was reverted."""

    OVERFITTED = "overfitted"  # the open tests pass, the sealed ones do not
    STILL_RED = "still_red"
    BROKE_OTHERS = "broke_others"
    GATE = "gate"


class Reason(StrEnum):
    WORKER_LOST = "worker_lost"
    WORKSPACE = "workspace"
    STORE = "store"
    AGENT_CRASHED = "agent_crashed"
    AGENT_TIMED_OUT = "agent_timed_out"
    AGENT_REFUSED = "agent_refused"
    NO_PROGRESS = "no_progress"
    CONTEXT_OVERFLOW = "context_overflow"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    AUTH = "auth"
    MISCONFIGURED = "misconfigured"
    NO_TEST_COMMAND = "no_test_command"
    CONFLICT = "conflict"
    BUDGET_SPENT = "budget_spent"
    QUESTION = "question"


FAULT = {
    Reason.WORKER_LOST: FaultOwner.PLATFORM,
    Reason.WORKSPACE: FaultOwner.PLATFORM,
    Reason.STORE: FaultOwner.PLATFORM,
    Reason.AGENT_CRASHED: FaultOwner.AGENT,
    Reason.AGENT_TIMED_OUT: FaultOwner.AGENT,
    Reason.AGENT_REFUSED: FaultOwner.AGENT,
    Reason.NO_PROGRESS: FaultOwner.AGENT,
    Reason.CONTEXT_OVERFLOW: FaultOwner.AGENT,
    Reason.RATE_LIMITED: FaultOwner.PROVIDER,
    Reason.OVERLOADED: FaultOwner.PROVIDER,
    Reason.AUTH: FaultOwner.PROVIDER,
    Reason.MISCONFIGURED: FaultOwner.ITEM,
    Reason.NO_TEST_COMMAND: FaultOwner.ITEM,
    Reason.CONFLICT: FaultOwner.ITEM,
    Reason.BUDGET_SPENT: FaultOwner.ITEM,
    Reason.QUESTION: FaultOwner.ITEM,
}


def counts_as_attempt(reason: Reason) -> bool:
    return FAULT[reason] in (FaultOwner.AGENT, FaultOwner.ITEM)
