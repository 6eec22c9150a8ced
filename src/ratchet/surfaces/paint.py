"""Colour, where a terminal shows it."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import StrEnum


class Tone(StrEnum):
    PLAIN = "plain"
    DIM = "dim"
    GOOD = "good"
    BAD = "bad"
    WARN = "warn"
    GOOD_MARK = "good mark"
    BAD_MARK = "bad mark"


_CODES = {
    Tone.PLAIN: "",
    Tone.DIM: "\x1b[2m",
    Tone.GOOD: "\x1b[32m",
    Tone.BAD: "\x1b[31m",
    Tone.WARN: "\x1b[33m",
    Tone.GOOD_MARK: "\x1b[7;32m",
    Tone.BAD_MARK: "\x1b[7;31m",
}
MARKED = {Tone.GOOD: Tone.GOOD_MARK, Tone.BAD: Tone.BAD_MARK}
Paint = Callable[[Tone, str], str]


def painter(*, colour: bool) -> Paint:
    """`NO_COLOR` in the environment is asked everywhere in the same way: https://no-color.org."""
    colour = colour and not os.environ.get("NO_COLOR")
    return (lambda tone, text: f"{_CODES[tone]}{text}\x1b[0m" if _CODES[tone] else text) if colour else _plain


def _plain(_tone: Tone, text: str) -> str:
    return text
