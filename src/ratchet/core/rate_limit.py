"""Concurrency limit per provider: halved after a refusal, raised by one after each quiet interval (AIMD)."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace


class ConcurrencyLimit(msgspec.Struct, frozen=True, kw_only=True):
    """`at` is when the limit last changed, `refused_at` when it was last halved; seconds of one shared clock."""

    limit: int
    at: float
    refused_at: float = 0.0


def raise_limit(pace: ConcurrencyLimit, *, now: float, top: int, quiet_s: float) -> ConcurrencyLimit:
    """Raise the limit by one for each whole interval since the last change, up to `top`."""
    steps = int((now - pace.at) // quiet_s)
    if steps <= 0:
        return replace(pace, limit=min(pace.limit, top))
    return replace(pace, limit=min(top, pace.limit + steps), at=pace.at + steps * quiet_s)


def halve_limit(pace: ConcurrencyLimit, *, began: float, now: float) -> ConcurrencyLimit:
    """Halve the limit; ignore refusals of requests that started before the last halving."""
    if began <= pace.refused_at:
        return pace
    return ConcurrencyLimit(limit=max(1, pace.limit // 2), at=now, refused_at=now)


class ProviderUse(msgspec.Struct, frozen=True, kw_only=True):
    """How many slots of a provider are held, of how many."""

    provider: str
    limit: int
    held: int
