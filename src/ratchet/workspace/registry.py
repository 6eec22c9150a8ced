"""All workspaces below one folder: made, found again, counted, and removed when nobody owns them any more.

Each has a folder of its own, locked while it is made or removed. Its record is written last: a workspace without one
was never finished, and whoever comes next clears it away.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from ratchet.core.lease import Holder
from ratchet.errors import DiskFull, EnvironmentCannot, GitFailed, NotFound, RatchetError, UsageError
from ratchet.process import is_gone, this_machine
from ratchet.workspace import Record, Refused
from ratchet.workspace.bases import Base, Bases, Recipe, Source
from ratchet.workspace.git import git, is_full, text
from ratchet.workspace.kinds import BRANCH, KINDS, GitWorkspace, Overlay, owns_layer
from ratchet.workspace.ladder import Places, Rung, choose, ladder
from ratchet.workspace.layers import remove
from ratchet.workspace.trees import Trees

RAM = Path("/dev/shm")  # noqa: S108 — the machine's RAM disk, and the name under it is made exclusively
SLUG_MAX = 100
_SLUG = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.|lock$|$))*")
_TRIES = 5
_RAM_ASK_S = 0.05
_OVERLAYS = ("overlay", "overlay-userns")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """When a workspace is refused, and how much the bases may take."""

    max_count: int = 64
    min_free_ram_bytes: int = 512 << 20
    min_free_disk_bytes: int = 1 << 30
    max_bases_bytes: int = 20 << 30


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
        self._ram_asked = (-1.0, "")

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
        place = self._place_of_layer(kind, on)
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
        if not has_branch:
            make_branch(order.source.git_dir, BRANCH.format(slug=order.slug), start)
        record = self._announce(home, self._record(name, home, start, order, base))
        workspace = KINDS[order.kind](home, record)
        workspace.lay_down()
        if workspace.record is not record:
            _put(f"{home}/making.json", msgspec.json.encode(workspace.record))
        os.rename(f"{home}/making.json", f"{home}/workspace.json")
        return workspace

    def _record(self, name: str, home: str, commit: str, order: Order, base: Base | None) -> Record:
        owner, machine = order.owner, this_machine()
        layered = order.kind in _OVERLAYS
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
            _put(f"{home}/making.json", msgspec.json.encode(record))
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
            with _locked(home, wait=True) as ours:
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

    def _place_of_layer(self, kind: str, on: str) -> str | Refused:
        """Where the writable layer goes: the RAM disk when there is room, else beside the workspace."""
        if on not in ("auto", "ram", "disk"):
            raise UsageError(f"a workspace cannot be on {on!r}", hint="--on ram or --on disk")
        if on == "ram" and kind not in ("auto", *_OVERLAYS):
            raise UsageError(f"only an overlay's layer can be on a RAM disk, not a {kind}", hint="--kind overlay")
        no_ram = self._no_ram() if on != "disk" and kind in ("auto", *_OVERLAYS) else "not asked for"
        if not no_ram:
            return str(self.ram)
        if on == "ram":
            return Refused(reason=no_ram, hint="--on disk, or lower workspace.min_free_ram_mb")
        free, needed = _free(self.root), self.limits.min_free_disk_bytes
        if free < needed:
            return Refused(
                reason=f"{_mib(free)} are free on the disk of {self.root}, {_mib(needed)} must be",
                hint="free some space, or lower workspace.min_free_disk_mb",
            )
        return str(self.root)

    def _no_ram(self) -> str:
        """Why the layer cannot be on the RAM disk. Asked at most twenty times a second: it takes time."""
        now = time.monotonic()
        if now - self._ram_asked[0] > _RAM_ASK_S:
            self._ram_asked = now, self._ask_ram()
        return self._ram_asked[1]

    def _ask_ram(self) -> str:
        try:
            free = min(_free(self.ram), _free_ram(self.limits.min_free_ram_bytes))
        except FileNotFoundError:
            return f"there is no RAM disk at {self.ram}"
        if not os.access(self.ram, os.W_OK):
            return f"the RAM disk at {self.ram} is not writable"
        if free < self.limits.min_free_ram_bytes:
            return f"{_mib(free)} of RAM are free, {_mib(self.limits.min_free_ram_bytes)} must be"
        return ""

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
        return ladder(self._places(str(self.root) if self._no_ram() else str(self.ram)))

    def _places(self, layers: str) -> Places:
        os.makedirs(self.root, 0o700, exist_ok=True)
        return Places(workspaces=self.root, bases=self.bases.root, layers=Path(layers))

    def open(self, slug: str) -> GitWorkspace:
        """An existing one, mounted again if its mount was lost. NotFound when it is gone or past saving."""
        check_slug(slug)
        record = self._read(slug)
        workspace = KINDS[record.kind](f"{self.root}/{slug}", record)
        if lost := _lost(record):
            raise NotFound(f"workspace {slug} has lost its {lost}", slug=slug, hint=f"ratchet workspace destroy {slug}")
        if isinstance(workspace, Overlay) and not workspace.is_mounted():
            workspace.mend()
        return workspace

    def adopt(self, slug: str, *, owner: Holder) -> GitWorkspace:
        """Open one and own it from now on. Alone: whoever tidies up must not find it without an owner meanwhile."""
        with _locked(f"{self.root}/{slug}", wait=True):
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
        _put(f"{workspace.home}/.record", msgspec.json.encode(record))
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
            on=record.on if record.kind in _OVERLAYS else "auto",
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
        )
        workspace.reset(trees.write())
        index.unlink()

    # --- removing ------------------------------------------------------------------------------------------------

    def destroy(self, slug: str) -> bool:
        """Remove one, half-made ones too; the branch stays. False when there was none: that is success."""
        check_slug(slug)
        home = f"{self.root}/{slug}"
        with _locked(home, wait=True) as ours:
            if not ours:
                return False
            self._clear(home)
        return True

    def _clear(self, home: str, *, keep: bool = False) -> None:
        """Take up whatever is there, finished or not."""
        record = _read_any(home)
        if record:
            KINDS[record.kind](home, record).take_up()
            self.bases.give_back(record.base, record.id)
        _empty(home)
        if not keep:
            os.rmdir(home)

    def gc(self, *, spare: str = "", now: str = "") -> list[str]:
        """Remove what nobody owns any more: orphans past their time, half-made ones, layers and bases of neither."""
        removed = []
        for home in sorted(self.root.iterdir()) if self.root.exists() else []:
            if home.name.startswith(".") or home.name == spare or not home.is_dir():
                continue
            with suppress(OSError, RatchetError), _locked(str(home), wait=False) as ours:  # one must not spare the rest
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


# --- whose is it ---------------------------------------------------------------------------------------------------


def orphaned(record: Record, now: str) -> str:
    """Why nobody needs the workspace any more; empty while somebody may."""
    if lost := _lost(record):
        return f"its {lost} is gone"
    if record.host != socket.gethostname():
        return ""
    if record.kept_until and now < record.kept_until:
        return ""
    if not record.owner_pid:
        return "its time is over" if record.kept_until else ""
    if record.boot_id != this_machine().partition(":")[0]:
        return "its owner was of an earlier boot"
    owner = Holder(worker="", machine=record.owner_machine, pid=record.owner_pid, born=record.owner_born)
    return "its owner is gone" if is_gone(owner) else ""


def _lost(record: Record) -> str:
    """The part without which it cannot be opened."""
    if record.base and not os.path.exists(f"{record.base}/base.json"):
        return "base"
    if record.layer and not os.path.isdir(record.layer):
        return "writable layer"
    if record.kind != "overlay-userns" and not os.path.isdir(record.path):
        return "folder"
    return ""


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


# --- branches, without a process: a create has a tenth of the time it takes to start git -----------------------------


def branch_tip(git_dir: str, ref: str) -> str:
    """Where the branch stands; empty when there is none."""
    if os.path.isdir(f"{git_dir}/reftable"):
        return git("for-each-ref", "--format=%(objectname)", ref, env={"GIT_DIR": git_dir}).decode().strip()
    try:
        with open(f"{git_dir}/{ref}") as file:
            return file.read().strip()
    except (FileNotFoundError, NotADirectoryError):
        return _packed_tip(git_dir, ref)


def _packed_tip(git_dir: str, ref: str) -> str:
    try:
        with open(f"{git_dir}/packed-refs", "rb") as file:
            packed = file.read()
    except FileNotFoundError:
        return ""
    end = packed.find(f" {ref}\n".encode())
    return packed[packed.rfind(b"\n", 0, end) + 1 : end].decode() if end >= 0 else ""


def make_branch(git_dir: str, ref: str, commit: str) -> None:
    """As git does it: a lock file that becomes the branch."""
    if os.path.isdir(f"{git_dir}/reftable"):
        git("update-ref", ref, commit, "", env={"GIT_DIR": git_dir})
        return
    path = f"{git_dir}/{ref}"
    with suppress(FileExistsError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        handle = os.open(f"{path}.lock", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:  # a maker was killed here, or git is at it: git knows how to wait
        git("update-ref", ref, commit, env={"GIT_DIR": git_dir, "GIT_TRACE2": "0"})
        return
    except NotADirectoryError as error:
        raise UsageError(
            f"a branch named {ref.split('/')[2]} is in the way of {ref}", hint="git branch -m ratchet another-name"
        ) from error
    with os.fdopen(handle, "w") as file:
        file.write(f"{commit}\n")
    os.rename(f"{path}.lock", path)


# --- small things ----------------------------------------------------------------------------------------------------


@contextmanager
def _locked(home: str, *, wait: bool) -> Iterator[bool]:
    """Hold the folder's lock. False when it is not there, or held by another and we do not wait."""
    try:
        handle = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        yield False
        return
    try:
        # Whoever held it before us may have removed the folder, and another made it anew.
        yield _lock(handle, wait=wait) and _same(handle, home)
    finally:
        os.close(handle)


