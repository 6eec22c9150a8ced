"""Cache of bases: immutable prepared checkouts, one per commit and set-up, shared by all workspaces.

A base is complete or absent: it is built under a temporary name and renamed when all of it is on disk. A process that
needs a base that is being built waits for it. A base in use by a workspace is never removed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from ratchet import tree_files
from ratchet.core.redact import SECRET_NAME
from ratchet.errors import EnvironmentCannot
from ratchet.files import disk_full_errors, make_private_dir, state_dir
from ratchet.process.cgroups import ResourceLimits
from ratchet.process.spawn import CommandOutput, missing_python_hint, run_command
from ratchet.tree_files import temporary_folder
from ratchet.workspace import directories
from ratchet.workspace.directories import read_small
from ratchet.workspace.git.command import git, git_text
from ratchet.workspace.git.filters import check_out_filtered, filter_programs, without_programs
from ratchet.workspace.git.fsmonitor_setup import enable_fsmonitor, has_many_files
from ratchet.workspace.git.submodules import check_out_submodules
from ratchet.workspace.git.trees import EXCLUDED, WHOLE_S, TreeStore
from ratchet.workspace.overlay_layers import remove_tree
from ratchet.workspace.protocol import WorkspaceRecord
from ratchet.workspace.sandbox import ContainerSettings, run_contained
from ratchet.workspace.syscalls import (
    BTRFS_MAGIC,
    file_system,
    is_subvolume,
    make_subvolume,
    remove_subvolume,
    sync_file_system,
)
from ratchet.workspace.tree_copy import CopyFile, clone_or_copy, copy_tree, size_of

# Files that determine a project's dependencies: while they are unchanged, so is what set-up installs.
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
DEPENDENCY_FOLDERS = frozenset(["node_modules", ".venv", "venv", "vendor", "deps"])
_SETUP_TIMEOUT_S = 3600.0
_REGISTRIES = (".npmrc", ".yarnrc", ".yarnrc.yml", ".config/pip/pip.conf", ".pip/pip.conf", ".config/uv/uv.toml",
               ".netrc", ".m2/settings.xml", ".cargo/credentials.toml", ".gem/credentials",
               ".bundle/config")  # fmt: skip
_WHOLE, _GOING = "base.json", "going.json"  # written last; its name while an eviction checks for users of the base
_EXCLUDED = frozenset(EXCLUDED)


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How to prepare a base: commands to run in it, with an image in a container, and ignored folders to copy from the
    developer's tree. `bounds` are those of set-up commands in a sandbox. `logins`: these get the logins of package
    registries and this machine's variables, if people made the commit."""

    setup: tuple[str, ...] = ()
    carry: tuple[str, ...] = ()
    sandbox: bool = True
    container: ContainerSettings | None = None
    bounds: ResourceLimits | None = None
    logins: bool = True

    @property
    def images(self) -> list[str]:
        return [self.container.image] if self.container and self.setup else []


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The developer's repository: its folder, and the git directory with objects and branches.

    `apart` is the folder for Ratchet's own files when they may not be in the repository.
    """

    root: str
    git_dir: str
    apart: str = ""

    @property
    def store(self) -> str:
        return f"{self.apart or state_dir(Path(self.root))}/trees.git"


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """A prepared base. `tree` is its exact content in the tree store; `tracked_anyway` are dependency folders with
    tracked files; `submodules` are those whose content is present; `of_people` is whether agents had no part in it."""

    path: str
    commit: str
    tree: str
    git_dir: str
    dependencies: str
    size_bytes: int
    recipe: Recipe
    tracked_anyway: list[str] = []
    submodules: list[str] = []
    of_people: bool = False

    @property
    def folder(self) -> str:
        return f"{self.path}/tree"


class SetupFailed(EnvironmentCannot):
    """A set-up command failed, so there is no base: correct `[workspace] setup`."""


class BaseCache:
    def __init__(self, root: Path, *, max_bytes: int, ram: Path) -> None:
        self.root, self.max_bytes, self.ram = root, max_bytes, ram

    def find(self, source: Source, commit: str, recipe: Recipe) -> Base | None:
        """Return the base; None when it must be prepared first."""
        place = f"{self.root}/{self._key(source, commit, recipe)}"
        base = _whole(place)
        return base if base and os.path.exists(_kept(source, place)) else None

    def acquire(self, base: Base, record: WorkspaceRecord, home: str) -> bool:
        """Protect a base from eviction until `release`; False when it is already gone.

        Mark first, check afterwards: an eviction that did not see the mark has renamed the base by then. A record on
        the RAM disk is itself the mark.
        """
        try:
            if record.on != "ram":
                os.symlink(home, f"{base.path}/users/{record.id}")
            os.utime(f"{base.path}/{_WHOLE}")  # eviction removes the least recently used first
        except FileNotFoundError:
            return False
        return True

    def prepare(self, source: Source, commit: str, recipe: Recipe) -> None:
        """Build the base, or wait for the process that is building it."""
        place = f"{self.root}/{self._key(source, commit, recipe)}"
        with self._alone(place):
            with suppress(FileNotFoundError):  # an eviction was killed
                os.rename(f"{place}/{_GOING}", f"{place}/{_WHOLE}")
            base = _whole(place)
            if base is None:
                self._prepare(Path(place), source, commit, recipe)
                base = _whole(place)
            assert base
            if not os.path.exists(_kept(source, place)):
                _keep_tree(source, base)

    def release(self, record: WorkspaceRecord) -> None:
        if record.on != "ram":
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(f"{record.base}/users/{record.id}")

    def _key(self, source: Source, commit: str, recipe: Recipe) -> str:
        carried = [(name, stamp) for name in recipe.carry if (stamp := _stamp(f"{source.root}/{name}"))]
        words = [source.git_dir, source.root, commit, recipe.setup, carried, *recipe.images]
        return hashlib.sha256(msgspec.json.encode(words)).hexdigest()[:24]

    @contextmanager
    def _alone(self, place: str) -> Iterator[None]:
        make_private_dir(self.root)
        with open(f"{place}.lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    # --- build --------------------------------------------------------------------------------------------

    def _prepare(self, place: Path, source: Source, commit: str, recipe: Recipe) -> None:
        remove_base(place)
        making = place.with_name(f".making-{place.name}-{os.getpid()}-{secrets.token_hex(3)}")
        try:
            with disk_full_errors(self.root):
                self._fill(making, source, commit, recipe)
                if has_many_files(making / "tree"):
                    enable_fsmonitor(making, git_dir=Path(source.git_dir), known_as=place)
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
        submodules = check_out_submodules(tree, commit, root=Path(source.root), git_dir=Path(source.git_dir))
        trees = _trees(source, making / "trees.index", tree)
        trees.seed(commit, submodules)
        trees.track_folders(submodules)
        dependencies = _dependencies(tree, source, recipe)
        for name in recipe.carry:
            _carry_from(Path(source.root), tree, [name], clone_or_copy)
        twin = self._twin(source, dependencies) if recipe.setup else None
        if twin:
            _carry_from(Path(twin.folder), tree, _dependency_folders(Path(twin.folder)), clone_or_copy)
        if recipe.setup:
            shutil.copyfile(tree / ".git" / "index", making / "index")
            _run_setup(tree, source, commit, recipe)
            _put_git_back(tree, source, commit, making / "index")
            _lay_out(tree, source, commit)  # undo what set-up changed in tracked files
        _freeze_times(tree, commit)
        base = Base(
            path="",
            commit=commit,
            tree=trees.write(timeout_s=WHOLE_S),
            git_dir=source.git_dir,
            dependencies=dependencies,
            size_bytes=size_of(making),
            recipe=recipe,
            tracked_anyway=_tracked_anyway(trees),
            submodules=submodules,
            of_people=_is_of_people(source, commit),
        )
        (making / _WHOLE).write_bytes(msgspec.json.encode(base))

    def _twin(self, source: Source, dependencies: str) -> Base | None:
        """Return a base of the same project with the same dependency files: they save set-up its downloads.

        None of an agent's commit: its set-up may have run what the agent wrote.
        """
        for base in self.list():
            if base.git_dir == source.git_dir and base.dependencies == dependencies and base.of_people:
                return base
        return None

    # --- evict -----------------------------------------------------------------------------------------

    def evict(self, *, max_bytes: int | None = None) -> list[str]:
        """Remove least recently used bases until the rest fits; bases in use stay. Returns the removed paths."""
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

    def remove(self, place: Path) -> bool:
        """Remove a base unless it is in use."""
        return self._remove_unused(place)

    def is_used(self, base: Base) -> bool:
        return self._in_use(Path(base.path))

    def used_at(self, base: Base) -> float:
        """Return when the base was used last, as a time stamp."""
        return (Path(base.path) / _WHOLE).stat().st_mtime

    def sweep(self) -> None:
        """Remove leftovers of interrupted builds and evictions."""
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
        """Rename the marker to hide the base, then check again: a user that found it before has left a mark by now."""
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
        return any(os.path.lexists(os.readlink(mark)) for mark in marks) or str(place) in directories.bases_in_use(
            self.ram
        )

    def list(self) -> list[Base]:
        """Return all complete bases, least recently used first."""
        found = []
        for marker in self.root.glob(f"*/{_WHOLE}") if self.root.exists() else []:
            with suppress(OSError):
                base = read_base(str(marker.parent))
                if base and not marker.parent.name.startswith("."):
                    found.append((marker.stat().st_mtime_ns, base))
        return [base for _, base in sorted(found, key=lambda row: row[0])]


def _whole(place: str) -> Base | None:
    """Return the base if it exists and was not deleted in part by hand."""
    try:
        base = read_base(place)
    except FileNotFoundError:
        return None
    return base if base and os.path.exists(f"{base.folder}/.git/index") else None


def tree_store(source: Source) -> TreeStore:
    """Open the project's tree store to read trees, without a folder to write."""
    return _trees(source, Path(source.store) / "index", Path(source.store))


