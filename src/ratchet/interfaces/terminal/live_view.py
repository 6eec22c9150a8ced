"""Live view of a run: a status line on a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, TextIO

from ratchet.agents.protocol import Text, ToolCall, TurnEvent
from ratchet.core import events as ev
from ratchet.core.card import RunCard, advance
from ratchet.core.ledger import Entry
from ratchet.core.state import RunState
from ratchet.interfaces.terminal.colour import Tone, painter
from ratchet.interfaces.terminal.layout import live_area, print_above, show, terminal_width
from ratchet.interfaces.terminal.narrative import event_line, render, status_line

if TYPE_CHECKING:
    from rich.live import Live


_ENDS = (ev.RunCompleted, ev.RunFailed, ev.RunParked, ev.RunReturned, ev.RunAborted)


class LiveView:
    """Prints each event of a run, on a terminal above a status line. Implements the engine's `Watcher`.

    With `quiet` it prints only how the run ends."""

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self.stream, self.quiet = stream, quiet
        self.terminal = stream.isatty()
        self.paint = painter(colour=self.terminal)
        self.began = time.monotonic()
        self.state: RunState | None = None
        self.note = ""
        self.card = RunCard()
        self._opened = ExitStack()
        self._live: Live | None = None

    def __call__(self, entry: Entry, event: ev.Event, state: RunState) -> None:
        if self.quiet and type(event) not in _ENDS:
            return
        self.state, self.note = state, ""
        self.card = advance(self.card, entry.at, event)
        if line := event_line(event):
            width = terminal_width(self.stream)
            self._print(render(line, time.monotonic() - self.began, self.paint, width=width))
        self._show_status()

    def on_agent_event(self, event: TurnEvent) -> None:
        """Show the agent's latest text or tool call in the status line; the full output is in the log."""
        if not self.terminal or self.quiet:
            return
        match event:
            case Text(text):
                self.note = text.strip().splitlines()[-1] if text.strip() else ""
            case ToolCall(name, detail):
                self.note = f"{name} {detail}"
        self._show_status()

    def close(self) -> None:
        self._live = None
        self._opened.close()
        self.stream.flush()

    def _print(self, text: str) -> None:
        if self.terminal:
            print_above(self._area(), text)
        else:
            self.stream.write(f"{text}\n")
            self.stream.flush()

    def _show_status(self) -> None:
        if not self.terminal or self.quiet or self.state is None:
            return
        status = f"{small_picture(self.card.shape)} {status_line(self.state, time.monotonic() - self.began)}".strip()
        text = "" if self.state.final else f"{status} · {self.note}".rstrip(" ·")
        show(self._area(), self.paint(Tone.DIM, _plain(text)))

    def _area(self) -> Live:
        if self._live is None:
            self._live = self._opened.enter_context(live_area(self.stream))
        return self._live


_GLYPHS = {
    "k": "\N{BLACK LOWER RIGHT TRIANGLE}",
    "r": "\N{BALLOT X}",
    "s": "\N{WHITE HEXAGON}",
    "n": "\N{BLACK RIGHT-POINTING SMALL TRIANGLE}",
}


def small_picture(shape: str, width: int = 24) -> str:
    """Draw the attempts of a run, one character each: a tooth, a slip, one caught by a sealed test, and now."""
    return "".join(_GLYPHS[end] for end in shape[-width:])


def _plain(text: str) -> str:
    """Replace control characters: an agent's text is not trusted."""
    return "".join(char if char.isprintable() else " " for char in text)


def ignore_event(_entry: Entry, _event: ev.Event, _state: RunState) -> None:
    """Ignore the event: a watcher for commands that print only the result."""


def stderr_or_stdout(*, as_json: bool) -> TextIO:
    """Return stderr with `--json`, so that stdout contains only JSON."""
    return sys.stderr if as_json else sys.stdout
