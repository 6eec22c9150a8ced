"""A database that an older Ratchet has left in the middle of its work is taken over as it stands."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import psycopg
import pytest

from ratchet.core.events import encode, kind_of
from ratchet.core.lease import Lease
from ratchet.core.ledger import GENESIS, seal
from ratchet.core.timestamps import format_timestamp
from ratchet.errors import LeaseHeld
from ratchet.store.database import migrations
from tests.contract.servers import World
from tests.contract.test_store import CLAIMED, ONE, TWO, claim, item

TWO_ROWS_A_CLAIM = 36  # the last schema with leases in a table of their own
_KIND, _DATA = kind_of(CLAIMED), encode(CLAIMED)


def _leave(world: World, version: int, rows: dict[str, list[dict[str, object]]]) -> None:
    """Make the database as it was at that version, with these rows in it."""
    steps = [(number, script) for number, script in migrations(world.backend) if number <= version]
    inserts = [(table, row) for table, found in rows.items() for row in found]
    if isinstance(world.address, Path):
        world.address.parent.mkdir(mode=0o700)
        with closing(sqlite3.connect(world.address)) as db:
            db.executescript("".join(script for _, script in steps))
            for table, row in inserts:
                marks = ", ".join("?" * len(row))
                db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", [*row.values()])
            db.execute(f"PRAGMA user_version = {steps[-1][0]}")
            db.commit()
        return
    with psycopg.connect(world.address, autocommit=True) as server:
        server.execute(f"CREATE TABLE ratchet_schema (version INTEGER NOT NULL); INSERT INTO ratchet_schema"
                       f" VALUES ({steps[-1][0]})")  # fmt: skip
        for _, script in steps:
            server.execute(script.encode())
        for table, row in inserts:
            marks = ", ".join(["%s"] * len(row))
            server.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})".encode(), [*row.values()])


@pytest.fixture
def held(world: World) -> Lease:
    """One item whose run was lost once and is held now: with a lock, two events and a lease for a minute."""
    at, until = format_timestamp(world.now), "2026-01-01T12:01:00.000000Z"
    first = seal(run="run-1", seq=1, at=at, epoch=1, kind=_KIND, data=_DATA, prev=GENESIS)
    second = seal(run="run-1", seq=2, at=at, epoch=2, kind=_KIND, data=_DATA, prev=first.sum)
    known = {"item": "item-1", "run": "run-1", "started_at": at, "beat_at": at}
    _leave(world, TWO_ROWS_A_CLAIM, {
        "items": [{"id": "item-1", "repo": "/r", "source_ref": "", "status": "in_progress", "rank": 2, "run": "run-1",
                   "created_at": at, "body": msgspec.json.encode(item())}],
        "runs": [{"id": "run-1", "item": "item-1", "status": "running", "created_at": at, "length": 2,
                  "head": second.sum, "epoch": 2}],
        "leases": [{"run": "run-1", "epoch": 2, **msgspec.structs.asdict(TWO), "expires_at": until, "id": "worker-2"}],
        "workers": [{"id": "worker-1", "name": "one", "epoch": 1, "status": "failed", "ended_at": at, **known},
                    {"id": "worker-2", "name": "two", "epoch": 2, "status": "running", **known}],
        "locks": [{"repo": "/r", "path": "src/", "run": "run-1"}],
        "events": [msgspec.structs.asdict(first), msgspec.structs.asdict(second)],
    })  # fmt: skip
    return Lease(run="run-1", item="item-1", epoch=2, holder=TWO, worker="worker-2")


def test_a_lease_and_its_locks_survive_the_migration(world: World, held: Lease) -> None:
    store = world.open()
    assert [(row.id, row.status) for row in store.workers(live=True)] == [("worker-2", "running")]
    assert store.run("run-1").holder == TWO
    assert store.locks("/r") == {"run-1": ["src/"]}
    with pytest.raises(LeaseHeld):
        claim(store, ONE)
    store.complete(held, commits=1, head="h")
    assert store.locks("/r") == {} and store.workers(live=True) == []
    assert {row.id: row.status for row in store.workers()} == {"worker-1": "failed", "worker-2": "completed"}


def test_a_lease_ends_when_it_would_have(world: World, held: Lease) -> None:
    store = world.open()
    world.pass_time(61)
    assert store.expire() == [held.run]
    assert claim(store, ONE).epoch > held.epoch


def test_every_event_is_there_in_its_place(world: World, held: Lease) -> None:
    store = world.open()
    assert [entry.seq for entry in store.entries(held.run)] == [1, 2]
    reported = store.feed()
    store.append(held, [CLAIMED])
    assert [one.entry.seq for one in [*reported, *store.feed(reported[-1].place)]] == [1, 2, 3]
