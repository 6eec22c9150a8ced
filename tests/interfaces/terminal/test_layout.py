"""Tables and live areas, on a terminal of 80 columns and in a pipe."""

from __future__ import annotations

import io
import os
import pty
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from ratchet.interfaces.terminal.colour import Tone, painter
from ratchet.interfaces.terminal.layout import hanging, live_area, print_above, show, table

HEADS = ("ITEM", ">AGE", "TITLE")
ROWS = [[(Tone.PLAIN, "item-1"), (Tone.GOOD, "5s"), (Tone.PLAIN, "x" * 200)]]


def _on_terminal(draw: Callable[[TextIO], None]) -> str:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        draw(stream)
    printed = b""
    with suppress(OSError):  # EIO at its end
        while more := os.read(ours, 1 << 16):
            printed += more
    os.close(ours)
    return printed.decode()


def test_a_table_for_a_terminal_is_cut_to_its_width_and_one_for_a_pipe_is_whole() -> None:
    drawn = table(HEADS, ROWS, painter(colour=True), width=80)
    plain = re.sub(r"\x1b\[[\d;]*m", "", drawn).splitlines()
    assert "\x1b[32m" in drawn and [len(line) for line in plain] == [18, 80] and plain[1].endswith("…")
    assert table(HEADS, ROWS, painter(colour=False)).splitlines() == ["ITEM    AGE  TITLE", f"item-1   5s  {'x' * 200}"]


def test_a_live_area_shows_one_line_below_what_is_printed_and_leaves_nothing() -> None:
    def draw(stream: TextIO) -> None:
        with live_area(stream) as live:
            show(live, "working")
            print_above(live, "done: \x1b[32mone\x1b[0m")
            show(live, "y" * 300)

    printed = _on_terminal(draw)
    assert "working" in printed and re.search(r"done: \x1b\[32mone\x1b\[0m", printed)
    assert "y" * 81 not in printed and printed.endswith("\x1b[?25h\r\x1b[1A\x1b[2K")


def test_a_row_that_has_no_room_on_a_terminal_becomes_a_block_whose_ids_and_paths_are_whole() -> None:
    heads = ("WORKER", "STATUS", "RUN", ">ITER", ">AGE", "DETAIL", "PATH")
    run, why, path = f"run-{'z' * 60}", "no test can be accepted. " * 9, f"/home/{'p' * 90}"
    words = ("build-machine-17.example.org-48231-2", "running", run, "12", "43m", why, path)
    drawn = table(heads, [[(Tone.PLAIN, word) for word in words]], painter(colour=True), width=80)
    plain = re.sub(r"\x1b\[[\d;]*m", "", drawn)
    assert "…" not in plain and set(" ".join(words).split()) <= set(plain.split())
    *short, last = plain.splitlines()
    assert all(len(line) <= 80 for line in short) and last.split() == ["path", path]


def test_a_long_line_breaks_between_words_on_a_terminal_and_stays_whole_in_a_pipe() -> None:
    text = f"kept         branch     {'b' * 40}  (a completed run, 3 commits that are not merged into HEAD yet)"
    printed = _on_terminal(lambda stream: print(hanging(text, stream, indent=13), file=stream, end=""))
    assert len(printed.splitlines()) == 2 and all(len(line) <= 80 for line in printed.splitlines())
    assert text.split() == printed.split() and hanging(text, io.StringIO(), indent=13) == text
