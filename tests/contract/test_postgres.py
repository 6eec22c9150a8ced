"""What only the shared store promises: a server's schema, its clock, and a connection that can be lost."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec
import psycopg
import pytest

from ratchet.core import events as ev
from ratchet.core.budget import Amount, Caps
from ratchet.core.failure import Reason
from ratchet.core.item import ParkReason
from ratchet.core.lease import Lease
from ratchet.core.queue import ClaimLimits, NoWork
from ratchet.core.signal import Topic
from ratchet.errors import EnvironmentCannot, LeaseLost, StoreNewer
from ratchet.store.group_commit import GroupCommit
from ratchet.store.postgres import store as postgres
from ratchet.store.postgres.batching import CLAIM, COMPLETE
from ratchet.store.postgres.libpq import number_parameters
from ratchet.store.postgres.store import PostgresStore, connect
from ratchet.store.protocols import Store, open_store
from tests.contract.servers import Server, World, fresh_database
from tests.contract.test_queue import holder, named, take
from tests.contract.test_store import CLAIMED, claim, item


@pytest.fixture
def world() -> Iterator[World]:
    made = World(fresh_database())
    yield made
    made.close()


def on_the_server(world: World, sql: str) -> None:
    with psycopg.connect(str(world.address), autocommit=True) as db:
        db.execute(sql)


def cut(world: World) -> None:
    """Every connection of everybody, as a restart of the server does."""
    on_the_server(
        world,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )


def test_a_database_of_a_newer_ratchet_is_refused(world: World) -> None:
    world.open()
    on_the_server(world, "INSERT INTO ratchet_schema VALUES (999)")
    with pytest.raises(StoreNewer, match="999"):
        world.open()


def test_a_lost_connection_is_reopened_without_an_error(world: World) -> None:
    store = world.open()
    store.add(item())
    lease = claim(store)
    for _ in range(3):
        cut(world)
        world.pass_time(1)
        store.append(lease, [CLAIMED])
        assert store.renew(lease, ttl_s=60) == ""
    assert len(store.entries("run-1")) == 3


def test_a_client_that_freezes_in_a_transaction_does_not_stop_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that was suspended, whose kernel still answers for it."""
    monkeypatch.setattr(postgres, "IDLE_S", 1)
    frozen, store = world.open(), world.open()
    assert isinstance(frozen, PostgresStore)
    store.add(named("a"))
    lease = take(store, "x")
    with pytest.raises(psycopg.Error) as ended, connect(frozen.url) as db, db.transaction():
        db.execute("SELECT * FROM runs FOR UPDATE")
        assert store.append(lease, [CLAIMED])
        db.execute("SELECT 1")
    assert postgres._connection_lost(ended.value), "its verb is repeated"


def test_a_listener_is_woken_after_a_lost_connection(world: World) -> None:
    store = world.open()
    with store.listen(Topic.WORK) as work:
        cut(world)
        store.add(item())
        assert work.wait(30)


def test_every_verb_survives_a_restart_of_the_server() -> None:
    """A server of its own, stopped at once as if it had crashed, and started again while workers are at it."""
    server = Server()
    store = open_store(server.address)
    store.add_all([named(f"i{n:02}") for n in range(40)])
    done, restarted = list[str](), threading.Event()

    def work(name: str) -> None:
        while isinstance(lease := store.claim_next(holder(name), run=f"run-{uuid4().hex}", ttl_s=120), Lease):
            store.append(lease, [CLAIMED])
            store.renew(lease, ttl_s=120)
            done.append(lease.item)
            if len(done) == 8:
                restarted.set()
            store.complete(lease, commits=1, head="h")

    workers = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
    for worker in workers:
        worker.start()
    assert restarted.wait(60)
    server.restart()
    for worker in workers:
        worker.join()
    assert sorted(done) == [f"i{n:02}" for n in range(40)]
    assert {count.status for count in store.stats()} == {"completed"}
    assert all(
        [entry.kind for entry in store.entries(row.run)] == ["run_claimed", "run_completed"] for row in store.runs()
    )
    store.close()
    server.stop()


