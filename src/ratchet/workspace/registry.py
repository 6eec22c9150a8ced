"""The workspaces below one folder: create, find, count, and remove those without an owner.

Each workspace has its own home directory, which is locked while it is created or removed. Its record is written last: a
workspace without a record was never finished and is removed by the next process that finds it.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from ratchet.core.lease import Holder
from ratchet.core.lines import split_lines
from ratchet.core.timestamps import format_timestamp
from ratchet.errors import (
    DiskFull,
    EnvironmentCannot,
    GitFailed,
    NotFound,
    RatchetError,
    UntrustedRepository,
    UsageError,
)
from ratchet.files import NO_ROOM, is_full
from ratchet.process.cgroups import remove_stale_groups
from ratchet.process.spawn import end_process, is_gone, this_machine, this_process
from ratchet.workspace import directories
from ratchet.workspace.base_cache import Base, BaseCache, Recipe, Source
from ratchet.workspace.capacity import OVERLAYS, RAM, Capacity, CapacityLimits
from ratchet.workspace.git.branches import branch_tip, create_branch, delete_branch, remove_stale_lock
from ratchet.workspace.git.command import git, git_text
from ratchet.workspace.git.repository import init_hint
from ratchet.workspace.git.trees import WHOLE_S, TreeStore
from ratchet.workspace.git_workspace import BRANCH, GitWorkspace, unregister_lost
from ratchet.workspace.kinds.copies import KINDS
from ratchet.workspace.kinds.overlay import Overlay
from ratchet.workspace.kinds.selection import KindPaths, KindProbe, choose, probe_kinds, remove_stale_probes
from ratchet.workspace.owners import is_owned_elsewhere, missing_part, why_orphaned
from ratchet.workspace.protocol import MOUNTS, RECORD, WorkspaceRecord, WorkspaceRefused
from ratchet.workspace.syscalls import is_mounted, unmount

SLUG_MAX = 100
_SLUG = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.|lock$|$))*")
_TRIES = 5
FillWorkspace = Callable[[GitWorkspace], None]


class WorkspaceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace to create, with all choices made."""

    name: str
    slug: str
    source: Source
    commit: str
    kind: str
    place: str
    recipe: Recipe
    owner: Holder | None
    kept_until: str

    @property
    def ref(self) -> str:
        return BRANCH.format(slug=self.slug)

    @property
    def needs_base(self) -> bool:
        return self.kind != "worktree" or bool(self.recipe.setup or self.recipe.carry)


class SlugTaken(UsageError):
    """A workspace with that name exists: open it, destroy it, or choose another name."""


