"""A snapshot made from the one before is the one made from nothing, and asks about no more than what differs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ratchet.workspace.git.trees import PathDifference, TreeStore

MANY = 200


class Counted(TreeStore):
    asked = 0

    def _differences(self, before: str, after: str) -> list[PathDifference]:
        rows = super()._differences(before, after)
        self.asked = len(rows)
        return rows


@pytest.fixture
def trees(tmp_path: Path) -> Counted:
    (tmp_path / "tree").mkdir()
    for n in range(MANY):
        (tmp_path / "tree" / f"f{n:03}").write_text(str(n))
    return Counted(store=tmp_path / "store.git", index=tmp_path / "index", folder=tmp_path / "tree")


def from_nothing(trees: TreeStore, tree: str) -> object:
    return TreeStore(store=trees.store, index=trees.index, folder=trees.folder).manifest(tree)


def test_a_change_costs_what_changed(trees: Counted) -> None:
    trees.manifest(trees.write())
    assert trees.asked == MANY
    (trees.folder / "f000").write_text("changed")
    (trees.folder / "f001").unlink()
    (trees.folder / "new").write_text("new")
    tree = trees.write()
    assert trees.manifest(tree) == from_nothing(trees, tree)
    assert trees.asked == 3


@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_same_from_whatever_came_before(trees: Counted, seed: int) -> None:
    chance, seen = random.Random(seed), []
    for _ in range(6):
        for _ in range(chance.choice([1, 3, MANY])):
            path = trees.folder / f"f{chance.randrange(MANY + 20):03}"
            path.unlink(missing_ok=True) if chance.random() < 0.4 else path.write_text(str(chance.random()))
        seen.append(trees.write())
        wanted = chance.choice(seen)
        assert trees.manifest(wanted) == from_nothing(trees, wanted)
