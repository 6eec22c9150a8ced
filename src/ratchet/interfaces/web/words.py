"""How the pages write times, money and names."""

from __future__ import annotations

from datetime import UTC, datetime


def duration(seconds: float) -> str:
    """Return `12 s`, `4 min`, `2 h 41 min`, `3 d`."""
    whole = int(max(0.0, seconds))
    if whole < 60:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d"


def clock(seconds: float) -> str:
    """Return `1:58`, for rows; hours as `1:02:30`."""
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def tick(seconds: float) -> str:
    """Return a round time of an axis; `1:15` where it is no whole minute."""
    if not seconds:
        return "0"
    return clock(seconds) if seconds > 60 and seconds % 60 else duration(seconds)


def money(usd: float | None) -> str:
    """Return `$0.48`, `under $0.01`, or `unknown` without a known cost."""
    if usd is None:
        return "unknown"
    return "under $0.01" if 0 < usd < 0.005 else f"${usd:,.2f}"


def age(at: str, now: datetime) -> str:
    """Return how long ago a time was; empty if it is none."""
    try:
        return duration((now - datetime.fromisoformat(at)).total_seconds()) if at else ""
    except (ValueError, TypeError):
        return ""


def wakes(until: str, now: datetime) -> str:
    """Return the time of a day, with the date if that is not today, in the server's time zone."""
    at = datetime.fromisoformat(until).astimezone()
    return f"{at:%H:%M}" if at.date() == now.astimezone().date() else f"{at:%d %b %H:%M}"


def count(number: int, noun: str, plural: str = "") -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def agent_name(agent: str) -> str:
    """Return a short name of an agent: `claude`, `scripted`."""
    return (agent.partition(":")[0] or agent)[:24].capitalize() if agent else ""


def repo_name(repo: str) -> str:
    return repo.rstrip("/").rpartition("/")[2].removesuffix(".git") or repo


def cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[: max(1, chars - 1)].rstrip()}…"


def phase(action: str) -> str:
    return "red check" if action == "verify_red" else action.replace("_", " ")


def utc_now() -> datetime:
    return datetime.now(UTC)
