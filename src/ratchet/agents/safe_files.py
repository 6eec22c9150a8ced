"""Reads and writes workspace files for an agent: only inside the workspace, never through symlinks."""

from __future__ import annotations

import os
from pathlib import Path

from ratchet.process.spawn import path_in_namespace
from ratchet.tree_files import NotRegularFile, open_inside, write_inside

READ_MAX_BYTES = 16 * 1024 * 1024


class OutsideFolder(ValueError):
    """The path is not a regular file inside the workspace."""


class SafeFolder:
    """A workspace folder. `shown` is its path inside its mount namespace, if it has one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shown = path_in_namespace(str(folder))

    def name(self, path: str) -> str:
        """Return a path given by the agent relative to the workspace."""
        whole = os.path.normpath(os.path.join(self.shown, path))  # noqa: PTH118 — lexical only, symlinks are not resolved
        for top in (self.shown, str(self.folder)):
            if whole == top or whole.startswith(f"{top}/"):
                return os.path.relpath(whole, top)
        raise OutsideFolder(f"{path} is outside the workspace")

    def read(self, path: str) -> bytes:
        try:
            with open_inside(self.folder, self.name(path), os.O_RDONLY) as file:
                return os.read(file, READ_MAX_BYTES) if os.fstat(file).st_size <= READ_MAX_BYTES else _too_long(path)
        except NotRegularFile as error:
            raise OutsideFolder(f"{path} is not a file") from error

    def write(self, path: str, content: bytes) -> None:
        try:
            write_inside(self.folder, self.name(path), content)
        except NotRegularFile as error:
            raise OutsideFolder(f"{path} is not a file") from error


def _too_long(path: str) -> bytes:
    raise OutsideFolder(f"{path} is larger than {READ_MAX_BYTES:,} bytes")
