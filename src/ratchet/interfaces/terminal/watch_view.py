"""Live view of `ratchet watch`: a full screen on a terminal, one line per change in a pipe."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from ratchet.core.report import TestResult, expected_text
from ratchet.core.watch import Colour, WatchStage, WatchState
from ratchet.interfaces.terminal.colour import Tone, painter
from ratchet.interfaces.terminal.printable import printable

_TONES = {Colour.GREEN: Tone.GOOD, Colour.RED: Tone.BAD, Colour.PENDING: Tone.PLAIN}
_WORDS = {
    WatchStage.STARTING: "the tree changed",
    WatchStage.AFFECTED: "running affected tests",
    WatchStage.EVERYTHING: "running all tests",
    WatchStage.IDLE: "waiting for a change",
    WatchStage.GONE: "the tree was removed",
}
_VALUE_CHARS = 300
_KEYS = "a all · f failed · Enter run · q quit"


Line = tuple[Tone, str]


class WatchView:
    """Prints every state; `redraw` repaints the last one, as after a resize of the terminal."""

    def __init__(self, stream: TextIO, *, root: Path, keys: bool = False) -> None:
        self.stream, self.root, self.keys = stream, root, keys
        self.terminal = stream.isatty()
        self.paint = painter(colour=self.terminal)
        self._printed, self._last = "", WatchState()

    def __call__(self, state: WatchState) -> None:
        self._last = state
        if self.terminal:
            self.redraw()
        elif (head := self.head(state)) != self._printed:
            self._printed = head
            self._write("\n".join([head, *(text for _, text in self._news(state))]))

    def redraw(self) -> None:
        """Repaint the screen; the first line with the result is always visible."""
        from rich.console import Console  # noqa: PLC0415 — slow to import, and a pipe does not need it
        from rich.text import Text  # noqa: PLC0415

        console = Console(file=self.stream, highlight=False, legacy_windows=False)
        texts = [Text.from_ansi(self.paint(*line), end="") for line in self.lines(self._last)]
        rows = [row for text in texts for row in text.wrap(console, console.width, overflow="fold")]
        most = max(2, console.height) - (2 if self.keys else 1)
        if len(rows) > most > 1:
            rows[most - 1 :] = [Text(f"… {len(rows) - most + 1} more lines"[: console.width], "dim")]
        console.clear()
        below = [Text(_KEYS[: console.width], "dim")] if self.keys else []
        console.print(Text("\n").join([*rows[:most], *below]))

    def _write(self, text: str) -> None:
        self.stream.write(f"{printable(text, self.stream)}\n")
        self.stream.flush()

    def lines(self, state: WatchState) -> list[Line]:
        changed = ", ".join(state.changed[:5])
        changed += f" and {len(state.changed) - 5} more" if len(state.changed) > 5 else ""
        found: list[Line] = [(_TONES[state.colour], f"{self.head(state)} · {self.root.name}")]
        found += [(Tone.DIM, f"  changed: {changed}")] if changed else []
        found += [(Tone.WARN, f"  {row}") for row in state.note.splitlines()]
        found += _failures(state, 10)
        found += [(Tone.WARN, f"  flaky: {', '.join(state.flaky[:5])}")] if state.flaky else []
        return found

    @staticmethod
    def head(state: WatchState) -> str:
        words = [str(state.colour).upper(), _WORDS[state.stage]]
        words += [f"{state.chosen} selected"] if state.stage is WatchStage.AFFECTED else []
        words += [_counts(state)] if state.totals.tests and state.stage is WatchStage.IDLE else []
        words += [f"affected {state.affected_s:.2f} s"] if state.affected_s is not None else []
        words += [f"all {state.everything_s:.2f} s"] if state.everything_s is not None else []
        return " · ".join(words)

    @staticmethod
    def _news(state: WatchState) -> list[Line]:
        if state.colour is not Colour.RED:
            return []
        return [(Tone.PLAIN, f"  {row}") for row in state.note.splitlines()] + _failures(state, 3)


def _counts(state: WatchState) -> str:
    failed = state.totals.failed + state.totals.errors
    return f"{state.totals.passed} passed" + (f", {failed} failed" if failed else "")


def _failures(state: WatchState, most: int) -> list[Line]:
    found = [
        (Tone.BAD, f"  ✗ {error.file}:{error.line} {error.type}: {_short(error.message)}")
        for error in state.broken[:most]
    ]
    for test in state.failing[:most]:
        found += _failure(test)
    left = len(state.failing) - most
    return found + ([(Tone.PLAIN, f"  … and {left} more")] if left > 0 else [])


def _failure(test: TestResult) -> list[Line]:
    found, failure = [(Tone.BAD, f"  ✗ {_short(test.id)}")], test.failure
    if failure is None:
        return found
    place = f"{failure.file}:{failure.line} " if failure.file else ""
    texts = [f"{place}{failure.type}: {_short(failure.message)}"]
    if failure.expected is not None or failure.actual is not None:
        texts += [f"expected {_short(expected_text(failure) or '')}", f"actual   {_short(failure.actual or '')}"]
    return found + [(Tone.PLAIN, f"      {text}") for text in texts]


def _short(text: str) -> str:
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= _VALUE_CHARS else f"{line[:_VALUE_CHARS]}…"