def _trees(source: Source, index: Path, folder: Path) -> TreeStore:
    return TreeStore(store=Path(source.store), index=index, folder=folder, borrow=Path(source.git_dir) / "objects")


def _kept(source: Source, place: str) -> str:
    return f"{source.store}/bases/{place.rsplit('/', 1)[1]}"


def _keep_tree(source: Source, base: Base) -> None:
    """Write the base's tree into the project's tree store: a user may have deleted `.ratchet`.

    Uses a temporary index: a killed git would leave a lock on a shared one.
    """
    with temporary_folder("keeping-", within=Path(base.path)) as own:
        trees = _trees(source, Path(own) / "index", Path(base.folder))
        trees.seed(base.commit, base.submodules)
        trees.track(_trees(source, Path(f"{base.path}/trees.index"), Path(base.folder)).tracked())
        if trees.sync(trees.write(timeout_s=WHOLE_S)) != base.tree:
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
    """Remove a base, even if it is a subvolume, unfinished, or already gone."""
    tree = place / "tree"
    if is_subvolume(tree):
        with suppress(OSError):
            remove_subvolume(tree)
    if place.exists():
        remove_tree(place)


def _stamp(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _check_out(tree: Path, source: Source, commit: str) -> None:
    _make_git(tree, source, commit)
    _lay_out(tree, source, commit)


def _make_git(tree: Path, source: Source, commit: str) -> None:
    # With `commondir` this is a worktree's git directory: it shares objects and branches, HEAD and index are its own.
    tree_files.replace_inside(tree, ".git/commondir", f"{source.git_dir}\n".encode())
    tree_files.replace_inside(tree, ".git/HEAD", f"{commit}\n".encode())


def _put_git_back(tree: Path, source: Source, commit: str, index: Path) -> None:
    """Make `.git` anew after set-up, which may have run what an agent wrote: git outside obeys the settings there."""
    tree_files.remove_special_files(tree)
    tree_files.remove_inside(tree, ".git")
    _make_git(tree, source, commit)
    tree_files.replace_inside(tree, ".git/index", index.read_bytes())
    index.unlink()


def _lay_out(tree: Path, source: Source, commit: str) -> None:
    git(*without_programs(filter_programs({}, cwd=tree)), "reset", "--hard", "--quiet", cwd=tree)
    check_out_filtered(tree, Path(source.root), commit)


def _dependencies(tree: Path, source: Source, recipe: Recipe) -> str:
    """Return a digest of what determines the dependencies: set-up commands, manifests and lock files."""
    rows = git("ls-files", "--stage", "-z", cwd=tree).split(b"\0")
    deciding = sorted(row for row in rows if os.fsdecode(row.rsplit(b"/", 1)[-1].rsplit(b"\t", 1)[-1]) in DECIDING)
    words = [source.git_dir, *recipe.setup, *recipe.images, *(row.decode(errors="surrogateescape") for row in deciding)]
    return hashlib.sha256("\0".join(words).encode(errors="surrogateescape")).hexdigest()


_OURS = re.compile(r"^Ratchet-[A-Z]\w+: ", re.M)


def _is_of_people(source: Source, commit: str) -> bool:
    """Whether nothing says that agents made the commit."""
    return not _OURS.search(git_text("show", "-s", "--format=%B", commit, env={"GIT_DIR": source.git_dir}))


# Variables for the set-up commands of anybody; a value with an `@` may hold a login.
_USUAL = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_\w+|TZ|TERM|TMPDIR|VIRTUAL_ENV|JAVA_HOME|SSL_CERT_\w+|GOPROXY"
    r"|(?:NVM|VOLTA|BUN|DENO|PYENV|RBENV|ASDF|MISE|FNM|SDKMAN|RUSTUP|CARGO|GEM|BUNDLE|COMPOSER|MIX|HEX|GRADLE|MAVEN"
    r"|DOTNET|ANDROID|PNPM)_(?:HOME|ROOT|DIR|DATA_DIR|PATH|USER_HOME)"
    r"|GO(?:PATH|ROOT|FLAGS|CACHE|MODCACHE|TOOLCHAIN|SUMDB|OS|ARCH)|CGO_ENABLED|NODE_ENV|CI|DEBIAN_FRONTEND"
    r"|(?:CURL|REQUESTS)_CA_BUNDLE|NODE_EXTRA_CA_CERTS|CC|CXX|AR|LD|(?:C|CXX|CPP|LD|RUST|MAKE)FLAGS|PKG_CONFIG_PATH"
    r"|(?i:(?:https?|all|no)_proxy|(?:pip|uv|npm_config)_\w+)"
)