def test_a_worker_with_a_wrong_clock_expires_no_lease(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is the server's: whatever the clock on this machine says, before or after the store was opened."""
    right = open_store(str(world.address))
    right.add(item())
    lease = claim(right)
    wrong = datetime.now(UTC) + timedelta(days=1)

    class Ahead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]  # noqa: ARG003 — the same call
            return wrong

    monkeypatch.setattr("ratchet.store.database.datetime", Ahead)
    monkeypatch.setattr("ratchet.store.postgres.store.datetime", Ahead)
    monkeypatch.setattr(time, "time", wrong.timestamp)
    late = open_store(str(world.address))
    assert late.expire() == [] and isinstance(late.claim_next(holder(), run="run-2", ttl_s=60), NoWork)
    assert right.renew(lease, ttl_s=60) == ""
    right.close()
    late.close()


def test_an_address_opens_a_server_and_its_password_is_never_shown(world: World) -> None:
    store = open_store(str(world.address))
    assert isinstance(store, PostgresStore)
    store.close()
    with pytest.raises(EnvironmentCannot) as refused:
        open_store("postgresql://ann:s3cret@127.0.0.1:1/x")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(("items", "over"), [(0, 0), (20, 1), (5_000, 0), (5_000, 400)])
def test_a_plan_that_is_kept_was_right_for_small_tables_and_is_for_large_ones(
    world: World, items: int, over: int
) -> None:
    """What a connection keeps reading whole, or by the index of lists, becomes reading past all that is over."""
    store = world.open()
    store.add_all([named(f"i{n:02}") for n in range(items)])
    for n in range(over):
        store.complete(claim(store, run=f"run-{n}", name=f"i{n:02}"), commits=1, head="h")
    on_the_server(world, "VACUUM ANALYZE")
    with connect(str(world.address)) as db:
        for sql in (CLAIM, COMPLETE):
            rows = db.execute(b"EXPLAIN (GENERIC_PLAN) " + number_parameters(sql)[1]).fetchall()
            plan = "\n".join(row["QUERY PLAN"] for row in rows)
            assert not re.search("Seq Scan|Hash|Bitmap|items_listed|runs_newest", plan), plan
            assert not re.search(r"Index .*Scan using .*\n(?! *Index Cond)", plan), plan


def test_lists_have_an_index_of_their_own(world: World) -> None:
    store = world.open()
    store.add_all([named(f"i{n:02}") for n in range(20)])
    page = f"SELECT * FROM items ORDER BY {PostgresStore._listed} LIMIT 5"
    with connect(str(world.address)) as db:
        rows = db.execute(f"EXPLAIN {page}".encode()).fetchall()
    assert "items_listed" in "\n".join(row["QUERY PLAN"] for row in rows)


ENDS: dict[str, Callable[[Store, Lease], object]] = {
    "stuck": lambda store, lease: store.report_stuck(lease, "no progress"),
    "complete": lambda store, lease: store.complete(lease, commits=1, head="h"),
    "fail": lambda store, lease: store.fail(lease, Reason.WORKER_LOST, "lost"),
    "kill": lambda store, lease: store.kill(lease.worker, by="ann"),
    "release": lambda store, lease: store.release(lease),
}


@pytest.mark.parametrize("end", list(ENDS))
def test_a_verb_that_waits_for_a_lease_has_not_locked_its_worker(world: World, end: str) -> None:
    """A heartbeat takes the lease, then the worker: whoever took them the other way round would deadlock with it."""
    store = world.open()
    store.add(item())
    lease = claim(store)
    with psycopg.connect(str(world.address)) as beat:
        beat.execute("SELECT run FROM leases WHERE run = %s FOR UPDATE", (lease.run,))
        ending = threading.Thread(target=lambda: ENDS[end](store, lease))
        ending.start()
        with psycopg.connect(str(world.address), autocommit=True) as watch:
            while not watch.execute(_WAITING).fetchone():
                assert ending.is_alive()
        beat.execute("SELECT id FROM workers WHERE run = %s FOR UPDATE NOWAIT", (lease.run,))
        beat.rollback()
        ending.join()


