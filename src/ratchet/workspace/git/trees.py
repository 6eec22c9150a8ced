"""Store the exact content of a folder as trees in a private git repository.

Git's index is the stat cache: unchanged files are not read again. The repository is separate from the project's own: no
filter, attribute or ignore file outside the tree affects what is stored, and nothing done to the project's `.git` can
damage it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import msgspec

from ratchet import tree_files
from ratchet.core.snapshot import SUBMODULE, Manifest
from ratchet.errors import GitFailed, GitStalled, TreeBroken, UsageError
from ratchet.files import make_private_dir, make_state_dir, state_dir
from ratchet.workspace.git.command import git, git_text
from ratchet.workspace.git.durable import FolderSync
from ratchet.workspace.git.manifests import ManifestBuilder
from ratchet.workspace.git.objects import MANY, LooseObjects, NotLoose, is_id
from ratchet.workspace.git.refused_names import find_refused
from ratchet.workspace.git.submodules import files_of

# Never part of a tree, ignored or not: dependencies and caches that tools make, kept across resets.
EXCLUDED = (
    ".ratchet",
    ".venv",
    "venv",
    "node_modules",
    "target",
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".tox",
    ".nox",
    ".hypothesis",
    ".gradle",
    "_build",
    "deps",
)
_KEPT_ON_CLEAN = (
    ".venv",
    "venv",
    "node_modules",
    "target",
    ".tox",
    ".nox",
    ".gradle",
    "_build",
    "deps",
    ".ratchet",
)
# For git on what an agent wrote: the patterns of an ignore or attributes file can take git longer than the age of the
# universe. A first look at a whole checkout reads every file.
AGENT_S, WHOLE_S = 60.0, 300.0
_RULES = (".gitignore", ".gitattributes")
_SEEN_MAX, _SEEN_BYTES = 1_000, 16 << 10
_DIFFS_MAX = 16
# "deps" and "_build" are Elixir's, "target" Rust's and the JVM's: only at the top, where those tools put them.
_TOP_ONLY = frozenset({"deps", "_build", "target", "venv"})


def _patterns(names: tuple[str, ...]) -> list[str]:
    return [f"/{name}/" if name in _TOP_ONLY else f"{name}/" for name in names]


def is_excluded(folder: str, name: str) -> bool:
    """Whether a folder called `name` in `folder` (relative, empty at the top) is a dependency or cache folder."""
    return name in EXCLUDED and not (folder and name in _TOP_ONLY)


def is_kept(folder: str, name: str) -> bool:
    """Whether the folder survives a reset: built by tools, and expensive to build again."""
    return name in _KEPT_ON_CLEAN and not (folder and name in _TOP_ONLY)


class PathDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One path that differs, with its new mode and object."""

    path: bytes
    mode: str
    oid: str

    @property
    def gone(self) -> bool:
        return self.mode == "000000"


def difference(head: bytes, path: bytes) -> PathDifference:
    _, mode, _, oid, _ = head.decode().split()
    return PathDifference(path=path, mode=mode, oid=oid)


def broken_tree(store: Path, path: bytes) -> TreeBroken:
    return TreeBroken(
        f"the recorded content of {os.fsdecode(path)} is lost or damaged in {store}",
        hint="check the disk, then start the item again: `ratchet run SPEC`",
        path=os.fsdecode(path),
    )


def checked_store(store: Path) -> Path:
    """Return the store if its settings can be those that Ratchet made it with. Raises UsageError.

    Git obeys them, and settings name programs: a commit or a person may have put others there.
    """
    try:
        lines = tree_files.read_anywhere(store / "config", max_bytes=_SETTINGS_BYTES).decode().split("\n")
    except (OSError, UnicodeDecodeError):
        lines = []
    if not lines or not all(_SETTING.fullmatch(line) for line in lines if line) or os.path.lexists(store / "commondir"):
        raise UsageError(
            f"the settings of {store} are not those that Ratchet made it with",
            hint=f"first see who changed them, then remove it: rm -r {store}",
        )
    return store


_SETTINGS_BYTES = 4096
# What `git init` writes, depending on the file system.
_SETTING = re.compile(
    r"\[(?:core|extensions)\]|\trepositoryformatversion = [01]|\tobjectformat = sha\d+"
    r"|\t(?:filemode|bare|symlinks|ignorecase|precomposeunicode) = (?:true|false)"
)
# Our state in a repository: what an agent adds there is no part of a tree, whatever it does not ignore.
_STATE = re.compile(rb"\.ratchet(?:\Z|/(?!prompts/|\.gitignore\Z))", re.IGNORECASE)