def _run_setup(tree: Path, source: Source, commit: str, recipe: Recipe) -> None:
    """Run the set-up commands, in a sandbox: an agent may have written what they install and run.

    The logins of package registries, and all variables but secrets, are lent for commits that people of this machine's
    projects made.
    """
    env = {name: value for name, value in os.environ.items() if not SECRET_NAME.search(name)}
    trusted = recipe.logins and _is_of_people(source, commit)
    if not trusted:
        env = {name: value for name, value in env.items() if _USUAL.fullmatch(name) and "@" not in value}
    lent = _REGISTRIES if trusted else ()
    for command in recipe.setup:
        answer = _run_command(["sh", "-c", command], tree, source, recipe, env=env, lent=lent)
        if answer.exit_code:
            output = (answer.stderr or answer.stdout)[-500:].decode(errors="replace").strip()
            raise SetupFailed(
                f"set-up command `{command}` failed (exit {answer.exit_code}): {output}"
                f"{missing_python_hint(answer.exit_code, output)}",
                hint="correct [workspace] setup in ratchet.toml; it runs in a sandbox, unless sandbox.mode is off",
            )


def _run_command(
    argv: list[str], tree: Path, source: Source, recipe: Recipe, *, env: dict[str, str], lent: tuple[str, ...]
) -> CommandOutput:
    if recipe.container:
        from ratchet.workspace.container_steps import run_in_container  # noqa: PLC0415 — the engine's client

        return run_in_container(
            recipe.container, argv, cwd=tree, env=env, visible=[source.git_dir], timeout_s=_SETUP_TIMEOUT_S
        )
    if not recipe.sandbox:
        return run_command(argv, cwd=tree, timeout_s=_SETUP_TIMEOUT_S)
    return run_contained(
        argv, cwd=tree, env=env, writable=[str(tree)], visible=[source.git_dir], lent=lent, network=True,
        bounds=recipe.bounds, timeout_s=_SETUP_TIMEOUT_S,
    )  # fmt: skip


