"""What may be anywhere in a folder that others write: links out, endless folders, files larger than a disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ratchet import tree_files
from ratchet.tree_files import leaves_tree
from ratchet.workspace.git.trees import make_readable


@pytest.mark.parametrize(
    ("path", "target"),
    [("link", "/etc/passwd"), ("link", ".."), ("a/link", "../../x"), ("link", "a/b/c/top/../../../../etc/passwd")],
)
def test_a_link_that_can_lead_out_of_the_tree_is_known_by_its_words(path: str, target: str) -> None:
    assert leaves_tree(path, target)


@pytest.mark.parametrize(("path", "target"), [("link", "a/b"), ("a/b/link", "../../x/./y"), ("a/link", "..")])
def test_a_link_within_the_tree_is_kept(path: str, target: str) -> None:
    assert not leaves_tree(path, target)


def nest(folder: Path, depth: int) -> None:
    """Make folders deeper than any path can name, with a pipe at the end."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("deep", dir_fd=at)
        below = os.open("deep", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.mkfifo(".gitignore", dir_fd=at)
    os.close(at)


def test_folders_that_no_path_can_name_are_removed_from_a_workspace(tmp_path: Path) -> None:
    nest(tmp_path, 1_500)
    (tmp_path / "kept").touch()
    tree_files.remove_special_files(tmp_path)
    deepest = max(listing.path.count("/") for listing in tree_files.walk_inside(tmp_path))
    assert deepest <= 256
    assert (tmp_path / "kept").exists()


def test_folders_of_any_depth_can_be_deleted(tmp_path: Path) -> None:
    nest(tmp_path, 1_500)
    tree_files.remove_inside(tmp_path, "deep")
    assert os.listdir(tmp_path) == []  # noqa: PTH208


def test_sparse_files_are_removed_when_together_they_are_larger_than_what_may_be_read(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "dependency/d"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, 400 << 20)
    tree_files.remove_huge_files(tmp_path, enters=lambda _at, name: name != "dependency")
    assert len(tree_files.find_inside(tmp_path)) == 3
    assert (tmp_path / "dependency/d").exists()


def test_rights_are_given_back_to_files_and_not_through_links(tmp_path: Path) -> None:
    (victim := tmp_path / "victim").write_text("x")
    (folder := tmp_path / "workspace" / "locked").mkdir(parents=True)
    (folder / "link").symlink_to(victim)
    (own := folder / "own").write_text("y")
    for path, mode in ((victim, 0o400), (own, 0o000), (folder, 0o500)):
        path.chmod(mode)
    make_readable(folder.parent)
    assert [path.stat().st_mode & 0o777 for path in (victim, own, folder)] == [0o400, 0o600, 0o700]
    tree_files.remove_inside(tmp_path, "workspace")
    assert not folder.exists() and victim.read_text() == "x" and victim.stat().st_mode & 0o777 == 0o400
