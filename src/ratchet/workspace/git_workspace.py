"""The git side of every workspace: trees for undo, commits into the source repository, a repairable `.git`."""

from __future__ import annotations

import os
import shutil
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import msgspec

from ratchet import tree_files
from ratchet.core import trailers
from ratchet.core.snapshot import EXECUTABLE, SYMLINK, Manifest
from ratchet.errors import BranchMoved, CommitDiffers, GitFailed, WorkspaceChanged
from ratchet.files import state_dir
from ratchet.workspace.base_cache import Base, read_base
from ratchet.workspace.git.branches import branch_tip, remove_stale_lock
from ratchet.workspace.git.command import git
from ratchet.workspace.git.commit_content import JudgedTree, changed_by_commit, differing_paths
from ratchet.workspace.git.commit_tree import update_index
from ratchet.workspace.git.durable import FolderSync
from ratchet.workspace.git.objects import is_id
from ratchet.workspace.git.packs import ObjectStores, RunObjects
from ratchet.workspace.git.repository import is_made_by_ratchet
from ratchet.workspace.git.submodules import is_inside, submodule_commits
from ratchet.workspace.git.trees import TreeStore, is_excluded
from ratchet.workspace.overlay_layers import remove_tree
from ratchet.workspace.protocol import WorkspaceRecord
from ratchet.workspace.tree_copy import size_of

BRANCH = "refs/heads/ratchet/{slug}"
_REGISTERED = "ratchet-"


