"""Timestamps: the one format in which times are stored, sent and compared."""

from __future__ import annotations

from datetime import UTC, datetime


def format_timestamp(at: datetime, *, timespec: str = "microseconds") -> str:
    """Format a time as RFC 3339 in UTC. Timestamps of one `timespec` have a fixed width: text order is time order."""
    return f"{at.astimezone(UTC).isoformat(timespec=timespec).removesuffix('+00:00')}Z"
