"""All workspaces below one folder: made, found again, counted, and removed when nobody owns them any more.

Each has a folder of its own, locked while it is made or removed. Its record is written last: a workspace without one
was never finished, and whoever comes next clears it away.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from ratchet.core.lease import Holder
from ratchet.errors import DiskFull, EnvironmentCannot, GitFailed, NotFound, RatchetError, UsageError
from ratchet.files import NO_ROOM
from ratchet.process import this_machine
from ratchet.workspace import Record, Refused
from ratchet.workspace.bases import Base, Bases, Recipe, Source
from ratchet.workspace.branches import branch_tip, free, make_branch
from ratchet.workspace.git import git, is_full, text
from ratchet.workspace.homes import empty, locked, put, read_any
from ratchet.workspace.kinds import KINDS
from ratchet.workspace.ladder import Places, Rung, choose, ladder
from ratchet.workspace.layers import remove
from ratchet.workspace.overlay import Overlay, owns_layer
from ratchet.workspace.owners import lost, orphaned
from ratchet.workspace.room import OVERLAYS, RAM, Limits, Room
from ratchet.workspace.trees import Trees
from ratchet.workspace.views import BRANCH, GitWorkspace

SLUG_MAX = 100
_SLUG = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.|lock$|$))*")
_TRIES = 5


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be made, everything decided."""

    slug: str
    source: Source
    commit: str
    kind: str
    place: str
    recipe: Recipe
    owner: Holder | None
    kept_until: str

    @property
    def needs_base(self) -> bool:
        return self.kind != "worktree" or bool(self.recipe.setup or self.recipe.carry)


