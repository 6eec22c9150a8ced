"""The repository a run works for: found, checked, and described in words that help when it will not do."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ratchet.errors import GitFailed, UsageError
from ratchet.files import make_private_dir
from ratchet.workspace.git import git, text


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    root: Path
    head: str
    dirty: bool

    @property
    def state(self) -> Path:
        """`.ratchet`, which ignores itself."""
        folder = make_private_dir(self.root / ".ratchet")
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
        return folder


def find(start: Path) -> Repository:
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
    status = git("status", "--porcelain", "--untracked-files=normal", cwd=root)
    return Repository(root=root, head=head, dirty=bool(status.strip()))


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
