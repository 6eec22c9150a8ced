"""A claim folds only what follows the last checkpoint, and comes to the same state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ratchet import files
from ratchet.core import events as ev
from ratchet.core.state import fold
from ratchet.engine import run_ledger
from ratchet.engine.run_ledger import Checkpoint, fold_version
from ratchet.engine.workflow_registry import open_workflow
from ratchet.store import run_directory
from ratchet.store.protocols import LedgerCheckpoint
from ratchet.store.sqlite.store import SqliteStore
from tests.support import GOOD_SCRIPT, carry, carry_script, open_factory, write_script

DAMAGES: list[Callable[[str], str]] = [
    lambda text: text[:-40],
    lambda text: text[: text.rindex("\n", 0, -1) + 1],
    lambda _text: "",
]


@pytest.fixture
def every_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_ledger, "CHECKPOINT_ENTRIES", 1)


@pytest.mark.usefixtures("every_entry")
def test_a_checkpoint_holds_the_state_that_the_whole_ledger_folds_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[LedgerCheckpoint] = []
    monkeypatch.setattr(SqliteStore, "checkpoint_ledger", lambda _store, checkpoint: kept.append(checkpoint))
    _, _, place = carry_script(tmp_path, GOOD_SCRIPT)
    workflow = open_workflow("tdd")
    with open_factory(place) as factory:
        entries = factory.history("last").entries
    events = [ev.decode(entry.kind, entry.data) for entry in entries]
    assert len(kept) > 10
    for one in kept:
        assert one.sum == entries[one.seq - 1].sum and one.version == fold_version(workflow)
        read = msgspec.json.decode(one.state, type=Checkpoint).state
        assert read == fold(one.run, workflow.table, events[: one.seq])


@pytest.mark.usefixtures("every_entry")
def test_a_run_that_is_continued_from_a_checkpoint_ends_as_one_from_its_whole_ledger(tmp_path: Path) -> None:
    script = GOOD_SCRIPT | {"audit": [*GOOD_SCRIPT["audit"][:1], {"fail": "rate_limit"}, *GOOD_SCRIPT["audit"][1:]]}
    state, _, place = carry_script(tmp_path, script)
    assert state.parked
    write_script(place, GOOD_SCRIPT)
    with open_factory(place) as factory:
        tail = factory.store.ledger_tail(state.run, version=fold_version(open_workflow("tdd")))
        assert tail.checkpoint and len(tail.entries) < 3
        state = carry(factory, place / "SPEC.md")
    with open_factory(place) as factory:
        history = factory.history("last")
        assert history.state == state
        directory = factory.directory(state.run)
        files = [directory.path / name for name in ("ledger.ndjson", "history.md")]
        mirrored = [file.read_bytes() for file in files]
        directory.export(history.entries, history.receipts, history.state)
        assert [file.read_bytes() for file in files] == mirrored


def test_a_mirror_that_lost_entries_or_differs_is_written_anew(tmp_path: Path) -> None:
    script = GOOD_SCRIPT | {"audit": [{"fail": "rate_limit"}, *GOOD_SCRIPT["audit"]]}
    for number, damage in enumerate(DAMAGES):
        state, _, place = carry_script(tmp_path / str(number), script)
        assert state.parked
        write_script(place, GOOD_SCRIPT)
        with open_factory(place) as factory:
            mirror = factory.directory(state.run).path / "ledger.ndjson"
            mirror.write_text(damage(mirror.read_text()))
            state = carry(factory, place / "SPEC.md")
            sums = [msgspec.json.decode(line)["sum"] for line in mirror.read_text().splitlines()]
            assert sums == [entry.sum for entry in factory.history("last").entries]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_history_grows_by_its_last_steps_only_and_one_that_is_torn_is_written_anew(
    tmp_path: Path, damage: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = GOOD_SCRIPT | {"audit": [{"fail": "rate_limit"}, *GOOD_SCRIPT["audit"]]}
    state, _, place = carry_script(tmp_path, script)
    write_script(place, GOOD_SCRIPT)
    with open_factory(place) as factory:
        file = factory.directory(state.run).path / "history.md"
        file.write_text(damage(file.read_text()))
        written: list[int] = []
        write_from = files.write_from

        def counted(path: Path, place: int, content: bytes) -> None:
            written.append(place)
            write_from(path, place, content)

        monkeypatch.setattr(run_directory, "write_from", counted)
        carry(factory, place / "SPEC.md")
        grown, history = file.read_text(), factory.history("last")
        assert written == sorted(written) and written[-2] > 0
        factory.directory(state.run).export(history.entries, history.receipts, history.state)
        assert file.read_text() == grown
