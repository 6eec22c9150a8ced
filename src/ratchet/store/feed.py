"""All ledgers as one stream: every row once, in an order that a later reader sees too, whoever writes meanwhile.

A reader keeps the place of the last row it has seen and asks for what comes after it, now or after a reconnect.
"""

from __future__ import annotations

from ratchet.core.ledger import Told
from ratchet.errors import UsageError
from ratchet.store.database import Database, Row, Transaction, reads
from ratchet.store.ledger import entry_of

FEED_MAX = 1_000


class Feed(Database):
    _follow: str
    _follow_run: str
    _last_place: str

    @reads
    def feed(self, db: Transaction, after: str = "", *, run: str = "", limit: int = 500) -> list[Told]:
        place, limit = _place(after), max(1, min(limit, FEED_MAX))
        rows = db.all(self._follow_run, run, *place, limit) if run else db.all(self._follow, *place, limit)
        return [_told(row) for row in rows]

    @reads
    def feed_end(self, db: Transaction) -> str:
        """The place from which a reader hears only what is new."""
        row = db.one(self._last_place)
        return f"{(row and row['place']) or 0}.~.0"  # no run's id is after a tilde


def _told(row: Row) -> Told:
    return Told(place=f"{row['place']}.{row['run']}.{row['seq']}", entry=entry_of(row))


def _place(after: str) -> tuple[int, str, int]:
    if not after:
        return -1, "", 0
    place, run, seq = [*after.split("."), "", ""][:3]
    if not (place.isdecimal() and seq.isdecimal()):
        raise UsageError(f"{after!r} is no place in the feed", hint="take `place` from the last row you have seen")
    return int(place), run, int(seq)