class WorkspaceListing(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace as `list` shows it. `orphan` is why it may be removed, or empty."""

    record: WorkspaceRecord
    size_bytes: int
    orphan: str


class Workspaces:
    def __init__(
        self, root: Path, *, bases: Path | None = None, limits: CapacityLimits | None = None, ram: Path = RAM
    ) -> None:
        self.root, self.ram = root, ram
        self.limits = limits or CapacityLimits()
        self.bases = BaseCache(bases or root / ".bases", max_bytes=self.limits.max_bases_bytes, ram=ram)
        self._chosen: dict[tuple[str, str], str] = {}
        self._sources: dict[str, Source] = {}
        # Limits concurrent creations to what keeps the cores busy: fifty threads would only compete for the
        # interpreter. Used only for fast kinds, not while files are copied. Always acquired before the lock of a
        # home, never after it, so that the two cannot deadlock.
        self._turns = threading.Semaphore((os.cpu_count() or 1) + 1)
        self.capacity = Capacity(self.limits, root=root, ram=ram)

    # --- create --------------------------------------------------------------------------------------------------

    def create(
        self,
        slug: str,
        *,
        repo: Path | Source,
        commit: str,
        kind: str = "auto",
        on: str = "auto",
        recipe: Recipe | None = None,
        owner: Holder | None = None,
        kept_until: str = "",
        fill: FillWorkspace | None = None,
    ) -> GitWorkspace | WorkspaceRefused:
        """Create a workspace at the tip of its branch, which is created at `commit` if it does not exist.

        Returns a refusal when the limits are reached; an error leaves nothing behind. `fill` may write into the
        workspace before it counts as finished.
        """
        check_slug(slug)
        place = self.capacity.layer_directory(kind, on)
        if isinstance(place, WorkspaceRefused):
            return place
        order = WorkspaceRequest(
            name=f"{self.root}/{slug}",
            slug=slug,
            source=repo if isinstance(repo, Source) else self.source(repo),
            commit=check_commit(commit),
            kind=self.choose(kind, place),
            place=place,
            recipe=recipe or Recipe(),
            owner=owner,
            kept_until=kept_until,
        )
        for _ in range(_TRIES):
            made = self._attempt(order, fill)
            if made is not None:
                return made
            self.bases.evict()
            self.bases.prepare(order.source, self._tip(order) or order.commit, order.recipe)
        raise EnvironmentCannot(f"the base of {slug} was evicted {_TRIES} times in a row", hint="raise max_bases_mb")

    def _attempt(self, order: WorkspaceRequest, fill: FillWorkspace | None) -> GitWorkspace | WorkspaceRefused | None:
        """Return None when the base does not exist yet; then nothing was created."""
        quick = order.kind == "overlay" and fill is None
        try:
            with self._turns if quick else nullcontext(), self._making(order) as home:
                return self._make(home, order, fill)
        except OSError as error:
            raise _explain(error, order.place) from error

    def _make(
        self, home: str, order: WorkspaceRequest, fill: FillWorkspace | None
    ) -> GitWorkspace | WorkspaceRefused | None:
        tip = self._tip(order)
        try:
            made = self._too_many() or self._create_parts(home, order, tip)
            if isinstance(made, GitWorkspace):
                if fill:
                    fill(made)
                os.rename(f"{home}/{directories.MAKING}", f"{home}/{RECORD}")
                return made
        except BaseException as error:
            explained = _explain(error, order.place)  # before cleaning up, while the full disk is still full
            self._clear(order.name, home)
            if not tip:
                delete_branch(order.source.git_dir, order.ref)
            raise explained from error
        self._clear(order.name, home)
        return made

    def _tip(self, order: WorkspaceRequest) -> str:
        return branch_tip(order.source.git_dir, order.ref)

    def _create_parts(self, home: str, order: WorkspaceRequest, tip: str) -> GitWorkspace | None:
        """Record all parts before creating the first: a process that finds the workspace unfinished can remove them."""
        start, base = tip or order.commit, None
        if order.needs_base:
            base = self.bases.find(order.source, start, order.recipe)
            if base is None:
                return None
        record = self._record(home, start, order, base)
        directories.write_file(f"{home}/{directories.MAKING}", msgspec.json.encode(record))
        if base and not self.bases.acquire(base, record, home):
            return None
        if tip:
            remove_stale_lock(order.source.git_dir, order.ref)
        else:
            create_branch(order.source.git_dir, order.ref, start)
        workspace = KINDS[order.kind](home, record)
        workspace.create()
        if workspace.record is not record:
            directories.write_record(home, workspace.record, directories.MAKING)
        return workspace

    def _record(self, home: str, commit: str, order: WorkspaceRequest, base: Base | None) -> WorkspaceRecord:
        owner, machine = order.owner, this_machine()
        return WorkspaceRecord(
            id=f"ws-{secrets.token_hex(6)}",
            slug=order.slug,
            path=directories.tree_of(order.name, home),
            kind=order.kind,
            repo=order.source.root,
            git_dir=order.source.git_dir,
            base=base.path if base else "",
            base_commit=commit,
            base_tree=base.tree if base else "",
            owner_pid=owner.pid if owner else 0,
            owner_born=owner.born if owner else "",
            owner_machine=machine,
            boot_id=machine.partition(":")[0],
            host=socket.gethostname(),
            created_at=_now(),
            kept_until=order.kept_until,
            layer=home if order.kind in OVERLAYS else "",
            on="ram" if home != order.name else "disk",
            store=order.source.store if order.source.apart else "",
        )

    @contextmanager
    def _making(self, order: WorkspaceRequest) -> Iterator[str]:
        """Yield a new, empty and locked home for the workspace."""
        ram = order.place if order.kind in OVERLAYS and order.place == str(self.ram) else ""
        while True:
            try:
                home = directories.claim(order.name, ram)
            except FileNotFoundError:
                if self.root.exists():
                    raise  # so the RAM disk is missing
                os.makedirs(self.root, 0o700, exist_ok=True)
                continue
            with directories.locked(home, order.name, wait=True) as ours:
                if not ours:
                    continue  # it was removed meanwhile
                if bool(ram) == (home != order.name) and directories.mark_owner(home, order.name):
                    yield home
                    return
                if directories.read_record(home):
                    raise SlugTaken(
                        f"a workspace {order.slug} exists already",
                        hint=f"ratchet workspace destroy {order.slug}",
                        slug=order.slug,
                    )
                self._clear(order.name, home)

    def _too_many(self) -> WorkspaceRefused | None:
        count = sum(not name.startswith(".") for name in os.listdir(self.root))
        if count > self.limits.max_count:
            return WorkspaceRefused(
                reason=f"there are {count - 1} workspaces, at most {self.limits.max_count} are allowed",
                hint="ratchet workspace gc, or raise workspace.max_count",
            )
        return None

    # --- find -------------------------------------------------------------------------------------------------

    def source(self, repo: Path) -> Source:
        """Return the repository as a source of workspaces. Raises UsageError."""
        key = str(repo)
        if key not in self._sources or not os.path.exists(self._sources[key].git_dir):
            self._sources[key] = self._find_source(repo)
        return self._sources[key]

    def _find_source(self, repo: Path) -> Source:
        if not repo.exists():
            raise UsageError(f"{repo} does not exist", hint="name a git repository")
        if not os.access(repo, os.R_OK | os.X_OK):
            raise UsageError(f"{repo} is not readable", hint="check its permissions")
        if slug := self._slug_around(repo.resolve()):
            raise UsageError(
                f"{repo} is inside the workspace {slug}", hint=f"ratchet workspace fork {slug} makes a copy of it"
            )
        try:
            asked = ("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir")
            top, git_dir = split_lines(git_text(*asked, cwd=repo))
        except UntrustedRepository:
            raise
        except (GitFailed, ValueError) as error:
            raise UsageError(f"{repo} is not in a git repository", hint=init_hint(repo)) from error
        return Source(root=top, git_dir=git_dir)

    def _slug_around(self, folder: Path) -> str:
        """Return the slug of the workspace that contains a folder, or an empty string."""
        with suppress(ValueError):
            first, *more = folder.relative_to(self.root.resolve()).parts
            return more[0] if first == MOUNTS and more else first
        with suppress(ValueError):
            home = self.ram / folder.relative_to(self.ram.resolve()).parts[0]
            return os.path.basename(dict(directories.list_on_ram(self.ram)).get(str(home), ""))
        return ""

    def choose(self, kind: str, layers: str | None = None) -> str:
        """Return the kind to use for `kind` (which may be `auto`) on this machine; cached in this object."""
        place = layers or str(self.root)
        key = kind, place
        if key not in self._chosen:
            self._chosen[key] = choose(kind, self._places(place))
        return self._chosen[key]

    def probe_kinds(self) -> list[KindProbe]:
        return probe_kinds(self._places(str(self.root) if self.capacity.why_no_ram() else str(self.ram)))

    def _places(self, layers: str) -> KindPaths:
        os.makedirs(self.root, 0o700, exist_ok=True)
        return KindPaths(workspaces=self.root, bases=self.bases.root, layers=Path(layers))

    def open(self, slug: str) -> GitWorkspace:
        """Open an existing workspace, mounting it again if needed. Raises NotFound when it is gone or broken."""
        workspace = self._find(slug)
        if part := missing_part(workspace.record):
            raise NotFound(f"workspace {slug} has lost its {part}", slug=slug, hint=f"ratchet workspace destroy {slug}")
        if isinstance(workspace, Overlay) and not workspace.is_mounted():
            workspace.repair()
        return workspace

    @contextmanager
    def in_use(self, slug: str) -> Iterator[GitWorkspace]:
        """Open a workspace for a command of this process: `gc` keeps it meanwhile, and `destroy` ends the process."""
        workspace = self._find(slug)
        with directories.locked(str(workspace.home), f"{self.root}/{slug}", wait=True):
            workspace = self.open(slug)
            mark = directories.add_user(str(workspace.home), this_process())
        try:
            yield workspace
        finally:
            mark.unlink(missing_ok=True)

    def adopt(self, slug: str, *, owner: Holder) -> GitWorkspace:
        """Open a workspace and become its owner. Locked, so that `gc` never sees it without an owner."""
        with directories.locked(str(self._find(slug).home), f"{self.root}/{slug}", wait=True):
            workspace = self.open(slug)
            workspace.unlock()
            self._rewrite(workspace, owner_pid=owner.pid, owner_born=owner.born, kept_until="")
        return workspace

    def keep(self, slug: str, *, until: str) -> None:
        """Keep a workspace until a time although no process owns it. Success if it does not exist."""
        with suppress(NotFound):
            self._rewrite(self._find(slug), kept_until=until)

    def _rewrite(self, workspace: GitWorkspace, **fields: Any) -> None:
        here = this_machine()
        workspace.record = msgspec.structs.replace(
            workspace.record, owner_machine=here, boot_id=here.partition(":")[0], host=socket.gethostname(), **fields
        )
        directories.write_record(str(workspace.home), workspace.record)

    def _find(self, slug: str) -> GitWorkspace:
        name = f"{self.root}/{check_slug(slug)}"
        home = directories.find(name)
        if not home and os.path.islink(name):
            raise NotFound(
                f"workspace {slug} was lost with the RAM disk", slug=slug, hint=f"ratchet workspace destroy {slug}"
            )
        record = directories.read_record(home) if home else None
        if record is None:
            raise NotFound(f"there is no workspace {slug}", slug=slug, hint="ratchet workspace list")
        return KINDS[record.kind](home, record)

    def _all(self) -> list[GitWorkspace]:
        found = []
        for slug in self._slugs():
            with suppress(NotFound, UsageError):  # the folder may contain other files
                found.append(self._find(slug))
        return found

    def records(self) -> list[WorkspaceRecord]:
        return [workspace.record for workspace in self._all()]

    # --- copy ----------------------------------------------------------------------------------------

    def fork(
        self, slug: str, into: str, *, owner: Holder | None = None, kept_until: str = ""
    ) -> GitWorkspace | WorkspaceRefused:
        """Copy a workspace as it is now, with uncommitted changes, to a branch of its own."""
        origin = self.open(slug)
        tree, tip = origin.checkpoint(), origin.tip()
        record = origin.record

        def copy(made: GitWorkspace) -> None:
            if made.tip() != tip:
                git("update-ref", made.ref, tip, env={"GIT_DIR": record.git_dir})
                made.follow(tip)
            made.reset(tree)

        return self.create(
            into,
            repo=Path(record.repo),
            commit=record.base_commit,
            kind=record.kind,
            on=record.on if record.kind in OVERLAYS else "auto",
            recipe=origin.base.recipe if record.base else None,
            owner=owner,
            kept_until=kept_until,
            fill=copy,
        )

    def copy_uncommitted(self, workspace: GitWorkspace) -> None:
        """Apply the developer's uncommitted changes: modified, added, renamed and deleted files."""
        index = workspace.home / "developer.index"
        trees = TreeStore(
            store=workspace.trees.store,
            index=index,
            folder=Path(workspace.record.repo),
            borrow=Path(workspace.record.git_dir) / "objects",
            ours=False,
        )
        trees.seed(workspace.record.base_commit)
        workspace.reset(trees.write(timeout_s=WHOLE_S))
        index.unlink()

    # --- remove ------------------------------------------------------------------------------------------------

    def destroy(self, slug: str) -> bool:
        """Remove a workspace, finished or not; its branch stays. Returns False when there was none."""
        check_slug(slug)
        name = f"{self.root}/{slug}"
        while home := directories.find(name):
            with directories.locked(home, name, wait=True) as ours:
                if ours:
                    for user in directories.users(home):
                        end_process(user)
                    self._clear(name, home)
                    return True
        return directories.remove_dangling_name(name)

    def _clear(self, name: str, home: str) -> None:
        """Remove all parts of a workspace, finished or not, and its home."""
        self._empty(home, directories.tree_of(name, home))
        directories.delete(name, home)

    def _empty(self, home: str, tree: str) -> None:
        record = directories.read_any_record(home)
        if record:
            KINDS[record.kind](home, record).remove()
            self.bases.release(record)
        elif is_mounted(tree):  # its record was deleted by hand
            unmount(tree)
        directories.empty(home)
        if not tree.startswith(f"{home}/"):
            with suppress(OSError):
                os.rmdir(tree)

    def gc(self, *, spare: str = "", now: str = "") -> list[str]:
        """Remove workspaces without an owner, unfinished ones, and homes and bases that belong to no workspace."""
        removed = self.collect("", spare=spare, now=now)
        self._sweep_ram()
        for git_dir in {base.git_dir for base in self.bases.list()}:
            unregister_lost(git_dir)
        remove_stale_probes(self._places(str(self.ram)))
        remove_stale_groups()
        self.bases.sweep()
        self.bases.evict()
        return removed

    def collect(self, prefix: str, *, spare: str = "", now: str = "") -> list[str]:
        """Remove workspaces without an owner whose slug starts with `prefix`; returns their slugs."""
        removed = []
        for slug in self._slugs():
            if slug == spare or not slug.startswith(prefix):
                continue
            with suppress(OSError, RatchetError):  # one failure must not stop the others
                if self._collect(f"{self.root}/{slug}", now or _now()):
                    removed.append(slug)
        return removed

    def _collect(self, name: str, now: str) -> bool:
        home = directories.find(name)
        if not home:
            return directories.remove_dangling_name(name)
        with directories.locked(home, name, wait=False) as ours:
            if not ours:
                return False
            record = directories.read_record(home)
            if record and (not why_orphaned(record, now) or not all(map(is_gone, directories.users(home)))):
                return False
            self._clear(name, home)  # we hold its lock, so no process is creating it
        return True

    def _sweep_ram(self) -> None:
        """Remove homes without a name: their removal was interrupted, or the root was deleted by hand."""
        for home, name in directories.list_on_ram(self.ram):
            if name and os.path.lexists(name):
                continue
            with suppress(OSError, RatchetError), directories.locked(home, wait=False) as ours:
                if ours and name and _may_sweep(home):
                    self._empty(home, directories.tree_of(name, home))
                if ours:
                    os.rmdir(home)  # without a back link it is empty, or not ours

    def _slugs(self) -> list[str]:
        names = os.listdir(self.root) if self.root.exists() else []
        return sorted(name for name in names if not name.startswith("."))

    def list(self) -> list[WorkspaceListing]:
        return [
            WorkspaceListing(record=one.record, size_bytes=one.size_bytes(), orphan=why_orphaned(one.record, _now()))
            for one in self._all()
        ]


def _may_sweep(home: str) -> bool:
    """Whether a missing name means that the home can be removed.

    A RAM disk may be shared with containers and chroots: their names exist, but we cannot see them.
    """
    record = directories.read_any_record(home)
    return record is None or (record.host == socket.gethostname() and not is_owned_elsewhere(record))


def _now() -> str:
    return format_timestamp(datetime.now(UTC))


def check_slug(slug: str) -> str:
    """Check a slug, which names a folder and ends a branch name. Raises UsageError."""
    if len(slug) > SLUG_MAX:
        raise UsageError(
            f"the slug has {len(slug)} characters, at most {SLUG_MAX} are allowed", hint="choose a shorter one"
        )
    if not _SLUG.fullmatch(slug):
        raise UsageError(
            f"{slug!r} cannot name a workspace",
            hint="letters, digits, '-', '_' and single dots, a letter or digit first",
        )
    return slug


def check_commit(commit: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit):
        raise UsageError(f"{commit!r} is not a full commit id", hint="git rev-parse HEAD")
    return commit


def _explain(error: BaseException, place: str) -> BaseException:
    if not isinstance(error, OSError):
        return error
    where = error.filename2 or error.filename or place
    if error.errno in NO_ROOM:
        full = place if is_full(Path(place)) else where
        return DiskFull(f"no room left at {full}", hint="free some space there, or choose --on disk or --on ram")
    if error.errno == errno.EPERM:
        return EnvironmentCannot(f"not permitted: {where}", hint="`ratchet doctor` says which kinds work here")
    return EnvironmentCannot(f"the workspace could not be created: {error.strerror}: {where}", hint="ratchet doctor")
