"""Reads JSON of unknown shape: every accessor returns the right type, and a damaged document gives what it has."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from ratchet.checks.formats.text import TEXT_LIMIT, clip, strip_control_characters

DOCUMENT_LIMIT = 64 << 20  # decoding takes about seven times as much
_DEPTH = 200
_TRIES = 5  # repairing a document scans all of it
_BIG = 1 << 31
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*"|[{}\[\]]', re.S)
_DECODER = json.JSONDecoder(strict=False)

Table = dict[str, Any]


def text(table: Table, key: str, limit: int = TEXT_LIMIT) -> str:
    value = table.get(key)
    return clip(strip_control_characters(value), limit) if isinstance(value, str) else ""


def whole(table: Table, key: str) -> int:
    value = table.get(key)
    return int(value) if isinstance(value, (int, float)) and 0 <= value < _BIG else 0


def number(table: Table, key: str) -> float:
    value = table.get(key)
    if not isinstance(value, (int, float)) or not 0 <= value < _BIG or not math.isfinite(value):
        return 0.0
    return round(float(value), 6)


def table(table: Table, key: str) -> Table:
    value = table.get(key)
    return value if isinstance(value, dict) else {}


def tables(table: Table, key: str) -> list[Table]:
    value = table.get(key)
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def texts(table: Table, key: str) -> list[str]:
    value = table.get(key)
    return (
        [clip(strip_control_characters(row)) for row in value if isinstance(row, str)]
        if isinstance(value, list)
        else []
    )


def shown(value: object) -> str:
    """Format a JSON value for comparison: strings unchanged, everything else as compact JSON."""
    if isinstance(value, str):
        return clip(strip_control_characters(value))
    try:
        return clip(strip_control_characters(json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError):
        return "…"


def shown_in(table: Table, key: str) -> str | None:
    return shown(table[key]) if key in table else None


def row(line: str) -> Table:
    """Decode one line of a JSON stream; empty if it is not an object."""
    if not line.startswith("{"):
        return {}
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def document(stream: BinaryIO, *, mark: str) -> tuple[Table, bool]:
    """Return the object with the key `mark`, anywhere in the stream, and whether it is complete."""
    source = stream.read(DOCUMENT_LIMIT).decode("utf-8", "replace")
    starts = list(_starts(source, mark))
    for start in starts:
        if mark in (found := _decode(source, start)):
            return found, True
    for start in starts[:_TRIES]:
        if mark in (found := _salvage(source[start:])):
            return found, False
    return {}, False


_OPENING = re.compile(r"""^[ \t]*(?=[\[{]\s*["\[{\]}])""", re.M)
_FOLLOWING = re.compile(r"\s*(?=[\[{])")


def rows(stream: BinaryIO, *, mark: str) -> tuple[list[Table], bool]:
    """Return every object with the key `mark`, from an array or consecutive documents, and whether all are complete."""
    source = stream.read(DOCUMENT_LIMIT).decode("utf-8", "replace")
    found: list[Table] = []
    whole, tries, next_ = True, _TRIES, None
    start = _OPENING.search(source) if f'"{mark}"' in source else None
    while start and tries:
        value, end = _value(source, start.end())
        if value is None:
            tries -= 1
            value = _salvaged(source[start.end() :])
            # The rest is damaged, unless it is only a line that looks like a document.
            torn = bool(_marked(value, mark)) or next_ is start
            whole, end = (False, len(source)) if torn else (whole, start.end() + 1)
        found += _marked(value, mark)
        next_ = _FOLLOWING.match(source, end)
        start = next_ or _OPENING.search(source, end)
    return found, whole and bool(found)


def _marked(value: object, mark: str) -> list[Table]:
    every = value if isinstance(value, list) else [value]
    return [row for row in every if isinstance(row, dict) and mark in row]


def _value(source: str, start: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(source, start)
    except (ValueError, RecursionError):
        return None, start


def _starts(source: str, mark: str) -> Iterator[int]:
    """Yield where the object may begin: before its mark, preferably at the beginning of a line."""
    end = source.find(f'"{mark}"')
    found = [match.start() for match in re.finditer(r"^[ \t]*\{", source[:end], re.M)][:50] if end >= 0 else []
    yield from found
    if end >= 0 and (loose := source.rfind("{", 0, end)) >= 0:
        yield loose


def _decode(source: str, start: int) -> Table:
    try:
        found, _ = _DECODER.raw_decode(source, source.index("{", start))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _salvage(source: str) -> Table:
    found = _salvaged(source)
    return found if isinstance(found, dict) else {}


def _salvaged(source: str) -> Any:
    """Repair a damaged document by closing it after its last complete value."""
    cut, closers = _last_complete(source)
    try:
        return _DECODER.decode(source[:cut].strip() + closers) if cut else None
    except (ValueError, RecursionError):
        return None


def _last_complete(source: str) -> tuple[int, str]:
    cut, closers, open_ = 0, "", []
    for match in _TOKEN.finditer(source):
        sign = match.group()
        if sign in "{[":
            open_.append("}" if sign == "{" else "]")
            if len(open_) > _DEPTH:
                break
        elif sign in "}]":
            if not open_ or open_.pop() != sign:
                break
            cut, closers = match.end(), "".join(reversed(open_))
    return cut, closers