def _ignored_in(folder: Path) -> list[str]:
    out = git("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory", cwd=folder)
    return [os.fsdecode(path).rstrip("/") for path in out.split(b"\0") if path]


def _dependency_folders(folder: Path) -> list[str]:
    """Return the ignored folders that hold dependencies only, and nothing built from another commit's source."""
    return [path for path in _ignored_in(folder) if os.path.basename(path) in DEPENDENCY_FOLDERS]


def share_ignored(base: Path, folder: Path) -> None:
    """Copy the dependencies of a base into a checkout."""
    _carry_from(base, folder, _ignored_in(base), clone_or_copy)


# Version files that setuptools-scm and hatch-vcs write on installation, and that modules import.
_VERSION_FILE = re.compile(r"""\b(?:write_to|version[-_]file)["']?\s*[=:]\s*["']([\w./-]+\.py)["']""")


def _generated(root: Path) -> list[str]:
    """Return generated, uncommitted files without which a Python project cannot be imported."""
    names: list[str] = []
    for manifest in ("pyproject.toml", "setup.py"):
        content = tree_files.read_inside(root, manifest) or b""
        names += _VERSION_FILE.findall(content.decode(errors="replace"))
    return [name for name in names if (found := _at(root, name)) and stat.S_ISREG(found.st_mode)]


