"""The event feed in SQL: all ledgers as one stream, in an order that never changes, even with concurrent writers.

A reader keeps the `place` of its last entry and requests the entries after it, also after a reconnect.
"""

from __future__ import annotations

from ratchet.core.ledger import FeedEntry
from ratchet.errors import UsageError
from ratchet.store.database import Database, Row, Transaction, reads
from ratchet.store.ledger import to_entry

FEED_MAX = 1_000


class SqlFeed(Database):
    @reads
    def feed(self, db: Transaction, after: str = "", *, run: str = "", limit: int = 500) -> list[FeedEntry]:
        place, limit = parse_place(after), max(1, min(limit, FEED_MAX))
        if not run:
            rows = db.fetch_all(_FOLLOW, *place, self.feed_horizon(db), limit)
        elif place[1] == run:  # a run's entries are committed in the order of their numbers
            rows = db.fetch_all(_FOLLOW_RUN, run, place[2], limit)
        else:
            rows = db.fetch_all(_FOLLOW_RUN_FROM, run, *place, limit)
        return [_feed_entry(row) for row in rows]

    @reads
    def feed_end(self, db: Transaction) -> str:
        """Return the place after which only new entries follow."""
        row = db.fetch_one(_LAST_PLACE, self.feed_horizon(db))
        return f"{(row and row['place']) or 0}.~.0"  # `~` sorts after every run id

    def feed_horizon(self, db: Transaction) -> int:
        """Return the place before which the feed is complete: no open transaction can write there."""
        raise NotImplementedError


def _feed_entry(row: Row) -> FeedEntry:
    return FeedEntry(place=f"{row['place']}.{row['run']}.{row['seq']}", entry=to_entry(row))


def parse_place(after: str) -> tuple[int, str, int]:
    if not after:
        return -1, "", 0
    place, run, seq = [*after.split("."), "", ""][:3]
    if not (place.isdecimal() and seq.isdecimal()):
        raise UsageError(
            f"{after!r} is not a place in the feed", hint="pass the `place` of the last entry you received"
        )
    return int(place), run, int(seq)


_FOLLOW = "SELECT * FROM events WHERE (place, run, seq) > (?, ?, ?) AND place < ? ORDER BY place, run, seq LIMIT ?"
_FOLLOW_RUN = "SELECT * FROM events WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?"
_FOLLOW_RUN_FROM = "SELECT * FROM events WHERE run = ? AND (place, run, seq) > (?, ?, ?) ORDER BY seq LIMIT ?"
_LAST_PLACE = "SELECT place FROM events WHERE place < ? ORDER BY place DESC LIMIT 1"
