"""Carry what a run added to its repository from one host to another: the workspace's tree and the branch's commits."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from ratchet.errors import GitFailed
from ratchet.workspace.git.command import git


class RunObjects(msgspec.Struct, frozen=True, kw_only=True):
    """Packs of everything that the base commit does not have. Small: they hold what the run changed."""

    tree_pack: bytes
    commit_pack: bytes


class ObjectStores(msgspec.Struct, frozen=True, kw_only=True):
    """Where the objects of a run are: the private store of exact trees and the source repository."""

    trees: Path
    base_tree: str
    source: Path
    base_commit: str

    def pack(self, *, trees: Iterable[str], head: str) -> RunObjects:
        return RunObjects(
            tree_pack=_pack(self.trees, sorted({*trees} - {self.base_tree}), self.base_tree),
            commit_pack=_pack(self.source, sorted({head} - {self.base_commit}), self.base_commit),
        )

    def unpack(self, objects: RunObjects) -> None:
        _unpack(self.trees, objects.tree_pack)
        _unpack(self.source, objects.commit_pack)

    def have(self, *, trees: Iterable[str], head: str) -> bool:
        return all(_has(self.trees, tree) for tree in sorted({*trees})) and _has(self.source, head)


def _pack(git_dir: Path, wanted: list[str], known: str) -> bytes:
    if not wanted:
        return b""
    words = "".join(f"{name}\n" for name in [*wanted, f"^{known}"]).encode()
    return git("pack-objects", "--revs", "--stdout", "-q", env={"GIT_DIR": str(git_dir)}, stdin=words)


def _unpack(git_dir: Path, pack: bytes) -> None:
    if pack:
        git("unpack-objects", "-q", env={"GIT_DIR": str(git_dir)}, stdin=pack)


def _has(git_dir: Path, name: str) -> bool:
    try:
        git("cat-file", "-e", name, env={"GIT_DIR": str(git_dir)})
    except GitFailed:
        return False
    return True
