"""Watch a developer's tree for changed paths, without writing or locking anything.

Uses inotify, with one watch per folder that git does not ignore. Without inotify, or when no watches are left, the
whole tree is compared every second.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ratchet.workspace.git.command import git, git_text
from ratchet.workspace.git.trees import is_excluded

QUIET_S, PATIENCE_S, POLL_S = 0.01, 0.5, 1.0
# Many files, or batches in quick succession, are the work of a tool: wait longer than for a single save.
FEW, BUSY_S, BUSY_QUIET_S = 8, 0.5, 0.1
# More paths at once are a branch switch, not a save: git finds the differences faster.
MANY = 400
_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED, _CREATE, _DELETE, _DELETE_SELF = 0x2, 0x4, 0x8, 0xC0, 0x100, 0x200, 0x400
_MOVE_SELF, _OVERFLOW, _IGNORED, _IS_DIR, _ONLY_DIR = 0x800, 0x4000, 0x8000, 0x40000000, 0x01000000
# Not every write: a file is complete when it is closed, or renamed to its place by an editor.
_MASK = _ATTRIB | _CLOSE_WRITE | _MOVED | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLY_DIR
_EVENT = struct.Struct("iIII")


class ChangeBatch:
    """Paths that may have changed, relative to the tree. `whole`: compare everything; `gone`: the tree was removed."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.whole = self.gone = self.git = False

    def __bool__(self) -> bool:
        return bool(self.paths or self.whole or self.gone or self.git)


def quiet_period(batch: ChangeBatch, *, since_s: float) -> float:
    """Return how long the tree must be quiet before a batch is delivered; longer for tools than for single saves."""
    busy = len(batch.paths) > FEW or batch.whole or since_s < BUSY_S
    return BUSY_QUIET_S if busy else QUIET_S


