"""What is told to the outside: an event and its place among all others, a heartbeat, today in numbers."""

from __future__ import annotations

import msgspec

from ratchet.core.ledger import Entry

START = "start"


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """An event and its place in the feed: what is told after `place` was not told before."""

    place: str
    entry: Entry


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """One heartbeat."""

    run: str
    epoch: int
    iteration: int | None = None


class Today(msgspec.Struct, frozen=True, kw_only=True):
    """Counted from the ledgers since midnight. `average_run_s` is over the runs that were completed."""

    events: dict[str, int]
    average_run_s: float
