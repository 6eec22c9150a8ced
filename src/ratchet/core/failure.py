"""Why something failed, and whose fault that is. Only the agent's and the item's faults count as failed attempts."""

from __future__ import annotations

from enum import StrEnum


class Fault(StrEnum):
    PLATFORM = "platform"
    AGENT = "agent"
    PROVIDER = "provider"
    ITEM = "item"


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
    Reason.WORKER_LOST: Fault.PLATFORM,
    Reason.WORKSPACE: Fault.PLATFORM,
    Reason.STORE: Fault.PLATFORM,
    Reason.AGENT_CRASHED: Fault.AGENT,
    Reason.AGENT_TIMED_OUT: Fault.AGENT,
    Reason.AGENT_REFUSED: Fault.AGENT,
    Reason.NO_PROGRESS: Fault.AGENT,
    Reason.CONTEXT_OVERFLOW: Fault.AGENT,
    Reason.RATE_LIMITED: Fault.PROVIDER,
    Reason.OVERLOADED: Fault.PROVIDER,
    Reason.AUTH: Fault.PROVIDER,
    Reason.MISCONFIGURED: Fault.ITEM,
    Reason.NO_TEST_COMMAND: Fault.ITEM,
    Reason.CONFLICT: Fault.ITEM,
    Reason.BUDGET_SPENT: Fault.ITEM,
    Reason.QUESTION: Fault.ITEM,
}


def counts_as_attempt(reason: Reason) -> bool:
    return FAULT[reason] in (Fault.AGENT, Fault.ITEM)