class SlugTaken(UsageError):
    """A workspace of that name exists: open it, destroy it, or choose another name."""


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace as `list` shows it. `orphan` says why it would be removed; empty for one that stays."""

    record: Record
    size_bytes: int
    orphan: str


class Workspaces:
    def __init__(self, root: Path, *, bases: Path | None = None, limits: Limits | None = None, ram: Path = RAM) -> None:
        self.root, self.ram = root, ram
        self.limits = limits or Limits()
        self.bases = Bases(bases or root / ".bases", max_bytes=self.limits.max_bases_bytes)
        self._chosen: dict[tuple[str, str], str] = {}
        self._sources: dict[str, Source] = {}
        self._turn = threading.Lock()
        self.room = Room(self.limits, root=root, ram=ram)

    # --- making --------------------------------------------------------------------------------------------------

    def create(
        self,
        slug: str,
        *,
        repo: Path,
        commit: str,
        kind: str = "auto",
        on: str = "auto",
        recipe: Recipe | None = None,
        owner: Holder | None = None,
        kept_until: str = "",
    ) -> GitWorkspace | Refused:
        """Lay one down at the tip of its branch, which is made at `commit` if it is not there yet.

        Refused below the limits; an error leaves nothing half-made.
        """
        # One at a time in a process: fifty threads that each make thirty system calls would fight for the interpreter.
        # Not while a base is prepared or files are copied: that may take minutes, and nobody else need wait for it.
        with self._turn:
            order = self._order(
                slug, repo=repo, commit=commit, kind=kind, on=on, recipe=recipe, owner=owner, kept_until=kept_until
            )
            if isinstance(order, Refused):
                return order
            made = self._once(order) if order.kind == "overlay" else None
        for _ in range(_TRIES):
            if made is not None:
                return made
            if order.needs_base:
                self.bases.evict()
                self.bases.prepare(order.source, self._start(order), order.recipe)
            with self._turn if order.kind == "overlay" else nullcontext():
                made = self._once(order)
        raise EnvironmentCannot(f"the base of {slug} is removed as often as it is made", hint="raise max_bases_mb")

    def _order(
        self,
        slug: str,
        *,
        repo: Path,
        commit: str,
        kind: str,
        on: str,
        recipe: Recipe | None,
        owner: Holder | None,
        kept_until: str,
    ) -> Order | Refused:
        check_slug(slug)
        place = self.room.place_of_layer(kind, on)
        if isinstance(place, Refused):
            return place
        return Order(
            slug=slug,
            source=self.source(repo),
            commit=check_commit(commit),
            kind=self.choose(kind, place),
            place=place,
            recipe=recipe or Recipe(),
            owner=owner,
            kept_until=kept_until,
        )

    def _once(self, order: Order) -> GitWorkspace | Refused | None:
        with self._making(order.slug) as home:
            return self._attempt(home, order)

    def _attempt(self, home: str, order: Order) -> GitWorkspace | Refused | None:
        """None when its base is not there yet; then nothing was made."""
        try:
            made = self._too_many() or self._lay_down(home, order)
        except BaseException as error:
            told = _in_words(error, order.place)  # before it is cleared: now it can be seen what is full
            self._clear(home)
            raise told from error
        if not isinstance(made, GitWorkspace):
            os.rmdir(home)
        return made

    def _start(self, order: Order) -> str:
        return branch_tip(order.source.git_dir, BRANCH.format(slug=order.slug)) or order.commit

    def _lay_down(self, home: str, order: Order) -> GitWorkspace | None:
        name = f"ws-{secrets.token_hex(6)}"
        tip = branch_tip(order.source.git_dir, BRANCH.format(slug=order.slug))
        start, base = tip or order.commit, None
        if order.needs_base:
            base = self.bases.take(order.source, start, order.recipe, user=name, home=home)
            if base is None:
                return None
        return self._make(home, order, name, start, base, has_branch=bool(tip))

    def _make(
        self, home: str, order: Order, name: str, start: str, base: Base | None, *, has_branch: bool
    ) -> GitWorkspace:
        if has_branch:
            free(order.source.git_dir, BRANCH.format(slug=order.slug))
        else:
            make_branch(order.source.git_dir, BRANCH.format(slug=order.slug), start)
        record = self._announce(home, self._record(name, home, start, order, base))
        workspace = KINDS[order.kind](home, record)
        workspace.lay_down()
        if workspace.record is not record:
            put(f"{home}/making.json", msgspec.json.encode(workspace.record))
        os.rename(f"{home}/making.json", f"{home}/workspace.json")
        return workspace

    def _record(self, name: str, home: str, commit: str, order: Order, base: Base | None) -> Record:
        owner, machine = order.owner, this_machine()
        layered = order.kind in OVERLAYS
        on_ram = layered and order.place == str(self.ram)
        return Record(
            id=name,
            slug=order.slug,
            path=f"{home}/tree",
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
            layer=(f"{order.place}/ratchet-{order.slug}" if on_ram else f"{home}/layer") if layered else "",
            on="ram" if on_ram else "disk",
        )

    def _announce(self, home: str, record: Record) -> Record:
        """Write down all parts before the first is made: whoever finds it half-made knows them. Then make the layer's
        folder, under another name where the same slug in another folder of workspaces has taken the first."""
        for _ in range(8):
            put(f"{home}/making.json", msgspec.json.encode(record))
            if not record.layer:
                return record
            try:
                os.mkdir(record.layer, 0o700)
            except FileExistsError:
                if owns_layer(record, home):
                    remove(record.layer)
                else:
                    record = msgspec.structs.replace(record, layer=f"{record.layer}-{secrets.token_hex(3)}")
                continue
            if record.on == "ram":
                os.symlink(home, f"{record.layer}/home")
            return record
        raise EnvironmentCannot(f"no folder for the writable layer could be made: {record.layer}")

    @contextmanager
    def _making(self, slug: str) -> Iterator[str]:
        """The slug's home, new, empty and locked."""
        home = f"{self.root}/{slug}"
        while True:
            try:
                os.mkdir(home, 0o700)
            except FileNotFoundError:
                os.makedirs(self.root, 0o700, exist_ok=True)
                continue
            except FileExistsError:
                pass
            with locked(home, wait=True) as ours:
                if not ours:
                    continue  # it was removed in between
                if left := os.listdir(home):
                    if "workspace.json" in left:
                        raise SlugTaken(
                            f"a workspace {slug} exists already", hint=f"ratchet workspace destroy {slug}", slug=slug
                        )
                    self._clear(home, keep=True)
                yield home
                return

    def _too_many(self) -> Refused | None:
        with os.scandir(self.root) as entries:
            count = sum(1 for entry in entries if not entry.name.startswith("."))
        if count > self.limits.max_count:
            return Refused(
                reason=f"there are {count - 1} workspaces, at most {self.limits.max_count} are allowed",
                hint="ratchet workspace gc, or raise workspace.max_count",
            )
        return None

    # --- finding -------------------------------------------------------------------------------------------------

    def source(self, repo: Path) -> Source:
        """The repository to work for, or an error that says why it will not do."""
        key = str(repo)
        if key not in self._sources or not os.path.exists(self._sources[key].git_dir):
            self._sources[key] = self._find_source(repo)
        return self._sources[key]

    def _find_source(self, repo: Path) -> Source:
        if not repo.exists():
            raise UsageError(f"{repo} does not exist", hint="name a git repository")
        if not os.access(repo, os.R_OK | os.X_OK):
            raise UsageError(f"{repo} is not readable", hint="check its permissions")
        with suppress(ValueError):
            slug = repo.resolve().relative_to(self.root.resolve()).parts[0]
            raise UsageError(
                f"{repo} is inside the workspace {slug}", hint=f"ratchet workspace fork {slug} makes a copy of it"
            )
        try:
            asked = ("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir")
            top, git_dir = text(*asked, cwd=repo).splitlines()
        except (GitFailed, ValueError) as error:
            raise UsageError(
                f"{repo} is not in a git repository", hint="git init && git add -A && git commit -m start"
            ) from error
        return Source(root=top, git_dir=git_dir)

    def choose(self, kind: str, layers: str | None = None) -> str:
        """The kind that `kind` comes to here; what was found once holds for this object's life."""
        place = layers or str(self.root)
        key = kind, place
        if key not in self._chosen:
            self._chosen[key] = choose(kind, self._places(place))
        return self._chosen[key]

    def ladder(self) -> list[Rung]:
        return ladder(self._places(str(self.root) if self.room.no_ram() else str(self.ram)))

    def _places(self, layers: str) -> Places:
        os.makedirs(self.root, 0o700, exist_ok=True)
        return Places(workspaces=self.root, bases=self.bases.root, layers=Path(layers))

    def open(self, slug: str) -> GitWorkspace:
        """An existing one, mounted again if its mount was lost. NotFound when it is gone or past saving."""
        check_slug(slug)
        record = self._read(slug)
        workspace = KINDS[record.kind](f"{self.root}/{slug}", record)
        if part := lost(record):
            raise NotFound(f"workspace {slug} has lost its {part}", slug=slug, hint=f"ratchet workspace destroy {slug}")
        if isinstance(workspace, Overlay) and not workspace.is_mounted():
            workspace.mend()
        return workspace

    def adopt(self, slug: str, *, owner: Holder) -> GitWorkspace:
        """Open one and own it from now on. Alone: whoever tidies up must not find it without an owner meanwhile."""
        with locked(f"{self.root}/{slug}", wait=True):
            workspace = self.open(slug)
            workspace.unlock()
            self._rewrite(workspace, owner_pid=owner.pid, owner_born=owner.born, kept_until="")
        return workspace

    def keep(self, slug: str, *, until: str) -> None:
        """Let it stay that long although nobody works in it. Nothing to keep is success."""
        with suppress(NotFound):
            self._rewrite(KINDS["copy"](f"{self.root}/{slug}", self._read(slug)), kept_until=until)

    def _rewrite(self, workspace: GitWorkspace, **fields: Any) -> None:
        here = this_machine()
        record = msgspec.structs.replace(
            workspace.record, owner_machine=here, boot_id=here.partition(":")[0], host=socket.gethostname(), **fields
        )
        workspace.record = record
        put(f"{workspace.home}/.record", msgspec.json.encode(record))
        os.rename(f"{workspace.home}/.record", f"{workspace.home}/workspace.json")

    def _read(self, slug: str) -> Record:
        try:
            content = (self.root / slug / "workspace.json").read_bytes()
            return msgspec.json.decode(content, type=Record)
        except (OSError, msgspec.DecodeError) as error:
            raise NotFound(f"there is no workspace {slug}", slug=slug, hint="ratchet workspace list") from error

    def path_of(self, slug: str) -> Path:
        return self.root / slug / "tree"

    def records(self) -> list[Record]:
        found = []
        for name in sorted(path.name for path in self.root.iterdir()) if self.root.exists() else []:
            with suppress(NotFound):
                found.append(self._read(name))
        return found

    # --- more of the same ----------------------------------------------------------------------------------------

    def fork(
        self, slug: str, into: str, *, owner: Holder | None = None, kept_until: str = ""
    ) -> GitWorkspace | Refused:
        """An independent copy of a workspace as it is now, uncommitted changes included, on a branch of its own."""
        origin = self.open(slug)
        tree, tip = origin.checkpoint(), origin.tip()
        record = origin.record
        made = self.create(
            into,
            repo=Path(record.repo),
            commit=record.base_commit,
            kind=record.kind,
            on=record.on if record.kind in OVERLAYS else "auto",
            recipe=origin.base.recipe if record.base else None,
            owner=owner,
            kept_until=kept_until,
        )
        if isinstance(made, Refused):
            return made
        if made.tip() != tip:
            git("update-ref", made.ref, tip, env={"GIT_DIR": record.git_dir})
            made.follow(tip)
        made.reset(tree)
        return made

    def lay_changes(self, workspace: GitWorkspace) -> None:
        """Lay the developer's uncommitted changes on top: what they changed, added, renamed and deleted."""
        index = workspace.home / "developer.index"
        trees = Trees(
            store=workspace.trees.store,
            index=index,
            folder=Path(workspace.record.repo),
            borrow=Path(workspace.record.git_dir) / "objects",
            ours=False,
        )
        trees.seed(workspace.record.base_commit)
        workspace.reset(trees.write())
        index.unlink()

    # --- removing ------------------------------------------------------------------------------------------------

    def destroy(self, slug: str) -> bool:
        """Remove one, half-made ones too; the branch stays. False when there was none: that is success."""
        check_slug(slug)
        home = f"{self.root}/{slug}"
        with locked(home, wait=True) as ours:
            if not ours:
                return False
            self._clear(home)
        return True

    def _clear(self, home: str, *, keep: bool = False) -> None:
        """Take up whatever is there, finished or not."""
        record = read_any(home)
        if record:
            KINDS[record.kind](home, record).take_up()
            self.bases.give_back(record.base, record.id)
        empty(home)
        if not keep:
            os.rmdir(home)

    def gc(self, *, spare: str = "", now: str = "") -> list[str]:
        """Remove what nobody owns any more: orphans past their time, half-made ones, layers and bases of neither."""
        removed = []
        for home in sorted(self.root.iterdir()) if self.root.exists() else []:
            if home.name.startswith(".") or home.name == spare or not home.is_dir():
                continue
            with suppress(OSError, RatchetError), locked(str(home), wait=False) as ours:  # one must not spare the rest
                if ours and self._is_garbage(home.name, now or _now()):
                    self._clear(str(home))
                    removed.append(home.name)
        self._sweep_layers()
        self.bases.sweep()
        self.bases.evict()
        return removed

    def _is_garbage(self, slug: str, now: str) -> bool:
        try:
            return bool(orphaned(self._read(slug), now))
        except NotFound:
            return True  # we hold its lock, so nobody is making it

    def _sweep_layers(self) -> None:
        for layer in self.ram.glob("ratchet-*") if self.ram.exists() else []:
            with suppress(OSError):
                if layer.stat().st_uid != os.geteuid():
                    continue
                if not os.path.lexists(os.readlink(layer / "home")):
                    remove(layer)

    def list(self) -> list[Listing]:
        return [
            Listing(
                record=record,
                size_bytes=KINDS[record.kind](f"{self.root}/{record.slug}", record).size_bytes(),
                orphan=orphaned(record, _now()),
            )
            for record in self.records()
        ]


