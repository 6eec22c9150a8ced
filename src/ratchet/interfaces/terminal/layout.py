"""Tables and live areas: drawn by rich on a terminal, plain text in a pipe. Imports rich only to draw."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from ratchet.interfaces.terminal.colour import Paint, Tone

if TYPE_CHECKING:
    from rich.live import Live

Cell = tuple[Tone, str]
_LAST_CHARS = 16  # the least that the last column shows


def table(heads: Sequence[str], rows: Sequence[Sequence[Cell]], paint: Paint, *, width: int | None = None) -> str:
    """Render a table. Heads that begin with `>` are right-aligned.

    `width` fits it to a terminal: the last column is cut, and where the others leave it no room, each row becomes a
    block of lines, so that ids and paths stay whole."""
    grid = [[(Tone.DIM, head.lstrip(">")) for head in heads], *rows]
    if width is not None:
        sizes = [max(len(row[at][1]) for row in grid) + 2 for at in range(len(heads))]
        fits = sum(sizes[:-1]) + min(sizes[-1] - 2, _LAST_CHARS) <= width
        return _drawn(heads, grid, paint, width) if fits else _blocks(heads, rows, paint, width)
    widths = [max(len(row[at][1]) for row in grid) for at in range(len(heads) - 1)]
    return "\n".join(
        "  ".join(
            [
                paint(tone, text.rjust(size) if head.startswith(">") else text.ljust(size))
                for (tone, text), size, head in zip(row, widths, heads, strict=False)
            ]
            + [paint(*row[-1])]
        ).rstrip()
        for row in grid
    )


def _blocks(heads: Sequence[str], rows: Sequence[Sequence[Cell]], paint: Paint, width: int) -> str:
    """Render each row as its first cell, and the others below it with their heads."""
    lines = []
    for first, *others in rows:
        lines.append(paint(*first))
        left = 0
        for head, (tone, text) in zip(heads[1:], others, strict=True):
            name = head.lstrip(">").lower()
            size = len(name) + len(text) + 4
            if text and size > left:
                lines.append(" ")
                left = width - 1
            shown = _wrapped(text, width, indent=len(name) + 3) if size > width else text
            lines[-1] += f" {paint(Tone.DIM, name)} {paint(tone, shown)}  " if text else ""
            left -= size if text else 0
    return "\n".join(line.rstrip() for line in lines)


def _wrapped(text: str, width: int, *, indent: int) -> str:
    """Continue a sentence on the next lines; an id or a path stays whole. The first line begins at `indent`."""
    start = " " * indent
    return textwrap.fill(
        text, width, initial_indent=start, subsequent_indent=" " * 4, break_long_words=False, break_on_hyphens=False
    ).removeprefix(start)


def _drawn(heads: Sequence[str], grid: Sequence[Sequence[Cell]], paint: Paint, width: int) -> str:
    from rich.console import Console  # noqa: PLC0415 — slow to import, and a pipe does not need it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    made = Table.grid(padding=(0, 2, 0, 0))
    widths = [max(len(row[at][1]) for row in grid) for at in range(len(heads))]
    widths[-1] = min(widths[-1], max(10, width - sum(widths[:-1]) - 2 * len(widths[:-1])))
    for head, size in zip(heads, widths, strict=True):
        made.add_column(
            justify="right" if head.startswith(">") else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=size,
        )
    for row in grid:
        made.add_row(*(Text.from_ansi(paint(*cell), no_wrap=True, overflow="ellipsis") for cell in row))
    console = Console(width=width, color_system="standard", force_terminal=True, legacy_windows=False)
    with console.capture() as captured:
        console.print(made)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def hanging(text: str, stream: TextIO, *, indent: int) -> str:
    """Break a long line between words on a terminal; in a pipe it stays whole."""
    width = terminal_width(stream)
    if width is None:
        return text
    return textwrap.fill(text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def terminal_width(stream: TextIO) -> int | None:
    """Return the width of a terminal; None for a pipe or a file."""
    return shutil.get_terminal_size((80, 24)).columns if stream.isatty() else None


@contextmanager
def live_area(stream: TextIO, *, screen: bool = False) -> Iterator[Live]:
    """Open an area at the end of the terminal, or the whole screen, whose content can be replaced."""
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    console = Console(file=stream, highlight=False)
    with Live(console=console, auto_refresh=False, transient=True, screen=screen) as live:
        yield live


def show(live: Live, text: str) -> None:
    """Replace the content of a live area; lines are cut at the width of the terminal."""
    from rich.text import Text  # noqa: PLC0415

    live.update(Text.from_ansi(text, no_wrap=True, overflow="ellipsis"), refresh=True)


def print_above(live: Live, text: str) -> None:
    """Print a line above a live area."""
    from rich.text import Text  # noqa: PLC0415

    live.console.print(Text.from_ansi(text), soft_wrap=True)