class Inotify:
    """A minimal inotify binding. Raises OSError where inotify is not available."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.handle = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.handle < 0:
            raise OSError(ctypes.get_errno(), "inotify cannot be had")
        self.folders: dict[int, str] = {}

    def add(self, folder: str) -> None:
        """Watch a folder. A folder that no longer exists is no error: its removal is an event of its own."""
        number = self._libc.inotify_add_watch(self.handle, os.fsencode(folder), _MASK)
        if number >= 0:
            self.folders[number] = folder
        elif ctypes.get_errno() not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
            raise OSError(ctypes.get_errno(), "no more folders can be watched", folder)

    def read(self) -> Iterator[tuple[str, str, int]]:
        """Yield events: the folder, the name in it (empty for the folder itself), and the mask."""
        try:
            data = os.read(self.handle, 1 << 18)
        except BlockingIOError:
            return
        start = 0
        while start < len(data):
            number, mask, _, length = _EVENT.unpack_from(data, start)
            start += _EVENT.size
            name = os.fsdecode(data[start : start + length].rstrip(b"\0"))
            start += length
            yield self.folders.get(number, ""), name, mask
            if mask & _IGNORED:
                self.folders.pop(number, None)

    def close(self) -> None:
        os.close(self.handle)


class TreeWatcher:
    """Watches a repository's tree and its git directory. `next` waits for the next batch of changes."""

    def __init__(self, root: Path, *, polling: bool = False) -> None:
        self.root, self._git_dir = str(root), git_text("rev-parse", "--absolute-git-dir", cwd=root)
        self._batch, self._first_s, self._last_s, self._handed_s = ChangeBatch(), 0.0, 0.0, 0.0
        self._arrived = asyncio.Event()
        self._inotify = None if polling else self._start()

    def _start(self) -> Inotify | None:
        try:
            inotify = Inotify()
        except (OSError, AttributeError):
            return None
        try:
            for folder in (*_git_folders(self._git_dir), *self._tree_folders()):
                inotify.add(folder)
        except OSError:
            inotify.close()
            return None
        asyncio.get_running_loop().add_reader(inotify.handle, self._read)
        return inotify

    def _tree_folders(self) -> set[str]:
        listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=Path(self.root))
        folders = {self.root}
        for name in listed.split(b"\0"):
            folder = os.path.dirname(os.fsdecode(name))
            while folder and (path := f"{self.root}/{folder}") not in folders:
                folders.add(path)
                folder = os.path.dirname(folder)
        return folders

    @property
    def polling(self) -> bool:
        return self._inotify is None

    async def next(self) -> ChangeBatch:
        """Return the changes up to the next quiet period, at most half a second after the first."""
        if self._inotify is None:
            await asyncio.sleep(POLL_S)
            batch = ChangeBatch()
            batch.whole, batch.gone, batch.git = True, not os.path.isdir(self.root), True
            return batch
        await self._arrived.wait()
        while (left_s := self._left_s()) > 0:  # noqa: ASYNC110 — what is waited for is that nothing happens
            await asyncio.sleep(left_s)
        batch, self._batch = self._batch, ChangeBatch()
        self._arrived.clear()
        self._handed_s = time.monotonic()
        return batch

    def _left_s(self) -> float:
        quiet_s = quiet_period(self._batch, since_s=self._first_s - self._handed_s)
        return min(self._last_s + quiet_s, self._first_s + PATIENCE_S) - time.monotonic()

    def close(self) -> None:
        if self._inotify:
            asyncio.get_running_loop().remove_reader(self._inotify.handle)
            self._inotify.close()

    # --- what the kernel says --------------------------------------------------------------------------------------

    def _read(self) -> None:
        for folder, name, mask in list(self._inotify.read()) if self._inotify else ():
            self._take(folder, name, mask)
        if self._batch:
            self._last_s = time.monotonic()
            if not self._arrived.is_set():
                self._first_s = self._last_s
                self._arrived.set()

    def _take(self, folder: str, name: str, mask: int) -> None:
        batch = self._batch
        if mask & _OVERFLOW:
            batch.whole = True
            self._watch_again()
        elif folder == self.root and mask & (_DELETE_SELF | _MOVE_SELF):
            batch.gone = True
        elif self._is_git(folder):
            batch.git = batch.git or not name.endswith(".lock")
        elif name and not self._is_ours(folder, name):
            batch.paths.add(f"{folder}/{name}"[len(self.root) + 1 :])
            if mask & _IS_DIR and mask & (_CREATE | _MOVED):
                self._enter(f"{folder}/{name}")
        batch.whole = batch.whole or len(batch.paths) > MANY

    def _is_git(self, folder: str) -> bool:
        return folder == self._git_dir or folder.startswith(f"{self._git_dir}/")

    def _is_ours(self, folder: str, name: str) -> bool:
        """Whether the path is a dependency folder, a cache, git's or Ratchet's own: not part of the tree."""
        inside = folder[len(self.root) + 1 :]
        return (name == ".git" and not inside) or (name != ".git" and is_excluded(inside, name))

    def _enter(self, folder: str) -> None:
        """Watch a new folder, and report the files that were written into it before the watch existed."""
        for top, folders, names in os.walk(folder) if self._inotify else ():
            inside = top[len(self.root) + 1 :]
            folders[:] = [name for name in folders if name != ".git" and not is_excluded(inside, name)]
            try:
                self._inotify.add(top) if self._inotify else None
            except OSError:  # no watches left: poll from now on
                self._batch.whole = True
                self.close()
                self._inotify = None
                return
            self._batch.paths.update(f"{inside}/{name}" for name in names)
            if len(self._batch.paths) > 4 * MANY:  # git knows better which of them matter
                self._batch.whole = True
                self._watch_again()
                return

    def _watch_again(self) -> None:
        """Watch all folders again: lost events may include new folders."""
        with suppress(OSError):
            for folder in self._tree_folders():
                self._inotify.add(folder) if self._inotify else None


def _git_folders(git_dir: str) -> list[str]:
    """Return the git folders that change on commit, checkout and add."""
    heads = [top for top, _, _ in os.walk(f"{git_dir}/refs/heads")]
    return [place for place in (git_dir, f"{git_dir}/logs", *heads) if os.path.isdir(place)]
