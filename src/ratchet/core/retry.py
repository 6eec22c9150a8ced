"""Decides what happens to a run that its worker gave up: retry, park or fail."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from ratchet.core.failure import Reason, counts_as_attempt

DELAYS_S = (60.0, 300.0, 1800.0)
IMMEDIATE_RETURNS = 5  # lost workers are retried at once, until the item itself looks like the cause
RETURNS_MAX = 25
# Retrying would overspend further, or fail again until a person has mended the cause.
FINAL = frozenset({Reason.BUDGET_SPENT, Reason.MISCONFIGURED, Reason.NO_TEST_COMMAND})


class RetryAction(StrEnum):
    RETRY = "retry"
    PARK = "park"
    FAIL = "fail"


class RetryDecision(msgspec.Struct, frozen=True, kw_only=True):
    """`attempts` counts failures of agent or item; `returns` counts every return to the queue, whatever the cause."""

    after: RetryAction
    delay_s: float = 0.0
    attempts: int
    returns: int


def decide_retry(reason: Reason, *, attempts: int, returns: int, delays_s: Sequence[float] = DELAYS_S) -> RetryDecision:
    """Count only faults of agent and item as attempts. Other causes wait longer each time and are parked for a person
    after `RETURNS_MAX` returns."""
    returns += 1
    if reason is Reason.AUTH:  # only a person can log in
        return RetryDecision(after=RetryAction.PARK, attempts=attempts, returns=returns)
    if counts_as_attempt(reason):
        attempts += 1
        if attempts > len(delays_s) or reason in FINAL:
            return RetryDecision(after=RetryAction.FAIL, attempts=attempts, returns=returns)
        return RetryDecision(
            after=RetryAction.RETRY, delay_s=delays_s[attempts - 1], attempts=attempts, returns=returns
        )
    if returns > RETURNS_MAX:
        return RetryDecision(after=RetryAction.PARK, attempts=attempts, returns=returns)
    waited = returns - (IMMEDIATE_RETURNS if reason is Reason.WORKER_LOST else 0)
    if waited <= 0:
        return RetryDecision(after=RetryAction.RETRY, attempts=attempts, returns=returns)
    waits_s = delays_s or DELAYS_S  # an empty retry list disables retries of failures, not returns
    return RetryDecision(
        after=RetryAction.RETRY, delay_s=waits_s[min(waited, len(waits_s)) - 1], attempts=attempts, returns=returns
    )
