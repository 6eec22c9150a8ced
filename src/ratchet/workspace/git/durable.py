"""Make what git has written survive a power cut: git syncs the content of files, not the folders that name them.

On the disk of a SQLite ledger the next write of the ledger does that too. On another disk, or with PostgreSQL, a tree
would be announced whose objects have no names yet.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress

from ratchet.files import sync_dir
from ratchet.workspace.syscalls import sync_file_system

WRITTEN_BACK_S = 120  # a folder that was changed longer ago is on disk: the kernel writes changes back within seconds
CLOCK_S = 0.02  # time stamps of file systems are coarse: a change after the sync may carry the same one
FOLDERS_MAX = 16  # of more folders, one sync of the whole file system is quicker
_REF_FOLDERS = ("", "refs/heads", "refs/heads/ratchet", "reftable")


class FolderSync:
    """Syncs the folders of a repository that were changed since the last call."""

    def __init__(self, git_dir: str) -> None:
        self._git_dir = git_dir
        self._synced: dict[str, int] = {}

    def objects(self) -> None:
        """Make all objects durable that were written until now."""
        top = f"{self._git_dir}/objects"
        self._sync([top, *(entry.path for entry in os.scandir(top) if entry.is_dir(follow_symlinks=False))])

    def refs(self) -> None:
        """Make our branches durable as they are now."""
        self._sync(f"{self._git_dir}/{folder}".rstrip("/") for folder in _REF_FOLDERS)

    def _sync(self, folders: Iterable[str]) -> None:
        changed = {folder: at for folder in folders if (at := _changed_at(folder)) > self._synced.get(folder, 0)}
        recent = [folder for folder, at in changed.items() if at > time.time_ns() - WRITTEN_BACK_S * 10**9]
        began = time.time_ns() - int(CLOCK_S * 10**9)
        if len(recent) > FOLDERS_MAX:
            sync_file_system(self._git_dir)
        else:
            for folder in recent:
                with suppress(FileNotFoundError):  # git removes folders that became empty
                    sync_dir(folder)
        self._synced |= {folder: at for folder, at in changed.items() if at < began}


def _changed_at(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except FileNotFoundError:
        return 0
