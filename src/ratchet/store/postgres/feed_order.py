"""The order of the feed in PostgreSQL: an event's place is its transaction's id, but never below the event before it.

Transactions commit in any order, so a page ends before the oldest open transaction that may still write an event. Only
transactions of this database can: a snapshot's `xmin` would count those of all databases, and stop the feed for them.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import errors as pg

from ratchet.store.database import Transaction

# Two verbs may write to one run in another order than they began in.
PLACE = """GREATEST(
  (SELECT base FROM feed_generation WHERE id = 1) + CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT),
  COALESCE((SELECT place FROM events AS earlier WHERE earlier.run = {run} AND earlier.seq = {before}), 0))"""
_GENERATION = 1 << 44


def feed_horizon(db: Transaction) -> int:
    """Return the place before which all events are visible to the next statement.

    Every id below `end` was assigned before this statement began. One that is not listed below as open has ended, so
    the next statement, which takes a newer snapshot, sees what it wrote.
    """
    row = db.fetch_one(_BOUNDS)
    assert row
    base, oldest, end = int(row["base"]), int(row["oldest"]), int(row["end_id"])
    if oldest == end:
        return base + end
    open_here = db.fetch_all(_OPEN_HERE)
    if any(one["hidden"] for one in open_here):  # sessions of another role: which of them write is not visible
        return base + oldest
    ages = [(end - int(one["xid"])) % 2**32 for one in open_here if one["xid"]]
    return base + min([end, *(end - age for age in ages if age < 2**31)])


def notice_restore(db: psycopg.Connection[dict[str, Any]]) -> None:
    """Begin a new generation of places if the database was restored into another cluster or timeline."""
    cluster = _cluster(db)
    row = db.execute("SELECT base, cluster FROM feed_generation WHERE id = 1 FOR UPDATE").fetchone()
    if row is None or cluster in ("", row["cluster"]):
        return
    base = row["base"]
    if row["cluster"] or db.execute(_AHEAD, (base,)).fetchone():
        base = (base // _GENERATION + 1) * _GENERATION
    db.execute("UPDATE feed_generation SET base = %s, cluster = %s WHERE id = 1", (base, cluster))


def _cluster(db: psycopg.Connection[dict[str, Any]]) -> str:
    """Return the identity of cluster and timeline; empty where this role may not read it."""
    try:
        with db.transaction():
            row = db.execute(_CLUSTER).fetchone()
    except pg.InsufficientPrivilege:
        return ""
    return str(row["cluster"]) if row else ""


_BOUNDS = """
SELECT base, CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS TEXT) AS BIGINT) AS oldest,
       CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS TEXT) AS BIGINT) AS end_id
FROM feed_generation WHERE id = 1
"""
_OPEN_HERE = """
SELECT CAST(CAST(backend_xid AS TEXT) AS BIGINT) AS xid, backend_type IS NULL AS hidden FROM pg_stat_activity
WHERE datname = current_database() AND usesysid IS NOT NULL AND (backend_xid IS NOT NULL OR backend_type IS NULL)
"""
_CLUSTER = """
SELECT system_identifier || ':' || (SELECT timeline_id FROM pg_control_checkpoint()) AS cluster FROM pg_control_system()
"""
# A database that was restored before its cluster was recorded.
_AHEAD = """
SELECT 1 FROM events
WHERE place >= %s + CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS TEXT) AS BIGINT) ORDER BY place DESC LIMIT 1
"""
