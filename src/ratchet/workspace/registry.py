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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from ratchet.core.lease import Holder
from ratchet.errors import DiskFull, EnvironmentCannot, GitFailed, NotFound, RatchetError, UsageError
from ratchet.files import NO_ROOM
from ratchet.process import this_machine
from ratchet.workspace import Record, Refused, homes
from ratchet.workspace.bases import Base, Bases, Recipe, Source
from ratchet.workspace.branches import branch_tip, drop_branch, free, make_branch
from ratchet.workspace.git import git, is_full, text
from ratchet.workspace.kinds import KINDS
from ratchet.workspace.ladder import Places, Rung, choose, ladder, sweep_tries
from ratchet.workspace.overlay import Overlay
from ratchet.workspace.owners import lost, orphaned
from ratchet.workspace.room import OVERLAYS, RAM, Limits, Room
from ratchet.workspace.syscalls import is_mounted, unmount
from ratchet.workspace.trees import Trees
from ratchet.workspace.views import BRANCH, GitWorkspace, unregister_lost

SLUG_MAX = 100
_SLUG = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.|lock$|$))*")
_TRIES = 5
Fill = Callable[[GitWorkspace], None]


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be made, everything decided."""

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
        self.bases = Bases(bases or root / ".bases", max_bytes=self.limits.max_bases_bytes, ram=ram)
        self._chosen: dict[tuple[str, str], str] = {}
        self._sources: dict[str, Source] = {}
        # As many at a time in a process as keep the cores busy: fifty would only fight for the interpreter. Only for
        # what takes no time by itself: nobody need wait while files are copied. A turn is had before the lock of a
        # home, never after it: so nobody waits for a turn while another waits for the lock.
        self._turns = threading.Semaphore((os.cpu_count() or 1) + 1)
        self.room = Room(self.limits, root=root, ram=ram)

    # --- making --------------------------------------------------------------------------------------------------

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
        fill: Fill | None = None,
    ) -> GitWorkspace | Refused:
        """Lay one down at the tip of its branch, which is made at `commit` if it is not there yet.

        Refused below the limits; an error leaves nothing half-made. `fill` may write in it before it counts as made.
        """
        check_slug(slug)
        place = self.room.place_of_layer(kind, on)
        if isinstance(place, Refused):
            return place
        order = Order(
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
        raise EnvironmentCannot(f"the base of {slug} is removed as often as it is made", hint="raise max_bases_mb")

    def _attempt(self, order: Order, fill: Fill | None) -> GitWorkspace | Refused | None:
        """None when its base is not there yet; then nothing was made."""
        quick = order.kind == "overlay" and fill is None
        try:
            with self._turns if quick else nullcontext(), self._making(order) as home:
                return self._make(home, order, fill)
        except OSError as error:
            raise _in_words(error, order.place) from error

    def _make(self, home: str, order: Order, fill: Fill | None) -> GitWorkspace | Refused | None:
        tip = self._tip(order)
        try:
            made = self._too_many() or self._lay_down(home, order, tip)
            if isinstance(made, GitWorkspace):
                if fill:
                    fill(made)
                os.rename(f"{home}/{homes.MAKING}", f"{home}/{homes.RECORD}")
                return made
        except BaseException as error:
            told = _in_words(error, order.place)  # before it is cleared: now it can be seen what is full
            self._clear(order.name, home)
            if not tip:
                drop_branch(order.source.git_dir, order.ref)
            raise told from error
        self._clear(order.name, home)
        return made

    def _tip(self, order: Order) -> str:
        return branch_tip(order.source.git_dir, order.ref)

    def _lay_down(self, home: str, order: Order, tip: str) -> GitWorkspace | None:
        """All its parts are written down before the first is made: whoever finds it half-made knows them."""
        start, base = tip or order.commit, None
        if order.needs_base:
            base = self.bases.find(order.source, start, order.recipe)
            if base is None:
                return None
        record = self._record(home, start, order, base)
        homes.put(f"{home}/{homes.MAKING}", msgspec.json.encode(record))
        if base and not self.bases.use(base, record, home):
            return None
        if tip:
            free(order.source.git_dir, order.ref)
        else:
            make_branch(order.source.git_dir, order.ref, start)
        workspace = KINDS[order.kind](home, record)
        workspace.lay_down()
        if workspace.record is not record:
            homes.write(home, workspace.record, homes.MAKING)
        return workspace

    def _record(self, home: str, commit: str, order: Order, base: Base | None) -> Record:
        owner, machine = order.owner, this_machine()
        return Record(
            id=f"ws-{secrets.token_hex(6)}",
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
            layer=home if order.kind in OVERLAYS else "",
            on="ram" if home != order.name else "disk",
            store=order.source.store if order.source.apart else "",
        )

    @contextmanager
    def _making(self, order: Order) -> Iterator[str]:
        """The home for the workspace, new, empty and locked."""
        ram = order.place if order.kind in OVERLAYS and order.place == str(self.ram) else ""
        while True:
            try:
                home = homes.claim(order.name, ram)
            except FileNotFoundError:
                if self.root.exists():
                    raise  # then it is the RAM disk that is gone
                os.makedirs(self.root, 0o700, exist_ok=True)
                continue
            with homes.locked(home, order.name, wait=True) as ours:
                if not ours:
                    continue  # it was removed in between
                if bool(ram) == (home != order.name) and homes.mark(home, order.name):
                    yield home
                    return
                if homes.read(home):
                    raise SlugTaken(
                        f"a workspace {order.slug} exists already",
                        hint=f"ratchet workspace destroy {order.slug}",
                        slug=order.slug,
                    )
                self._clear(order.name, home)

    def _too_many(self) -> Refused | None:
        count = sum(not name.startswith(".") for name in os.listdir(self.root))
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
        if slug := self._slug_around(repo.resolve()):
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

    def _slug_around(self, folder: Path) -> str:
        """The workspace a folder is in; empty for none."""
        with suppress(ValueError):
            return folder.relative_to(self.root.resolve()).parts[0]
        with suppress(ValueError):
            home = self.ram / folder.relative_to(self.ram.resolve()).parts[0]
            return os.path.basename(dict(homes.on_ram(self.ram)).get(str(home), ""))
        return ""

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
        workspace = self._find(slug)
        if part := lost(workspace.record):
            raise NotFound(f"workspace {slug} has lost its {part}", slug=slug, hint=f"ratchet workspace destroy {slug}")
        if isinstance(workspace, Overlay) and not workspace.is_mounted():
            workspace.mend()
        return workspace

    def adopt(self, slug: str, *, owner: Holder) -> GitWorkspace:
        """Open one and own it from now on. Alone: whoever tidies up must not find it without an owner meanwhile."""
        with homes.locked(str(self._find(slug).home), f"{self.root}/{slug}", wait=True):
            workspace = self.open(slug)
            workspace.unlock()
            self._rewrite(workspace, owner_pid=owner.pid, owner_born=owner.born, kept_until="")
        return workspace

    def keep(self, slug: str, *, until: str) -> None:
        """Let it stay that long although nobody works in it. Nothing to keep is success."""
        with suppress(NotFound):
            self._rewrite(self._find(slug), kept_until=until)

    def _rewrite(self, workspace: GitWorkspace, **fields: Any) -> None:
        here = this_machine()
        workspace.record = msgspec.structs.replace(
            workspace.record, owner_machine=here, boot_id=here.partition(":")[0], host=socket.gethostname(), **fields
        )
        homes.write(str(workspace.home), workspace.record)

    def _find(self, slug: str) -> GitWorkspace:
        name = f"{self.root}/{check_slug(slug)}"
        home = homes.find(name)
        if not home and os.path.islink(name):
            raise NotFound(
                f"workspace {slug} was lost with the RAM disk", slug=slug, hint=f"ratchet workspace destroy {slug}"
            )
        record = homes.read(home) if home else None
        if record is None:
            raise NotFound(f"there is no workspace {slug}", slug=slug, hint="ratchet workspace list")
        return KINDS[record.kind](home, record)

    def _all(self) -> list[GitWorkspace]:
        found = []
        for slug in self._slugs():
            with suppress(NotFound, UsageError):  # somebody may have put another file there
                found.append(self._find(slug))
        return found

    def records(self) -> list[Record]:
        return [workspace.record for workspace in self._all()]

    # --- more of the same ----------------------------------------------------------------------------------------

    def fork(
        self, slug: str, into: str, *, owner: Holder | None = None, kept_until: str = ""
    ) -> GitWorkspace | Refused:
        """An independent copy of a workspace as it is now, uncommitted changes included, on a branch of its own."""
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
        name = f"{self.root}/{slug}"
        while home := homes.find(name):
            with homes.locked(home, name, wait=True) as ours:
                if ours:
                    self._clear(name, home)
                    return True
        return homes.drop_name(name)

    def _clear(self, name: str, home: str) -> None:
        """Take up whatever is there, finished or not."""
        self._empty(home)
        homes.let_go(name, home)

    def _empty(self, home: str) -> None:
        record = homes.read_any(home)
        if record:
            KINDS[record.kind](home, record).take_up()
            self.bases.give_back(record)
        elif is_mounted(f"{home}/tree"):  # somebody deleted around in it
            unmount(f"{home}/tree")
        homes.empty(home)

    def gc(self, *, spare: str = "", now: str = "") -> list[str]:
        """Remove what nobody owns any more: orphans past their time, half-made ones, homes and bases of neither."""
        removed = self.collect("", spare=spare, now=now)
        self._sweep_ram()
        for git_dir in {base.git_dir for base in self.bases.list()}:
            unregister_lost(git_dir)
        sweep_tries(self._places(str(self.ram)))
        self.bases.sweep()
        self.bases.evict()
        return removed

    def collect(self, prefix: str, *, spare: str = "", now: str = "") -> list[str]:
        """Remove those called so that nobody owns any more."""
        removed = []
        for slug in self._slugs():
            if slug == spare or not slug.startswith(prefix):
                continue
            with suppress(OSError, RatchetError):  # one must not spare the rest
                if self._collect(f"{self.root}/{slug}", now or _now()):
                    removed.append(slug)
        return removed

    def _collect(self, name: str, now: str) -> bool:
        home = homes.find(name)
        if not home:
            return homes.drop_name(name)
        with homes.locked(home, name, wait=False) as ours:
            if not ours:
                return False
            record = homes.read(home)
            if record and not orphaned(record, now):
                return False
            self._clear(name, home)  # we hold its lock: without a record it is nobody's that is being made
        return True

    def _sweep_ram(self) -> None:
        """Homes without a name: who removed them was killed, or all of the root was removed by hand."""
        for home, name in homes.on_ram(self.ram):
            if name and os.path.lexists(name):
                continue
            with suppress(OSError, RatchetError), homes.locked(home, wait=False) as ours:
                if ours and name and _is_of_this_host(home):
                    self._empty(home)
                if ours:
                    os.rmdir(home)  # one without a mark is empty, or not ours

    def _slugs(self) -> list[str]:
        names = os.listdir(self.root) if self.root.exists() else []
        return sorted(name for name in names if not name.startswith("."))

    def list(self) -> list[Listing]:
        return [
            Listing(record=one.record, size_bytes=one.size_bytes(), orphan=orphaned(one.record, _now()))
            for one in self._all()
        ]


def _is_of_this_host(home: str) -> bool:
    """A RAM disk may be shared with containers whose names cannot be seen here."""
    record = homes.read_any(home)
    return record is None or record.host == socket.gethostname()


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