class TreeStore:
    def __init__(
        self,
        *,
        store: Path,
        index: Path,
        folder: Path,
        borrow: Path | None = None,
        reseed: Callable[[], None] = lambda: None,
        carried: Callable[[], Sequence[str]] = tuple,
        ours: bool = True,
    ) -> None:
        """`store` is the private repository, made if missing; `borrow` is an object store to save copying from;
        `reseed` makes the index anew when it is lost; `carried` are ignored paths that the folder was made with, which
        stay whatever is put back; in a folder that is not `ours` nothing is ever changed."""
        self.store, self.index, self.folder, self.ours = store, index, folder, ours
        self.carried = carried
        self._reseed, self._durable = reseed, ""
        self._seen: dict[tuple[bytes, bytes], bytes | None] = {}
        self._diffs: dict[tuple[str, str], list[PathDifference]] = {}
        if not (store / "info" / "attributes").exists():
            _make_store(store, borrow)

    @cached_property
    def _objects(self) -> LooseObjects:
        return LooseObjects(self.store)

    @cached_property
    def _manifests(self) -> ManifestBuilder:
        return ManifestBuilder(self.store, self._objects, self.raw_diff)

    def seed(self, commit: str, submodules: Sequence[str] = ()) -> None:
        """Start from a commit's entries, so that submodules that are not checked out stay in the tree.

        The named submodules are folders here.
        """
        self._git("read-tree", "--reset", commit)
        for path in submodules:
            self._git("update-index", "--force-remove", "--", path)

    def track_folders(self, folders: Sequence[str]) -> None:
        """Track everything in these folders, even if ignored."""
        if folders:
            self._git("add", "--all", "--force", "--", *folders)

    def tracked(self) -> list[bytes]:
        """Return the files in the index, without submodules."""
        rows = self._git("ls-files", "--stage", "-z").split(b"\0")
        return [row.split(b"\t", 1)[1] for row in rows if row and not row.startswith(SUBMODULE.encode())]

    def uncommitted(self) -> list[str]:
        """Return the files that may differ from the index and are not ignored."""
        out = self._git("ls-files", "--others", "--modified", "--exclude-standard", "-z", timeout_s=AGENT_S)
        rows = out.split(b"\0")
        return sorted({os.fsdecode(row) for row in rows if row})

    def track(self, paths: Iterable[bytes]) -> None:
        """Track these files, even if ignored."""
        spec = b"".join(path + b"\0" for path in paths)
        self._git("update-index", "--add", "--remove", "-z", "--stdin", stdin=spec)

    def write(self, *, timeout_s: float = 0.0) -> str:
        """Store the content. Raises GitStalled when that takes longer than any honest change."""
        if not self.index.exists():
            self._reseed()
        self._make_storable()
        try:
            self._add(timeout_s or AGENT_S)
        except GitStalled:
            raise
        except GitFailed:
            if not self.ours:
                raise
            # Two ways to hide content: an unreadable file, and a nested repository.
            make_readable(self.folder)
            self._make_storable(nested=True)
            self.repair_index()
            self._add(timeout_s or AGENT_S)
        rows = self._rows()
        self._drop_state(rows)
        if found := self._new_repositories(rows):
            self._open(found)
        return self._text("write-tree")

    def _add(self, timeout_s: float) -> None:
        try:
            self._git("add", "--all", ".", timeout_s=timeout_s)
        except GitStalled:
            self.index.with_name(f"{self.index.name}.lock").unlink(missing_ok=True)  # of the git that was killed
            raise

    def _make_storable(self, *, nested: bool = False) -> None:
        """Remove what git would wait for, read for hours, or refuse; with `nested` also the `.git` of other
        repositories, which may be in ignored folders that set-up has made."""
        if self.ours:
            tree_files.remove_special_files(self.folder)  # git would wait for a pipe in place of .gitignore
            tree_files.remove_huge_files(self.folder, enters=self._enters)
            self.remove_refused(self.folder, nested=nested)

    def remove_refused(self, written: Path, *, nested: bool = True) -> list[str]:
        """Remove names that git refuses, found in a folder: this one or a layer over it. Returns their paths."""
        found = list(find_refused(written, enters=self._enters, nested=nested))
        for path in found:
            tree_files.remove_inside(self.folder, path)
        return found

    def _enters(self, at: str, name: str) -> bool:
        is_own_git = not at and name == ".git"
        return not (is_own_git or is_excluded(at, name) or f"{at}/{name}".lstrip("/") in self.carried())

    def sync(self, tree: str) -> str:
        """Make a tree durable that was written, and return it."""
        if tree != self._durable:
            self._folders.objects()
            self._durable = tree
        return tree

    @cached_property
    def _folders(self) -> FolderSync:
        return FolderSync(str(self.store))

    def repair_index(self) -> None:
        """Rebuild a torn index, as a power cut can leave it: it is only a cache."""
        try:
            self._git("ls-files", "--stage", "-z")
        except GitFailed:
            self.index.unlink(missing_ok=True)
            self._reseed()

    def restore(self, tree: str) -> None:
        """Make the folder exactly the tree: restores changed and deleted files, removes untracked and ignored ones."""
        if not self.index.exists():
            self._reseed()
        self._tidy()
        kept = [f"/{name}" if name in _TOP_ONLY else name for name in _KEPT_ON_CLEAN]
        kept += [f"/{name}" for name in self.carried()]
        self._force("read-tree", "--reset", "-u", tree, again=self._tidy)
        self._force("clean", "-ffdxq", *(word for pattern in kept for word in ("-e", pattern)))
        for path in self._filled_submodules(self._rows()):
            tree_files.remove_inside(self.folder, os.fsdecode(path))
            tree_files.make_folder_inside(self.folder, os.fsdecode(path))
        self._verify(tree)

    def _tidy(self) -> None:
        """Prepare the folder for a restore, which must not depend on what an agent has written."""
        self._make_storable(nested=True)
        self._remove_rules()
        self.repair_index()

    def _remove_rules(self) -> None:
        """Remove ignore and attributes files, which are then made anew: an agent's may make git run for hours. And
        files and links with the names of folders that would be kept."""
        for listing in tree_files.walk_inside(self.folder):
            at = listing.path.rstrip("/")
            doomed = {*listing.folders, *listing.files, *listing.links}.intersection(_RULES)
            doomed.update(name for name in (*listing.files, *listing.links) if is_kept(at, name))
            for name in doomed:
                tree_files.remove_inside(self.folder, f"{listing.path}{name}")
            listing.folders[:] = [name for name in listing.folders if name not in doomed and self._enters(at, name)]

    def _verify(self, tree: str) -> None:
        """Compare the folder with the tree that was restored. Raises TreeBroken."""
        if (there := self.write()) != tree:
            raise broken_tree(self.store, self.raw_diff(tree, there)[0].path)

    def _force(self, *words: str, again: Callable[[], None] | None = None) -> None:
        """Run git, and once more after giving back permissions that an agent took away."""
        try:
            self._git(*words)
        except GitFailed:
            make_readable(self.folder)
            if again:
                again()
            self._git(*words)

    def restore_paths(self, paths: list[str], tree: str) -> None:
        """Restore single paths; a path that the tree does not have is removed."""
        self.write()
        spec = b"\0".join(os.fsencode(path) for path in paths)
        self._git(
            "restore",
            f"--source={tree}",
            "--staged",
            "--worktree",
            "--pathspec-from-file=-",
            "--pathspec-file-nul",
            stdin=spec,
        )

    def changes(self, before: str, after: str) -> list[str]:
        return sorted(os.fsdecode(row.path) for row in self.raw_diff(before, after))

    def diff(self, before: str, after: str, *, max_bytes: int) -> str:
        out = self._git("diff-tree", "-r", "-p", "--no-color", "--no-ext-diff", "--no-textconv", before, after)
        shown = out[:max_bytes].decode(errors="replace")
        return shown if len(out) <= max_bytes else f"{shown}\n… {len(out) - max_bytes} more bytes\n"

    def raw_diff(self, before: str, after: str) -> list[PathDifference]:
        """Return the differences with modes and object ids, deletions first. Without a `before`, all paths."""
        if known := self._diffs.get((before, after)):
            return known
        rows = sorted(self._differences(before, after), key=lambda row: (not row.gone, row.path))
        if len(rows) <= MANY:
            self._diffs = dict([*self._diffs.items()][1 - _DIFFS_MAX :]) | {(before, after): rows}
        return rows

    def _differences(self, before: str, after: str) -> list[PathDifference]:
        try:
            rows = self._objects.differing(before, after)
            return [PathDifference(path=path, mode=mode, oid=oid) for path, mode, oid in rows]
        except NotLoose:
            before = before or self._text("hash-object", "-t", "tree", "-w", os.devnull)
            out = self._git("diff-tree", "-r", "-z", "--raw", "--no-renames", before, after).split(b"\0")
            return [difference(head, path) for head, path in zip(out[0::2], out[1::2], strict=False)]

    def contents(self, names: list[bytes], kind: bytes) -> Iterator[bytes | None]:
        """Yield the content of each object (`OID` or `TREE:path`); None for a missing one or one of another kind.

        Small objects are cached: a name never changes its meaning, and starting git costs milliseconds.
        """
        seen = self._seen if len(self._seen) < _SEEN_MAX else {}
        unknown = [name for name in dict.fromkeys(names) if (kind, name) not in seen]
        found = self._look_up(unknown, kind)
        answers = [found[name] if name in found else seen[kind, name] for name in names]
        self._seen = seen | {
            (kind, name): content
            for name, content in found.items()
            if len(content or b"") <= _SEEN_BYTES and (content is not None or self._holds(name))
        }
        yield from answers

    def _holds(self, name: bytes) -> bool:
        """Whether the tree of `TREE:path` was read, so that a missing path is certain."""
        tree, _, path = name.partition(b":")
        return bool(path) and (b"tree", tree + b":") in self._seen

    def _look_up(self, names: list[bytes], kind: bytes) -> dict[bytes, bytes | None]:
        found: dict[bytes, bytes | None] = {}
        for name in names:
            with suppress(NotLoose):
                found[name] = self._objects.content(name, kind)
        asked = [name for name in names if name not in found]
        return found | dict(zip(asked, self._ask(asked, kind), strict=True))

    def _ask(self, names: list[bytes], kind: bytes) -> Iterator[bytes | None]:
        asked = b"".join(self._one_line(name) + b"\n" for name in names)
        out = self._git("cat-file", "--batch", stdin=asked) if names else b""
        start = 0
        for _ in names:
            end = out.index(b"\n", start)
            head = out[start:end].split(b" ")
            if head[-1] == b"missing":
                yield None
                start = end + 1
                continue
            size = int(head[-1])
            yield out[end + 1 : end + 1 + size] if head[-2] == kind else None
            start = end + 2 + size

    def _one_line(self, name: bytes) -> bytes:
        """Return a name for git's batch mode, which reads lines: a path with a line feed is replaced by its object."""
        if b"\n" not in name:
            return name
        tree, _, path = name.partition(b":")
        row = self._git("ls-tree", "--full-tree", "-z", tree.decode(), "--", os.fsdecode(path)).split()
        return row[2] if row else b"0" * len(tree)

    def ignored(self, paths: list[bytes]) -> set[bytes]:
        if not paths:
            return set()
        asked = b"".join(b"./" + path + b"\0" for path in paths)  # `./`: a leading colon would be magic
        out = self._git("check-ignore", "-z", "--stdin", "--no-index", stdin=asked, ok=(0, 1), literal=False,
                        timeout_s=AGENT_S)  # fmt: skip
        return {path.removeprefix(b"./") for path in out.split(b"\0") if path}

    def manifest(self, tree: str) -> Manifest:
        return self._manifests.of(tree, self._env())

    # --- repositories inside the tree ---------------------------------------------------------------------------

    def _drop_state(self, entries: Sequence[bytes]) -> None:
        """Untrack what is in the place of our state: a `.gitignore` of an agent may name it as not ignored."""
        paths = [path for row in entries if _STATE.match(path := row.partition(b"\t")[2])]
        if paths:
            self._git("update-index", "--force-remove", "-z", "--stdin", stdin=b"\0".join([*paths, b""]))

    def _rows(self) -> list[bytes]:
        return self._git("ls-files", "--stage", "-z").split(b"\0")

    def _new_repositories(self, rows: Sequence[bytes]) -> list[bytes]:
        return [path for path in self._filled_submodules(rows) if self.ours or self._has_git(path)]

    def _has_git(self, path: bytes) -> bool:
        return os.path.lexists(self.folder / os.fsdecode(path) / ".git")

    def _filled_submodules(self, rows: Sequence[bytes]) -> list[bytes]:
        """Return the submodules of the index that are more than an empty folder: git sees nothing of what is there."""
        links = [row.split(b"\t", 1)[1] for row in rows if row.startswith(SUBMODULE.encode())]
        return [path for path in links if tree_files.names_inside(self.folder, os.fsdecode(path))]

    def _open(self, repositories: list[bytes]) -> None:
        """Track the content of nested repositories instead of one opaque entry each."""
        for path in repositories:
            self._git("update-index", "--force-remove", "-z", "--stdin", stdin=path + b"\0")
            if self.ours:
                tree_files.remove_inside(self.folder, f"{os.fsdecode(path)}/.git")
            else:
                self.track(path + b"/" + below for below in files_of(self.folder / os.fsdecode(path)))
        if self.ours:
            self._add(AGENT_S)

    def _env(self) -> dict[str, str]:
        return {
            "GIT_DIR": str(checked_store(self.store)),
            "GIT_WORK_TREE": ".",
            "GIT_INDEX_FILE": str(self.index),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
        }

    def _git(
        self, *args: str, stdin: bytes = b"", ok: tuple[int, ...] = (0,), literal: bool = True,
        timeout_s: float = WHOLE_S,
    ) -> bytes:  # fmt: skip
        env = self._env() | {"GIT_LITERAL_PATHSPECS": "1" if literal else "0"}
        return git(*args, cwd=self.folder, env=env, stdin=stdin, ok=ok, timeout_s=timeout_s)

    def _text(self, *args: str) -> str:
        return self._git(*args).decode().strip()


