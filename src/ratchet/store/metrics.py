"""Metrics in SQL: tallies of the ledgers, brought up to date on each read, and the current load, counted from rows.

Counting is incremental and repeatable: each run is counted up to a row of its ledger, in the transaction that adds what
was counted. What is already counted is skipped, so any process may count, any number of times.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from operator import add

import msgspec

from ratchet.core import events as ev
from ratchet.core.budget import BudgetScope
from ratchet.core.figures import EVER, FOREVER, MEASURES, STORED, VERSION, RunPast, RunTallies, Tally, TallyKey, slot_of
from ratchet.core.metrics import FactoryMetrics, FiguresQuery, TallyGroup
from ratchet.core.timestamps import format_timestamp
from ratchet.store.budgets import SqlBudgets
from ratchet.store.database import Row, Transaction, reads
from ratchet.store.event_feed import SqlFeed, parse_place
from ratchet.store.ledger import to_holder
from ratchet.store.queue import SqlQueue

TOTALLED = {"repo", "workflow", "agent", "model"}
COUNTED_AT_ONCE = 2_000  # events in one transaction
_PAST = msgspec.json.Decoder(RunPast)
_SUMMED = {"day": "%Y-%m-%d", "hour": "%Y-%m-%d %H:00"}


class SqlMetrics(SqlQueue, SqlBudgets, SqlFeed):
    def metrics(self) -> FactoryMetrics:
        since = self._today()
        today = self.figures(FiguresQuery(since=since, until=FOREVER))
        return FactoryMetrics(
            active_workers=self._active(),
            queue=self.stats(),
            oldest_queued_at=self._oldest(),
            today=today[0].tally,
            spent_today=self.spent(BudgetScope.DAY),
            reserved_today=self.used(BudgetScope.DAY),
        )

    def figures(self, query: FiguresQuery) -> list[TallyGroup]:
        place = ""
        while not self._is_counted(place):
            place = self._write(lambda db, after=place: _count_page(db, self, after), durable=False)  # type: ignore[misc]
        return self._sum(query)

    @reads
    def _is_counted(self, db: Transaction, after: str) -> bool:
        """Whether no event follows the place up to which all are counted, or up to which this read has counted."""
        place, version = _counted_up_to(db)
        if version != VERSION:
            return False
        return db.fetch_one(_ANY_AFTER, *max(parse_place(place), parse_place(after))) is None

    @reads
    def _sum(self, db: Transaction, query: FiguresQuery) -> list[TallyGroup]:
        stored = [name for name in query.by if name in STORED]
        columns = [*stored, *(["slot"] if len(stored) < len(query.by) else [])]
        # slot '' holds the sums over all time, in one row for each group of `TOTALLED`
        from_, to = ("", EVER) if _is_totalled(query) else (max(slot_of(query.since), EVER), slot_of(query.until))
        where, values = (" AND repo = ?", [query.repo]) if query.repo else ("", [])
        grouped = f" GROUP BY {', '.join(columns)}" if columns else ""
        sql = f"SELECT {', '.join([*columns, _SUMS])} FROM tallies WHERE slot >= ? AND slot < ?{where}{grouped}"  # noqa: S608 — names above
        rows = db.fetch_all(sql, from_, to, *values)
        return _merge(query.by, rows)

    @reads
    def _active(self, db: Transaction) -> int:
        rows = db.fetch_all("SELECT * FROM leases WHERE expires_at > ?", format_timestamp(self._clock()))
        return sum(not self._is_dead(to_holder(row)) for row in rows)

    @reads
    def _oldest(self, db: Transaction) -> str:
        row = db.fetch_one("SELECT min(created_at) AS at FROM items WHERE status = 'queued'")
        return (row and row["at"]) or ""


def _is_totalled(query: FiguresQuery) -> bool:
    return (query.since, query.until) == (EVER, FOREVER) and set(query.by) <= TOTALLED


def _merge(by: Sequence[str], rows: Iterable[Row]) -> list[TallyGroup]:
    """Add up the rows of each group: slots become local days or hours."""
    found: dict[tuple[str, ...], list[int]] = {}
    for row in rows:
        group = tuple(_local(name, row["slot"], time.tzname) if name in _SUMMED else str(row[name]) for name in by)
        values = [row[name] or 0 for name in MEASURES]
        sums = found.get(group)
        found[group] = list(map(add, sums, values)) if sums else values
    return [
        TallyGroup(
            group=dict(zip(by, key, strict=True)),
            tally=Tally(**{name: int(value) for name, value in zip(MEASURES, found[key], strict=True)}),
        )
        for key in sorted(found)
    ]


@lru_cache(maxsize=50_000)
def _local(name: str, slot: str, _zone: tuple[str, str]) -> str:
    return datetime.fromisoformat(slot).replace(tzinfo=UTC).astimezone().strftime(_SUMMED[name])


# --- counting ------------------------------------------------------------------------------------------------------


def count_run(db: Transaction, run: str) -> None:
    """Count what is left of a run: its ledger is about to be removed, its figures stay."""
    db.advisory_lock("tallies")
    _count(db, db.fetch_all("SELECT * FROM events WHERE run = ? ORDER BY seq", run))


def _counted_up_to(db: Transaction) -> tuple[str, int]:
    row = db.fetch_one("SELECT place, version FROM tallied_feed WHERE id = 1")
    assert row
    return row["place"], int(row["version"])


def _count_page(db: Transaction, feed: SqlFeed, after: str) -> str:
    """Count the next events of the feed, and return the last one's place.

    The place that is kept stays before the oldest open transaction: events before that one's may still appear. Those
    after it are counted already, and skipped by their run and number when they are read again.
    """
    db.advisory_lock("tallies")
    place, version = _counted_up_to(db)
    if version != VERSION:
        place = after = _start_over(db)
    horizon, start = feed.feed_horizon(db), max(parse_place(place), parse_place(after))
    rows = db.fetch_all(_NEXT, *start, COUNTED_AT_ONCE)
    _count(db, rows)
    safe = [row for row in rows if row["place"] < horizon]
    if safe and start == parse_place(place):
        db.execute("UPDATE tallied_feed SET place = ? WHERE id = 1", _place(safe[-1]))
    return _place(rows[-1]) if rows else after


def _place(row: Row) -> str:
    return f"{row['place']}.{row['run']}.{row['seq']}"


def _start_over(db: Transaction) -> str:
    """Forget what other code counted, except of runs that are gone."""
    db.execute("DELETE FROM tallies WHERE slot = '' OR run IN (SELECT id FROM runs)")
    db.execute(_TOTAL, _BETWEEN)
    db.execute("DELETE FROM tallied_runs")
    db.execute("UPDATE tallied_feed SET place = '', version = ? WHERE id = 1", VERSION)
    return ""


def _count(db: Transaction, rows: Sequence[Row]) -> None:
    runs: dict[str, tuple[int, RunTallies]] = {}
    for row in rows:
        run, seq = row["run"], int(row["seq"])
        counted, tallies = runs[run] if run in runs else _load(db, run)
        if seq == counted + 1:  # later ones were counted before, or wait for one that is still being committed
            tallies.add(row["at"], ev.decode(row["kind"], bytes(row["data"])))
            counted = seq
        runs[run] = counted, tallies
    db.execute_many(_KEEP, [(run, seq, msgspec.json.encode(found.past).decode()) for run, (seq, found) in runs.items()])
    added = [(run, key, tally) for run, (_, found) in runs.items() for key, tally in found.tallies.items()]
    totals: dict[TallyKey, Tally] = defaultdict(Tally)
    for _run, key, tally in added:
        totals[TallyKey("", key.repo, key.workflow, "", 0, "", "", key.agent, key.model)] += tally
    db.execute_many(_ADD, [_row(*one) for one in [*added, *_total_rows(totals)]])


def _total_rows(totals: dict[TallyKey, Tally]) -> Iterator[tuple[str, TallyKey, Tally]]:
    """Yield rows of sums over all time. Repository and workflow, which follow from a run elsewhere, stand for it."""
    for key, tally in totals.items():
        yield f"{key.repo}{_BETWEEN}{key.workflow}", key, tally


def _load(db: Transaction, run: str) -> tuple[int, RunTallies]:
    row = db.fetch_one("SELECT seq, past FROM tallied_runs WHERE run = ?", run)
    return (int(row["seq"]), RunTallies(_PAST.decode(row["past"]))) if row else (0, RunTallies())


def _row(run: str, key: TallyKey, tally: Tally) -> tuple[object, ...]:
    return (run, *key, *msgspec.structs.astuple(tally))


_COLUMNS = ("run", *TallyKey._fields, *MEASURES)
_SUMS = ", ".join(f"sum({name}) AS {name}" for name in MEASURES)
_BETWEEN = "\n"
_TOTAL = f"""
INSERT INTO tallies (run, slot, worker, iteration, action, role, repo, workflow, agent, model, {", ".join(MEASURES)})
SELECT repo || ? || workflow, '', '', 0, '', '', repo, workflow, agent, model, {_SUMS}
FROM tallies GROUP BY repo, workflow, agent, model
"""  # noqa: S608 — names above
_ANY_AFTER = "SELECT 1 AS ok FROM events WHERE (place, run, seq) > (?, ?, ?) LIMIT 1"
_NEXT = "SELECT * FROM events WHERE (place, run, seq) > (?, ?, ?) ORDER BY place, run, seq LIMIT ?"
_KEEP = """
INSERT INTO tallied_runs (run, seq, past) VALUES (?, ?, ?)
ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, past = excluded.past
"""
_ADD = f"""
INSERT INTO tallies ({", ".join(_COLUMNS)}) VALUES ({", ".join("?" * len(_COLUMNS))})
ON CONFLICT (run, slot, worker, iteration, action, role, agent, model) DO UPDATE
SET {", ".join(f"{name} = tallies.{name} + excluded.{name}" for name in MEASURES)}
"""  # noqa: S608 — names above
