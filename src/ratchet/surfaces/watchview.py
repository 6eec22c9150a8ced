"""The live view of a watch: on a terminal one screen that is always the present; in a pipe one line for each news."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TextIO

from ratchet.core.report import TestResult, wanted
from ratchet.core.watching import Colour, Stage, WatchState
from ratchet.surfaces.paint import Tone, painter

_TONES = {Colour.GREEN: Tone.GOOD, Colour.RED: Tone.BAD, Colour.PENDING: Tone.PLAIN}
_WORDS = {
    Stage.STARTING: "the tree moved",
    Stage.AFFECTED: "running what the change can reach",
    Stage.EVERYTHING: "running everything",
    Stage.IDLE: "waiting for a change",
    Stage.GONE: "the tree is gone",
}
_VALUE_CHARS = 300


Line = tuple[Tone, str]


class WatchView:
    """Called with every state; `again` shows the last one anew, as when the terminal has another size."""

    def __init__(self, stream: TextIO, *, root: Path) -> None:
        self.stream, self.root = stream, root
        self.terminal = stream.isatty()
        self.paint = painter(colour=self.terminal)
        self._told, self._last = "", WatchState()

    def __call__(self, state: WatchState) -> None:
        self._last = state
        if self.terminal:
            self.again()
        elif (head := self.head(state)) != self._told:
            self._told = head
            self._write("\n".join([head, *(text for _, text in self._news(state))]))

    def again(self) -> None:
        """The screen as it is now: the colour first and always in sight, however narrow or low it is."""
        size = shutil.get_terminal_size()
        rows = [row for line in self.lines(self._last) for row in _wrapped(line, size.columns)]
        most = max(2, size.lines) - 1
        if len(rows) > most > 1:
            rows[most - 1] = (Tone.DIM, f"… {len(rows) - most + 1} more lines"[: size.columns])
        self._write("\x1b[H\x1b[2J" + "\n".join(self.paint(*row) for row in rows[:most]))

    def _write(self, text: str) -> None:
        self.stream.write(f"{text}\n")
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
        words += [f"{state.chosen} chosen"] if state.stage is Stage.AFFECTED else []
        words += [_counts(state)] if state.totals.tests and state.stage is Stage.IDLE else []
        words += [f"affected {state.affected_s:.2f} s"] if state.affected_s is not None else []
        words += [f"everything {state.everything_s:.2f} s"] if state.everything_s is not None else []
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
        texts += [f"expected {_short(wanted(failure) or '')}", f"actual   {_short(failure.actual or '')}"]
    return found + [(Tone.PLAIN, f"      {text}") for text in texts]


def _wrapped(line: Line, columns: int) -> list[Line]:
    """Broken where the terminal would, so that its rows can be counted; what follows is indented as its beginning."""
    tone, text = line
    indent = " " * min(len(text) - len(text.lstrip()), columns // 3)
    rows, rest = [text[:columns]], text[columns:]
    width = max(1, columns - len(indent))
    rows += [f"{indent}{rest[at : at + width]}" for at in range(0, len(rest), width)]
    return [(tone, row) for row in rows]


def _short(text: str) -> str:
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= _VALUE_CHARS else f"{line[:_VALUE_CHARS]}…"
