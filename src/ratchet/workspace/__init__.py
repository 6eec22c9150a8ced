"""Workspaces: private copies of a base in which a run's steps happen. Laid down, put back, thrown away."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

from ratchet.core.snapshot import Manifest


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a workspace without opening it."""

    slug: str
    path: str
    kind: str
    repo: str
    base_commit: str
    owner_pid: int
    owner_machine: str
    created_at: str


class Workspace(Protocol):
    """Every kind passes the one suite in `tests/contract`."""

    record: Record
    path: Path

    def checkpoint(self) -> str:
        """Durably keep the exact content as it is now; returns its tree id."""
        ...

    def reset(self, to: str) -> None:
        """Make the content exactly that of a checkpoint, untracked leftovers included."""
        ...

    def restore(self, paths: list[str], to: str) -> None:
        """Put single paths back to what they were in a checkpoint."""
        ...

    def changes(self, before: str, after: str) -> list[str]:
        """The paths that differ between two checkpoints, sorted."""
        ...

    def diff(self, before: str, after: str, *, max_bytes: int = 500_000) -> str:
        """The same as text."""
        ...

    def manifest(self, tree: str) -> Manifest:
        """The snapshot of a checkpoint."""
        ...

    def commit(self, *, message: str, parent: str, at: str) -> str:
        """Commit the content to the run's branch, if the branch still stands at `parent`; returns the commit."""
        ...

    def undo_commit(self, *, commit: str, parent: str) -> None:
        """Move the branch back from `commit` to `parent`. Already there is success."""
        ...

    def find_commit(self, key: str, *, since: str) -> str | None:
        """The commit on the branch that carries this idempotency key."""
        ...

    def tip(self) -> str:
        """The commit the run's branch stands at."""
        ...

    def follow(self, commit: str) -> None:
        """Let the workspace's own git see the commit, so that `git status` there tells the truth."""
        ...

    def destroy(self) -> None:
        """Remove it. Removing what is gone is success; the branch stays."""
        ...
