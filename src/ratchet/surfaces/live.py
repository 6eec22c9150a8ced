"""The live view: a terminal gets a status line that follows the run, a pipe gets plain lines."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

from ratchet.agents import Said, Text, ToolCall
from ratchet.core import events as ev
from ratchet.core.ledger import Entry
from ratchet.core.state import RunState
from ratchet.surfaces.paint import painter
from ratchet.surfaces.story import line_of, render, status_line


class Live:
    """Satisfies the engine's Watcher."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.terminal = stream.isatty()
        self.paint = painter(colour=self.terminal)
        self.began = time.monotonic()
        self.state: RunState | None = None
        self.note = ""

    def __call__(self, _entry: Entry, event: ev.Event, state: RunState) -> None:
        self.state, self.note = state, ""
        self._wipe()
        if line := line_of(event):
            self.stream.write(render(line, time.monotonic() - self.began, self.paint) + "\n")
        self._status()
        self.stream.flush()

    def tell(self, said: Said) -> None:
        """What an agent says passes by in the status line; it is kept in the log."""
        if not self.terminal:
            return
        match said:
            case Text(text):
                self.note = text.strip().splitlines()[-1] if text.strip() else ""
            case ToolCall(name, detail):
                self.note = f"{name} {detail}"
        self._wipe()
        self._status()
        self.stream.flush()

    def close(self) -> None:
        self._wipe()
        self.stream.flush()

    def _wipe(self) -> None:
        if self.terminal:
            self.stream.write("\r\x1b[K")

    def _status(self) -> None:
        if not self.terminal or self.state is None or self.state.final:
            return
        text = status_line(self.state, time.monotonic() - self.began)
        width = shutil.get_terminal_size().columns - 1
        self.stream.write(f"\x1b[2m{f'{text} · {self.note}'.rstrip(' ·')[:width]}\x1b[0m")


def silent(_entry: Entry, _event: ev.Event, _state: RunState) -> None:
    """For who wants only the result."""


def stderr_or_stdout(*, as_json: bool) -> TextIO:
    """With `--json` the talk goes to stderr, so that stdout holds data only."""
    return sys.stderr if as_json else sys.stdout
