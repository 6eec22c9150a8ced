"""Workspaces: private copies of a base in which the steps of a run work. Created, reset, removed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import msgspec

from ratchet.core.lease import Holder
from ratchet.core.snapshot import Manifest

# In the home of every finished workspace: its record, and beside it the folder in which agents work.
RECORD, TREE, MOUNTS = "workspace.json", "tree", ".mounts"
AGENT_HOME = "agent-home"  # the homes of agents, by role, beside it
CONTAINER = "container"  # the kind whose steps run in containers


class WorkspaceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The stored description of a workspace.

    `owner_pid` is 0 when no process owns it; `kept_until` is when it may be removed after its owner has ended. `layer`
    is the folder of the writable layer, `on` its medium (ram or disk). `held_by` is the process that keeps an
    unprivileged mount alive. `store` is the tree store, if it is not in the repository's `.ratchet`.
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


class WorkspaceRefused(msgspec.Struct, frozen=True, kw_only=True):
    """The limits allow no further workspace; nothing was created."""

    reason: str
    hint: str


class Workspace(Protocol):
    """A workspace of any kind. All kinds pass the contract tests in `tests/workspace`."""

    record: WorkspaceRecord

    @property
    def home(self) -> Path:
        """The folder with everything that belongs to the workspace."""
        ...

    @property
    def path(self) -> Path:
        """The path of the content for this process. `process` can start programs there even if others cannot see it."""
        ...

    def tidy(self) -> None:
        """Remove pipes, sockets and devices from the content: opening one may block."""
        ...

    def uncommitted(self) -> list[str]:
        """Return the files that may differ from the last checkpoint, without ignored ones."""
        ...

    def checkpoint(self) -> str:
        """Store the exact current content durably; returns its tree id."""
        ...

    def remove_refused(self) -> list[str]:
        """Remove what git cannot hold by its name, as `.GIT`, and nested repositories' `.git`; return their paths."""
        ...

    def settle(self) -> str:
        """Make the content what a checkout of its commit would give, by the project's attributes; then checkpoint it.

        Raises CommitDiffers when git cannot convert it, and GitStalled."""
        ...

    def reset(self, to: str) -> None:
        """Make the content exactly that of a checkpoint; removes untracked files too."""
        ...

    def restore(self, paths: list[str], to: str) -> None:
        """Restore single paths from a checkpoint."""
        ...

    def changes(self, before: str, after: str) -> list[str]:
        """Return the paths that differ between two checkpoints, sorted."""
        ...

    def links(self, before: str, after: str) -> set[str]:
        """Return the changed paths that are symbolic links in the second checkpoint."""
        ...

    def diff(self, before: str, after: str, *, max_bytes: int = 500_000) -> str:
        """Return the differences as a patch."""
        ...

    def manifest(self, tree: str) -> Manifest:
        """Return the manifest of a checkpoint."""
        ...

    def commit(self, *, tree: str, message: str, parent: str, at: str, replaces: str = "") -> str:
        """Commit a judged tree to the run's branch if it is still at `parent`, or at the commit that this one replaces.

        Raises WorkspaceChanged when the workspace holds anything else than that tree.
        """
        ...

    def differing_paths(self, commit: str, tree: str) -> list[str]:
        """Return the paths in which a commit differs from a checkpoint. Empty when it holds exactly that."""
        ...

    def undo_commit(self, *, commit: str, parent: str) -> None:
        """Move the branch back from `commit` to `parent`. Success if it is already there."""
        ...

    def find_commit(self, key: str, *, since: str) -> str | None:
        """Return the commit on the branch with this idempotency key."""
        ...

    def restore_branch(self, commit: str) -> None:
        """Make sure that the run's branch is at `commit`. Raises BranchMoved when a person has committed there."""
        ...

    def put_branch_back(self, commit: str) -> None:
        """Move the branch back after an agent that could write it; its commits are kept on a branch of their own."""
        ...

    def pack(self, *, trees: Iterable[str], head: str) -> bytes:
        """Return what the run added to its base, for another host: these checkpoints and the commits up to `head`."""
        ...

    def unpack(self, objects: bytes) -> None:
        """Add what `pack` returned on another host."""
        ...

    def have(self, *, trees: Iterable[str], head: str) -> bool:
        """Whether this host has the checkpoints and the commit."""
        ...

    def read(self, tree: str, path: str) -> bytes | None:
        """Return a file's content in a checkpoint; None when there is no such file."""
        ...

    def read_all(self, tree: str, paths: list[str]) -> dict[str, bytes | None]:
        """Return the content of many files at once; names with a line feed are left out."""
        ...

    def tip(self) -> str:
        """Return the commit of the run's branch."""
        ...

    def follow(self, commit: str) -> None:
        """Move the workspace's own HEAD and index to the commit, so that `git status` there is right."""
        ...