_ACTIVE = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()
"""
_WAITING = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@contextmanager
def nobody_gets_at(world: World, table: str) -> Iterator[None]:
    """Until then every statement that needs the table waits: so do those who come after it, together."""
    with psycopg.connect(str(world.address)) as db:
        db.execute(f'LOCK TABLE "{table}" IN ACCESS EXCLUSIVE MODE')
        yield
        db.rollback()


def together(world: World, asked: GroupCommit[Any], *verbs: Callable[[], object]) -> list[object]:
    """What each of them answers or raises when the first is asked alone and the others, meanwhile, together."""
    with ThreadPoolExecutor(len(verbs)) as threads:
        with nobody_gets_at(world, "items"):
            first = threads.submit(verbs[0])
            with psycopg.connect(str(world.address), autocommit=True) as watch:
                while not watch.execute(_WAITING).fetchone():
                    assert not first.done()
            others = []
            for verb in verbs[1:]:
                others.append(threads.submit(verb))
                while asked.waiting < len(others):
                    os.sched_yield()
        return [reported.exception() or reported.result() for reported in (first, *others)]


def claims(store: Store, *runs: str) -> list[Callable[[], object]]:
    return [partial(store.claim_next, holder(f"w{n}"), run=run, ttl_s=60) for n, run in enumerate(runs)]


def test_concurrent_claims_get_the_items_in_order_and_the_rest_nothing(world: World) -> None:
    store = world.open()
    assert isinstance(store, PostgresStore)
    store.add_all([named("i1"), named("i2"), named("i3")])
    reported = together(world, store._claims, *claims(store, "run-1", "run-2", "run-3", "run-4"))
    assert [(one.item, one.run, one.holder.worker) for one in reported if isinstance(one, Lease)] == [
        ("i1", "run-1", "w0"), ("i2", "run-2", "w1"), ("i3", "run-3", "w2")]  # fmt: skip
    assert isinstance(reported[-1], NoWork)
    assert [store.lease_by_token(one.token) for one in reported if isinstance(one, Lease)] == reported[:3]


def test_an_invalid_claim_does_not_fail_claims_in_the_same_batch(world: World) -> None:
    store = world.open()
    assert isinstance(store, PostgresStore)
    store.add_all([named(f"i{n}") for n in range(4)])
    reported = together(world, store._claims, *claims(store, "run-1", "run-2", "run-1", "run-3"))
    assert [type(one) for one in reported] == [Lease, Lease, EnvironmentCannot, Lease]
    assert len({one.item for one in reported if isinstance(one, Lease)}) == 3


def test_what_locks_paths_is_claimed_by_the_verb_that_looks_at_locks_also_among_others(world: World) -> None:
    store = world.open()
    assert isinstance(store, PostgresStore)
    paths = msgspec.structs.replace(named("i2"), footprint=["src/a.py"])
    store.add_all([named("i1"), paths, named("i3"), named("i4")])
    reported = together(world, store._claims, *claims(store, "run-1", "run-2", "run-3", "run-4"))
    assert sorted(one.item for one in reported if isinstance(one, Lease)) == ["i1", "i2", "i3", "i4"]
    assert list(store.locks("/r").values()) == [["src/a.py"]]


def test_concurrent_completions_succeed_except_with_a_lost_lease(world: World) -> None:
    store = world.open()
    assert isinstance(store, PostgresStore)
    store.add_all([named(f"i{n}") for n in range(4)])
    leases = [claim(store, name=f"i{n}", run=f"run-{n}") for n in range(4)]
    store.kill(leases[2].worker, by="ann")
    ends = [partial(store.complete, lease, commits=1, head="h") for lease in [*leases, leases[3]]]
    reported = together(world, store._completions, *ends)
    assert [type(one) for one in reported] == [type(None), type(None), LeaseLost, type(None), type(None)]
    assert [store.run(lease.run).status for lease in leases] == ["completed", "completed", "running", "completed"]
    assert all(store.entries(lease.run) for lease in leases)
    assert [late.run for late in store.fenced_writes()] == ["run-2"]


# --- a connection that breaks while the server commits ---------------------------------------------------------------

_SLOW_COMMIT = """
CREATE FUNCTION wait_to_commit() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT OR UPDATE ON "{table}" DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION wait_to_commit()
"""
_FACTS = """
SELECT (SELECT json_agg(json_build_array(run, seq, kind) ORDER BY run, seq) FROM events) AS events,
  (SELECT json_agg(json_build_array(item, epoch, status, nudges) ORDER BY item, epoch) FROM workers) AS workers,
  (SELECT json_agg(json_build_array(id, status, attempts, returns) ORDER BY id) FROM items) AS items,
  (SELECT count(*) FROM reservations) AS reservations, (SELECT count(*) FROM needs) AS needs
