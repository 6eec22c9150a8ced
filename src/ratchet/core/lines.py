"""Splits text into lines as git, Python and tools number them.

`str.splitlines` also ends lines at form feeds, separators and other characters that editors show within a line: what
numbers or names lines by it can be misled by whoever writes them. So it is not used where lines have an identity.
"""

from __future__ import annotations

import re

# At these some languages end a line where git ends none: Python at a carriage return, JavaScript and C# at others too.
_OTHER_ENDS = re.compile("\r(?!\n)|[\x85\u2028\u2029]")


def split_lines(text: str) -> list[str]:
    """Return the lines without their ends, a line feed or both carriage return and line feed."""
    rows = text.split("\n")
    if not rows[-1]:
        rows.pop()
    return [row.removesuffix("\r") for row in rows] if "\r" in text else rows


def has_other_ends(text: str) -> bool:
    """Whether some language may count other lines than `split_lines`."""
    return bool(_OTHER_ENDS.search(text))


def every_line(text: str) -> set[int]:
    """Return the numbers of all lines, however they are counted."""
    return set(range(1, len(text.splitlines()) + 2))