def _lock(handle: int, *, wait: bool) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def _same(handle: int, path: str) -> bool:
    try:
        return os.fstat(handle).st_ino == os.stat(path).st_ino
    except FileNotFoundError:
        return False


def _read_any(home: str) -> Record | None:
    for name in ("workspace.json", "making.json"):
        try:
            with open(f"{home}/{name}", "rb") as file:
                return msgspec.json.decode(file.read(), type=Record)
        except (OSError, msgspec.DecodeError):
            continue
    return None


def _put(path: str, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(handle, content)
    finally:
        os.close(handle)


def _empty(folder: str) -> None:
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                try:
                    os.rmdir(entry.path)
                except OSError:
                    remove(Path(entry.path))
            else:
                os.unlink(entry.path)


def _in_words(error: BaseException, place: str) -> BaseException:
    if not isinstance(error, OSError):
        return error
    where = error.filename2 or error.filename or place
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        full = place if is_full(Path(place)) else where
        return DiskFull(f"no room left at {full}", hint="free some space there, or choose --on disk or --on ram")
    if error.errno == errno.EPERM:
        return EnvironmentCannot(f"not permitted: {where}", hint="`ratchet doctor` says which kinds work here")
    return EnvironmentCannot(f"the workspace could not be made: {error.strerror}: {where}", hint="ratchet doctor")


def _free(path: Path) -> int:
    while True:
        try:
            found = os.statvfs(path)
        except FileNotFoundError:
            path = path.parent
        else:
            return found.f_bavail * found.f_frsize


def _free_ram(enough: int) -> int:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if free >= enough:
        return free
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return free


def _mib(count: int) -> str:
    return f"{count >> 20:,} MiB"
