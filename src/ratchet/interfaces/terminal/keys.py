"""Reads single keys from a terminal: no Enter, no echo, and the terminal as it was afterwards."""

from __future__ import annotations

import os
import select
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

ENTER = "\n"


@contextmanager
def single_keys(stream: TextIO) -> Iterator[bool]:
    """Make each key readable as it is pressed. Yields False where that cannot be: a pipe, a terminal of another session
    (`su -c`), or a job in the background, which the terminal would stop."""
    if not (stream.isatty() and _is_in_foreground(stream)):
        yield False
        return
    before = termios.tcgetattr(stream.fileno())
    tty.setcbreak(stream.fileno(), termios.TCSANOW)
    try:
        yield True
    finally:
        termios.tcsetattr(stream.fileno(), termios.TCSADRAIN, before)


def _is_in_foreground(stream: TextIO) -> bool:
    try:
        return os.tcgetpgrp(stream.fileno()) == os.getpgrp()
    except OSError:  # it does not control this session
        return False


def read_key(stream: TextIO) -> str:
    """Return the key that was pressed, or an empty string at the end of the input."""
    key = os.read(stream.fileno(), 1).decode(errors="replace")
    return ENTER if key == "\r" else key.lower()


def wait_for_key(stream: TextIO, wanted: str, *, timeout_s: float) -> bool:
    """Wait until a key is pressed or the time is over; return whether it was that key."""
    end_s = time.monotonic() + timeout_s
    while (left_s := end_s - time.monotonic()) > 0 and select.select([stream], [], [], left_s)[0]:
        if (key := read_key(stream)) == wanted:
            return True
        if not key:
            time.sleep(max(end_s - time.monotonic(), 0))  # the terminal is gone; its signal ends the program
    return False
