"""The use case of `ratchet clean`: finds what runs have left behind, and removes what is no longer needed.

Branches with commits that are not merged are kept: they are the results. Runs and their ledgers are not touched.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from ratchet import paths
from ratchet.config import Config
from ratchet.core.item import OPEN
from ratchet.core.repo import RepoKind, repo_kind
from ratchet.core.state import RunStatus
from ratchet.core.timestamps import format_timestamp
from ratchet.errors import RatchetError
from ratchet.files import state_dir
from ratchet.store.protocols import RunRow, Store
from ratchet.tree_files import remove_folder, remove_inside
from ratchet.workspace.from_config import open_workspaces
from ratchet.workspace.git import repository
from ratchet.workspace.git.branches import delete_branch
from ratchet.workspace.git.command import git, git_text
from ratchet.workspace.registry import Workspaces

BRANCHES = "refs/heads/ratchet/"


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a run left behind. `kept` says why it stays and until when; empty: it can go."""

    kind: str
    name: str
    where: str
    why: str
    kept: str = ""
    size_bytes: int = 0


class Cleaner:
    """Finds leftovers of all repositories in a store. `older_s`: how long ago something must have been used last."""

    def __init__(self, store: Store, config: Config, *, older_s: float | None) -> None:
        self.store, self.spaces = store, open_workspaces(config)
        self.rows = {store.item(row.item).slug: row for row in store.runs()}
        self.now, self.older_s = datetime.now(UTC), older_s

    def find(self) -> list[Leftover]:
        """List everything, removable first. Branches are checked last, as if the removable workspaces were gone."""
        found = [*self._workspaces(), *self._branches(), *self._bases(), *self._clones()]
        return sorted(found, key=lambda one: (bool(one.kept), one.kind, one.name))

    def remove(self, found: Sequence[Leftover]) -> list[Leftover]:
        """Remove what can go, workspaces first: git refuses to delete a branch that is checked out in one."""
        order = {"workspace": 0, "branch": 1, "base": 2, "clone": 3}
        going = sorted((one for one in found if not one.kept), key=lambda one: order[one.kind])
        return [one for one in going if self._remove(one)]

    def _remove(self, one: Leftover) -> bool:
        with suppress(RatchetError, OSError):
            match one.kind:
                case "workspace":
                    return self.spaces.destroy(one.name)
                case "branch":
                    _delete_branch(self.spaces, Path(one.where), one.name)
                case "base":
                    return bool(self.spaces.bases.remove(Path(one.where)))
                case _:
                    remove_folder(state_dir(Path(one.where)))
                    remove_inside(Path(one.where).parent, Path(one.where).name)
            return True
        return False

    # --- what there is -----------------------------------------------------------------------------------------

    def _workspaces(self) -> Iterator[Leftover]:
        for record in self.spaces.records():
            row = self.rows.get(record.slug)
            why = f"{row.run} {row.status}" if row else "of no run in this store"
            yield Leftover(
                kind="workspace",
                name=record.slug,
                where=record.path,
                why=why,
                kept=self._why_kept(row, record.kept_until),
            )

    def _why_kept(self, row: RunRow | None, until: str) -> str:
        if row is None:
            return "not of a run: ratchet workspace destroy NAME"
        if row.item_status in OPEN:
            return f"until its run ends ({row.item_status})"
        if self.older_s is None:
            return f"until {until[:16].replace('T', ' ')} UTC" if until > format_timestamp(self.now) else ""
        return self._too_young(datetime.fromisoformat(row.created_at))

    def _too_young(self, used: datetime) -> str:
        over = used + timedelta(seconds=self.older_s or 0)
        return f"until {over:%Y-%m-%d %H:%M}" if over > self.now else ""

    def _branches(self) -> Iterator[Leftover]:
        repos = {row.repo for row in self.rows.values() if repo_kind(row.repo) is RepoKind.PATH}
        for repo in sorted(repos):
            with suppress(RatchetError):
                for name in git_text("for-each-ref", "--format=%(refname:short)", BRANCHES, cwd=Path(repo)).split():
                    yield self._branch(Path(repo), name)

    def _branch(self, repo: Path, name: str) -> Leftover:
        row = self.rows.get(name.removeprefix("ratchet/"))
        why = f"{row.run} {row.status}" if row else "of no run in this store"
        return Leftover(kind="branch", name=name, where=str(repo), why=why, kept=self._why_branch_kept(repo, name, row))

    def _why_branch_kept(self, repo: Path, name: str, row: RunRow | None) -> str:
        if row is None:
            return f"unknown to this store: {_remove_branch(repo, name)}"
        if row.item_status in OPEN:
            return f"until its run ends ({row.item_status})"
        if _merged(repo, name):
            return ""
        if row.status is not RunStatus.COMPLETED and self.older_s is not None:
            return self._too_young(datetime.fromisoformat(row.created_at))
        return f"it has commits that are not merged: {_remove_branch(repo, name)}"

    def _bases(self) -> Iterator[Leftover]:
        for base in self.spaces.bases.list():
            used = datetime.fromtimestamp(self.spaces.bases.used_at(base), UTC)
            kept = "in use" if self.spaces.bases.is_used(base) else ""
            if not kept:
                kept = (
                    self._too_young(used)
                    if self.older_s is not None
                    else "until space is needed (--older-than removes it)"
                )
            yield Leftover(
                kind="base", name=base.commit[:10], where=base.path, why=f"used {used:%Y-%m-%d %H:%M}",
                kept=kept, size_bytes=base.size_bytes,
            )  # fmt: skip

    def _clones(self) -> Iterator[Leftover]:
        folder = paths.clones()
        wanted = {
            str(repository.clone_path(row.repo, clones=folder)) for row in self.rows.values() if row.item_status in OPEN
        }
        for place in sorted(folder.iterdir()) if folder.is_dir() else []:
            if place.is_dir() and not place.name.startswith("."):
                used = datetime.fromtimestamp(place.stat().st_mtime, UTC)
                kept = "until its runs end" if str(place) in wanted else ""
                if not kept:
                    kept = self._too_young(used) if self.older_s is not None else "a cache (--older-than removes it)"
                yield Leftover(kind="clone", name=place.name, where=str(place), why=f"used {used:%Y-%m-%d}", kept=kept)


def _remove_branch(repo: Path, name: str) -> str:
    """Return what a person types anywhere: `clean` lists the branches of all repositories."""
    return shlex.join(["git", "-C", str(repo), "branch", "-D", name])


def _merged(repo: Path, name: str) -> bool:
    """Whether the branch has no commits besides those of HEAD."""
    return git_text("rev-list", "--count", f"HEAD..refs/heads/{name}", cwd=repo) == "0"


def _delete_branch(spaces: Workspaces, repo: Path, name: str) -> None:
    git("worktree", "prune", cwd=repo)
    delete_branch(spaces.source(repo).git_dir, f"refs/heads/{name}")
