"""Plans of the statements behind every verb: none reads a whole table that grows with the history.

The plans of both databases are those of a store of any size: SQLite plans without counting, and PostgreSQL is made to
scan a table only where no index helps.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from ratchet.core import events as ev
from ratchet.core.budget import Amount, BudgetScope, Cap, Caps, Reservation
from ratchet.core.failure import Reason
from ratchet.core.item import ItemStatus
from ratchet.core.lease import Lease, LeaseRenewal
from ratchet.core.metrics import FiguresQuery
from ratchet.core.queue import ClaimLimits
from ratchet.store.postgres import store as postgres
from ratchet.store.postgres.libpq import Connection
from ratchet.store.protocols import Store
from ratchet.store.sqlite import store as sqlite
from tests.contract.servers import World
from tests.contract.test_queue import named, take

LIMITS = ClaimLimits(workers=9, per_repo=9, awaiting_review=9, daily_iterations=9)
CAPS = Caps(item=Cap(cost_usd=9), repo=Cap(cost_usd=9), day=Cap(cost_usd=9))
# Statements that list or count everything because that is what they are asked for.
EVERYTHING = (
    "SELECT status, rank, count(*)",
    "SELECT runs.id AS run",
    "SELECT * FROM workers ORDER BY started_at DESC",
    "DELETE FROM tallied_runs",  # these three count all anew, after a change of the code that counts
    "DELETE FROM tallies WHERE slot = ''",
    "INSERT INTO tallies (run, slot, worker, iteration, action, role, repo",
    "SELECT run FROM events ORDER BY place DESC LIMIT 1",  # reads one row, from the end
)
# Partial indexes hold only what is open or waiting.
SMALL = re.compile(
    r"SCAN (?!events|runs|items|workers|receipts|reservations)"
    r"|INDEX (items_(waiting|parked|queue|labelled)|runs_unlearnt|\w+_leases|late)"
)
Seen = dict[str, tuple[object, ...]]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Statements with their values, as they are executed."""
    found: Seen = {}

    def recording(method: Callable[..., Any], *, packed: bool) -> Callable[..., Any]:
        def call(self: object, sql: str, *values: Any) -> Any:
            found.setdefault(sql, values[0] if packed else values)
            return method(self, sql, *values)

        return call

    for kind in (sqlite._Transaction, postgres._Transaction):
        for name in ("fetch_all", "fetch_one", "execute"):
            monkeypatch.setattr(kind, name, recording(getattr(kind, name), packed=False))
    monkeypatch.setattr(Connection, "execute_direct", recording(Connection.execute_direct, packed=True))
    return found


def use_every_verb(store: Store) -> None:
    store.add_all([named(f"i{n}", slug=f"s{n}") for n in range(6)])
    one, two, three = take(store, "1"), take(store, "2", LIMITS), take(store, "3")
    store.renew(one, ttl_s=60)
    store.renew_all([LeaseRenewal(run=one.run, epoch=one.epoch)], ttl_s=60)
    store.append(one, [ev.RunClaimed(worker="w")])
    for read in (store.entries, store.receipts, store.run):
        read(one.run)
    store.ledger_tail(one.run, version="v")
    reserved = store.reserve(one, Amount(cost_usd=1), caps=CAPS)
    assert isinstance(reserved, Reservation)
    store.record_spending(reserved, Amount(cost_usd=0.5))
    store.settle(reserved, Amount(cost_usd=0.5))
    for scope in BudgetScope:
        store.spent(scope, one.run)
    store.lock(one, ["src/"])
    store.unlock(one)
    store.feed(store.feed_end())
    store.feed(run=one.run)
    store.metrics()
    store.figures(FiguresQuery(since="2026-01-01T00:00", until="2026-01-02T00:00", by=["day", "agent"], repo="/r"))
    store.items(status=ItemStatus.QUEUED)
    store.runs_page(item="i1")
    store.find_runs(one.run, limit=9)
    store.completed_slugs(["s1"])
    store.worker(one.worker)
    store.workers(live=True)
    store.worker_by_token(one.token)
    store.finished_runs("/r", before="2025")
    store.expire()
    store.is_drained()
    store.claimable(limits=LIMITS)
    store.complete(one, commits=0, head="h")
    store.fail(two, Reason.WORKER_LOST, "lost")
    store.kill(three.worker, by="me")
    store.cancel("i5", by="me")
    store.requeue("i5")
    use_the_other_verbs(store, one)


def use_the_other_verbs(store: Store, ended: Lease) -> None:
    four = take(store, "4")
    store.take_slot(four, "provider", "slot", limit=2, quiet_s=60)
    store.free_slot("provider", "slot", refused=True)
    store.put_artifact(four.run, b"content")
    store.forget_artifacts(four.run, ["digest"])
    store.entries_after(four.run, after=0, limit=9)
    store.append(four, [ev.RunClaimed(worker="w")], after=len(store.entries(four.run)))
    store.report_stuck(four, "no progress")
    store.fenced_writes(four.run)
    store.unlearnt_runs()
    store.learn_run(ended.run, [], [])
    store.board()
    store.held_locks()
    store.release(four)
    store.forget_run(ended.run)


def plan(world: World, sql: str, values: tuple[object, ...]) -> list[str]:
    if world.backend == "sqlite":
        with closing(sqlite3.connect(world.path)) as db:
            rows = db.execute(f"EXPLAIN QUERY PLAN {sqlite._without_lock_clauses(sql)}", values).fetchall()
            return [row[3] for row in rows]
    with postgres.connect(str(world.address)) as server:
        return [row["QUERY PLAN"] for row in server.execute(f"EXPLAIN {sql.replace('?', '%s')}", values).fetchall()]


def test_no_statement_reads_a_whole_table_of_the_history(world: World, seen: Seen) -> None:
    use_every_verb(world.open())
    statements = {sql: values for sql, values in seen.items() if not sql.lstrip().startswith("SET")}
    assert len(statements) > 60
    scans = {}
    for sql, values in statements.items():
        if " ".join(sql.split()).startswith(EVERYTHING):
            continue
        lines = [line.strip() for line in plan(world, sql, values) if "SCAN" in line or "Seq Scan" in line]
        if bad := [line for line in lines if not SMALL.search(line)]:
            scans[sql] = bad
    assert scans == {}
