"""The order of the feed: a run's entries by their number, whatever else the server does, also after a restore."""

from __future__ import annotations

import threading

import psycopg
import pytest

from ratchet.core import events as ev
from ratchet.store.database import Database, Transaction
from ratchet.store.ledger import append_events
from ratchet.store.protocols import Store
from tests.contract.servers import World, fresh_database
from tests.contract.test_queue import named, take

CLAIMED = ev.RunClaimed(worker="w")


@pytest.fixture
def shared() -> World:
    return World(fresh_database())


def numbers(store: Store, after: str = "", run: str = "") -> list[int]:
    return [reported.entry.seq for reported in store.feed(after, run=run)]


def test_an_open_transaction_in_another_database_of_the_server_delays_no_feed(shared: World) -> None:
    store, other = shared.open(), fresh_database()
    store.add(named("a"))
    lease = take(store, "1")
    with psycopg.connect(other) as foreign:
        foreign.execute("SELECT pg_current_xact_id()")
        store.append(lease, [CLAIMED, CLAIMED])
        assert numbers(store) == [1, 2] == numbers(store, run=lease.run)
        assert numbers(store, after=store.feed_end()) == []
    shared.close()


def test_an_open_transaction_in_this_database_is_waited_for_and_its_event_is_not_skipped(shared: World) -> None:
    store, second = shared.open(), shared.open()
    assert isinstance(second, Database)
    store.add_all([named("a"), named("b")])
    one, two = take(store, "1"), take(store, "2")
    began, go_on = threading.Event(), threading.Event()

    def slowly(db: Transaction) -> None:
        append_events(db, one, [CLAIMED], at="2026-01-01T00:00:00.000000Z")
        began.set()
        assert go_on.wait(20)

    writer = threading.Thread(target=lambda: second._write(slowly))
    writer.start()
    assert began.wait(20)
    store.append(two, [CLAIMED])
    seen = store.feed()
    go_on.set()
    writer.join()
    after = seen[-1].place if seen else ""
    reported = [*seen, *store.feed(after)]
    assert sorted(one.entry.run for one in reported) == sorted([one.run, two.run])
    shared.close()


def test_entries_of_a_run_keep_their_order_when_transactions_begin_in_another(shared: World) -> None:
    store = shared.open()
    store.add(named("a"))
    lease = take(store, "1")
    store.append(lease, [CLAIMED])
    shared.tamper("UPDATE events SET place = place + 1000")  # as of a transaction that began later than the next
    store.append(lease, [CLAIMED, CLAIMED])
    store.complete(lease, commits=0, head="h")
    with psycopg.connect(str(shared.address)) as db:
        rows = db.execute("SELECT seq FROM events ORDER BY place, run, seq").fetchall()
    assert [seq for (seq,) in rows] == [1, 2, 3, 4]
    shared.close()


def test_after_a_restore_into_another_cluster_old_and_new_events_are_delivered_in_order(shared: World) -> None:
    store = shared.open()
    store.add(named("a"))
    lease = take(store, "1")
    store.append(lease, [CLAIMED, CLAIMED])
    # As in a dump of a cluster whose transaction ids are far ahead of this one's.
    shared.tamper("UPDATE events SET place = place + 1000000")
    shared.tamper("UPDATE feed_generation SET cluster = 'the one before'")
    restored = shared.open()
    assert numbers(restored) == [1, 2]
    last = restored.feed()[-1].place
    restored.append(lease, [CLAIMED])
    assert numbers(restored, after=last) == [3]
    assert numbers(restored) == [1, 2, 3] == numbers(restored, run=lease.run)
    assert numbers(restored, after=restored.feed_end()) == []
    again = shared.open()
    assert numbers(again) == [1, 2, 3]
    shared.close()


def test_a_run_is_followed_by_the_numbers_of_its_entries(store: Store) -> None:
    store.add_all([named("a"), named("b")])
    one, two = take(store, "1"), take(store, "2")
    store.append(one, [CLAIMED])
    store.append(two, [CLAIMED])
    end = store.feed_end()
    store.append(one, [CLAIMED, CLAIMED])
    assert numbers(store, run=one.run) == [1, 2, 3]
    assert numbers(store, after=end, run=one.run) == [2, 3]
    assert numbers(store, after=store.feed(run=one.run)[1].place, run=one.run) == [3]
