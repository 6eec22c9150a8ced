"""While something long runs, one line on a terminal says for how long, and what it printed last. Then it is gone."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ratchet.checks.formats.text import plain

_QUIET_S = 1.0  # who is done by then has nothing to tell
_BEAT_S = 0.5
_END_BYTES = 4 << 10
_CLEAR = "\r\x1b[K"


@contextmanager
def ticking(log: Path) -> Iterator[None]:
    """Nothing where nobody looks."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_tick, args=(log, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _tick(log: Path, done: threading.Event) -> None:
    began, old = time.monotonic(), _size(log)
    if done.wait(_QUIET_S):
        return
    while not done.wait(_BEAT_S):
        line = f"{time.monotonic() - began:.0f} s  {_last_line(log, old) or 'running'}"
        sys.stderr.write(_CLEAR + line[: _columns() - 1])
        sys.stderr.flush()
    sys.stderr.write(_CLEAR)
    sys.stderr.flush()


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _last_line(log: Path, begin: int) -> str:
    """Of what was added to the log; nothing of it may move the cursor."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(begin, _size(log) - _END_BYTES))
            said = plain(stream.read(_END_BYTES).decode("utf-8", "replace"))
    except OSError:
        return ""
    rows = [row.rpartition("\r")[2].strip() for row in said.split("\n")]
    last = next((row for row in reversed(rows) if row), "")
    return "".join(character if character.isprintable() else " " for character in last)
