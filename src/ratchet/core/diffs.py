"""Reads unified diffs as git prints them: the only place that does.

Lines end at line feeds only, and a hunk has as many lines as its header says: no line of a file is taken for a header.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

# Nine digits: a forged header must not name more lines than can be counted.
_HUNK = re.compile(r"@@ -([0-9]{1,9})(?:,([0-9]{1,9}))? \+([0-9]{1,9})(?:,([0-9]{1,9}))? @@")
_ESCAPED = re.compile(rb'\\([0-7]{3}|[abtnvfr"\\])')
_ESCAPES = dict(zip(b'abtnvfr"\\', b'\a\b\t\n\v\f\r"\\', strict=True))


class Hunk(msgspec.Struct, frozen=True, kw_only=True):
    """`lines` have their sign: `+`, `-`, a space, or a backslash for git's remark about the end of the file.
    `first` and `count` say which lines of the new file it shows."""

    head: str
    first: int
    count: int
    lines: list[str]

    def numbered(self) -> Iterator[tuple[int, str]]:
        """Yield each line with its number in the new file, for a removed line that of the one after it."""
        number = self.first
        for line in self.lines:
            yield number, line
            number += line[:1] not in ("-", "\\")


class DiffFile(msgspec.Struct, kw_only=True):
    """`path` is that of the new file, or of the old one if the file is removed."""

    path: str
    removed: bool = False
    hunks: list[Hunk] = []

    def added(self) -> set[int]:
        return {number for hunk in self.hunks for number, line in hunk.numbered() if line.startswith("+")}


def read_diff(text: str) -> list[DiffFile]:
    """Return the files of a diff. A file whose content git does not show (binary, or only renamed) has no hunks."""
    files: list[DiffFile] = []
    rows = text.split("\n")
    at, named = 0, True  # named: the last file has its paths, so that another pair of them begins another file
    while at < len(rows):
        row, after = rows[at], rows[at + 1] if at + 1 < len(rows) else ""
        if row.startswith("diff --git "):
            files.append(DiffFile(path=_path(_second_name(row))))
            named = False
        elif row.startswith("--- ") and after.startswith("+++ "):
            files += [DiffFile(path="")] * named
            files[-1], named, at = _named(row[4:], after[4:]), True, at + 1
        elif files and (head := _HUNK.match(row)):
            files[-1].hunks.append(_hunk(head, rows, at))
            at += len(files[-1].hunks[-1].lines)
        at += 1
    return files


def _second_name(row: str) -> str:
    sign = ' "b/' if row.endswith('"') else " b/"
    return sign[1:] + row.rpartition(sign)[2]


def _named(old: str, new: str) -> DiffFile:
    removed = new == "/dev/null"
    return DiffFile(path=_path(old if removed else new), removed=removed)


def _hunk(head: re.Match[str], rows: list[str], at: int) -> Hunk:
    """Take the lines that the header announces. A diff that was cut ends sooner."""
    old, count = (1 if number is None else int(number) for number in (head[2], head[4]))
    new, end = count, at + 1
    while end < len(rows) and (old > 0 or new > 0 or rows[end].startswith("\\")):
        # `diff.suppressBlankEmpty` leaves out the space of an empty line.
        sign = rows[end][:1] or (" " if end + 1 < len(rows) else "")
        if sign not in ("+", "-", " ", "\\"):
            break
        old -= sign in ("-", " ")
        new -= sign in ("+", " ")
        end += 1
    return Hunk(head=rows[at], first=int(head[3]), count=count, lines=rows[at + 1 : end])


def _path(name: str) -> str:
    """Return the path without git's prefix and quotes; what follows a tab is a time, or nothing."""
    if name.startswith('"'):
        raw = name[1:].rpartition('"')[0].encode(errors="surrogateescape")
        name = _ESCAPED.sub(_character, raw).decode(errors="surrogateescape")
    else:
        name = name.partition("\t")[0]
    return name[2:] if name[:2] in ("a/", "b/") else name


def _character(found: re.Match[bytes]) -> bytes:
    code = found[1]
    return bytes([int(code, 8) & 255] if len(code) == 3 else [_ESCAPES[code[0]]])
