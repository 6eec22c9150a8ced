"""How many agents of one provider are asked at once: half as many after a refusal, one more after each quiet while."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """`at` is when the limit last changed, `refused_at` when it was last halved; seconds on a clock all share."""

    limit: int
    at: float
    refused_at: float = 0.0


def eased(pace: Pace, *, now: float, top: int, quiet_s: float) -> Pace:
    """One more for each whole interval since the last change, up to `top`."""
    steps = int((now - pace.at) // quiet_s)
    if steps <= 0:
        return replace(pace, limit=min(pace.limit, top))
    return replace(pace, limit=min(top, pace.limit + steps), at=pace.at + steps * quiet_s)


def refused(pace: Pace, *, began: float, now: float) -> Pace:
    """Half as many. Those who were asked before it was halved hear the same refusal, which counts once."""
    if began <= pace.refused_at:
        return pace
    return Pace(limit=max(1, pace.limit // 2), at=now, refused_at=now)
