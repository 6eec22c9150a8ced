"""Makes text safe for a terminal: what agents and tests wrote could move its cursor, set its title or its clipboard."""

from __future__ import annotations

import re
from typing import TextIO

# Colours are kept. Among the others are controls of 8-bit terminals, and those that reverse the order of letters.
_CONTROLS = re.compile(r"(\x1b\[[0-9;]*m)|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str, stream: TextIO) -> str:
    """Return the text with control characters spelled out if it goes to a terminal; pipes and files get it as it is."""
    return _CONTROLS.sub(_spelled, text) if stream.isatty() else text


def _spelled(found: re.Match[str]) -> str:
    return found[1] or found[0].encode("unicode_escape").decode()
