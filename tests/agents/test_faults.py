"""Complaints are told apart by the words providers use, and the time to come back is read from them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ratchet.agents import Failed
from ratchet.agents.faults import comes_back, complaint, dated
from ratchet.core.failure import Reason

NOW = datetime(2026, 11, 16, 4, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("said", "status", "reason"),
    [
        ("exceeded retry limit, last status: 429 Too Many Requests", 0, Reason.RATE_LIMITED),
        ("You've hit your usage limit. Try again in 3 days 2 hours.", 0, Reason.RATE_LIMITED),
        ("RESOURCE_EXHAUSTED: You exceeded your current quota", 0, Reason.RATE_LIMITED),
        ("anything", 429, Reason.RATE_LIMITED),
        ("Overloaded", 529, Reason.OVERLOADED),
        ("We're at capacity", 0, Reason.OVERLOADED),
        ("unexpected status 401 Unauthorized: invalid api key", 0, Reason.AUTH),
        ("Not logged in · Please run /login", 0, Reason.AUTH),
        ("prompt is too long: 210000 tokens > 200000 maximum", 400, Reason.CONTEXT_OVERFLOW),
        ("This model's maximum context length is 200000 tokens.", 0, Reason.CONTEXT_OVERFLOW),
        ("error_max_turns", 0, Reason.NO_PROGRESS),
        ("error_max_budget_usd", 0, Reason.BUDGET_SPENT),
        ("Segmentation fault", 0, Reason.AGENT_CRASHED),
    ],
)
def test_a_complaint_has_a_reason(said: str, status: int, reason: Reason) -> None:
    assert complaint(said, status=status).reason is reason


@pytest.mark.parametrize(
    ("said", "until"),
    [
        ("Claude AI usage limit reached|1794808800", "2026-11-16T06:00:00Z"),
        ("retry-after: 90", "2026-11-16T04:01:30Z"),
        ("Please try again in 1h2m3s.", "2026-11-16T05:02:03Z"),
        ("Try again in 3 days 2 hours.", "2026-11-19T06:00:00Z"),
        ("Please retry in 21.5s.", "2026-11-16T04:00:21Z"),
        ("limit will reset at 2026-11-16T07:30:00Z", "2026-11-16T07:30:00Z"),
        ("You've hit your limit · resets 9pm (UTC)", "2026-11-16T21:00:00Z"),
        ("resets 3:15am", "2026-11-17T03:15:00Z"),
        ("reset at 2020-01-01T00:00:00Z", ""),
        ("Rate limit reached", ""),
    ],
)
def test_the_time_to_come_back_is_read_from_what_was_said(said: str, until: str) -> None:
    assert comes_back(said, now=NOW) == until


def test_only_a_limit_has_a_time_to_come_back() -> None:
    said = "try again in 5 minutes"
    limited = dated(Failed(reason=Reason.RATE_LIMITED, detail=said), now=NOW)
    crashed = dated(Failed(reason=Reason.AGENT_CRASHED, detail=said), now=NOW)
    assert (limited.until, crashed.until) == ("2026-11-16T04:05:00Z", "")