def _make_store(store: Path, borrow: Path | None) -> None:
    _make_state(store.parent)
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    kind = ["--object-format", git_text("rev-parse", "--show-object-format", cwd=borrow.parent)] if borrow else []
    git("init", "--quiet", "--bare", "--template=", *kind, str(store), env=alone)
    for folder in ("info", "objects/info"):
        (store / folder).mkdir(exist_ok=True, parents=True)
    if borrow:
        (store / "objects" / "info" / "alternates").write_text(f"{borrow}\n")
    (store / "info" / "exclude").write_text("".join(f"{name}\n" for name in _patterns(EXCLUDED)))
    # Highest precedence: content is stored byte for byte, whatever the project's own attributes are.
    (store / "info" / "attributes").write_text("* -text -eol -ident -filter -working-tree-encoding\n")


def _make_state(folder: Path) -> None:
    """Create the folder of a tree store. A repository's `.ratchet` gets its `.gitignore`."""
    make_state_dir(folder.parent) if folder == state_dir(folder.parent) else make_private_dir(folder)


def repack(store: Path, *, more_than: int, dry_run: bool = False) -> int:
    """Pack the loose objects if there are more than `more_than`; return how many were packed.

    All are kept, reachable or not: the trees that ledgers announce have no refs.
    """
    files = (file for file in (store / "objects").glob("??/*") if is_id(f"{file.parent.name}{file.name}"))
    loose = [f"{file.parent.name}{file.name}" for file in files]
    if len(loose) <= more_than:
        return 0
    if not dry_run:
        env = {"GIT_DIR": str(checked_store(store))}
        git("pack-objects", "-q", f"{store}/objects/pack/pack", env=env, stdin="\n".join([*loose, ""]).encode())
        FolderSync(str(store)).objects()  # the pack must be on disk before the objects in it are removed
        git("prune-packed", "-q", env=env)
    return len(loose)


def make_readable(folder: Path) -> None:
    """Restore the owner's permissions that an agent removed, so that files can be read and removed."""
    for listing in tree_files.walk_inside(folder, unlock=True):
        for name in listing.files:
            tree_files.make_owners(listing.at, name)


def snapshot(folder: Path, *, store: Path) -> Manifest:
    """Return the manifest of any folder, in git or not."""
    index = store.with_suffix(f".{os.getpid()}.index")
    trees = TreeStore(store=store, index=index, folder=folder, ours=False)
    try:
        return trees.manifest(trees.write())
    finally:
        index.unlink(missing_ok=True)
