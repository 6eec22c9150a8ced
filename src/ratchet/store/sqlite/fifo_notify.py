"""Signals between processes that share a SQLite file: one named pipe per listener, in a folder beside the file.

No background thread is needed. The pipe of a dead listener has no reader and is removed. A signal that is lost because
its writer dies between commit and signal is covered by polling every `POLL_S`.
"""

from __future__ import annotations

import errno
import os
import secrets
import select
from contextlib import suppress
from pathlib import Path

from ratchet.core.signal import Topic
from ratchet.files import FILE_MODE, make_private_dir


class FifoListener:
    """The reading end of one listener. It exists before the first check of the store, so no signal is missed."""

    def __init__(self, folder: Path, topic: Topic) -> None:
        make_private_dir(folder)
        self._path = folder / f"{topic}-{secrets.token_hex(8)}"
        hidden = self._path.with_name(f".{self._path.name}")
        os.mkfifo(hidden, FILE_MODE)
        # O_RDWR: no EOF when a writer closes. Renamed last: a pipe that has no reader yet would be taken for dead.
        self._fd = os.open(hidden, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        hidden.rename(self._path)

    def wait(self, timeout_s: float) -> bool:
        ready = select.poll()
        ready.register(self._fd, select.POLLIN)
        if not ready.poll(timeout_s * 1000):
            return False
        with suppress(BlockingIOError):
            while os.read(self._fd, 65_536):
                pass
        return True

    def wake(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._fd, b".")

    def close(self) -> None:
        if self._fd >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> FifoListener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def notify(folder: Path, topic: Topic) -> None:
    """Wake every listener of a topic without blocking: a full pipe already holds an unread signal."""
    with suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            if entry.name.startswith(f"{topic}-"):
                _write_signal(Path(entry.path))


def _write_signal(path: Path) -> None:
    try:
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # the reader is dead
            path.unlink(missing_ok=True)
        return
    try:
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(pipe, b".")
    finally:
        os.close(pipe)
