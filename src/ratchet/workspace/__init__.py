"""Workspaces: private copies of a base in which a run's steps happen. Laid down, put back, thrown away."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

from ratchet.core.lease import Holder
from ratchet.core.snapshot import Manifest


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a workspace without opening it.

    `owner_pid` is 0 when no process owns it; `kept_until` is how long it stays although its owner is gone. `layer` is
    the folder of the writable layer, `on` where that is (ram or disk); `held_by` keeps an unprivileged mount alive.
    `store` is where its trees are kept, if not in the repository's `.ratchet`.
    """

    id: str
    slug: str
    path: str
    kind: str
    repo: str
    git_dir: str
    base: str
    base_commit: str
    base_tree: str
    owner_pid: int
    owner_born: str
    owner_machine: str
    boot_id: str
    host: str
    created_at: str
    kept_until: str = ""
    layer: str = ""
    on: str = "disk"
    held_by: Holder | None = None
    store: str = ""


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """There is no room for another workspace; nothing was made."""

    reason: str
    hint: str


class Workspace(Protocol):
    """Every kind passes the one suite in `tests/workspace`."""

    record: Record

    @property
    def path(self) -> Path:
        """Where this process finds the content; `process` starts programs there, whoever else can see it."""
        ...

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

    def hold(self, commit: str) -> None:
        """Make the run's branch stand at `commit` again, wherever somebody in the workspace has moved it."""
        ...

    def read(self, tree: str, path: str) -> bytes | None:
        """A file's content in a checkpoint, None when it has no such file."""
        ...

    def read_all(self, tree: str, paths: list[str]) -> dict[str, bytes | None]:
        """The same for many at once; names with a line feed in them are left out."""
        ...

    def tip(self) -> str:
        """The commit the run's branch stands at."""
        ...

    def follow(self, commit: str) -> None:
        """Let the workspace's own git see the commit, so that `git status` there tells the truth."""
        ...
