"""Bases: immutable prepared checkouts, one for each commit and set-up, made once and shared by all workspaces.

A base is whole or it is not there: it is made under another name and renamed when everything in it is on disk. Who
asks for one that is being made waits for it. One that a workspace is laid over is never removed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from ratchet.errors import EnvironmentCannot
from ratchet.files import make_private_dir, room_for
from ratchet.process import call, hint_for_shell
from ratchet.workspace import Record, homes
from ratchet.workspace.copying import Lay, cloned_or_copied, copy_tree, linked, size_of
from ratchet.workspace.git import git, text
from ratchet.workspace.homes import read_small
from ratchet.workspace.layers import remove
from ratchet.workspace.monitor import has_many, monitor
from ratchet.workspace.submodules import bring
from ratchet.workspace.syscalls import (
    BTRFS_MAGIC,
    file_system,
    is_subvolume,
    make_subvolume,
    remove_subvolume,
    sync_file_system,
)
from ratchet.workspace.trees import EXCLUDED, Trees

# The files that decide what a project's dependencies are: while they stay the same, so does what set-up installed.
DECIDING = frozenset([
    "package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "pnpm-workspace.yaml",
    "bun.lock", "bun.lockb", "deno.json", "deno.lock", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt",
    "requirements-dev.txt", "constraints.txt", "poetry.lock", "uv.lock", "pdm.lock", "Pipfile", "Pipfile.lock",
    "environment.yml", "Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "go.mod", "go.sum", "Gemfile",
    "Gemfile.lock", "composer.json", "composer.lock", "mix.exs", "mix.lock", "gleam.toml", "manifest.toml", "pom.xml",
    "build.gradle", "build.gradle.kts", "gradle.lockfile", "build.sbt", "pubspec.yaml", "pubspec.lock",
    "Package.swift", "Package.resolved", "CMakeLists.txt", "conanfile.txt", "vcpkg.json", ".tool-versions", ".nvmrc",
    ".python-version",
])  # fmt: skip
_SETUP_TIMEOUT_S = 3600.0
_WHOLE, _GOING = "base.json", "going.json"  # written last; while an eviction looks whether anybody uses the base
_EXCLUDED = frozenset(EXCLUDED)


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How a base is prepared: commands to run in it, and ignored folders of the developer's tree to take along."""

    setup: tuple[str, ...] = ()
    carry: tuple[str, ...] = ()


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The developer's repository: its folder, and the git folder that holds objects and branches. `apart` is where we
    keep what is ours of it, where that may not be in it."""

    root: str
    git_dir: str
    apart: str = ""

    @property
    def store(self) -> str:
        return f"{self.apart or f'{self.root}/.ratchet'}/trees.git"


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """`tree` is the exact content as `Trees` keeps it; `tracked_anyway` dependency folders with tracked files;
    `submodules` those whose content is there."""

    path: str
    commit: str
    tree: str
    git_dir: str
    dependencies: str
    size_bytes: int
    recipe: Recipe
    tracked_anyway: list[str] = []
    submodules: list[str] = []

    @property
    def folder(self) -> str:
        return f"{self.path}/tree"


class SetupFailed(EnvironmentCannot):
    """A set-up command did not succeed, so there is no base: correct `[workspace] setup`."""


class Bases:
    def __init__(self, root: Path, *, max_bytes: int, ram: Path) -> None:
        self.root, self.max_bytes, self.ram = root, max_bytes, ram

    def find(self, source: Source, commit: str, recipe: Recipe) -> Base | None:
        """The base; None when it must be prepared first."""
        place = f"{self.root}/{self._key(source, commit, recipe)}"
        base = _whole(place)
        return base if base and os.path.exists(_kept(source, place)) else None

    def use(self, base: Base, record: Record, home: str) -> bool:
        """Keep it from being removed until `give_back`; False when it is gone already.

        Mark first, look afterwards: an eviction that did not see the mark has moved the base away by then. A record on
        the RAM disk is itself the mark.
        """
        try:
            if record.on != "ram":
                os.symlink(home, f"{base.path}/users/{record.id}")
            os.utime(f"{base.path}/{_WHOLE}")  # the least recently used goes first
        except FileNotFoundError:
            return False
        return True

    def prepare(self, source: Source, commit: str, recipe: Recipe) -> None:
        """Make the base, or wait for whoever is making it."""
        place = f"{self.root}/{self._key(source, commit, recipe)}"
        with self._alone(place):
            with suppress(FileNotFoundError):  # who was to remove it has been killed
                os.rename(f"{place}/{_GOING}", f"{place}/{_WHOLE}")
            base = _whole(place)
            if base is None:
                self._prepare(Path(place), source, commit, recipe)
                base = _whole(place)
            assert base
            if not os.path.exists(_kept(source, place)):
                _keep_tree(source, base)

    def give_back(self, record: Record) -> None:
        if record.on != "ram":
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(f"{record.base}/users/{record.id}")

    def _key(self, source: Source, commit: str, recipe: Recipe) -> str:
        carried = [(name, stamp) for name in recipe.carry if (stamp := _stamp(f"{source.root}/{name}"))]
        words = [source.git_dir, source.root, commit, recipe.setup, carried]
        return hashlib.sha256(msgspec.json.encode(words)).hexdigest()[:24]

    @contextmanager
    def _alone(self, place: str) -> Iterator[None]:
        make_private_dir(self.root)
        with open(f"{place}.lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    # --- making one --------------------------------------------------------------------------------------------

    def _prepare(self, place: Path, source: Source, commit: str, recipe: Recipe) -> None:
        remove_base(place)
        making = place.with_name(f".making-{place.name}-{os.getpid()}-{secrets.token_hex(3)}")
        try:
            with room_for(self.root):
                self._fill(making, source, commit, recipe)
                if has_many(making / "tree"):
                    monitor(making, git_dir=Path(source.git_dir), known_as=place)
                sync_file_system(str(making))  # the rename must not reach the disk before the files do
                making.rename(place)
        except BaseException:
            remove_base(making)
            raise

    def _fill(self, making: Path, source: Source, commit: str, recipe: Recipe) -> None:
        make_private_dir(making / "users")
        tree = making / "tree"
        make_subvolume(tree) if file_system(making) == BTRFS_MAGIC else tree.mkdir()
        _check_out(tree, source, commit)
        submodules = bring(tree, commit, root=Path(source.root), git_dir=Path(source.git_dir))
        trees = _trees(source, making / "trees.index", tree)
        trees.seed(commit, submodules)
        trees.take_whole(submodules)
        dependencies = _dependencies(tree, source, recipe)
        for name in recipe.carry:
            _carry_from(Path(source.root), tree, [name], cloned_or_copied)
        twin = self._twin(source, dependencies) if recipe.setup else None
        if twin:
            _carry_from(Path(twin.folder), tree, _ignored_in(Path(twin.folder)), linked)
        else:
            _run_setup(tree, recipe)
        if recipe.setup:
            git("reset", "--hard", "--quiet", cwd=tree)  # what set-up did to tracked files is not the commit
        _settle(tree, commit)
        base = Base(
            path="",
            commit=commit,
            tree=trees.write(),
            git_dir=source.git_dir,
            dependencies=dependencies,
            size_bytes=size_of(making),
            recipe=recipe,
            tracked_anyway=_tracked_anyway(trees),
            submodules=submodules,
        )
        (making / _WHOLE).write_bytes(msgspec.json.encode(base))

    def _twin(self, source: Source, dependencies: str) -> Base | None:
        """A base of the same project whose dependencies were decided by the same files: set-up need not run again."""
        for base in self.list():
            if base.git_dir == source.git_dir and base.dependencies == dependencies:
                return base
        return None

    # --- keeping house -----------------------------------------------------------------------------------------

    def evict(self, *, max_bytes: int | None = None) -> list[str]:
        """Remove the least recently used until the rest fits; one in use stays. Returns what was removed."""
        bases = self.list()
        total = sum(base.size_bytes for base in bases)
        limit = self.max_bytes if max_bytes is None else max_bytes
        removed = []
        for base in bases:
            if total <= limit:
                break
            if self._remove_unused(Path(base.path)):
                removed.append(base.path)
                total -= base.size_bytes
        return removed

    def sweep(self) -> None:
        """Remove what an interrupted preparation or eviction left behind."""
        for place in self.root.glob(".making-*") if self.root.exists() else []:
            key = place.name.split("-")[1]
            with suppress(BlockingIOError), self._if_free(key):
                remove_base(place)
        for place in self.root.glob(".trash-*") if self.root.exists() else []:
            with suppress(BlockingIOError), self._if_free(place.name.split("-")[1]):
                remove_base(place)

    @contextmanager
    def _if_free(self, key: str) -> Iterator[None]:
        with (self.root / f"{key}.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield

    def _remove_unused(self, place: Path) -> bool:
        """Nobody finds it without its marker; who found it before has left a mark, which we then see."""
        try:
            with self._if_free(place.name):
                if self._in_use(place):
                    return False
                (place / _WHOLE).rename(place / _GOING)
                if self._in_use(place):
                    (place / _GOING).rename(place / _WHOLE)
                    return False
                trash = place.rename(place.with_name(f".trash-{place.name}"))
                remove_base(trash)
        except (BlockingIOError, FileNotFoundError):
            return False
        return True

    def _in_use(self, place: Path) -> bool:
        users = place / "users"
        marks = users.iterdir() if users.is_dir() else []
        return any(os.path.lexists(os.readlink(mark)) for mark in marks) or str(place) in homes.bases_in_use(self.ram)

    def list(self) -> list[Base]:
        """All finished ones, least recently used first."""
        found = []
        for marker in self.root.glob(f"*/{_WHOLE}") if self.root.exists() else []:
            with suppress(OSError):
                base = read_base(str(marker.parent))
                if base and not marker.parent.name.startswith("."):
                    found.append((marker.stat().st_mtime_ns, base))
        return [base for _, base in sorted(found, key=lambda row: row[0])]


def _whole(place: str) -> Base | None:
    """The base, if it is there and nobody deleted the better part of it by hand."""
    try:
        base = read_base(place)
    except FileNotFoundError:
        return None
    return base if base and os.path.exists(f"{base.folder}/.git/index") else None


def _trees(source: Source, index: Path, folder: Path) -> Trees:
    return Trees(store=Path(source.store), index=index, folder=folder, borrow=Path(source.git_dir) / "objects")


def _kept(source: Source, place: str) -> str:
    return f"{source.store}/bases/{place.rsplit('/', 1)[1]}"


def _keep_tree(source: Source, base: Base) -> None:
    """Write the base's tree into the project's store, unless it is known to be there: a user may delete `.ratchet`.

    By an index of this call's own: a git that is killed leaves its lock on the one it had."""
    with TemporaryDirectory(prefix="keeping-", dir=base.path) as own:
        trees = _trees(source, Path(own) / "index", Path(base.folder))
        trees.seed(base.commit, base.submodules)
        trees.take_in(_trees(source, Path(f"{base.path}/trees.index"), Path(base.folder)).tracked())
        if trees.write() != base.tree:
            raise EnvironmentCannot(f"the base {base.path} was changed", hint=f"rm -r {base.path}")
    mark = Path(_kept(source, base.path))
    mark.parent.mkdir(exist_ok=True)
    mark.touch()


