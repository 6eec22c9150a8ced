"""Globs written by users and in their projects, with one meaning on every Python version."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path


def find(folder: Path, pattern: str) -> Iterator[Path]:
    """Find what matches below a folder. `**` within a longer name means `*`, as in a shell; at the end, all below.

    Up to Python 3.12, pathlib rejects the first and finds only directories for the second.
    """
    parts = [part if part == "**" else re.sub(r"\*{2,}", "*", part) for part in pattern.split("/")]
    return folder.glob("/".join([*parts, "*"] if parts[-1] == "**" else parts))
