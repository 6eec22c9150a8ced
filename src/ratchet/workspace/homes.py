"""A workspace's home: the folder that is locked while it is made or removed, and holds its record."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ratchet.workspace import Record
from ratchet.workspace.layers import remove


@contextmanager
def locked(home: str, *, wait: bool) -> Iterator[bool]:
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


def read_any(home: str) -> Record | None:
    for name in ("workspace.json", "making.json"):
        try:
            with open(f"{home}/{name}", "rb") as file:
                return msgspec.json.decode(file.read(), type=Record)
        except (OSError, msgspec.DecodeError):
            continue
    return None


def put(path: str, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(handle, content)
    finally:
        os.close(handle)


def empty(folder: str) -> None:
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                try:
                    os.rmdir(entry.path)
                except OSError:
                    remove(Path(entry.path))
            else:
                os.unlink(entry.path)