class GitWorkspace(ABC):
    """Base class of all kinds of workspace."""

    def __init__(self, home: str, record: WorkspaceRecord) -> None:
        self._home, self.record = home, record
        self.ref = BRANCH.format(slug=record.slug)

    @cached_property
    def home(self) -> Path:
        return Path(self._home)

    @property
    def path(self) -> Path:
        return Path(self.record.path)

    @cached_property
    def base(self) -> Base:
        base = read_base(self.record.base)
        assert base
        return base

    @cached_property
    def submodules(self) -> list[str]:
        """Submodules that are folders here and entries in a commit."""
        if self.record.base:
            return self.base.submodules
        return list(submodule_commits(Path(self.record.git_dir), self.record.base_commit))

    @cached_property
    def trees(self) -> TreeStore:
        return TreeStore(
            store=Path(self.record.store or state_dir(Path(self.record.repo)) / "trees.git"),
            index=self.home / "trees.index",
            folder=self.path,
            borrow=Path(self.record.git_dir) / "objects",
            reseed=self.reseed,
            carried=lambda: self.base.recipe.carry if self.record.base else (),
        )

    @cached_property
    def _folders(self) -> FolderSync:
        return FolderSync(self.record.git_dir)

    @abstractmethod
    def create(self) -> None:
        """Create the workspace with the content of the base. Called once, in an empty home."""

    @abstractmethod
    def remove(self) -> None:
        """Remove everything outside the home directory. Success if it is already gone."""

    @abstractmethod
    def repair(self) -> None:
        """Make the workspace usable again after damage or a reboot."""

    def reseed(self) -> None:
        """Rebuild the index of the tree store from what the base tracks, ignored or not."""
        made = f"{self.record.base}/trees.index"
        if self.record.base and os.path.exists(made):
            shutil.copyfile(made, self.home / "trees.index")
        else:
            there = [path for path in self.submodules if _has_content(self.path / path)]
            self.trees.seed(self.record.base_commit, there)
            self.trees.track_folders(there)

    def unlock(self) -> None:
        """Remove leftovers of a killed git: locks, a torn index. Safe: only the lease holder works here."""
        for lock in self.home.glob("*.lock"):
            remove_tree(lock)
        self._remove_locks()
        remove_stale_lock(self.record.git_dir, self.ref)
        if self.trees.index.exists():
            self.trees.repair_index()

    def _remove_locks(self) -> None:
        """Remove the locks in the workspace's own `.git`, which may be anything by now."""
        with suppress(OSError):
            top = next(tree_files.walk_inside(self.path / ".git"), None) if self._has_own_git() else None
            for name in top.files if top else ():
                if name.endswith(".lock"):
                    tree_files.remove_inside(self.path, f".git/{name}")

    def _has_own_git(self) -> bool:
        return stat.S_ISDIR(os.lstat(self.path / ".git").st_mode)

    def size_bytes(self) -> int:
        """Return the size of the writable layer."""
        return size_of(self.path)

    # --- content -----------------------------------------------------------------------------------------------

    def tidy(self) -> None:
        tree_files.remove_special_files(self.path)
        tree_files.remove_huge_files(self.path, enters=lambda at, name: not is_excluded(at, name))

    def checkpoint(self) -> str:
        return self.trees.sync(self.trees.write())

    def remove_refused(self) -> list[str]:
        return self.trees.remove_refused(self.path)

    def settle(self) -> str:
        tree = self.checkpoint()
        changed = changed_by_commit(Path(self.record.git_dir), self._judged(tree), self.trees)
        for path, file in changed.items():
            if file is None:
                tree_files.remove_inside(self.path, path)
            elif file.mode == SYMLINK:
                tree_files.link_inside(self.path, path, file.content)
            else:
                tree_files.replace_inside(self.path, path, file.content, 0o777 if file.mode == EXECUTABLE else 0o666)
        return self.checkpoint() if changed else tree

    def uncommitted(self) -> list[str]:
        return self.trees.uncommitted()

    def reset(self, to: str) -> None:
        self.repair()
        self.trees.restore(to)

    def restore(self, paths: list[str], to: str) -> None:
        self.trees.restore_paths(paths, to)

    def changes(self, before: str, after: str) -> list[str]:
        return self.trees.changes(before, after)

    def links(self, before: str, after: str) -> set[str]:
        return {os.fsdecode(row.path) for row in self.trees.raw_diff(before, after) if row.mode == SYMLINK}

    def diff(self, before: str, after: str, *, max_bytes: int = 500_000) -> str:
        return self.trees.diff(before, after, max_bytes=max_bytes)

    def manifest(self, tree: str) -> Manifest:
        return self.trees.manifest(tree)

    # --- commits -----------------------------------------------------------------------------------------------

    def commit(self, *, tree: str, message: str, parent: str, at: str, replaces: str = "") -> str:
        if (found := self.checkpoint()) != tree:
            raise _changed(self.changes(tree, found))
        # The project's own attributes apply here (line endings, LFS), as in any commit of its developers.
        content = self._commit_tree(tree)
        dates = {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
        made = self._source("commit-tree", content, "-p", parent, "-F", "-", env=dates, stdin=message.encode())
        commit = made.decode().strip()
        if paths := self.differing_paths(commit, tree):
            raise CommitDiffers(
                f"git would change or drop in a commit what was tested: {', '.join(paths[:3])}"
                f"{' …' if len(paths) > 3 else ''}",
                hint="look at .gitattributes, and at the names of files",
                paths=paths,
            )
        self._folders.objects()  # a branch must not name a commit that a power cut takes away
        try:
            self._source("update-ref", "-m", "ratchet: green", self.ref, commit, replaces or parent)
        except GitFailed:
            if (there := self.tip()) not in ("", replaces or parent) and not self._is_made_by_ratchet(there):
                raise self._moved(there, parent) from None
            raise
        self._folders.refs()
        self.follow(commit)
        return commit

    def differing_paths(self, commit: str, tree: str) -> list[str]:
        return differing_paths(Path(self.record.git_dir), commit, self._judged(tree), self.trees, at=self.path)

    def _judged(self, tree: str) -> JudgedTree:
        return JudgedTree(
            tree=tree,
            base_tree=self.record.base_tree,
            base_commit=self.record.base_commit,
            submodules=self.submodules,
        )

    def _commit_tree(self, tree: str) -> str:
        """Write the base commit's tree with exactly the checked changes: no ignored, excluded or cached files."""
        index = self.home / "commit.index"
        index.unlink(missing_ok=True)
        return self._with_changes(index, tree)

    def _with_changes(self, index: Path, tree: str) -> str:
        env = {"GIT_INDEX_FILE": str(index)}
        if not index.exists():
            self._source("read-tree", self.record.base_commit, env=env)
        rows = self.trees.raw_diff(self.record.base_tree, tree)
        inner = [row for row in rows if not is_inside(row.path, self.submodules)]
        update_index(Path(self.record.git_dir), index, inner, self.trees)
        return self._source("write-tree", env=env).decode().strip()

    def undo_commit(self, *, commit: str, parent: str) -> None:
        if self.tip() == commit:
            self._source("update-ref", "-m", "ratchet: gate failed", self.ref, parent, commit)
        self.follow(parent)

    def follow(self, commit: str) -> None:
        """Move the workspace's own HEAD and index to the commit, so that `git status` there is right.

        Both are made outside of it: its `.git` is a folder that an agent may write, and no git of ours reads it.
        """
        self.repair()
        index = self.home / "own.index"
        self._source("read-tree", *(["-m"] if index.exists() else []), commit, env={"GIT_INDEX_FILE": str(index)})
        self._install(index)

    def _install(self, index: Path) -> None:
        tree_files.replace_inside(self.path, ".git/index", index.read_bytes())
        tree_files.replace_inside(self.path, ".git/HEAD", f"ref: {self.ref}\n".encode())

    def restore_branch(self, commit: str) -> None:
        there = self.tip()
        if there and there != commit and not self._is_made_by_ratchet(there):
            raise self._moved(there, commit)
        self._move_branch(there, commit)

    def put_branch_back(self, commit: str) -> None:
        there = self.tip()
        if there and there != commit and not self._is_made_by_ratchet(there):
            self._source("update-ref", f"refs/heads/ratchet-kept/{self.record.slug}-{there[:8]}", there)
        self._move_branch(there, commit)

    def _is_made_by_ratchet(self, commit: str) -> bool:
        """Whether a commit was made by an earlier worker of this run that has died."""
        return commit == self.record.base_commit or is_made_by_ratchet(commit, Path(self.record.git_dir))

    def _moved(self, there: str, commit: str) -> BranchMoved:
        branch = self.ref.removeprefix("refs/heads/")
        return BranchMoved(
            f"{branch} was moved to {there[:12]} by somebody else; the run left it at {commit[:12] or 'its base'}",
            hint=f"keep it elsewhere: git branch mine {there[:12]}; then git update-ref {self.ref} {commit}, "
            "and resume the run",
        )

    def _move_branch(self, there: str, commit: str) -> None:
        if there != commit:
            # Compare and swap: a dying git of a dead worker must not overwrite what was done since.
            self._source("update-ref", "-m", "ratchet: put back", self.ref, commit, there)
            self.follow(commit)

    def pack(self, *, trees: Iterable[str], head: str) -> bytes:
        return msgspec.msgpack.encode(self._stores.pack(trees=trees, head=head))

    def unpack(self, objects: bytes) -> None:
        self._stores.unpack(msgspec.msgpack.decode(objects, type=RunObjects))

    def have(self, *, trees: Iterable[str], head: str) -> bool:
        return self._stores.have(trees=trees, head=head)

    @cached_property
    def _stores(self) -> ObjectStores:
        record = self.record
        return ObjectStores(
            trees=self.trees.store,
            base_tree=record.base_tree,
            source=Path(record.git_dir),
            base_commit=record.base_commit,
        )

    def read(self, tree: str, path: str) -> bytes | None:
        return next(self.trees.contents([tree.encode() + b":" + os.fsencode(path)], b"blob"))

    def read_all(self, tree: str, paths: list[str]) -> dict[str, bytes | None]:
        names = [tree.encode() + b":" + os.fsencode(path) for path in paths]
        return dict(zip(paths, self.trees.contents(names, b"blob"), strict=True))

    def tip(self) -> str:
        """Return the commit of the branch; empty when it was deleted."""
        there = branch_tip(self.record.git_dir, self.ref)
        return there if is_id(there) or not there else self._source("rev-parse", "--verify", self.ref).decode().strip()

    def find_commit(self, key: str, *, since: str) -> str | None:
        if not (tip := self.tip()):
            return None  # an agent deleted the branch
        log = self._source("log", "-z", "--format=%H%n%B", f"{since}..{tip}").decode(errors="replace")
        for row in log.split("\0"):
            commit, _, body = row.partition("\n")
            proof = trailers.parse_proof(body)
            if proof and proof.key == key:
                return commit
        return None

    def _source(self, *args: str, env: dict[str, str] | None = None, stdin: bytes = b"") -> bytes:
        """Run git on the source repository, without a work tree."""
        return git(*args, cwd=self.home, env={"GIT_DIR": self.record.git_dir, **(env or {})}, stdin=stdin)


class BaseView(GitWorkspace):
    """A workspace made from a base, with its own `.git` that shares objects and branches with the source."""

    @property
    def _registered(self) -> str:
        return f"{self.record.git_dir}/worktrees/{_REGISTERED}{self.record.slug}"

    def register(self) -> None:
        """Register as a worktree of the source: git lists it, protects its branch, and does not prune it."""
        make_with_parents(os.mkdir, self._registered)
        self._describe(self._registered)

    def _describe(self, folder: str) -> None:
        write_file(f"{folder}/HEAD", f"ref: {self.ref}\n")
        write_file(f"{folder}/gitdir", f"{self.record.path}/.git\n")
        write_file(f"{folder}/locked", "a workspace of ratchet\n")

    def unregister(self) -> None:
        with suppress(NotADirectoryError, PermissionError):  # the source is gone, or closed to us
            remove_tree(self._registered)

    def repair(self) -> None:
        wanted = self._common()
        if self._is_sound(wanted):
            return
        tree_files.remove_inside(self.path, ".git")
        tree_files.replace_inside(self.path, ".git/commondir", wanted.encode())
        index = self.home / "own.index"
        if not index.exists():
            self._source("read-tree", self.tip() or self.record.base_commit, env={"GIT_INDEX_FILE": str(index)})
        self._install(index)

    def _is_sound(self, common: str) -> bool:
        """Whether `.git` is a folder that names our git directory. What else an agent wrote there, only it reads."""
        try:
            with tree_files.open_inside(self.path, ".git/commondir", os.O_RDONLY) as file:
                named = os.read(file, len(common) + 64)
            with tree_files.open_inside(self.path, ".git/HEAD", os.O_RDONLY):
                return named == common.encode()
        except OSError:
            return False

    def _common(self) -> str:
        """Return the content of `.git/commondir`: the directory with objects and branches."""
        return f"{self.record.git_dir}\n"


def unregister_lost(git_dir: str) -> None:
    """Remove registrations of workspaces on a lost RAM disk. A live workspace registers last and unregisters first."""
    with suppress(FileNotFoundError), os.scandir(f"{git_dir}/worktrees") as entries:
        for entry in list(entries):
            if entry.name.startswith(_REGISTERED) and entry.is_symlink() and not os.path.exists(entry.path):
                os.unlink(entry.path)


def _changed(paths: list[str]) -> WorkspaceChanged:
    return WorkspaceChanged(
        f"the workspace differs from the judged tree: {', '.join(paths[:3])}{' …' if len(paths) > 3 else ''}",
        hint="another process writes in the workspace: end it, then run `ratchet resume`",
        paths=paths,
    )


def _has_content(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def make_with_parents(make: Callable[[str], None], place: str) -> None:
    """Call `make` for a path: creates a missing parent folder, and replaces leftovers at the path."""
    try:
        make(place)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        make(place)
    except FileExistsError:
        remove_tree(place)
        make(place)


def write_file(path: str, content: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.write(handle, content.encode())
    finally:
        os.close(handle)
