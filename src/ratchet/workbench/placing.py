"""Write a file below a folder, and nowhere else: no link on the way is followed, whoever makes it and whenever."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path, PurePosixPath

from ratchet.errors import UsageError
from ratchet.files import room_for

_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW


def place(top: Path, name: str, content: bytes) -> None:
    """Folders on the way are made. An existing file keeps its mode. Raises UsageError."""
    *folders, last = _parts(name)
    try:
        with room_for(top / name):
            _put(top, folders, last, content)
    except OSError as error:
        raise UsageError(
            f"{name} cannot be written: {error.strerror}", hint="a link or a folder may be in its way: look with ls -la"
        ) from error


def _parts(name: str) -> tuple[str, ...]:
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or {"..", ".git"} & set(path.parts) or "\0" in name or name.endswith("/"):
        raise UsageError(
            f"{name!r} is no path in the workspace", hint="from its top, as git names files: src/app.py; not in .git"
        )
    return path.parts


def _put(top: Path, folders: list[str], last: str, content: bytes) -> None:
    # A step at a time from an open folder: what is a folder now may be a link a moment later.
    here = os.open(top, os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            with suppress(FileExistsError):
                os.mkdir(folder, dir_fd=here)
            below = os.open(folder, os.O_DIRECTORY | _OPEN, dir_fd=here)
            os.close(here)
            here = below
        handle = os.open(last, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | _OPEN, 0o644, dir_fd=here)
    finally:
        os.close(here)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
