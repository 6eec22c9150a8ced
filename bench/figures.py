"""Figures: counting a million events, and reading what they come to.

Ledgers of random runs over ninety days in the embedded store. They are written without its verbs: only counting is
measured.
"""

from __future__ import annotations

import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from bench import Row, medians
from ratchet.core import events as ev
from ratchet.core.figures import EVER, FOREVER
from ratchet.core.metrics import FiguresQuery
from ratchet.store.sqlite.store import SqliteStore
from tests.core.random_runs import START, ledger

EVENTS = int(os.environ.get("RATCHET_BENCH_EVENTS", "1_000_000"))
GROUPINGS: tuple[list[str], ...] = ([], ["day"], ["agent", "model"], ["repo", "workflow", "role", "action"])
_ADD = """
INSERT INTO events (run, seq, at, epoch, kind, data, prev, sum, place) VALUES (?, ?, ?, 1, ?, ?, '', '', ?)
"""


def main() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        return _measure(Path(folder) / "ratchet.db")


def _measure(file: Path) -> list[Row]:
    SqliteStore(file).close()
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.executemany(_ADD, _rows(EVENTS))
    store = SqliteStore(file)

    def read(by: list[str], since: str = EVER) -> None:
        store.figures(FiguresQuery(since=since, until=FOREVER, by=by))

    began = time.perf_counter()
    read([])
    counted_s = time.perf_counter() - began
    rows: list[Row] = [("counting all of them, once", "events/s", EVENTS / counted_s)]
    for by in GROUPINGS:
        name = f"by {', '.join(by)}" if by else "in total"
        taken = medians(5, ever=lambda by=by: read(by), week=lambda by=by: read(by, "2026-03-25T00:00:00Z"))  # type: ignore[misc]
        rows.append((f"reading the figures of all ninety days {name}", "ms", taken["ever"] * 1e3))
        rows.append((f"reading the figures of the last week {name}", "ms", taken["week"] * 1e3))
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.executemany(_ADD, _rows(100, name="more", place=EVENTS))
    began = time.perf_counter()
    read([], "2026-03-25T00:00:00Z")
    rows.append(("reading the last week after 100 more events", "ms", (time.perf_counter() - began) * 1e3))
    store.close()
    return rows


def _rows(count: int, *, name: str = "run", place: int = 0) -> Iterator[tuple[object, ...]]:
    chance, left, number = random.Random(name), count, 0
    while left:
        number += 1
        start = START + timedelta(days=90 * (count - left) / count)
        for seq, (at, event) in enumerate(ledger(chance, start=start)[:left], 1):
            place, left = place + 1, left - 1
            yield f"{name}-{number:06}", seq, at, ev.kind_of(event), ev.encode(event), place
