"""What a run added to its repository travels to another host and is there exactly what it was."""

from __future__ import annotations

from pathlib import Path

from ratchet.workspace.git.packs import ObjectStores
from ratchet.workspace.git_workspace import GitWorkspace
from ratchet.workspace.registry import Workspaces
from tests.workspace.conftest import SMALL, make, sh


def stores_of(workspace: GitWorkspace) -> ObjectStores:
    record = workspace.record
    return ObjectStores(
        trees=workspace.trees.store, base_tree=record.base_tree,
        source=Path(record.git_dir), base_commit=record.base_commit,
    )  # fmt: skip


def test_another_clone_gets_the_tree_and_the_commits_of_a_run(repo: Path, tmp_path: Path) -> None:
    sh("git", "clone", "-q", str(repo), str(tmp_path / "elsewhere"), cwd=tmp_path)
    here = Workspaces(tmp_path / "here", bases=tmp_path / "bases-here", limits=SMALL)
    there = Workspaces(tmp_path / "there", bases=tmp_path / "bases-there", limits=SMALL)
    one = make(here, repo)
    (one.path / "src" / "app.py").write_text("VALUE = 2\n")
    commit = one.commit(tree=one.checkpoint(), message="two", parent=one.record.base_commit, at="2026-01-01T00:00:00Z")
    (one.path / "with space.txt").unlink()
    (one.path / "unfinished.txt").write_text("not committed\n")
    tree = one.checkpoint()
    objects = stores_of(one).pack(trees=[tree], head=commit)

    other = make(there, tmp_path / "elsewhere")
    stores = stores_of(other)
    assert not stores.have(trees=[tree], head=commit)
    stores.unpack(objects)
    other.restore_branch(commit)
    other.reset(tree)

    assert stores.have(trees=[tree], head=commit)
    assert (other.path / "src" / "app.py").read_text() == "VALUE = 2\n"
    assert (other.path / "unfinished.txt").read_text() == "not committed\n"
    assert not (other.path / "with space.txt").exists()
    assert other.checkpoint() == tree
    assert other.tip() == commit
    for spaces in (here, there):
        spaces.destroy("one")


def test_a_run_that_has_changed_nothing_travels_as_nothing(repo: Path, tmp_path: Path) -> None:
    here = Workspaces(tmp_path / "here", bases=tmp_path / "bases", limits=SMALL)
    one = make(here, repo)
    objects = stores_of(one).pack(trees=[one.checkpoint()], head=one.record.base_commit)
    assert objects.tree_pack == objects.commit_pack == b""
    here.destroy("one")
