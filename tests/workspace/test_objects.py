"""What is read of git's objects without git is what git says; what cannot be read so is left to git."""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.workspace.git.objects import LooseObjects, NotLoose
from ratchet.workspace.git.trees import TreeStore
from ratchet.workspace.overlay_layers import FileShrank, TreeComposer

NAMES = st.sampled_from(["a", "b", "a.txt", "d", "ö"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
TREES = st.dictionaries(
    PATHS, st.sampled_from(["", "x", "yy"]), min_size=1, max_size=8
)  # git has no object for the empty one


def plant(store: Path, files: dict[str, str]) -> str:
    """The tree of these files; where one is in the way of another, the later one wins."""
    env = {"GIT_DIR": str(store), "GIT_INDEX_FILE": str(store / "planted"), "PATH": "/usr/bin:/bin"}

    def git(*args: str, stdin: str = "") -> str:
        return subprocess.run(["git", *args], env=env, input=stdin, capture_output=True, text=True, check=True).stdout

    git("read-tree", "--empty")
    for path, content in files.items():
        oid = git("hash-object", "-w", "--stdin", stdin=content).strip()
        mode = "100755" if content == "x" else "100644"
        git("update-index", "--add", "--replace", "--cacheinfo", f"{mode},{oid},{path}")
    return git("write-tree").strip()


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> TreeStore:
    folder = tmp_path_factory.mktemp("objects")
    return TreeStore(store=folder / "store.git", index=folder / "index", folder=folder)


@given(before=TREES, after=TREES)
@settings(max_examples=10)
def test_two_trees_differ_as_git_says(trees: TreeStore, before: dict[str, str], after: dict[str, str]) -> None:
    left, right = plant(trees.store, before), plant(trees.store, after)
    reported = trees._git("diff-tree", "-r", "-z", "--raw", "--no-renames", left, right).split(b"\0")
    rows = zip(reported[0::2], reported[1::2], strict=False)
    wanted = {(path, head.split()[1].decode(), head.split()[3].decode()) for head, path in rows}
    assert set(LooseObjects(trees.store).differing(left, right)) == wanted
    assert {row.path for row in trees.raw_diff("", right)} == {
        path for path, _, _ in LooseObjects(trees.store).differing("", right)
    }


@given(files=TREES, asked=PATHS)
@settings(max_examples=10)
def test_a_path_of_a_tree_is_read_as_git_reads_it(trees: TreeStore, files: dict[str, str], asked: str) -> None:
    name = f"{plant(trees.store, files)}:{asked}".encode()
    for kind in (b"blob", b"tree"):
        try:
            found = LooseObjects(trees.store).content(name, kind)
        except NotLoose:
            continue
        assert found == next(trees._ask([name], kind))


def test_what_is_packed_is_left_to_git(trees: TreeStore) -> None:
    empty, tree = plant(trees.store, {}), plant(trees.store, {"only/here": "packed away"})
    packed = subprocess.run(
        ["git", "-C", trees.store, "pack-objects", "-q", "objects/pack/pack"],
        input="\n".join([tree, *trees._git("rev-parse", f"{tree}:only", f"{tree}:only/here").decode().split()]),
        text=True, capture_output=True, check=True,
    )  # fmt: skip
    assert packed.stdout
    subprocess.run(["git", "-C", trees.store, "prune-packed", "-q"], check=True)
    with pytest.raises(NotLoose):
        LooseObjects(trees.store).content(f"{tree}:only/here".encode(), b"blob")
    assert list(trees.contents([f"{tree}:only/here".encode()], b"blob")) == [b"packed away"]
    assert [row.path for row in trees.raw_diff(empty, tree)] == [b"only/here"]
    assert [entry.path for entry in trees.manifest(tree).files] == ["only/here"]


def test_a_folder_of_many_files_is_read_once_for_all_of_them(trees: TreeStore) -> None:
    tree = plant(trees.store, {"many/a": "x", "many/b": "yy"})
    folder = trees._git("rev-parse", f"{tree}:many").decode().strip()
    objects = LooseObjects(trees.store)
    assert objects.content(f"{tree}:many/a".encode(), b"blob") == b"x"
    (trees.store / "objects" / folder[:2] / folder[2:]).unlink()
    assert objects.content(f"{tree}:many/b".encode(), b"blob") == b"yy"


def test_what_a_layer_held_at_the_last_checkpoint_is_not_stored_again(trees: TreeStore, tmp_path: Path) -> None:
    base = plant(trees.store, {"kept": "base"})
    (tmp_path / "new").write_text("of an agent")
    (tmp_path / "link").symlink_to("new")
    objects, composer = trees.store / "objects", TreeComposer(trees, base)
    tree = composer.compose(tmp_path, tracked_anyway=frozenset())
    os.utime(objects, (0, 0))  # a new file in it, even one that goes again, would move this

    assert composer.compose(tmp_path, tracked_anyway=frozenset()) == tree
    assert objects.stat().st_mtime == 0
    assert trees._git("ls-tree", "--name-only", tree).split() == [b"kept", b"link", b"new"]


def test_many_new_files_are_kept_whole_and_nothing_else_stays(trees: TreeStore, tmp_path: Path) -> None:
    base = plant(trees.store, {"kept": "base"})
    for n in range(20):
        (tmp_path / f"n{n}").write_text(f"of many, {n // 2}")  # each content twice
    tree = TreeComposer(trees, base).compose(tmp_path, tracked_anyway=frozenset())
    assert trees._git("show", f"{tree}:n19") == b"of many, 9"
    assert trees._git("fsck", "--strict", "--no-dangling", tree) == b""
    assert not list((trees.store / "objects").glob("tmp_obj_*"))


class Appended(io.FileIO):
    """A file that another process appends to, or cuts off, after the first read."""

    def __init__(self, path: Path, change: Callable[[Path], object]) -> None:
        super().__init__(path, "r")
        self.path, self.change = path, change

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.change(self.path)
        return found


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"y" * 1_000)


def test_a_file_that_grows_while_it_is_stored_is_stored_as_long_as_it_was(trees: TreeStore, tmp_path: Path) -> None:
    growing = tmp_path / "growing.bin"
    growing.write_bytes(b"x" * 3_000_000)
    composer = TreeComposer(trees, "0" * 40)
    with Appended(growing, append) as file:
        oid = composer._stream(file)
    composer._keep()
    assert trees._git("cat-file", "blob", oid) == b"x" * 3_000_000


def test_a_file_that_shrinks_while_it_is_stored_is_read_again(trees: TreeStore, tmp_path: Path) -> None:
    shrinking = tmp_path / "shrinking.bin"
    shrinking.write_bytes(b"x" * 3_000_000)
    composer = TreeComposer(trees, "0" * 40)
    with Appended(shrinking, lambda path: os.truncate(path, 1_100_000)) as file:
        with pytest.raises(FileShrank):
            composer._stream(file)
        oid = composer._stream(file)
    composer._keep()
    assert trees._git("cat-file", "blob", oid) == b"x" * 1_100_000
