"""The input and the output of cheat detection."""

from __future__ import annotations

import difflib
from functools import lru_cache

import msgspec

from ratchet.core.lines import split_lines


@lru_cache(maxsize=256)  # every rule needs it, and comparing is expensive
def _added(before: str, after: str) -> tuple[tuple[int, str], ...]:
    old, new = split_lines(before), split_lines(after)
    same = 0  # equal lines at both ends need not be compared
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    tail = 0
    while tail < min(len(old), len(new)) - same and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    middle = new[same : len(new) - tail]
    blocks = difflib.SequenceMatcher(None, old[same : len(old) - tail], middle, autojunk=False).get_opcodes()
    places = [at for tag, _, _, first, last in blocks if tag != "equal" for at in range(first, last)]
    return tuple((same + at + 1, shorten(middle[at])) for at in places)


LINE_MAX = 2000


def shorten(line: str) -> str:
    """Return the beginning of a line that nobody wrote by hand: some rules take time with the square of its length."""
    return line if len(line) <= LINE_MAX else " ".join(line.split())[:LINE_MAX]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A file that differs; None on the side where it does not exist."""

    path: str
    before: str | None
    after: str | None

    def added(self) -> list[tuple[int, str]]:
        """Return the added lines with their numbers in the new file."""
        return list(_added(self.before or "", self.after or ""))


class Cheat(msgspec.Struct, frozen=True, kw_only=True):
    """A finding. `doubt`: honest work may look the same, and only the spec can tell."""

    file: str
    line: int
    rule: str
    detail: str
    doubt: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.detail}"
