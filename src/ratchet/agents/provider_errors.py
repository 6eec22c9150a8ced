"""Classifies an agent's error message: the failure reason, and when the provider allows a retry. Pure.

Agents wrap provider errors in their own text, which changes often; provider messages change less. So one table serves
all agents: the first matching pattern decides, the most specific ones come first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from ratchet.agents.protocol import TurnFailed
from ratchet.core.failure import Reason
from ratchet.core.timestamps import format_timestamp

_PATTERNS = {
    Reason.MISCONFIGURED: (
        r"no provider (is )?configured|goose configure|GOOSE_PROVIDER|no model (is )?(configured|selected)"
    ),
    Reason.CONTEXT_OVERFLOW: (
        r"context[ _](window|length|limit)|prompt (is )?too long|prompt_too_long|maximum context|too many tokens in"
        r"|ContextWindowExceeded|ContextOverflow|context exceeds|input token count .* exceeds"
    ),
    Reason.AUTH: (
        r"\b401\b|\b403\b|authenticat|unauthori[sz]ed|invalid[ _]?(x-)?api[ _-]?key|api key not valid|not logged in"
        r"|please run /login|permission_error|credentials?\b.*(missing|expired|not found)"
    ),
    Reason.RATE_LIMITED: (
        r"\b429\b|rate[ _-]?limit|too many requests|resource_exhausted|quota|usage limit|limit reached|hit your limit"
        r"|out of credits|credit balance"
    ),
    Reason.OVERLOADED: (
        r"\b529\b|\b50[0234]\b|overloaded|at capacity|service ?unavailable|internal ?server ?error|bad gateway"
        r"|temporarily unavailable|stream (disconnected|closed)|connection ?(error|refused|reset)|fetch failed"
        r"|error sending request|api error: terminated|\A\s*terminated\s*\Z|socket hang up|premature close"
        r"|econnre(set|fused)|network error"
    ),
    Reason.BUDGET_SPENT: r"max_budget|budget (was )?(exceeded|spent)|maximum budget",
    Reason.NO_PROGRESS: r"max(imum)?[ _](number of )?turns|turn limit|maxSessionTurns|LimitsExceeded",
    Reason.AGENT_REFUSED: r"\brefus(ed|al)\b|content policy|safety (stop|filter)|prohibited_content",
}
_REASONS = [(reason, re.compile(pattern, re.IGNORECASE)) for reason, pattern in _PATTERNS.items()]
DETAIL_CHARS = 600
LATEST = timedelta(days=40)


def classify_error(text: str, *, status: int = 0) -> TurnFailed:
    """Classify an error by its HTTP status if given, else by its text."""
    detail = f"{status}: {text}" if status and str(status) not in text else text
    return TurnFailed(reason=_by_status(status, text) or _by_words(text), detail=detail.strip()[:DETAIL_CHARS])


def _by_status(status: int, text: str) -> Reason | None:
    if status in (401, 403):
        return Reason.AUTH
    if status == 429:
        return Reason.RATE_LIMITED
    if status in (400, 413) and _by_words(text) is Reason.CONTEXT_OVERFLOW:
        return Reason.CONTEXT_OVERFLOW
    return Reason.OVERLOADED if status >= 500 else None


def _by_words(text: str) -> Reason:
    return next((reason for reason, pattern in _REASONS if pattern.search(text)), Reason.AGENT_CRASHED)


# --- retry time ----------------------------------------------------------------------------------------

_EPOCH = re.compile(r"\|(\d{10})(?:\d{3})?\b|\breset[a-z_ ]*(?:at)?\W{1,8}(\d{10})(?:\d{3})?\b", re.IGNORECASE)
_STAMP = re.compile(r"\b(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?)\s*(Z|UTC|[+-]\d\d:?\d\d)?")
_AFTER = re.compile(
    r"(?:(?:retry|resets?)[ _-]?(?:after|in|delay|requests|tokens)|try again (?:in|after)|available in|wait)"
    r"(?![a-z])\D{0,12}?"
    r"((?:\d+(?:\.\d+)?\s*(?:days?|hours?|hrs?|minutes?|mins?|seconds?|secs?|ms|[dhms])?\s*(?:,|and)?\s*)+)",
    re.IGNORECASE,
)
_PIECE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)
_CLOCK = re.compile(
    r"\b(?:resets?|again)\s+(?:at\s+|on\s+)?"
    r"(?:(?P<month>[a-z]{3})[a-z]*\.? (?P<day>\d{1,2})(?:st|nd|rd|th)?,?\s+(?:(?P<year>\d{4}),?\s+)?(?:at\s+)?)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?\s*(?P<half>am|pm)\b(?:\s*\((?P<zone>[\w/+-]+)\))?",
    re.IGNORECASE,
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def retry_time_of(text: str, *, now: datetime) -> str:
    """Return when a limit ends as a UTC timestamp, from any known format; empty if none is found."""
    found: list[datetime] = []
    for read in (_from_epoch, _from_stamps, _from_wait, _from_clock):
        with suppress(ValueError, OverflowError):  # numbers of any length
            found += read(text, now)
    # A time in the past is not a retry time.
    return next((format_timestamp(at, timespec="seconds") for at in found if now < at < now + LATEST), "")


def timestamp_of_epoch(seconds: float) -> str:
    """Return a timestamp that an agent reports as a number; empty if there is no such time."""
    try:
        return format_timestamp(datetime.fromtimestamp(seconds, UTC), timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return ""


def with_retry_time(failed: TurnFailed, *, now: datetime) -> TurnFailed:
    """Add the retry time to a rate-limit or overload failure that contains one, and remove one that cannot be."""
    until = failed.until if _is_believable(failed.until, now) else ""
    limited = failed.reason in (Reason.RATE_LIMITED, Reason.OVERLOADED) and not until
    return msgspec.structs.replace(failed, until=retry_time_of(failed.detail, now=now) if limited else until)


def _is_believable(until: str, now: datetime) -> bool:
    """Whether an item may be parked until then: an agent must not park it for years."""
    with suppress(ValueError, OverflowError):
        at = datetime.fromisoformat(until)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)) < now + LATEST
    return False


def _from_epoch(text: str, _now: datetime) -> list[datetime]:
    found = _EPOCH.search(text)
    return [datetime.fromtimestamp(int(found[1] or found[2]), UTC)] if found else []


def _from_stamps(text: str, _now: datetime) -> Iterator[datetime]:
    """Yield all timestamps: a log line begins with its own."""
    for at, zone in _STAMP.findall(text):
        offset = "+00:00" if zone in ("", "Z", "UTC") else zone
        with suppress(ValueError):
            yield datetime.fromisoformat(at.replace(" ", "T") + offset)


def _from_wait(text: str, now: datetime) -> list[datetime]:
    found = _AFTER.search(text)
    seconds = sum(float(number) * _unit_s(unit) for number, unit in _PIECE.findall(found[1])) if found else 0.0
    if found and "-ms" in found[0].lower():
        seconds /= 1_000  # the unit is in the header name
    return [now + timedelta(seconds=seconds)] if seconds else []


def _unit_s(unit: str) -> float:
    if unit.lower() == "ms":
        return 0.001
    return {"d": 86_400.0, "h": 3_600.0, "m": 60.0}.get(unit[:1].lower(), 1.0)


def _from_clock(text: str, now: datetime) -> list[datetime]:
    at = _next_clock(text, now)
    return [at] if at else []


def _next_clock(text: str, now: datetime) -> datetime | None:
    """`resets 3pm (Europe/Berlin)`, `try again at Nov 17th, 2026 3:05 PM`: the next such time, in the zone of
    `now` unless one is given."""
    found = _CLOCK.search(text)
    if not found or not 1 <= int(found["hour"]) <= 12:
        return None
    here = now.astimezone(_zone(found["zone"]) or now.tzinfo)
    hour = int(found["hour"]) % 12 + (12 if found["half"].lower() == "pm" else 0)
    at = here.replace(hour=hour, minute=int(found["minute"] or 0), second=0, microsecond=0)
    if found["month"]:
        return _on_day(at, found)
    return at if at > here else at + timedelta(days=1)


def _on_day(at: datetime, found: re.Match[str]) -> datetime | None:
    month = found["month"].lower()
    if month not in _MONTHS:
        return None
    try:
        on = at.replace(year=int(found["year"] or at.year), month=_MONTHS.index(month) + 1, day=int(found["day"]))
        # In December, January is next year's.
        return on if found["year"] or on > at - timedelta(days=180) else on.replace(year=on.year + 1)
    except ValueError:
        return None


def _zone(name: str | None) -> tzinfo | None:
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