# Package managers install the dependencies of a package beside these files.
_MANIFESTS = ("package.json", "composer.json", "mix.exs")
_MOST_PACKAGES = 1_000


def paths_to_carry(root: Path, names: Iterable[str]) -> list[str]:
    """Return what to copy: the named folders, at the top and in each package, and generated version files."""
    return [*names, *_below(root, names), *_generated(root)]


def _below(root: Path, names: Iterable[str]) -> list[str]:
    listed = git("ls-files", "-z", "--", *(f"*/{name}" for name in _MANIFESTS), cwd=root).split(b"\0")
    packages = sorted({os.path.dirname(os.fsdecode(path)) for path in listed if path})[:_MOST_PACKAGES]
    plain = [name for name in names if "/" not in name]
    return [f"{part}/{name}" for part in packages for name in plain if os.path.isdir(root / part / name)]


def _carry_from(source: Path, tree: Path, names: list[str], lay: CopyFile) -> None:
    """Copy ignored folders and files; paths that the commit contains stay as committed.

    None by way of a link in the place of any folder, here or there: the author of a commit decides where it leads.
    """
    for name in names:
        old = _at(source, name)
        if not old or _at(tree, name) or not _is_plain(tree, name):
            continue
        folder = stat.S_ISDIR(old.st_mode)
        if not (folder or stat.S_ISREG(old.st_mode)) or not _is_ignored(tree, name, folder=folder):
            continue
        tree_files.make_folder_inside(tree, name if folder else os.path.dirname(name))
        copy_tree(source / name, tree / name, lay) if folder else tree_files.copy_inside(tree, name, source / name)


def _at(folder: Path, name: str) -> os.stat_result | None:
    try:
        return tree_files.lstat_inside(folder, name)
    except tree_files.NotRegularFile:  # above the folder, or nowhere near it
        return None


def _is_plain(tree: Path, name: str) -> bool:
    """Whether what is there of a path's folders are folders, and not links or files of the commit."""
    parts = Path(name).parts
    above = [_at(tree, "/".join(parts[:end])) for end in range(1, len(parts))]
    return all(found is None or stat.S_ISDIR(found.st_mode) for found in above)


def _is_ignored(tree: Path, name: str, *, folder: bool) -> bool:
    # With the slash: a pattern such as `node_modules/` matches folders only, and this one does not exist yet.
    return bool(git("check-ignore", "--no-index", f"{name}/" if folder else name, cwd=tree, ok=(0, 1)).strip())


def _freeze_times(tree: Path, commit: str) -> None:
    """Set the mtime of all files to one past time and refresh git's index, so that git never reads them to compare.

    At least a day back: git compares whole seconds, and could miss a change within the second of the commit.
    """
    at = min(int(git_text("show", "-s", "--format=%ct", commit, cwd=tree)), int(time.time()) - 86_400) * 10**9
    top = os.fsencode(tree)
    for path in git("ls-files", "-z", cwd=tree).split(b"\0"):
        with suppress(FileNotFoundError):
            if path:
                os.utime(top + b"/" + path, ns=(at, at), follow_symlinks=False)
    git(*without_programs(filter_programs({}, cwd=tree)), "update-index", "-q", "--refresh", cwd=tree, ok=(0, 1))


def _tracked_anyway(trees: TreeStore) -> list[str]:
    """Return dependency-named folders that contain tracked files, and their parents."""
    found: set[str] = set()
    for path in trees.tracked():
        parts = os.fsdecode(path).split("/")[:-1]
        if not _EXCLUDED.isdisjoint(parts):
            found.update("/".join(parts[: n + 1]) for n in range(len(parts)))
    return sorted(found)
