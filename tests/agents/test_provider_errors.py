"""Provider errors are classified by the words that providers use, and the retry time is read from them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ratchet.agents.protocol import TurnFailed
from ratchet.agents.provider_errors import classify_error, retry_time_of, timestamp_of_epoch, with_retry_time
from ratchet.core.failure import Reason

NOW = datetime(2026, 11, 16, 4, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "status", "reason"),
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
        ("Session too large to compact - context exceeds model limit", 0, Reason.CONTEXT_OVERFLOW),
        ("litellm.ServiceUnavailableError: ServiceUnavailableError: OpenAIException -", 0, Reason.OVERLOADED),
        ("litellm.InternalServerError: InternalServerError: OpenAIException -", 0, Reason.OVERLOADED),
        ("terminated", 0, Reason.OVERLOADED),
        ("The process was terminated by signal 9", 0, Reason.AGENT_CRASHED),
        ("Segmentation fault", 0, Reason.AGENT_CRASHED),
    ],
)
def test_a_complaint_has_a_reason(text: str, status: int, reason: Reason) -> None:
    assert classify_error(text, status=status).reason is reason


@pytest.mark.parametrize(
    ("text", "until"),
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
        # Anthropic: the program's words, and the headers
        ("You've hit your session limit · resets 3pm (Europe/Berlin)", "2026-11-16T14:00:00Z"),
        ("You've hit your weekly limit · resets Nov 18, 3pm (America/New_York)", "2026-11-18T20:00:00Z"),
        ("Your limit will reset at 9pm (Asia/Tokyo).", "2026-11-16T12:00:00Z"),
        ("5-hour limit reached ∙ resets 6am", "2026-11-16T06:00:00Z"),
        ("anthropic-ratelimit-unified-reset: 1794808800", "2026-11-16T06:00:00Z"),
        ("anthropic-ratelimit-tokens-reset: 2026-11-16T05:00:00Z", "2026-11-16T05:00:00Z"),
        # OpenAI and Codex
        ("Rate limit reached for gpt-5.5. Limit 30000, Used 29000. Please try again in 6m0s.", "2026-11-16T04:06:00Z"),
        ("You've hit your usage limit. Visit the page to purchase more credits or try again in 1h20m.",
         "2026-11-16T05:20:00Z"),
        ("You've hit your usage limit. Upgrade to Pro or try again at 6:47 PM.", "2026-11-16T18:47:00Z"),
        ("You've hit your usage limit. Try again at Nov 21st, 2026 3:05 PM.", "2026-11-21T15:05:00Z"),
        ('{"error":{"type":"usage_limit_reached","resets_in_seconds":5400}}', "2026-11-16T05:30:00Z"),
        ('{"error":{"type":"usage_limit_reached","resets_at":1794808800}}', "2026-11-16T06:00:00Z"),
        ("x-ratelimit-reset-tokens: 6m0s", "2026-11-16T04:06:00Z"),
        ("retry-after-ms: 90000", "2026-11-16T04:01:30Z"),
        # Gemini: RetryInfo, the words of its message, and of its program
        ('{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.074s"}', "2026-11-16T04:00:34Z"),
        ("You have exhausted your capacity on this model. Your quota will reset after 18h4m14s.",
         "2026-11-16T22:04:14Z"),
        ('"metadata":{"quotaResetDelay":"2h3m4.5s","uiMessage":"true"}', "2026-11-16T06:03:04Z"),
        # OpenRouter, as it is and quoted in somebody else's JSON
        ('"metadata":{"headers":{"X-RateLimit-Remaining":"0","X-RateLimit-Reset":"1794808800000"}}',
         "2026-11-16T06:00:00Z"),
        (r'"message":"{\"X-RateLimit-Reset\":\"1794808800000\"}"', "2026-11-16T06:00:00Z"),
        # goose, in its log
        ("2026-11-16T03:59:59Z WARN retrying (1/3): RateLimitExceeded { retry_delay: Some(3600s) }",
         "2026-11-16T05:00:00Z"),
        ("resets Foo 18, 3pm", ""),
        ("resets Nov 31, 3pm", ""),
        ("resets 3pm (Atlantis/Nowhere)", "2026-11-16T15:00:00Z"),
        ("Rate limit reached", ""),
    ],
)  # fmt: skip
def test_the_retry_time_is_read_from_the_message(text: str, until: str) -> None:
    assert retry_time_of(text, now=NOW) == until


def test_only_a_limit_has_a_time_to_come_back() -> None:
    text = "try again in 5 minutes"
    limited = with_retry_time(TurnFailed(reason=Reason.RATE_LIMITED, detail=text), now=NOW)
    crashed = with_retry_time(TurnFailed(reason=Reason.AGENT_CRASHED, detail=text), now=NOW)
    assert (limited.until, crashed.until) == ("2026-11-16T04:05:00Z", "")


@pytest.mark.parametrize(
    "text",
    [
        f"try again in {'9' * 400} days",
        "try again in 99999999999 days",
        "usage limit reached|9999999999999 in try again in 99999999999999999999999 days",
        "0001-01-01T00:00:00+23:59 9999-12-31T23:59:59-23:59",
        "limit resets feb 30, 0000 at 3pm (../../../etc/passwd)",
        "resets at 3pm (Europe)",
    ],
)
def test_no_number_in_a_message_is_more_than_a_message_without_a_time(text: str) -> None:
    until = with_retry_time(TurnFailed(reason=Reason.RATE_LIMITED, detail=text), now=NOW).until
    assert until == "" or until < "2026-12-27"


@pytest.mark.parametrize("seconds", [1e20, 1e300, -1e18, float("inf"), float("nan")])
def test_a_time_that_cannot_be_is_no_time(seconds: float) -> None:
    assert timestamp_of_epoch(seconds) == ""


@pytest.mark.parametrize("until", ["9999-12-31T23:59:59Z", "2027-02-01", "soon", "9999-12-31T23:59:59-23:59"])
def test_an_agent_parks_its_item_for_forty_days_at_most(until: str) -> None:
    failed = TurnFailed(reason=Reason.RATE_LIMITED, detail="429, try again in 5 minutes", until=until)
    assert with_retry_time(failed, now=NOW).until == "2026-11-16T04:05:00Z"
