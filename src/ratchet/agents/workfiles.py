"""Files of a workspace, touched on an agent's behalf: by names inside it only, and never through a link.

Whoever holds the other end may swap a folder for a link between a look and a write, so every step of a path is opened
from the one before it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ratchet.process import as_seen_inside

_STEP = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ_MAX_BYTES = 16 * 1024 * 1024


class LeadsOutside(ValueError):
    """The name does not stay inside the workspace: name a path in it."""


class Inside:
    """A workspace's folder. `shown` is how those inside its namespace, if it has one, name it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shown = as_seen_inside(str(folder))

    def name(self, path: str) -> str:
        """A path as the agent says it, relative to the workspace."""
        whole = os.path.normpath(os.path.join(self.shown, path))  # noqa: PTH118 — by name alone, links unread
        for top in (self.shown, str(self.folder)):
            if whole == top or whole.startswith(f"{top}/"):
                return os.path.relpath(whole, top)
        raise LeadsOutside(f"{path} is outside the workspace")

    def read(self, path: str) -> bytes:
        with self._open(path, os.O_RDONLY) as file:
            return os.read(file, READ_MAX_BYTES) if os.fstat(file).st_size <= READ_MAX_BYTES else _too_long(path)

    def write(self, path: str, content: bytes) -> None:
        with self._open(path, os.O_WRONLY | os.O_CREAT, make=True) as file:
            os.ftruncate(file, 0)
            left = memoryview(content)
            while left:
                left = left[os.write(file, left) :]

    @contextmanager
    def _open(self, path: str, flags: int, *, make: bool = False) -> Iterator[int]:
        *folders, last = Path(self.name(path)).parts or ("",)
        at = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for folder in folders:
                at = _step(at, folder, make=make)
            # Not blocking: a pipe put in a file's place must not make us wait.
            file = os.open(last, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644, dir_fd=at)
        finally:
            os.close(at)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise LeadsOutside(f"{path} is not a file")
            yield file
        finally:
            os.close(file)


def _step(at: int, folder: str, *, make: bool) -> int:
    """One folder further down; what it was opened from is closed."""
    if make:
        with suppress(FileExistsError):
            os.mkdir(folder, dir_fd=at)
    below = os.open(folder, _STEP, dir_fd=at)
    os.close(at)
    return below


def _too_long(path: str) -> bytes:
    raise LeadsOutside(f"{path} is longer than {READ_MAX_BYTES:,} bytes")
