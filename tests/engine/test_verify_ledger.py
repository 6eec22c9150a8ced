"""What `verify` says of a ledger that was changed afterwards, together with its own checksums."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ratchet.app.runs import RunService
from ratchet.core.ledger import GENESIS, seal
from ratchet.engine.proof import Claim
from ratchet.store.sqlite.store import SqliteStore
from tests.support import GOOD_SCRIPT, carry_script, git, open_factory


@pytest.fixture
def place(tmp_path: Path) -> Path:
    _, _, place = carry_script(tmp_path, GOOD_SCRIPT)
    return place


@contextmanager
def database(place: Path) -> Iterator[sqlite3.Connection]:
    with open_factory(place) as factory:
        assert isinstance(factory.store, SqliteStore)
        path = factory.store.path
    with closing(sqlite3.connect(path)) as db:
        yield db
        db.commit()


def broken(place: Path) -> list[Claim]:
    with open_factory(place) as factory:
        return [claim for claim in _checked(factory) if not claim.holds]


def _checked(factory: RunService) -> list[Claim]:
    return factory._verify_ledger(factory.find_run("last")).claims


def test_an_untouched_ledger_holds_and_every_commit_names_an_entry_of_it(place: Path) -> None:
    assert broken(place) == []
    with open_factory(place) as factory:
        claims = [claim.what for claim in _checked(factory)]
    log = git("log", "--branches", "--format=%B", cwd=place)
    assert log.count("Ratchet-Ledger: ") == log.count("Ratchet-Run: ") > 0
    assert f"{log.count('Ratchet-Run: ')} commits name entries of this ledger" in claims


def cut_off(db: sqlite3.Connection, *, receipts: bool) -> None:
    (at,) = db.execute("SELECT min(seq) FROM events WHERE kind = 'step_committed'").fetchone()
    (at,) = db.execute("SELECT max(seq) FROM events WHERE kind = 'step_started' AND seq < ?", (at,)).fetchone()
    db.execute("DELETE FROM events WHERE seq >= ?", (at,))
    (head,) = db.execute("SELECT sum FROM events WHERE seq = ?", (at - 1,)).fetchone()
    db.execute("UPDATE runs SET length = ?, head = ?, status = 'running'", (at - 1, head))
    if receipts:
        db.execute(
            "DELETE FROM receipts WHERE step NOT IN "
            "(SELECT CAST(data AS TEXT) ->> 'step' FROM events WHERE kind = 'step_started')"
        )


def test_entries_cut_off_at_the_end_are_missed_by_their_receipts(place: Path) -> None:
    with database(place) as db:
        cut_off(db, receipts=False)
    assert "receipts and ledger differ in steps" in broken(place)[0].detail


def test_entries_cut_off_with_their_receipts_are_missed_by_the_commits(place: Path) -> None:
    with database(place) as db:
        cut_off(db, receipts=True)
    assert [claim.detail.split(" that ")[0] for claim in broken(place)] == ["not the ledger"]


def test_a_run_that_ended_and_whose_ledger_does_not_say_so_is_reported(place: Path) -> None:
    with database(place) as db:
        last = db.execute("SELECT max(seq) FROM events").fetchone()[0]
        db.execute("DELETE FROM events WHERE seq = ?", (last,))
        db.execute("UPDATE runs SET length = ?, head = (SELECT sum FROM events WHERE seq = ?)", (last - 1, last - 1))
    assert [claim.detail for claim in broken(place)] == ["the run is completed, its ledger says running"]


def test_a_ledger_sealed_anew_with_other_costs_contradicts_its_commits(place: Path) -> None:
    with database(place) as db:
        prev = GENESIS
        rows = db.execute("SELECT run, seq, at, epoch, kind, data FROM events ORDER BY seq").fetchall()
        for run, seq, at, epoch, kind, before in rows:
            data = before.replace(b'"cost_usd":0.', b'"cost_usd":9.')
            entry = seal(run=run, seq=seq, at=at, epoch=epoch, kind=kind, data=data, prev=prev)
            prev = entry.sum
            db.execute("UPDATE events SET data = ?, prev = ?, sum = ? WHERE seq = ?", (data, entry.prev, prev, seq))
        db.execute("UPDATE runs SET head = ?", (prev,))
    assert ["not the ledger" in claim.detail for claim in broken(place)] == [True]