def _now() -> str:
    return datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def check_slug(slug: str) -> str:
    """A slug is a folder's name and the end of a branch's."""
    if len(slug) > SLUG_MAX:
        raise UsageError(
            f"the slug has {len(slug)} characters, at most {SLUG_MAX} are taken", hint="choose a shorter one"
        )
    if not _SLUG.fullmatch(slug):
        raise UsageError(
            f"{slug!r} cannot name a workspace",
            hint="letters, digits, '-', '_' and single dots, a letter or digit first",
        )
    return slug


def check_commit(commit: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit):
        raise UsageError(f"{commit!r} is not a commit's whole id", hint="git rev-parse HEAD")
    return commit


def _in_words(error: BaseException, place: str) -> BaseException:
    if not isinstance(error, OSError):
        return error
    where = error.filename2 or error.filename or place
    if error.errno in NO_ROOM:
        full = place if is_full(Path(place)) else where
        return DiskFull(f"no room left at {full}", hint="free some space there, or choose --on disk or --on ram")
    if error.errno == errno.EPERM:
        return EnvironmentCannot(f"not permitted: {where}", hint="`ratchet doctor` says which kinds work here")
    return EnvironmentCannot(f"the workspace could not be made: {error.strerror}: {where}", hint="ratchet doctor")
