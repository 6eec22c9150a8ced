"""`ratchet gc`: what it removes of finished runs, and that what it keeps can still be verified."""

from __future__ import annotations

import hashlib
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from ratchet.app.retention import GcReport, collect_garbage
from ratchet.app.runs import RunService
from ratchet.core.receipt import Artifact
from ratchet.errors import ArtifactBroken, Conflict, NotFound, UsageError
from ratchet.workspace.git.trees import repack
from tests.support import GOOD_SCRIPT, carry, carry_script, git, open_factory, ratchet

LATER = datetime.now(UTC) + timedelta(days=31)


def holds(factory: RunService, run: str) -> bool:
    return factory._verify_ledger(factory.find_run(run)).holds


def test_logs_and_prompts_of_old_runs_go_and_the_run_still_verifies(tmp_path: Path) -> None:
    state, _, place = carry_script(tmp_path, GOOD_SCRIPT)
    with open_factory(place) as factory:
        folder = factory.directory(state.run).path
        assert collect_garbage(factory) == GcReport(dry_run=False)
        would = collect_garbage(factory, dry_run=True, now=LATER)
        assert would.pruned == [state.run] and would.freed_bytes and (folder / "prompts").is_dir()
        done = collect_garbage(factory, now=LATER)
        assert (done.pruned, done.freed_bytes) == (would.pruned, would.freed_bytes)
        assert not (folder / "prompts").exists() and not (folder / "logs").exists()
        assert holds(factory, state.run)
        next(folder.glob("reports/*")).unlink()
        assert not holds(factory, state.run)
        assert collect_garbage(factory, now=LATER).pruned == []


def test_older_runs_become_one_file_each_and_leave_the_store(tmp_path: Path) -> None:
    state, _, place = carry_script(tmp_path, GOOD_SCRIPT)
    with open_factory(place, "retention.archive_days=30") as factory:
        with pytest.raises(Conflict):
            factory.store.forget_run(state.run)  # it has the newest event
        (place / "SPEC.md").write_text((place / "SPEC.md").read_text() + "\nAgain.\n")
        second = carry(factory, place / "SPEC.md")
        done = collect_garbage(factory, now=LATER)
        assert done.archived == [state.run] and done.pruned == [second.run]
        with pytest.raises(NotFound):
            factory.store.run(state.run)
        assert [row.run for row in factory.store.runs()] == [second.run]
        assert {reported.entry.run for reported in factory.store.feed()} == {second.run}
        with tarfile.open(place / ".ratchet" / "archive" / f"{state.run}.tar.gz") as archive:
            assert {f"{state.run}/ledger.ndjson", f"{state.run}/run.json"} <= set(archive.getnames())
        assert not factory.directory(state.run).path.exists() and holds(factory, second.run)


@pytest.mark.parametrize("name", ["../../../victim", "..", "/etc", "a/b", ""])
def test_a_run_of_a_forged_store_names_no_folder_elsewhere(tmp_path: Path, name: str) -> None:
    state, _, place = carry_script(tmp_path, GOOD_SCRIPT)
    with open_factory(place) as factory:
        with pytest.raises(UsageError, match="no run has the name"):
            factory.directory(name)
        directory, (first, *_) = factory.directory(state.run), factory.store.receipts(state.run)
        with pytest.raises(UsageError, match="no item has the name"):
            directory.mirror_receipt(msgspec.structs.replace(first, item="../../.."))
        path = f"{name}/SPEC.md" if name else "../../../SPEC.md"
        (directory.path / "link").symlink_to(place)
        content = (place / "SPEC.md").read_bytes()
        for wrong in (path, "link/SPEC.md", str(place / "SPEC.md")):
            forged = Artifact(path=wrong, sha256=hashlib.sha256(content).hexdigest(), size=len(content))
            with pytest.raises(ArtifactBroken):
                directory.get(forged)


def test_packed_trees_are_all_still_there(tmp_path: Path) -> None:
    _, _, place = carry_script(tmp_path, GOOD_SCRIPT)
    store = place / ".ratchet" / "trees.git"
    with open_factory(place) as factory:
        trees = {commit.tree for commit in factory.history("last").state.commits}
    assert repack(store, more_than=2, dry_run=True) == repack(store, more_than=2) > 2
    assert repack(store, more_than=0) == 0
    for tree in trees:
        assert git("--git-dir", str(store), "ls-tree", "-r", tree, cwd=place)


def test_the_command_says_what_it_would_remove(tmp_path: Path) -> None:
    _, _, place = carry_script(tmp_path, GOOD_SCRIPT)
    assert ratchet("gc", "--dry-run", cwd=place).stdout == "nothing to remove\n"
