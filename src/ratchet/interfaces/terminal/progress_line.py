"""A temporary progress line on a terminal: elapsed time and the last line of output."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ratchet.checks.formats.text import strip_control_characters
from ratchet.interfaces.terminal.layout import live_area, show

_QUIET_S = 1.0  # show nothing for commands that finish sooner
_BEAT_S = 0.5
_END_BYTES = 4 << 10


@contextmanager
def progress_line(log: Path) -> Iterator[None]:
    """Show a progress line while the block runs, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_draw, args=(log, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _draw(log: Path, done: threading.Event) -> None:
    began, old = time.monotonic(), _size(log)
    if done.wait(_QUIET_S):
        return
    with live_area(sys.stderr) as live:
        while not done.wait(_BEAT_S):
            show(live, f"{time.monotonic() - began:.0f} s  {_last_line(log, old) or 'running'}")


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _last_line(log: Path, begin: int) -> str:
    """Return the last line added to the log, without control characters."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(begin, _size(log) - _END_BYTES))
            text = strip_control_characters(stream.read(_END_BYTES).decode("utf-8", "replace"))
    except OSError:
        return ""
    rows = [row.rpartition("\r")[2].strip() for row in text.split("\n")]
    last = next((row for row in reversed(rows) if row), "")
    return "".join(character if character.isprintable() else " " for character in last)
