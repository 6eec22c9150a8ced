"""The plain kinds: `worktree` (git's own) and `copy` (a repository of its own that borrows the source's objects)."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from ratchet.core import trailers
from ratchet.core.snapshot import Manifest
from ratchet.errors import GitFailed, NotFound, UsageError
from ratchet.files import make_private_dir, write_durably
from ratchet.workspace import Record
from ratchet.workspace.git import git, text
from ratchet.workspace.trees import Trees

BRANCH = "refs/heads/ratchet/{slug}"


class GitWorkspace(ABC):
    """What the kinds share: trees for undo, commits into the source repository. They differ in how it is laid down."""

    kind: str

    def __init__(self, home: Path, record: Record) -> None:
        self.home, self.record = home, record
        self.path = Path(record.path)
        self.ref = BRANCH.format(slug=record.slug)
        self.source = Path(text("rev-parse", "--path-format=absolute", "--git-common-dir", cwd=Path(record.repo)))
        self.trees = Trees(
            store=Path(record.repo) / ".ratchet" / "trees.git",
            index=home / "trees.index",
            folder=self.path,
            borrow=self.source / "objects",
        )

    @abstractmethod
    def lay_down(self) -> None: ...

    @abstractmethod
    def mend(self) -> None:
        """Make the workspace's own `.git` right again, whatever was done to it."""

    @abstractmethod
    def take_up(self) -> None: ...

    @abstractmethod
    def follow(self, commit: str) -> None:
        """Let the workspace's own git see the commit, so that `git status` there tells the truth."""

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

    def commit(self, *, message: str, parent: str, at: str) -> str:
        # The project's own attributes apply here (line ends, LFS): a commit is what its people expect to check out.
        index = {"GIT_INDEX_FILE": str(self.home / "commit.index"), "GIT_WORK_TREE": str(self.path)}
        self._source("read-tree", "--reset", parent, env=index)
        self._source("add", "--all", ".", env=index)
        tree = self._source("write-tree", env=index).decode().strip()
        dates = {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
        made = self._source("commit-tree", tree, "-p", parent, "-F", "-", env=dates, stdin=message.encode())
        commit = made.decode().strip()
        self._source("update-ref", "-m", "ratchet: green", self.ref, commit, parent)
        self.follow(commit)
        return commit

    def undo_commit(self, *, commit: str, parent: str) -> None:
        if self.tip() == commit:
            self._source("update-ref", "-m", "ratchet: gate failed", self.ref, parent, commit)
        self.follow(parent)

    def tip(self) -> str:
        return text("rev-parse", "--verify", self.ref, cwd=Path(self.record.repo))

    def find_commit(self, key: str, *, since: str) -> str | None:
        log = self._source("log", "-z", "--format=%H%n%B", f"{since}..{self.ref}").decode(errors="replace")
        for row in log.split("\0"):
            commit, _, body = row.partition("\n")
            proof = trailers.parse(body)
            if proof and proof.key == key:
                return commit
        return None

    def destroy(self) -> None:
        self.take_up()
        if self.home.exists():
            shutil.rmtree(self.home)

    def _source(self, *args: str, env: dict[str, str] | None = None, stdin: bytes = b"") -> bytes:
        return git(*args, cwd=self.path, env={"GIT_DIR": str(self.source), **(env or {})}, stdin=stdin)


class Worktree(GitWorkspace):
    kind = "worktree"

    def lay_down(self) -> None:
        branch = self.ref.removeprefix("refs/heads/")
        git(
            "worktree",
            "add",
            "--quiet",
            "--lock",
            "--force",
            "--force",
            str(self.path),
            branch,
            cwd=self._repo,
        )
        (self.home / "dot-git").write_bytes((self.path / ".git").read_bytes())

    def mend(self) -> None:
        dot_git = self.path / ".git"
        content = (self.home / "dot-git").read_bytes()
        if dot_git.is_symlink() or not dot_git.is_file() or dot_git.read_bytes() != content:
            _remove(dot_git)
            dot_git.write_bytes(content)

    def take_up(self) -> None:
        with suppress(GitFailed):
            git("worktree", "unlock", str(self.path), cwd=self._repo)
        with suppress(GitFailed):
            git("worktree", "remove", "--force", "--force", str(self.path), cwd=self._repo)

    def follow(self, commit: str) -> None:
        self.mend()
        git("reset", "--quiet", "--mixed", commit, cwd=self.path)

    @property
    def _repo(self) -> Path:
        return Path(self.record.repo)


class Copy(GitWorkspace):
    kind = "copy"

    def lay_down(self) -> None:
        make_private_dir(self.path)
        self._own_repository(text("rev-parse", self.ref, cwd=Path(self.record.repo)))
        git("reset", "--quiet", "--hard", cwd=self.path)

    def _own_repository(self, commit: str) -> None:
        kind = text("rev-parse", "--show-object-format", cwd=Path(self.record.repo))
        git("init", "--quiet", "--template=", "--object-format", kind, str(self.path))
        (self.path / ".git" / "objects" / "info" / "alternates").write_text(f"{self.source / 'objects'}\n")
        git("update-ref", "--no-deref", "HEAD", commit, cwd=self.path)

    def mend(self) -> None:
        if not (self.path / ".git" / "HEAD").is_file():
            _remove(self.path / ".git")
            self._own_repository(text("rev-parse", self.ref, cwd=Path(self.record.repo)))

    def take_up(self) -> None:
        """Nothing outside the folder knows of it."""

    def follow(self, commit: str) -> None:
        self.mend()
        git("update-ref", "--no-deref", "HEAD", commit, cwd=self.path)
        git("reset", "--quiet", "--mixed", cwd=self.path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


KINDS: dict[str, Callable[[Path, Record], GitWorkspace]] = {"worktree": Worktree, "copy": Copy}


class Workspaces:
    """All workspaces below one folder, each in a folder of its own with its record."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self, record: Record) -> GitWorkspace:
        """Lay one down at the tip of its branch, making the branch at the base commit if it is not there yet."""
        if record.kind not in KINDS:
            raise UsageError(f"there is no workspace kind {record.kind}", hint=f"kinds: {', '.join(KINDS)}")
        repo, ref = Path(record.repo), BRANCH.format(slug=record.slug)
        if not git("for-each-ref", "--format=%(refname)", ref, cwd=repo).strip():
            git("update-ref", "-m", "ratchet: run started", ref, record.base_commit, "", cwd=repo)
        home = make_private_dir(self.root / record.slug)
        workspace = KINDS[record.kind](home, record)
        workspace.take_up()
        _remove(workspace.path)
        workspace.lay_down()
        # Last: a workspace without its record is one that was never finished, and is laid down again.
        write_durably(home / "workspace.json", msgspec.json.encode(record))
        return workspace

    def open(self, slug: str) -> GitWorkspace:
        try:
            content = (self.root / slug / "workspace.json").read_bytes()
        except OSError as error:
            raise NotFound(f"there is no workspace {slug}", slug=slug) from error
        record = msgspec.json.decode(content, type=Record)
        workspace = KINDS[record.kind](self.root / slug, record)
        if not workspace.path.is_dir():
            raise NotFound(f"workspace {slug} has lost its folder", slug=slug)
        return workspace

    def path_of(self, slug: str) -> Path:
        return self.root / slug / "tree"

    def list(self) -> list[Record]:
        found = sorted(self.root.glob("*/workspace.json")) if self.root.exists() else []
        return [msgspec.json.decode(path.read_bytes(), type=Record) for path in found]
