"""The exact content of a folder as trees in a private git repository.

Git's index is the stat cache: a file that did not change is not read again. The repository is ours alone, beside the
project's own: no filter, attribute or ignore file outside the tree changes what is kept, and nothing done to the
project's `.git` can touch it.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import msgspec

from ratchet.core.snapshot import SUBMODULE, Manifest
from ratchet.errors import GitFailed
from ratchet.files import make_private_dir, make_state_dir
from ratchet.workspace.git import git, text
from ratchet.workspace.manifests import Manifests
from ratchet.workspace.objects import MANY, Objects, Unsure
from ratchet.workspace.submodules import files_of

# Not part of a tree even when nobody ignores them: dependencies and caches, made by tools and kept across resets.
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
    """Whether it stays when everything else is put back: what tools built here, dear to build again."""
    return name in _KEPT_ON_CLEAN and not (folder and name in _TOP_ONLY)


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One path that differs: what it is afterwards."""

    path: bytes
    mode: str
    oid: str

    @property
    def gone(self) -> bool:
        return self.mode == "000000"


def _difference(head: bytes, path: bytes) -> Difference:
    _, mode, _, oid, _ = head.decode().split()
    return Difference(path=path, mode=mode, oid=oid)


class Trees:
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
        self._reseed = reseed
        self._seen: dict[tuple[bytes, bytes], bytes | None] = {}
        self._diffs: dict[tuple[str, str], list[Difference]] = {}
        if not (store / "info" / "attributes").exists():
            _make_store(store, borrow)

    @cached_property
    def _objects(self) -> Objects:
        return Objects(self.store)

    @cached_property
    def _manifests(self) -> Manifests:
        return Manifests(self.store, self._objects, self.raw_diff)

    def seed(self, commit: str, submodules: Sequence[str] = ()) -> None:
        """Start from a commit's entries: a submodule that is not checked out then stays in the tree. Those named are
        folders here."""
        self._git("read-tree", "--reset", commit)
        for path in submodules:
            self._git("update-index", "--force-remove", "--", path)

    def take_whole(self, folders: Sequence[str]) -> None:
        """Keep everything in these folders, whatever is ignored."""
        if folders:
            self._git("add", "--all", "--force", "--", *folders)

    def tracked(self) -> list[bytes]:
        """The files the index knows, submodules left out."""
        rows = self._git("ls-files", "--stage", "-z").split(b"\0")
        return [row.split(b"\t", 1)[1] for row in rows if row and not row.startswith(SUBMODULE.encode())]

    def take_in(self, paths: Iterable[bytes]) -> None:
        """Keep these files, whatever is ignored."""
        spec = b"".join(path + b"\0" for path in paths)
        self._git("update-index", "--add", "--remove", "-z", "--stdin", stdin=spec)

    def write(self) -> str:
        if not self.index.exists():
            self._reseed()
        try:
            self._git("add", "--all", ".")
        except GitFailed:
            if not self.ours:
                raise
            # Two ways to hide from us: an unreadable file, and a repository inside the tree.
            make_readable(self.folder)
            self.mend_index()
            self._unhide()
            self._git("add", "--all", ".")
        if found := self._new_repositories():
            self._open(found)
        return self._text("write-tree")

    def mend_index(self) -> None:
        """A torn index, which a power cut can leave, is only a cache: it is made anew."""
        try:
            self._git("ls-files", "--stage", "-z")
        except GitFailed:
            self.index.unlink(missing_ok=True)
            self._reseed()

    def restore(self, tree: str) -> None:
        """Everything in the folder becomes the tree: changed files, deleted ones, leftovers, ignored leftovers."""
        self.write()
        try:
            self._git("read-tree", "--reset", "-u", tree)
        except GitFailed:
            make_readable(self.folder)
            self._git("read-tree", "--reset", "-u", tree)
        kept = [f"/{name}" if name in _TOP_ONLY else name for name in _KEPT_ON_CLEAN]
        kept += [f"/{name}" for name in self.carried()]
        self._git("clean", "-ffdxq", *(word for pattern in kept for word in ("-e", pattern)))

    def restore_paths(self, paths: list[str], tree: str) -> None:
        """Put single paths back; one that the tree does not have is removed."""
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

    def raw_diff(self, before: str, after: str) -> list[Difference]:
        """The same with modes and object ids, deletions first. Without a `before`, all there is."""
        if known := self._diffs.get((before, after)):
            return known
        rows = sorted(self._differences(before, after), key=lambda row: (not row.gone, row.path))
        if len(rows) <= MANY:
            self._diffs = dict([*self._diffs.items()][1 - _DIFFS_MAX :]) | {(before, after): rows}
        return rows

    def _differences(self, before: str, after: str) -> list[Difference]:
        try:
            rows = self._objects.differing(before, after)
            return [Difference(path=path, mode=mode, oid=oid) for path, mode, oid in rows]
        except Unsure:
            before = before or self._text("hash-object", "-t", "tree", "-w", os.devnull)
            out = self._git("diff-tree", "-r", "-z", "--raw", "--no-renames", before, after).split(b"\0")
            return [_difference(head, path) for head, path in zip(out[0::2], out[1::2], strict=False)]

    def contents(self, names: list[bytes], kind: bytes) -> Iterator[bytes | None]:
        """Each named object's bytes (`OID` or `TREE:path`), None for one that is not there or of another kind.

        What is small is remembered: such a name never means anything else, and a process to ask costs milliseconds.
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
        """Whether the tree of `TREE:path` was seen: what it has not is as certain as what it has."""
        tree, _, path = name.partition(b":")
        return bool(path) and (b"tree", tree + b":") in self._seen

    def _look_up(self, names: list[bytes], kind: bytes) -> dict[bytes, bytes | None]:
        found: dict[bytes, bytes | None] = {}
        for name in names:
            with suppress(Unsure):
                found[name] = self._objects.content(name, kind)
        asked = [name for name in names if name not in found]
        return found | dict(zip(asked, self._ask(asked, kind), strict=True))

    def _ask(self, names: list[bytes], kind: bytes) -> Iterator[bytes | None]:
        out = self._git("cat-file", "--batch", stdin=b"".join(name + b"\n" for name in names)) if names else b""
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

    def ignored(self, paths: list[bytes]) -> set[bytes]:
        if not paths:
            return set()
        asked = b"".join(b"./" + path + b"\0" for path in paths)  # `./`: a leading colon would be magic
        out = self._git("check-ignore", "-z", "--stdin", "--no-index", stdin=asked, ok=(0, 1), literal=False)
        return {path.removeprefix(b"./") for path in out.split(b"\0") if path}

    def manifest(self, tree: str) -> Manifest:
        return self._manifests.of(tree, self._env())

    # --- repositories inside the tree ---------------------------------------------------------------------------

    def _new_repositories(self) -> list[bytes]:
        rows = self._git("ls-files", "--stage", "-z").split(b"\0")
        links = [row.split(b"\t", 1)[1] for row in rows if row.startswith(SUBMODULE.encode())]
        return [path for path in links if os.path.lexists(self.folder / os.fsdecode(path) / ".git")]

    def _open(self, repositories: list[bytes]) -> None:
        """Keep the content of repositories inside the tree instead of one opaque entry for each."""
        if self.ours:
            self._unhide()
            self._git("add", "--all", ".")
            return
        for path in repositories:
            self._git("update-index", "--force-remove", "-z", "--stdin", stdin=path + b"\0")
            self.take_in(path + b"/" + below for below in files_of(self.folder / os.fsdecode(path)))

    def _unhide(self) -> None:
        """Git looks at a repository inside the tree as one opaque entry: without its `.git` it is a folder again."""
        for root, folders, names in os.walk(self.folder):
            if Path(root) != self.folder and ".git" in [*folders, *names]:
                dot_git = Path(root) / ".git"
                shutil.rmtree(dot_git) if dot_git.is_dir() and not dot_git.is_symlink() else dot_git.unlink()
                relative = os.path.relpath(root, self.folder)
                self._git("update-index", "--force-remove", "--", relative)
            folders[:] = [name for name in folders if name != ".git" and name not in EXCLUDED]

    def _env(self) -> dict[str, str]:
        return {
            "GIT_DIR": str(self.store),
            "GIT_WORK_TREE": ".",
            "GIT_INDEX_FILE": str(self.index),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
        }

    def _git(self, *args: str, stdin: bytes = b"", ok: tuple[int, ...] = (0,), literal: bool = True) -> bytes:
        env = self._env() | {"GIT_LITERAL_PATHSPECS": "1" if literal else "0"}
        return git(*args, cwd=self.folder, env=env, stdin=stdin, ok=ok)

    def _text(self, *args: str) -> str:
        return self._git(*args).decode().strip()


def _make_store(store: Path, borrow: Path | None) -> None:
    make_state_dir(store.parents[1]) if store.parent.name == ".ratchet" else make_private_dir(store.parent)
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    kind = ["--object-format", text("rev-parse", "--show-object-format", cwd=borrow.parent)] if borrow else []
    git("init", "--quiet", "--bare", "--template=", *kind, str(store), env=alone)
    for folder in ("info", "objects/info"):
        (store / folder).mkdir(exist_ok=True, parents=True)
    if borrow:
        (store / "objects" / "info" / "alternates").write_text(f"{borrow}\n")
    (store / "info" / "exclude").write_text("".join(f"{name}\n" for name in _patterns(EXCLUDED)))
    # Highest in precedence: bytes go in and come out as they are, whatever the project's own attributes say.
    (store / "info" / "attributes").write_text("* -text -eol -ident -filter -working-tree-encoding\n")


def make_readable(folder: Path) -> None:
    """Give the owner back what an agent took away: without it neither reading nor removing works."""
    for root, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(root) / name
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode):
                path.chmod(stat.S_IMODE(mode) | (0o700 if stat.S_ISDIR(mode) else 0o600))


def snapshot(folder: Path, *, store: Path) -> Manifest:
    """The snapshot of any folder, in git or not."""
    index = store.with_suffix(f".{os.getpid()}.index")
    trees = Trees(store=store, index=index, folder=folder, ours=False)
    try:
        return trees.manifest(trees.write())
    finally:
        index.unlink(missing_ok=True)
