"""Turns a unified diff into table rows, with the code highlighted on the server."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec
from markupsafe import Markup, escape
from pygments import lex
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.token import Token
from pygments.util import ClassNotFound

LINES_MAX = 1_500
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)")
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
    """Split a diff by files; stop after `LINES_MAX` lines."""
    files: list[FileDiff] = []
    left = LINES_MAX
    for chunk in re.split(r"(?m)^(?=diff --git )", text):
        if chunk.startswith("diff --git ") and left > 0:
            files.append(_file(chunk.splitlines(), left))
            left -= len(files[-1].lines)
    return files


def _file(lines: list[str], most: int) -> FileDiff:
    path = next((line[6:] for line in lines if line.startswith("+++ b/")), "") or next(
        (line[6:] for line in lines if line.startswith("--- a/")), lines[0].rpartition(" b/")[2]
    )
    rows: list[DiffLine] = []
    number, lexer = 0, _lexer(path)
    start = next((index for index, line in enumerate(lines) if line.startswith("@@")), len(lines))
    for line in lines[start : start + most]:
        kind = {"+": "add", "-": "del", "@": "hunk", "\\": "hunk"}.get(line[:1], "")
        if found := _HUNK.match(line):
            number = int(found[1])
        shown = str(number) if kind in ("add", "") else ""
        number += kind in ("add", "")
        code = escape(line) if kind == "hunk" else Markup(f"{escape(line[:1] or ' ')} ") + highlight(line[1:], lexer)
        rows.append(DiffLine(kind, "" if kind == "hunk" else shown, code))
    body = lines[start:]
    return FileDiff(
        path=path,
        added=sum(line.startswith("+") for line in body),
        removed=sum(line.startswith("-") for line in body),
        lines=rows,
    )


@lru_cache(maxsize=64)
def _lexer(path: str) -> Lexer | None:
    try:
        return get_lexer_for_filename(path.rpartition("/")[2], stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def highlight(code: str, lexer: Lexer | None) -> Markup:
    if lexer is None or len(code) > 500:
        return escape(code)
    return Markup("").join(_token(kind, text) for kind, text in lex(code, lexer))


def _token(kind: object, text: str) -> Markup:
    tone = next((name for parent, name in _TONES if kind in parent), "")
    return Markup(f'<i class="{tone}">{escape(text)}</i>') if tone else escape(text)
