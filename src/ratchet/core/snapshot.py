"""Snapshots: a tree's identity from its content alone, the same on any machine, any day."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

# Git's modes: whether a file is executable, a link or a submodule. Permission bits beyond that depend on the
# umask of the copy's maker, and would give one tree many ids.
REGULAR, EXECUTABLE, SYMLINK, SUBMODULE = "100644", "100755", "120000", "160000"


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """`path` is POSIX and relative; bytes that are not UTF-8 are written as `\\xNN` and a backslash as two."""

    path: str
    mode: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    snapshot_id: str
    digest: str
    files: list[FileEntry]


def manifest(files: Iterable[FileEntry]) -> Manifest:
    ordered = sorted(files, key=lambda entry: entry.path)
    return build_manifest(ordered, [manifest_line(entry) for entry in ordered])


def manifest_line(entry: FileEntry) -> bytes:
    """Return the bytes of a file that enter the tree's digest."""
    return f"{entry.mode} {entry.size} {entry.sha256} {entry.path}\0".encode()


def build_manifest(ordered: list[FileEntry], lines: list[bytes]) -> Manifest:
    """Build the manifest from files sorted by path and their lines."""
    digest = hashlib.sha256(b"".join(lines)).hexdigest()
    return Manifest(snapshot_id=f"snap-{digest[:12]}", digest=f"sha256:{digest}", files=ordered)


def path_text(path: bytes) -> str:
    return path.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
