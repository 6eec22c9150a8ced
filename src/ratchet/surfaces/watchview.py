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


class WatchView:
    """Called with every state."""

    def __init__(self, stream: TextIO, *, root: Path) -> None:
        self.stream, self.root = stream, root
        self.terminal = stream.isatty()
        self.paint = painter(colour=self.terminal)
        self._told = ""

    def __call__(self, state: WatchState) -> None:
        if self.terminal:
            size = shutil.get_terminal_size()
            lines = [line[: size.columns * 4] for line in self.lines(state)][: size.lines - 1]
            self.stream.write("\x1b[H\x1b[2J" + "\n".join(lines) + "\n")
        elif (line := self.head(state)) != self._told:
            self._told = line
            self.stream.write(
                "\n".join([line, *self._failures(state, 3)]) + "\n" if self._is_news(state) else f"{line}\n"
            )
        self.stream.flush()

    @staticmethod
    def _is_news(state: WatchState) -> bool:
        return state.colour is Colour.RED

    def lines(self, state: WatchState) -> list[str]:
        changed = ", ".join(state.changed[:5]) + (
            f" and {len(state.changed) - 5} more" if len(state.changed) > 5 else ""
        )
        parts = [self.head(state)]
        parts += [f"  changed: {changed}"] if changed else []
        parts += [f"  {state.note}"] if state.note else []
        parts += self._failures(state, 10)
        parts += [f"  flaky: {', '.join(state.flaky[:5])}"] if state.flaky else []
        return parts

    def head(self, state: WatchState) -> str:
        totals = state.totals
        counts = f"{totals.passed} passed" if totals.tests else ""
        counts += f", {totals.failed + totals.errors} failed" if totals.failed + totals.errors else ""
        times = [f"affected {state.affected_s:.2f} s"] if state.affected_s is not None else []
        times += [f"everything {state.everything_s:.2f} s"] if state.everything_s is not None else []
        words = [self.paint(_TONES[state.colour], str(state.colour).upper()), _WORDS[state.stage]]
        words += [f"{state.chosen} chosen"] if state.stage is Stage.AFFECTED else []
        return " · ".join([*words, *([counts] if counts and state.stage is Stage.IDLE else []), *times])

    def _failures(self, state: WatchState, most: int) -> list[str]:
        lines = [
            self.paint(Tone.BAD, f"  ✗ {error.file}:{error.line} {error.type}: {_short(error.message)}")
            for error in state.broken[:most]
        ]
        for test in state.failing[:most]:
            lines += self._failure(test)
        left = len(state.failing) - most
        return lines + ([f"  … and {left} more"] if left > 0 else [])

    def _failure(self, test: TestResult) -> list[str]:
        lines = [self.paint(Tone.BAD, f"  ✗ {test.id}")]
        failure = test.failure
        if failure is None:
            return lines
        place = f"{failure.file}:{failure.line} " if failure.file else ""
        lines.append(f"      {place}{failure.type}: {_short(failure.message)}")
        if failure.expected is not None or failure.actual is not None:
            lines.append(f"      expected {_short(wanted(failure) or '')}")
            lines.append(f"      actual   {_short(failure.actual or '')}")
        return lines


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _VALUE_CHARS else f"{line[:_VALUE_CHARS]}…"
