"""Files that survive a power cut: a reader sees the old content or the new, never half of it."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ratchet.errors import DiskFull

FILE_MODE, DIR_MODE = 0o600, 0o700
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def room_for(path: Path) -> Iterator[None]:
    """Turn «no space left» into an error that says where."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise DiskFull(
                f"no room left while writing {path}",
                hint="free some space, then run `ratchet resume` again: nothing that was announced is lost",
            ) from error
        raise


def make_private_dir(path: Path) -> Path:
    """Also every folder above it that has to be made: `mkdir(parents=True)` would leave those open to all."""
    missing = [place for place in (path, *path.parents) if not place.exists()]
    with room_for(path):
        for place in reversed(missing):
            place.mkdir(mode=DIR_MODE, exist_ok=True)
    return path


def make_state_dir(repo: Path) -> Path:
    """The repository's `.ratchet`, which ignores itself: whatever makes it, `git status` stays as it was. Only prompts
    are the project's, and go where its commits go."""
    folder = make_private_dir(repo / ".ratchet")
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("/*\n!/prompts/\n")
    return folder


def open_private(path: Path) -> IO[bytes]:
    """For adding to: made for its owner only if it is not there yet."""
    with room_for(path):
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE), "ab")


def write_durably(path: Path, content: bytes) -> None:
    """temp → fsync → rename → fsync(dir). Nothing half-made stays behind."""
    _replace(path, content, durable=True)
    sync_dir(path.parent)


def write_whole(path: Path, content: bytes) -> None:
    """The same for what can be made again: no reader sees half of it, but a power cut may take it away."""
    _replace(path, content, durable=False)


def _replace(path: Path, content: bytes, *, durable: bool) -> None:
    make_private_dir(path.parent)
    with room_for(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            with suppress(FileNotFoundError):
                Path(name).unlink()
            raise


def sync_dir(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
