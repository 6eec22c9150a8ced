"""Terminal colours."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import click


class Tone(StrEnum):
    PLAIN = "plain"
    DIM = "dim"
    GOOD = "good"
    BAD = "bad"
    WARN = "warn"
    GOOD_MARK = "good mark"
    BAD_MARK = "bad mark"


_STYLES: dict[Tone, dict[str, Any]] = {
    Tone.DIM: {"dim": True},
    Tone.GOOD: {"fg": "green"},
    Tone.BAD: {"fg": "red"},
    Tone.WARN: {"fg": "yellow"},
    Tone.GOOD_MARK: {"fg": "green", "reverse": True},
    Tone.BAD_MARK: {"fg": "red", "reverse": True},
}
MARKED = {Tone.GOOD: Tone.GOOD_MARK, Tone.BAD: Tone.BAD_MARK}
Paint = Callable[[Tone, str], str]


def painter(*, colour: bool) -> Paint:
    """Return a function that colours text, or leaves it plain without `colour` or with `NO_COLOR` (https://no-color.org)."""
    if not colour or os.environ.get("NO_COLOR"):
        return lambda _tone, text: text
    return lambda tone, text: click.style(text, **_STYLES[tone]) if tone in _STYLES else text
