"""What cheat detection looks at and what it finds."""

from __future__ import annotations

import difflib

import msgspec


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A file that differs; None where it does not exist."""

    path: str
    before: str | None
    after: str | None

    def added(self) -> list[tuple[int, str]]:
        """The lines that are new, with their numbers in the new file."""
        old, new = (self.before or "").splitlines(), (self.after or "").splitlines()
        blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        return [(at + 1, new[at]) for tag, _, _, first, last in blocks if tag != "equal" for at in range(first, last)]


class Cheat(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    line: int
    rule: str
    detail: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.detail}"