def read_base(place: str) -> Base | None:
    try:
        base = msgspec.json.decode(read_small(f"{place}/{_WHOLE}"), type=Base)
    except msgspec.DecodeError:
        return None
    return msgspec.structs.replace(base, path=place)


def remove_base(place: Path) -> None:
    """Also when it is a subvolume, half-made, or gone."""
    tree = place / "tree"
    if is_subvolume(tree):
        with suppress(OSError):
            remove_subvolume(tree)
    if place.exists():
        remove(place)


def _stamp(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _check_out(tree: Path, source: Source, commit: str) -> None:
    dot_git = tree / ".git"
    dot_git.mkdir()
    # With `commondir` this folder is a worktree's: objects and branches are the source's, HEAD and index its own.
    (dot_git / "commondir").write_text(f"{source.git_dir}\n")
    (dot_git / "HEAD").write_text(f"{commit}\n")
    git("reset", "--hard", "--quiet", cwd=tree)


def _dependencies(tree: Path, source: Source, recipe: Recipe) -> str:
    """What decides the dependencies, as one digest: the commands and the content of manifests and lock files."""
    rows = git("ls-files", "--stage", "-z", cwd=tree).split(b"\0")
    deciding = sorted(row for row in rows if os.fsdecode(row.rsplit(b"/", 1)[-1].rsplit(b"\t", 1)[-1]) in DECIDING)
    words = [source.git_dir, *recipe.setup, *(row.decode(errors="surrogateescape") for row in deciding)]
    return hashlib.sha256("\0".join(words).encode(errors="surrogateescape")).hexdigest()


def _run_setup(tree: Path, recipe: Recipe) -> None:
    for command in recipe.setup:
        answer = call(["sh", "-c", command], cwd=tree, timeout_s=_SETUP_TIMEOUT_S)
        if answer.exit_code:
            said = (answer.stderr or answer.stdout)[-500:].decode(errors="replace").strip()
            raise SetupFailed(
                f"set-up command `{command}` failed (exit {answer.exit_code}): {said}"
                f"{hint_for_shell(answer.exit_code, said)}",
                hint="correct [workspace] setup in ratchet.toml",
            )


def _ignored_in(folder: Path) -> list[str]:
    out = git("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory", cwd=folder)
    return [os.fsdecode(path).rstrip("/") for path in out.split(b"\0") if path]


def share_ignored(base: Path, folder: Path) -> None:
    """Give a checkout the dependencies of a base."""
    _carry_from(base, folder, _ignored_in(base), cloned_or_copied)


# What setuptools-scm and hatch-vcs are told to write when a project is installed, and its modules import.
_VERSION_FILE = re.compile(r"""\b(?:write_to|version[-_]file)["']?\s*[=:]\s*["']([\w./-]+\.py)["']""")


def _generated(root: Path) -> list[str]:
    """Files without which a Python project cannot be imported, and which no commit has."""
    names: list[str] = []
    for manifest in ("pyproject.toml", "setup.py"):
        with suppress(OSError):
            names += _VERSION_FILE.findall(read_small(f"{root}/{manifest}").decode(errors="replace"))
    return [name for name in names if ".." not in name and not name.startswith("/") and (root / name).is_file()]


# Beside these, package managers put what a part of a repository depends on.
_MANIFESTS = ("package.json", "composer.json", "mix.exs")
_MOST_PACKAGES = 1_000


def carried(root: Path, names: Iterable[str]) -> list[str]:
    """What comes along of a repository: what is named, at its top and in its parts, and what its installation wrote."""
    return [*names, *_below(root, names), *_generated(root)]


def _below(root: Path, names: Iterable[str]) -> list[str]:
    listed = git("ls-files", "-z", "--", *(f"*/{name}" for name in _MANIFESTS), cwd=root).split(b"\0")
    packages = sorted({os.path.dirname(os.fsdecode(path)) for path in listed if path})[:_MOST_PACKAGES]
    plain = [name for name in names if "/" not in name]
    return [f"{part}/{name}" for part in packages for name in plain if os.path.isdir(root / part / name)]


def _carry_from(source: Path, tree: Path, names: list[str], lay: Lay) -> None:
    """Take ignored folders and files along; one that the commit itself has is the commit's."""
    for name in names:
        old, new = source / name, tree / name
        if old.is_symlink() or not old.exists() or new.exists() or not _is_ignored(tree, name, folder=old.is_dir()):
            continue
        new.parent.mkdir(parents=True, exist_ok=True)
        copy_tree(old, new, lay) if old.is_dir() else shutil.copy2(old, new)


def _is_ignored(tree: Path, name: str, *, folder: bool) -> bool:
    # With the slash: a pattern such as `node_modules/` fits folders only, and this one is not there yet.
    return bool(git("check-ignore", "--no-index", f"{name}/" if folder else name, cwd=tree, ok=(0, 1)).strip())


def _settle(tree: Path, commit: str) -> None:
    """Give all files one time in the past and git's index their stat, so that nothing is ever read to compare it.

    A day back at least: git compares whole seconds, and a change within the second of the commit could go unseen.
    """
    at = min(int(text("show", "-s", "--format=%ct", commit, cwd=tree)), int(time.time()) - 86_400) * 10**9
    top = os.fsencode(tree)
    for path in git("ls-files", "-z", cwd=tree).split(b"\0"):
        with suppress(FileNotFoundError):
            if path:
                os.utime(top + b"/" + path, ns=(at, at), follow_symlinks=False)
    git("update-index", "-q", "--refresh", cwd=tree, ok=(0, 1))


def _tracked_anyway(trees: Trees) -> list[str]:
    """Folders named like dependencies in which the project keeps files of its own, and those above them."""
    found: set[str] = set()
    for path in trees.tracked():
        parts = os.fsdecode(path).split("/")[:-1]
        if not _EXCLUDED.isdisjoint(parts):
            found.update("/".join(parts[: n + 1]) for n in range(len(parts)))
    return sorted(found)
