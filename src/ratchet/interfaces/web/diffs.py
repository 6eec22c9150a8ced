"""Turns a unified diff into table rows, with the code highlighted on the server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

import msgspec
from markupsafe import Markup, escape
from pygments import lex
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.token import Token
from pygments.util import ClassNotFound

from ratchet.core import diffs
from ratchet.core.diffs import read_diff

LINES_MAX = 1_500
CHARS_MAX, TIME_MAX_S = 200, 0.5
# Three tones: a diff already has two colours of its own.
_TONES = ((Token.Comment, "c"), (Token.Keyword, "k"), (Token.Literal.String, "s"))


class DiffLine(msgspec.Struct, frozen=True):
    kind: str
    number: str
    code: Markup


class FileDiff(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    added: int
    removed: int
    lines: list[DiffLine]


def parse(text: str) -> list[FileDiff]:
    """Split a diff by files; stop after `LINES_MAX` lines. Highlighting stops when its time is over."""
    files: list[FileDiff] = []
    left, highlighter = LINES_MAX, Highlighter()
    for file in read_diff(text):
        if left > 0:
            files.append(_file(file, left, highlighter))
            left -= len(files[-1].lines)
    return files


def _file(file: diffs.DiffFile, most: int, highlighter: Highlighter) -> FileDiff:
    body = [line for hunk in file.hunks for line in hunk.lines]
    lexer = _lexer(file.path)
    return FileDiff(
        path=file.path,
        added=sum(line.startswith("+") for line in body),
        removed=sum(line.startswith("-") for line in body),
        lines=[_row(number, line, lexer, highlighter) for number, line in islice(_numbered(file), most)],
    )


def _numbered(file: diffs.DiffFile) -> Iterator[tuple[int, str]]:
    for hunk in file.hunks:
        yield 0, hunk.head
        yield from hunk.numbered()


def _row(number: int, line: str, lexer: Lexer | None, highlighter: Highlighter) -> DiffLine:
    if line[:1] in ("@", "\\"):
        return DiffLine("hunk", "", escape(line))
    kind = {"+": "add", "-": "del"}.get(line[:1], "")
    code = Markup(f"{escape(line[:1] or ' ')} ") + highlighter.highlight(line[1:].removesuffix("\r"), lexer)
    return DiffLine(kind, "" if kind == "del" else str(number), code)


@lru_cache(maxsize=64)
def _lexer(path: str) -> Lexer | None:
    try:
        return get_lexer_for_filename(path.rpartition("/")[2], stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


class Highlighter:
    """Highlights lines until its time is over: lexers that agents choose by a file's name take time with the square, or
    worse, of a line's length. A single line takes a few milliseconds at most."""

    def __init__(self) -> None:
        self._left_s = TIME_MAX_S

    def highlight(self, code: str, lexer: Lexer | None) -> Markup:
        if lexer is None or len(code) > CHARS_MAX or self._left_s <= 0:
            return escape(code)
        begun = time.monotonic()
        try:
            return Markup("").join(_token(kind, text) for kind, text in lex(code, lexer))
        finally:
            self._left_s -= time.monotonic() - begun


def _token(kind: object, text: str) -> Markup:
    tone = next((name for parent, name in _TONES if kind in parent), "")
    return Markup(f'<i class="{tone}">{escape(text)}</i>') if tone else escape(text)
