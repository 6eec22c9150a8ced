"""What another host needs to continue a run: its trees and commits in a shared store, its branch at the origin."""

from __future__ import annotations

import hashlib

from ratchet.core import events as ev
from ratchet.core.item import Item
from ratchet.core.repo import RepoKind, repo_kind
from ratchet.core.state import RunState
from ratchet.engine.run_ledger import RunLedger
from ratchet.errors import ArtifactBroken, BranchMoved, GitFailed
from ratchet.store.protocols import Artifacts
from ratchet.store.run_directory import put_shared
from ratchet.workspace.git.repository import (
    Repository,
    commit_of,
    fetch_branch,
    is_made_by_ratchet,
    publish_branch,
    remote_branch,
)
from ratchet.workspace.protocol import Workspace

PUSHES_MAX = 5


def may_travel(item: Item, store: Artifacts) -> bool:
    """Whether another host may continue the item's run: it uses the same database, or a server in front of this one."""
    return store.is_shared or repo_kind(item.repo) is not RepoKind.PATH


class RunTravel:
    """Stores a run's objects after each step, and brings them to a host that does not have them."""

    def __init__(self, ledger: RunLedger, repo: Repository, workspace: Workspace) -> None:
        self._store, self._lease, self._run, self._workspace = ledger.store, ledger.lease, ledger.lease.run, workspace
        self._repo, self._remote = repo, repo_kind(ledger.item.repo) is not RepoKind.PATH
        self._travels = may_travel(ledger.item, ledger.store)
        self._stored: dict[tuple[frozenset[str], str], str] = {}
        self._published = ""

    def arrive(self, state: RunState) -> None:
        """Make the run's objects available here. Success if they are."""
        if not state.objects or self._workspace.have(trees=state.trees, head=state.head):
            return
        objects = self._store.artifact(self._run, state.objects)
        if objects is None or hashlib.sha256(objects).hexdigest() != state.objects:
            raise ArtifactBroken(f"the trees and commits of {self._run} are not in the store", path=state.objects)
        self._workspace.unpack(objects)
        self._workspace.restore_branch(state.head)

    def store_objects(self, state: RunState) -> str:
        """Store the objects before they are announced; return their digest; empty if no other host needs them."""
        if not self._travels:
            return ""
        place = state.trees, state.head
        if place not in self._stored:
            objects = self._workspace.pack(trees=state.trees, head=state.head)
            self._stored = {place: put_shared(self._store, self._run, objects, what="the run's change")}
        return self._stored[place]

    def forget(self, digest: str) -> None:
        """Remove objects that newer ones replace."""
        if digest:
            self._store.forget_artifacts(self._run, [digest])

    def publish(self, state: RunState) -> None:
        """Push the branch to where the repository was cloned from, after the ledger has its head. Raises LeaseLost.

        The lease is checked between reading the branch and replacing what was read: a host that was cut off and comes
        back pushes nothing over the commits of its successor. Raises BranchMoved when a person has committed there.
        """
        if not self._remote or not state.started or state.head in (self._published, state.started.base_commit):
            return
        for _ in range(PUSHES_MAX):
            there = remote_branch(self._repo.root, state.started.branch)
            if not self._is_ours(there, state.started):
                raise _moved(state.started.branch, there)
            self._store.lock(self._lease, [])
            if publish_branch(self._repo.root, state.started.branch, state.head, instead_of=there):
                self._published = state.head
                return
        raise GitFailed(f"the branch {state.started.branch} of the origin is changed by others again and again")

    def _is_ours(self, commit: str, started: ev.RunStarted) -> bool:
        if commit in ("", started.base_commit, self._published):
            return True
        root = self._repo.root
        if commit_of(root, commit) is None:
            fetch_branch(root, started.branch)
        return commit_of(root, commit) is not None and is_made_by_ratchet(commit, root / ".git")


def _moved(branch: str, there: str) -> BranchMoved:
    return BranchMoved(
        f"{branch} of the origin was moved to {there[:12]} by somebody else",
        hint=f"keep it elsewhere: git push origin {there}:refs/heads/mine; then git push origin --delete {branch}, "
        "and resume the run",
    )
