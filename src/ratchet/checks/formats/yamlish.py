"""Reads the subset of YAML that test runners write: nested keys, quoted strings, block texts. Returns flat, dotted
keys."""

from __future__ import annotations

import re

_KEY = re.compile(r"""^(?P<indent> *)(?:- )?(?P<key>"[^"]*"|'[^']*'|[^\s:#'"{\[][^:]*?)\s*:(?:\s+(?P<value>.*))?$""")
_BLOCK = re.compile(r"^[|>](?:[+-]?(?P<after>\d)?|(?P<before>\d)[+-])$")


def read(rows: list[str]) -> dict[str, str]:
    """Return every scalar by its path; unknown syntax is skipped."""
    fields: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    index = 0
    while index < len(rows):
        match = _KEY.match(rows[index])
        index += 1
        if not match:
            continue
        indent, value = len(match.group("indent")), (match.group("value") or "").strip()
        path = [(depth, key) for depth, key in path if depth < indent][:20]
        path.append((indent, _unquoted(match.group("key"))))
        name = ".".join(key for _, key in path)
        if block := _BLOCK.match(value):
            margin = indent + int(block["after"] or block["before"] or 0)
            fields[name], index = _block(rows, index, indent, margin, folded=value.startswith(">"))
        elif value in _CLOSED_BY and (end := _closing(rows, index, indent, _CLOSED_BY[value])):
            fields.setdefault(name, "\n".join([value, *(row[indent:] for row in rows[index : end + 1])]))
            index = end + 1
        elif value:
            fields.setdefault(name, _unquoted(value))
    return fields


_CLOSED_BY = {"{": "}", "[": "]"}


def _closing(rows: list[str], index: int, indent: int, sign: str) -> int:
    """Return the end of a bracketed value that spans several rows, as QUnit writes them."""
    margin = " " * indent
    return next((at for at in range(index, len(rows)) if rows[at].rstrip() == f"{margin}{sign}"), 0)


def _block(rows: list[str], index: int, indent: int, margin: int, *, folded: bool) -> tuple[str, int]:
    """Return the text below a key. The margin is given explicitly if its first row begins with spaces."""
    begin = index
    while index < len(rows) and (not rows[index].strip() or _indent(rows[index]) > indent):
        index += 1
    body = rows[begin:index]
    if margin == indent:
        margin = min((_indent(row) for row in body if row.strip()), default=0)
    own = [row[margin:] for row in body]
    return (_folded(own) if folded else "\n".join(own)).strip("\n"), index


def _folded(rows: list[str]) -> str:
    """Fold lines: a single line end becomes a space, further ones stay, except around indented rows."""
    text, before, blanks = "", "", 0
    for row in rows:
        if not row.strip():
            blanks += 1
            continue
        kept = before.startswith(" ") or row.startswith(" ")
        text += "\n" * (blanks + kept) or " "
        text, before, blanks = text + row, row, 0
    return text.removeprefix(" ")


def _indent(row: str) -> int:
    return len(row) - len(row.lstrip(" "))


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] == "'":
        return value[1:-1].replace("''", "'")
    if len(value) > 1 and value[0] == value[-1] == '"':
        return value[1:-1].replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")
    return value.removeprefix('"')
