"""What every workspace is to git: trees for undo, commits into the source, and a `.git` that can be mended."""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from ratchet.core import trailers
from ratchet.core.snapshot import Manifest
from ratchet.errors import GitFailed
from ratchet.workspace import Record
from ratchet.workspace.bases import Base, read_base
from ratchet.workspace.branches import branch_tip, free
from ratchet.workspace.copying import size_of
from ratchet.workspace.git import git
from ratchet.workspace.layers import remove
from ratchet.workspace.objects import is_id
from ratchet.workspace.submodules import entries, is_inside
from ratchet.workspace.trees import Trees

BRANCH = "refs/heads/ratchet/{slug}"
_REGISTERED = "ratchet-"


class GitWorkspace(ABC):
    """Trees for undo, commits into the source repository."""

    def __init__(self, home: str, record: Record) -> None:
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
        """Those that are folders here, and entries in a commit."""
        if self.record.base:
            return self.base.submodules
        return list(entries(Path(self.record.git_dir), self.record.base_commit))

    @cached_property
    def trees(self) -> Trees:
        return Trees(
            store=Path(self.record.store or f"{self.record.repo}/.ratchet/trees.git"),
            index=self.home / "trees.index",
            folder=self.path,
            borrow=Path(self.record.git_dir) / "objects",
            reseed=self.reseed,
            carried=lambda: self.base.recipe.carry if self.record.base else (),
        )

    @abstractmethod
    def lay_down(self) -> None:
        """Make the content that of the base. Called once, on nothing."""

    @abstractmethod
    def take_up(self) -> None:
        """Remove everything outside the home folder. Removing what is gone is success."""

    @abstractmethod
    def mend(self) -> None:
        """Make the workspace usable again, whatever was done to it or its machine."""

    def reseed(self) -> None:
        """Let the trees' index know again what the base tracks, ignored or not."""
        made = f"{self.record.base}/trees.index"
        if self.record.base and os.path.exists(made):
            shutil.copyfile(made, self.home / "trees.index")
        else:
            there = [path for path in self.submodules if _has_content(self.path / path)]
            self.trees.seed(self.record.base_commit, there)
            self.trees.take_whole(there)

    def unlock(self) -> None:
        """Remove what a killed git left: locks, a torn index. Whoever holds the run's lease is the only one here."""
        for place in (self.home, self.path / ".git", self._worktree_folder()):
            for lock in place.glob("*.lock") if place.is_dir() else ():
                remove(lock)
        free(self.record.git_dir, self.ref)
        if self.trees.index.exists():
            self.trees.mend_index()

    def _worktree_folder(self) -> Path:
        kept = self.home / "dot-git"
        return Path(kept.read_text().removeprefix("gitdir:").strip()) if kept.exists() else self.home

    def size_bytes(self) -> int:
        """What the writable layer takes."""
        return size_of(self.path)

    # --- content -----------------------------------------------------------------------------------------------

    def checkpoint(self) -> str:
        return self.trees.write()

    def reset(self, to: str) -> None:
        self.mend()
        self.trees.restore(to)

    def restore(self, paths: list[str], to: str) -> None:
        self.trees.restore_paths(paths, to)

    def changes(self, before: str, after: str) -> list[str]:
        return self.trees.changes(before, after)

    def diff(self, before: str, after: str, *, max_bytes: int = 500_000) -> str:
        return self.trees.diff(before, after, max_bytes=max_bytes)

    def manifest(self, tree: str) -> Manifest:
        return self.trees.manifest(tree)

    # --- commits -----------------------------------------------------------------------------------------------

    def commit(self, *, message: str, parent: str, at: str) -> str:
        # The project's own attributes apply here (line ends, LFS): a commit is what its people expect to check out.
        tree = self._commit_tree()
        dates = {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
        made = self._source("commit-tree", tree, "-p", parent, "-F", "-", env=dates, stdin=message.encode())
        commit = made.decode().strip()
        self._source("update-ref", "-m", "ratchet: green", self.ref, commit, parent)
        self.follow(commit)
        return commit

    def _commit_tree(self) -> str:
        """The base commit with exactly the checked changes: nothing ignored, excluded or cached slips in or out."""
        index = self.home / "commit.index"
        index.unlink(missing_ok=True)
        return self._with_changes(index, self.checkpoint())

    def _with_changes(self, index: Path, tree: str) -> str:
        env = {"GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": ".", "GIT_LITERAL_PATHSPECS": "1"}
        if not index.exists():
            self._inside("read-tree", self.record.base_commit, env=env)
        rows = self.trees.raw_diff(self.record.base_tree, tree)
        paths = [row.path for row in rows if not is_inside(row.path, self.submodules)]
        if paths:
            how = ["--add", "--remove", "--replace", "-z", "--stdin"]
            self._inside("update-index", *how, env=env, stdin=b"".join(path + b"\0" for path in paths))
        return self._inside("write-tree", env=env).decode().strip()

    def undo_commit(self, *, commit: str, parent: str) -> None:
        if self.tip() == commit:
            self._source("update-ref", "-m", "ratchet: gate failed", self.ref, parent, commit)
        self.follow(parent)

    def follow(self, commit: str) -> None:
        """Let the workspace's own git see the commit, so that `git status` there tells the truth."""
        self.mend()
        own = {"GIT_DIR": ".git", "GIT_WORK_TREE": "."}
        with suppress(GitFailed):
            self._inside("symbolic-ref", "HEAD", self.ref, env=own)
        self._inside("reset", "--quiet", "--mixed", commit, env=own)

    def hold(self, commit: str) -> None:
        there = self.tip()
        if there != commit:
            # From where it was seen: a dead worker's git that is slow to die must not undo what was done since.
            self._source("update-ref", "-m", "ratchet: put back", self.ref, commit, there)
            self.follow(commit)

    def read(self, tree: str, path: str) -> bytes | None:
        return next(self.trees.contents([tree.encode() + b":" + os.fsencode(path)], b"blob"))

    def read_all(self, tree: str, paths: list[str]) -> dict[str, bytes | None]:
        asked = [path for path in paths if "\n" not in path]
        names = [tree.encode() + b":" + os.fsencode(path) for path in asked]
        return dict(zip(asked, self.trees.contents(names, b"blob"), strict=True))

    def tip(self) -> str:
        """Where the branch is; empty when somebody deleted it."""
        there = branch_tip(self.record.git_dir, self.ref)
        return there if is_id(there) or not there else self._source("rev-parse", "--verify", self.ref).decode().strip()

    def find_commit(self, key: str, *, since: str) -> str | None:
        log = self._source("log", "-z", "--format=%H%n%B", f"{since}..{self.ref}").decode(errors="replace")
        for row in log.split("\0"):
            commit, _, body = row.partition("\n")
            proof = trailers.parse(body)
            if proof and proof.key == key:
                return commit
        return None

    def _source(self, *args: str, env: dict[str, str] | None = None, stdin: bytes = b"") -> bytes:
        """Git on the source repository, where no folder is needed."""
        return git(*args, cwd=self.home, env={"GIT_DIR": self.record.git_dir, **(env or {})}, stdin=stdin)

    def _inside(self, *args: str, env: dict[str, str], stdin: bytes = b"") -> bytes:
        """Git where the content is."""
        return git(*args, cwd=self.path, env={"GIT_DIR": self.record.git_dir, **env}, stdin=stdin)


class View(GitWorkspace):
    """A view of a base, with a `.git` folder of its own whose objects and branches are the source's."""

    @property
    def _registered(self) -> str:
        return f"{self.record.git_dir}/worktrees/{_REGISTERED}{self.record.slug}"

    def register(self) -> None:
        """Tell the source's git of us: it lists us, keeps the branch from being deleted, and does not prune us."""
        make_below(os.mkdir, self._registered)
        self._describe(self._registered)

    def _describe(self, folder: str) -> None:
        put(f"{folder}/HEAD", f"ref: {self.ref}\n")
        put(f"{folder}/gitdir", f"{self.record.path}/.git\n")
        put(f"{folder}/locked", "a workspace of ratchet\n")

    def unregister(self) -> None:
        remove(self._registered)

    def mend(self) -> None:
        dot_git = self.path / ".git"
        wanted = self._common()
        if not dot_git.is_symlink() and _reads(dot_git / "commondir", wanted) and (dot_git / "HEAD").is_file():
            return
        remove(dot_git)
        dot_git.mkdir()
        (dot_git / "commondir").write_text(wanted)
        (dot_git / "HEAD").write_text(f"ref: {self.ref}\n")
        self._inside("reset", "--quiet", "--mixed", env={"GIT_DIR": ".git", "GIT_WORK_TREE": "."})

    def _common(self) -> str:
        """What `.git/commondir` says: where objects and branches are."""
        return f"{self.record.git_dir}\n"


def unregister_lost(git_dir: str) -> None:
    """Remove what a lost RAM disk left of its workspaces. What a live one registers is made last and goes first."""
    with suppress(FileNotFoundError), os.scandir(f"{git_dir}/worktrees") as entries:
        for entry in list(entries):
            if entry.name.startswith(_REGISTERED) and entry.is_symlink() and not os.path.exists(entry.path):
                os.unlink(entry.path)


def _has_content(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def make_below(make: Callable[[str], None], place: str) -> None:
    """Make something in a folder that may not be there yet; what an earlier maker left gives way."""
    try:
        make(place)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        make(place)
    except FileExistsError:
        remove(place)
        make(place)


def put(path: str, content: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.write(handle, content.encode())
    finally:
        os.close(handle)


def _reads(path: Path, wanted: str) -> bool:
    try:
        return path.read_text() == wanted
    except (OSError, UnicodeDecodeError):
        return False
