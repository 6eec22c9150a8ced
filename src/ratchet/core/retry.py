"""What happens to a run whose worker gave it up: again later, to a person, or the end."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from ratchet.core.failure import Reason, counts_as_attempt

DELAYS_S = (60.0, 300.0, 1800.0)
FREE_RETURNS = 5  # a worker that dies is no reason to wait, until it looks as if the item kills it
RETURNS_MAX = 25
FINAL = frozenset({Reason.BUDGET_SPENT})  # trying again would spend more of what is spent


class After(StrEnum):
    RETRY = "retry"
    PARK = "park"
    FAIL = "fail"


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """`attempts` are failures that count; `returns` are all the times the run came back, whoever's fault it was."""

    after: After
    delay_s: float = 0.0
    attempts: int
    returns: int


def retry(reason: Reason, *, attempts: int, returns: int, delays_s: Sequence[float] = DELAYS_S) -> Retry:
    """Only the agent's and the item's faults use up attempts. The others wait longer each time, then ask a person:
    they are nobody's failure, but nothing may come back for ever."""
    returns += 1
    if counts_as_attempt(reason):
        attempts += 1
        if attempts > len(delays_s) or reason in FINAL:
            return Retry(after=After.FAIL, attempts=attempts, returns=returns)
        return Retry(after=After.RETRY, delay_s=delays_s[attempts - 1], attempts=attempts, returns=returns)
    if returns > RETURNS_MAX:
        return Retry(after=After.PARK, attempts=attempts, returns=returns)
    waited = returns - (FREE_RETURNS if reason is Reason.WORKER_LOST else 0)
    if waited <= 0:
        return Retry(after=After.RETRY, attempts=attempts, returns=returns)
    waits_s = delays_s or DELAYS_S  # no retry of failures is not no return
    return Retry(after=After.RETRY, delay_s=waits_s[min(waited, len(waits_s)) - 1], attempts=attempts, returns=returns)
