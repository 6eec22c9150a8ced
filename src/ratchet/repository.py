"""The repository a run works for: found or fetched, checked, and described in words that help when it will not do."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from ratchet.core.repo import RepoKind, address_of, repo_kind
from ratchet.errors import EnvironmentCannot, GitFailed, UsageError
from ratchet.files import make_private_dir, make_state_dir
from ratchet.workspace.git import git, text


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    root: Path
    head: str

    @property
    def dirty(self) -> bool:
        """Looks at every file: asked only by who tells a person."""
        return bool(git("status", "--porcelain", "--untracked-files=normal", cwd=self.root).strip())

    @property
    def state(self) -> Path:
        return make_state_dir(self.root)


def find(start: Path) -> Repository:
    if not start.exists():
        raise UsageError(f"{start} does not exist", hint="name a folder in a git repository")
    if not os.access(start, os.R_OK | os.X_OK):
        raise UsageError(f"{start} is not readable", hint="check its permissions")
    with suppress(GitFailed, ValueError):
        root, head = text("rev-parse", "--show-toplevel", "HEAD^{commit}", cwd=start).splitlines()
        return Repository(root=Path(root), head=head)
    return _find_in_words(start)


def _find_in_words(start: Path) -> Repository:
    """The same piece by piece, to say which one is missing."""
    try:
        root = Path(text("rev-parse", "--show-toplevel", cwd=start))
    except GitFailed as error:
        raise UsageError(
            f"{start} is not in a git repository", hint="git init && git add -A && git commit -m start"
        ) from error
    try:
        head = text("rev-parse", "--verify", "HEAD^{commit}", cwd=root)
    except GitFailed as error:
        raise UsageError(
            f"{root} has no commit yet, so there is nothing to start from",
            hint="git add -A && git commit -m start",
        ) from error
    return Repository(root=root, head=head)


def place_of(repo: str, *, clones: Path) -> Path:
    """Where a repository is, or will be once `resolve` has fetched it. Raises UsageError."""
    try:
        kind = repo_kind(repo)
    except ValueError as error:
        raise UsageError(str(error), hint="an absolute path, a git URL or owner/name") from error
    if kind is RepoKind.PATH:
        return Path(repo)
    name = repo.rstrip("/").removesuffix(".git").rpartition("/")[2].rpartition(":")[2]
    return clones / f"{name}-{hashlib.sha256(address_of(repo).encode()).hexdigest()[:12]}"


def resolve(repo: str, *, clones: Path) -> Path:
    """The repository on this machine: a path as it is, anything else cloned once and fetched from then on.

    A clone follows its origin: its branch stands where the origin's does. Many processes may ask at once.
    """
    place = place_of(repo, clones=clones)
    if repo_kind(repo) is RepoKind.PATH:
        return find(place).root
    try:
        with _alone(place):
            _fetch(place) if (place / ".git").is_dir() else _clone(address_of(repo), place)
    except GitFailed as error:
        raise EnvironmentCannot(
            f"{repo} cannot be fetched: {error.message}", hint=f"try it by hand: git ls-remote {address_of(repo)}"
        ) from error
    return place


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    handle = os.open(
        make_private_dir(place.parent) / f".{place.name}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600
    )
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _clone(address: str, place: Path) -> None:
    """Made beside its place and then named: a clone that was cut short is never taken for a repository."""
    half = place.with_name(f".{place.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    git(*_SAFE, "clone", "--quiet", "--no-hardlinks", "--", address, str(half))
    half.rename(place)


def _fetch(place: Path) -> None:
    git(*_SAFE, "fetch", "--quiet", "--prune", "--tags", "--force", "origin", cwd=place)
    git("remote", "set-head", "origin", "--auto", cwd=place)
    git("reset", "--quiet", "--hard", "refs/remotes/origin/HEAD", cwd=place)


# `ext::` addresses run commands; an address from the queue must never.
_SAFE = ("-c", "protocol.allow=never", *(
    word for name in ("https", "http", "ssh", "git", "file") for word in ("-c", f"protocol.{name}.allow=always")
))  # fmt: skip


def commit_of(repo: Path, name: str) -> str | None:
    try:
        return text("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", cwd=repo)
    except GitFailed:
        return None


def message_of(repo: Path, commit: str) -> str:
    return git("show", "-s", "--format=%B", commit, cwd=repo).decode(errors="replace")


def parent_of(repo: Path, commit: str) -> str | None:
    return commit_of(repo, f"{commit}^")


def changed_paths(repo: Path, commit: str) -> list[str]:
    out = git("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--no-commit-id", commit, cwd=repo)
    return [path.decode(errors="surrogateescape") for path in out.split(b"\0") if path]


def diff(repo: Path, before: str, after: str) -> str:
    return git("diff", "--no-ext-diff", f"{before}..{after}", cwd=repo).decode(errors="replace")
