"""Build manifests of trees incrementally: only files that differ from the last tree are hashed."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from ratchet.core.lines import split_lines
from ratchet.core.snapshot import FileEntry, Manifest, build_manifest, manifest_line, path_text
from ratchet.workspace.git.command import git
from ratchet.workspace.git.objects import MANY, LooseObjects, NotLoose


class TreeRow(Protocol):
    """One path of a tree, or its deletion."""

    @property
    def path(self) -> bytes: ...
    @property
    def mode(self) -> str: ...
    @property
    def oid(self) -> str: ...
    @property
    def gone(self) -> bool: ...


class ManifestBuilder:
    """`differing` returns the differences from one tree to another; from an empty id, all paths."""

    def __init__(self, store: Path, objects: LooseObjects, differing: Callable[[str, str], Sequence[TreeRow]]) -> None:
        self._differing, self._hashes = differing, _Hashes(store, objects)
        self._tree = ""
        self._paths: list[str] = []
        self._files: list[FileEntry] = []
        self._lines: list[bytes] = []
        self._made = build_manifest([], [])

    def of(self, tree: str, env: dict[str, str]) -> Manifest:
        if tree != self._tree:
            rows = self._differing(self._tree, tree)
            hashes = self._hashes.of({row.oid for row in rows if not row.gone}, env)
            self._move(rows, hashes)
            self._tree, self._made = tree, build_manifest(list(self._files), self._lines)
        return self._made

    def _move(self, rows: Sequence[TreeRow], hashes: dict[str, tuple[str, int]]) -> None:
        # If this is interrupted, the next call starts from an empty tree.
        tree, self._tree = self._tree, ""
        gone = {path_text(row.path) for row in rows if row.gone}
        made = {path_text(row.path): _entry(row, hashes) for row in rows if not row.gone}
        if not tree or len(rows) > len(self._paths) // 10:
            kept = {entry.path: entry for entry in self._files if entry.path not in gone} if tree else {}
            self._fill(kept | made)
            return
        for path in gone:
            self._cut(path)
        for entry in made.values():
            self._put(entry)

    def _fill(self, entries: dict[str, FileEntry]) -> None:
        self._paths = sorted(entries)
        self._files = [entries[path] for path in self._paths]
        self._lines = [manifest_line(entry) for entry in self._files]

    def _find(self, path: str) -> tuple[int, bool]:
        at = bisect_left(self._paths, path)
        return at, at < len(self._paths) and self._paths[at] == path

    def _cut(self, path: str) -> None:
        at, found = self._find(path)
        if found:
            del self._paths[at], self._files[at], self._lines[at]

    def _put(self, entry: FileEntry) -> None:
        at, found = self._find(entry.path)
        end = at + 1 if found else at
        self._paths[at:end], self._files[at:end], self._lines[at:end] = [entry.path], [entry], [manifest_line(entry)]


def _entry(row: TreeRow, hashes: dict[str, tuple[str, int]]) -> FileEntry:
    sha256, size = hashes[row.oid]
    return FileEntry(path=path_text(row.path), mode=row.mode, size=size, sha256=sha256)


class _Hashes:
    """SHA-256 and size of git objects, cached in an append-only file: they never change."""

    def __init__(self, store: Path, objects: LooseObjects) -> None:
        self._path, self._objects = store / "sha256", objects
        self._known: dict[str, tuple[str, int]] = {}
        with suppress(FileNotFoundError):
            for line in split_lines(self._path.read_text()):
                words = line.split()
                if len(words) == 3 and len(words[1]) == 64 and words[2].isdigit():  # skip a torn line
                    self._known[words[0]] = (words[1], int(words[2]))

    def of(self, oids: set[str], env: dict[str, str]) -> dict[str, tuple[str, int]]:
        if missing := sorted(oids - self._known.keys()):
            found = dict(self._loose(missing))
            if asked := [oid for oid in missing if oid not in found]:
                found |= _hash_objects(asked, env)
            with self._path.open("a") as file:
                file.writelines(f"{oid} {sha} {size}\n" for oid, (sha, size) in found.items())
            self._known |= found
        return self._known

    def _loose(self, oids: Sequence[str]) -> Iterator[tuple[str, tuple[str, int]]]:
        for oid in oids[:MANY]:
            with suppress(NotLoose):
                if (content := self._objects.content(oid.encode(), b"blob")) is not None:
                    yield oid, (hashlib.sha256(content).hexdigest(), len(content))


def _hash_objects(oids: list[str], env: dict[str, str]) -> Iterator[tuple[str, tuple[str, int]]]:
    out = git("cat-file", "--batch", env=env, stdin="".join(f"{oid}\n" for oid in oids).encode())
    start = 0
    for oid in oids:
        end = out.index(b"\n", start)
        head = out[start:end].split()
        if head[-1] == b"missing":  # a submodule's commit is not an object of ours: its id is its content
            yield oid, (hashlib.sha256(oid.encode()).hexdigest(), 0)
            start = end + 1
            continue
        size = int(head[2])
        yield oid, (hashlib.sha256(memoryview(out)[end + 1 : end + 1 + size]).hexdigest(), size)
        start = end + 1 + size + 1
