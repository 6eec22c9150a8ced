"""Signals between processes that share a SQLite file: a named pipe for each listener, in a folder beside the file.

Nothing runs while nobody has anything to say, a dead listener's pipe is seen to have no reader and taken away, and what
is lost when a writer dies between its commit and its signal is found by whoever looks again after `POLL_S`.
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


class Pipe:
    """One listener's end. It is made before the listener first looks, so nothing falls between looking and waiting."""

    def __init__(self, folder: Path, topic: Topic) -> None:
        make_private_dir(folder)
        self._path = folder / f"{topic}-{secrets.token_hex(8)}"
        hidden = self._path.with_name(f".{self._path.name}")
        os.mkfifo(hidden, FILE_MODE)
        # Read and write: never at its end when a writer closes. Named last: a pipe with no reader yet looks dead.
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

    def ring(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._fd, b".")

    def close(self) -> None:
        if self._fd >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Pipe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def tell(folder: Path, topic: Topic) -> None:
    """Wake every listener. Nobody waits here: who has not read the last signal has one waiting."""
    with suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            if entry.name.startswith(f"{topic}-"):
                _poke(Path(entry.path))


def _poke(path: Path) -> None:
    try:
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # its reader is dead
            path.unlink(missing_ok=True)
        return
    try:
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(pipe, b".")
    finally:
        os.close(pipe)