"""
ONCE: dict[str, tuple[str, Callable[[Store, Lease], object]]] = {
    "append": ("events", lambda store, lease: store.append(lease, [CLAIMED])),
    "complete": ("events", lambda store, lease: store.complete(lease, commits=1, head="h")),
    "fail": ("workers", lambda store, lease: store.fail(lease, Reason.WORKER_LOST, "lost")),
    "stuck": ("workers", lambda store, lease: store.report_stuck(lease, "no progress")),
    "reserve": ("reservations", lambda store, lease: store.reserve(lease, Amount(cost_usd=1), caps=Caps())),
    "claim": ("workers", lambda store, _: claim(store, name="i2", run="run-2")),
    "claim_next": ("workers", lambda store, _: store.claim_next(holder("w"), run="run-2", ttl_s=60)),
    "claim_next with limits": (
        "workers",
        lambda store, _: store.claim_next(holder("w"), run="run-2", ttl_s=60, limits=ClaimLimits(workers=9)),
    ),
    "add": ("items", lambda store, _: store.add(msgspec.structs.replace(named("i4"), needs=["i2"]))),
    "unpark": ("items", lambda store, _: store.unpark("i3")),
    "answer": ("events", lambda store, _: store.answer("i5", "yes", by="me")),
    "nudge": ("events", lambda store, _: store.nudge("i1", "use Decimal", by="me")),
}


@pytest.mark.parametrize("verb", list(ONCE))
def test_a_verb_whose_connection_breaks_during_its_commit_is_executed_once(verb: str) -> None:
    table, call = ONCE[verb]
    facts = []
    for breaks in (False, True):
        world = World(fresh_database())
        store = world.open()
        assert isinstance(store, PostgresStore)
        store.add_all([named("i1"), named("i2"), named("i3")])
        store.park("i3", ParkReason.QUESTION)
        lease = claim(store, name="i1")
        store.add(named("i5"))
        store.append(claim(store, name="i5", run="run-5"), [ev.RunParked(reason=ParkReason.QUESTION, detail="?")])
        if breaks:
            _broken_commit(world, store, table, lambda: call(store, lease))  # noqa: B023 — called here
        else:
            call(store, lease)
        with psycopg.connect(str(world.address)) as db:
            facts.append(db.execute(_FACTS).fetchone())
        world.close()
    assert facts[0] == facts[1]


def _broken_commit(world: World, store: PostgresStore, table: str, call: Callable[[], object]) -> None:
    """Break the connection of `call` while its commit waits; let the commit go on when the next attempt waits too."""
    on_the_server(world, _SLOW_COMMIT.format(table=table))
    wire = store._pool._idle[-1].fileno()
    with (
        psycopg.connect(str(world.address)) as holds,
        psycopg.connect(str(world.address), autocommit=True) as watch,
        ThreadPoolExecutor(1) as thread,
    ):
        holds.execute("SELECT pg_advisory_xact_lock(42)")
        called = thread.submit(call)
        _until_waiting(watch, 1, called)
        world.pass_time(1)
        with socket.socket(fileno=os.dup(wire)) as end:
            end.shutdown(socket.SHUT_RDWR)
        _until_waiting(watch, 2, called)
        holds.rollback()
        called.result()
        while (row := watch.execute(_ACTIVE).fetchone()) and row[0]:  # the first attempt commits when it likes
            pass


def _until_waiting(watch: psycopg.Connection[Any], number: int, called: Future[object]) -> None:
    sql = _WAITING.replace("1 FROM", "count(*) FROM")
    while (row := watch.execute(sql).fetchone()) and row[0] < number:
        if called.done():
            return
