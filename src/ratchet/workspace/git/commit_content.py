"""Compare the content of a commit with the judged tree that it must hold.

The tree store holds files byte for byte; a commit holds them after the project's own filters (line endings, LFS). An
entry that differs is therefore compared once more, after the judged content has passed the same filters.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ratchet.core.snapshot import SUBMODULE
from ratchet.tree_files import temporary_folder
from ratchet.workspace.git.command import git
from ratchet.workspace.git.commit_tree import update_index
from ratchet.workspace.git.submodules import is_inside
from ratchet.workspace.git.trees import PathDifference, TreeStore, difference

Entry = tuple[str, str]
_NAMED_MAX = 200


class JudgedTree(msgspec.Struct, frozen=True, kw_only=True):
    """A tree that was judged, and the base from which it and its commit differ."""

    tree: str
    base_tree: str
    base_commit: str
    submodules: Sequence[str] = ()


def differing_paths(git_dir: Path, commit: str, judged: JudgedTree, trees: TreeStore) -> list[str]:
    """Return the paths in which a commit differs from the judged tree, sorted. Empty when it holds exactly that."""
    rows = trees.raw_diff(judged.base_tree, judged.tree) if judged.tree != judged.base_tree else []
    wanted = {row.path: row for row in rows if not is_inside(row.path, judged.submodules)}
    committed = _changed(git_dir, judged.base_commit, commit)
    wrong = [path for path in committed if path not in wanted and not is_inside(path, judged.submodules)]
    unclear = [row for row in wanted.values() if committed.get(row.path) != (row.mode, row.oid)]
    wrong += _really_differing(git_dir, commit, unclear, trees) if unclear else []
    return sorted(os.fsdecode(path) for path in wrong)


def _changed(git_dir: Path, before: str, after: str) -> dict[bytes, Entry]:
    out = _git(git_dir, "diff-tree", "-r", "-z", "--raw", "--no-renames", before, after).split(b"\0")
    rows = [difference(head, path) for head, path in zip(out[0::2], out[1::2], strict=False)]
    return {row.path: (row.mode, row.oid) for row in rows}


def _really_differing(git_dir: Path, commit: str, rows: list[PathDifference], trees: TreeStore) -> list[bytes]:
    """Return the paths that differ from the commit also after the project's attributes and filters."""
    entries = _entries(git_dir, commit, [row.path for row in rows])
    with temporary_folder("ratchet-commit-") as folder:
        index = Path(folder) / "index"
        env = {"GIT_INDEX_FILE": str(index)}
        _git(git_dir, "read-tree", commit, env=env)
        update_index(git_dir, index, rows, trees, keep=False)
        listed = _git(git_dir, "ls-files", "--stage", "-z", env=env).split(b"\0")
    wanted = {row.path for row in rows}
    added = {path: (head.split()[0].decode(), head.split()[1].decode()) for line in listed if line
             for head, _, path in [line.partition(b"\t")] if path in wanted}  # fmt: skip
    return [row.path for row in rows if row.mode != SUBMODULE and added.get(row.path) != entries.get(row.path)]


def _entries(git_dir: Path, commit: str, paths: list[bytes]) -> dict[bytes, Entry]:
    named = [os.fsdecode(path) for path in paths] if len(paths) <= _NAMED_MAX else []
    env = {"GIT_LITERAL_PATHSPECS": "1"}
    rows = _git(git_dir, "ls-tree", "-r", "-z", "--full-tree", commit, "--", *named, env=env).split(b"\0")
    found = {}
    for row in rows:
        if row:
            head, path = row.split(b"\t", 1)
            mode, _, oid = head.decode().split()
            found[path] = (mode, oid)
    return found


def _git(git_dir: Path, *args: str, env: Mapping[str, str] | None = None, stdin: bytes = b"") -> bytes:
    return git(*args, cwd=git_dir, env={"GIT_DIR": str(git_dir), **(env or {})}, stdin=stdin)
