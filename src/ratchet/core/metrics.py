"""Metrics: the current load of the factory, and figures over a window, derived from tallies of the ledgers."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta
from typing import Self

import msgspec

from ratchet.core.budget import Amount
from ratchet.core.figures import GROUPINGS, SLOT_MINUTES, Tally
from ratchet.core.queue import QueueCount
from ratchet.core.timestamps import format_timestamp

GROUPINGS_MAX = 4
_SPAN = re.compile(r"(\d{1,5})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class FactoryMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The current load, what counts against today's budget (calls in progress included), and today's tally."""

    active_workers: int
    queue: list[QueueCount]
    oldest_queued_at: str
    today: Tally
    spent_today: Amount
    reserved_today: Amount


class FiguresQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which figures: from `since` up to `until`, grouped by some of `GROUPINGS`, of one repository or all."""

    since: str
    until: str
    by: list[str] = []
    repo: str = ""


class TallyGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The tally of one group: the values of the groupings, in their order."""

    group: dict[str, str]
    tally: Tally


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a part of the ledgers. A ratio or mean is null while there is nothing to divide by.

    `cost_usd` is null while no call has a known price; with `unpriced_calls` it is what is known of it, and a cost per
    change is unknown. `accepted` are commits that were kept.
    """

    runs: int
    completed: int
    failed: int
    aborted: int
    success_rate: float | None
    average_completion_s: float | None
    iterations: int
    commits: int
    accepted: int
    reverts: int
    reverts_per_commit: float | None
    overfitted_caught: int
    refused_tests: int
    false_done: int
    attempts_to_green: float | None
    calls: int
    unpriced_calls: int
    tokens_in: int
    tokens_out: int
    tokens_cached: int
    cost_usd: float | None
    cost_per_accepted_usd: float | None
    agent_s: float
    steps: int
    step_s: float
    requeued: int
    recoveries: int
    workspaces: int
    workspace_create_s: float | None
    quota_waits: int
    quota_s: float

    @classmethod
    def of(cls, tally: Tally) -> Self:
        same = {name: getattr(tally, name) for name in cls.__struct_fields__ if hasattr(tally, name)}
        accepted = max(0, tally.commits - tally.undone)
        known = tally.cost_microusd / 1e6 if not tally.calls or tally.unpriced_calls < tally.calls else None
        return cls(
            **same,
            success_rate=_ratio(tally.completed, tally.completed + tally.failed),
            average_completion_s=_ratio(tally.completion_ms / 1e3, tally.completed),
            accepted=accepted,
            reverts_per_commit=_ratio(tally.reverts, tally.commits),
            overfitted_caught=tally.overfitted,
            attempts_to_green=_ratio(tally.green_attempts, tally.greens),
            cost_usd=known,
            cost_per_accepted_usd=None if tally.unpriced_calls or known is None else _ratio(known, accepted),
            agent_s=tally.agent_ms / 1e3,
            step_s=tally.step_ms / 1e3,
            workspace_create_s=_ratio(tally.workspace_ms / 1e3, tally.workspaces),
            quota_s=tally.quota_ms / 1e3,
        )


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def parse_since(text: str, now: datetime) -> datetime:
    """Return the start of a window: `7d`, `24h`, `90m`, `2w`, a date, a time, or empty for local midnight.

    A number of days includes today and begins at midnight. Raises ValueError.
    """
    local = now.astimezone()
    if not text:
        return _midnight(local)
    if found := _SPAN.fullmatch(text):
        number, unit = int(found[1]), found[2]
        if unit in "dw":
            return _midnight(local - timedelta(days=max(1, number * (7 if unit == "w" else 1)) - 1))
        return now - timedelta(**{_UNITS[unit]: number})
    return _parse_time(text)


def parse_until(text: str, now: datetime) -> datetime:
    """Return the end of a window: a date, a time, or empty for the next slot's start. Raises ValueError."""
    return _parse_time(text) if text else now + timedelta(minutes=SLOT_MINUTES)


def _parse_time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r} is no window: use 7d, 24h, 90m, 2w, a date or a time") from error


def _midnight(local: datetime) -> datetime:
    """Return the midnight before a local time; a naive time in between finds the offset of that day."""
    return datetime.combine(local.date(), time()).astimezone()


def parse_groupings(text: str) -> list[str]:
    """Split `agent,model`. Raises ValueError."""
    wanted = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if unknown := [word for word in wanted if word not in GROUPINGS]:
        raise ValueError(f"cannot group by {unknown[0]!r}: use {', '.join(GROUPINGS)}")
    if len(wanted) > GROUPINGS_MAX:
        raise ValueError(f"at most {GROUPINGS_MAX} groupings, not {len(wanted)}")
    return wanted


def window(since: str, until: str, now: datetime) -> tuple[str, str]:
    """Return the start and end of a window as timestamps. Raises ValueError."""
    try:
        began, ended = parse_since(since, now), parse_until(until, now)
    except OverflowError as error:
        raise ValueError(f"{since!r} is too long ago") from error
    if ended <= began:
        raise ValueError(f"the window ends before it begins: {since!r} to {until or 'now'!r}")
    return format_timestamp(began), format_timestamp(ended)
