"""A tree's identity comes from its content alone."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.core.snapshot import Manifest
from ratchet.errors import UsageError
from ratchet.workspace.git.trees import TreeStore, snapshot
from tests.support import git, make_repository

FILES = {
    "a.py": "x = 1\n",
    "run.sh": "echo hi\n",
    "dir/with space/ü.txt": "text\r\n",
    ".gitattributes": "*.txt text eol=lf\n",
    ".gitignore": "*.log\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("a.py")
    return folder


def shot(folder: Path) -> Manifest:
    return snapshot(folder, store=folder.parent / f"{folder.name}.trees.git")


def test_a_copy_elsewhere_with_new_times_has_the_same_id(tree: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(tree, copy, symlinks=True, copy_function=shutil.copyfile)
    (copy / "run.sh").chmod(0o755)
    for path in copy.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    assert shot(copy) == shot(tree)
    assert shot(tree).snapshot_id.startswith("snap-") and len(shot(tree).snapshot_id) == 17


def test_a_clone_has_the_same_id(tree: Path, tmp_path: Path) -> None:
    make_repository(tree, {})
    git("clone", "-q", str(tree), str(tmp_path / "clone"), cwd=tmp_path)
    (tmp_path / "clone" / "dir/with space/ü.txt").write_bytes(b"text\r\n")  # git checked it out with other line ends
    assert shot(tmp_path / "clone") == shot(tree)


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: (tree / "a.py").write_text("x = 2\n"),
        lambda tree: (tree / "a.py").rename(tree / "b.py"),
        lambda tree: (tree / "a.py").chmod(0o755),
        lambda tree: (tree / "run.sh").chmod(0o644),
        lambda tree: (tree / "new").write_text(""),
        lambda tree: (tree / "a.py").unlink(),
        lambda tree: (tree / "dir/with space/ü.txt").write_bytes(b"text\n"),
        lambda tree: ((tree / "link").unlink(), (tree / "link").symlink_to("run.sh")),
        lambda tree: ((tree / "link").unlink(), (tree / "link").write_text("a.py")),
    ],
)
def test_any_changed_byte_mode_or_name_is_another_id(tree: Path, change: Callable[[Path], object]) -> None:
    before = shot(tree)
    change(tree)
    assert shot(tree).snapshot_id != before.snapshot_id


def test_what_is_ignored_and_what_tools_make_is_left_out(tree: Path) -> None:
    before = shot(tree)
    (tree / "debug.log").write_text("x")
    for name in ("node_modules", ".venv", "__pycache__", ".ratchet"):
        (tree / name).mkdir()
        (tree / name / "file").write_text("x")
    assert shot(tree) == before


def test_hashes_can_be_recomputed_with_standard_tools(tree: Path) -> None:
    entry = next(entry for entry in shot(tree).files if entry.path == "a.py")
    assert entry.sha256 == hashlib.sha256(b"x = 1\n").hexdigest() and entry.size == 6


def trees_of(folder: Path) -> TreeStore:
    return TreeStore(store=folder.parent / "t.git", index=folder.parent / "t.index", folder=folder)


def test_a_restore_brings_back_everything_and_removes_the_rest(tree: Path) -> None:
    trees = trees_of(tree)
    kept = trees.write()
    before = trees.manifest(kept)
    shutil.rmtree(tree / "dir")
    (tree / "a.py").write_text("changed")
    (tree / "a.py").chmod(0o755)
    (tree / "left over").write_text("x")
    (tree / "ignored.log").write_text("x")
    (tree / "link").unlink()
    trees.restore(kept)
    assert trees.manifest(trees.write()) == before
    assert not (tree / "left over").exists() and not (tree / "ignored.log").exists()
    assert (tree / "dir/with space/ü.txt").read_bytes() == b"text\r\n"


def test_names_that_are_no_text_survive(tree: Path) -> None:
    odd = [b"new\nline", b"not-utf8-\xff", b"back\\slash", b"*?[x]", b":(top)x", b"-rf"]
    for name in odd:
        (tree / os.fsdecode(name)).write_text("x")
    trees = trees_of(tree)
    kept = trees.write()
    trees.restore_paths([os.fsdecode(b"*?[x]")], kept)
    for name in odd:
        (tree / os.fsdecode(name)).unlink()
    trees.restore(kept)
    assert all((tree / os.fsdecode(name)).exists() for name in odd)


@pytest.mark.parametrize("place", ["dir", "dir/with space", "brand new"])
def test_a_repository_hidden_in_the_tree_hides_nothing(tree: Path, place: str) -> None:
    trees = trees_of(tree)
    kept = trees.write()
    make_repository(tree / place, {"smuggled.py": "evil"})
    now = trees.write()
    assert f"{place}/smuggled.py" in trees.changes(kept, now)
    trees.restore(kept)
    assert not (tree / place / "smuggled.py").exists()


def test_a_repository_without_a_commit_hides_nothing_either(tree: Path) -> None:
    trees = trees_of(tree)
    kept = trees.write()
    (tree / "empty").mkdir()
    git("init", "-q", ".", cwd=tree / "empty")
    (tree / "empty" / "smuggled.py").write_text("evil")
    assert trees.changes(kept, trees.write()) == ["empty/smuggled.py"]


def test_files_made_unreadable_are_brought_back(tree: Path) -> None:
    trees = trees_of(tree)
    kept = trees.write()
    (tree / "a.py").write_text("changed")
    (tree / "a.py").chmod(0)
    (tree / "dir").chmod(0o500)
    trees.restore(kept)
    assert (tree / "a.py").read_text() == "x = 1\n"


@pytest.mark.parametrize(
    "change",
    [
        lambda store: (store / "config").write_text('[core]\n\tbare = true\n[filter "x"]\n\tclean = touch ran\n'),
        lambda store: (store / "config").write_text("[core]\n\tsshCommand = touch ran\n"),
        lambda store: (store / "config").unlink(),
        lambda store: (store / "commondir").write_text("../other\n"),
    ],
)
def test_a_store_with_settings_that_are_not_ours_is_refused(tree: Path, change: Callable[[Path], object]) -> None:
    shot(tree)
    change(tree.parent / f"{tree.name}.trees.git")
    with pytest.raises(UsageError, match="are not those that Ratchet made it with"):
        shot(tree)


def test_what_is_in_the_place_of_our_state_is_no_part_of_a_tree_even_if_it_is_not_ignored(tree: Path) -> None:
    prompt = tree / ".ratchet" / "prompts" / "fix.md"
    prompt.parent.mkdir(parents=True)
    prompt.write_text("mend")
    (tree / ".gitignore").write_text("!.ratchet/\n!.Ratchet/\n")
    before = shot(tree)
    (tree / ".ratchet" / "trees.git").mkdir()
    (tree / ".ratchet" / "trees.git" / "config").write_text("[core]\n")
    (tree / ".Ratchet").mkdir()
    (tree / ".Ratchet" / "watch.json").touch()
    assert shot(tree) == before
    paths = {entry.path for entry in before.files}
    assert ".ratchet/prompts/fix.md" in paths
