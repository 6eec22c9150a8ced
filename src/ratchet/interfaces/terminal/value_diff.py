"""Shows how expected and actual values differ: a marker for short values, a line diff for long ones."""

from __future__ import annotations

import difflib
import re
import shutil
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise, takewhile

from ratchet.checks.formats.text import strip_control_characters
from ratchet.core.packet import difference_window
from ratchet.interfaces.terminal.colour import MARKED, Paint, Tone

_VALUE_CHARS = 20_000
_BESIDE_CHARS = 160
_LINE_CHARS = 400
_DIFF_LINES = 40
_FLAT_CHARS = 40
_MARK_FROM = 12
_MARGIN = 60  # columns taken by the label and the ellipses

# Control and bidirectional characters; our own colours are added afterwards.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def escape_control(text: str) -> str:
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], strip_control_characters(text))


def short(line: str) -> str:
    return line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]} … ({len(line)} characters)"


def beside(expected: str | None, actual: str | None, paint: Paint) -> Iterator[str]:
    if expected is None or actual is None:
        yield from (f"expected: {paint(Tone.GOOD, short(text))}" for text in [expected] if text is not None)
        yield from (f"actual:   {paint(Tone.BAD, short(text))}" for text in [actual] if text is not None)
        return
    if len(expected + actual) > _BESIDE_CHARS:
        expected, actual = _lines_of(expected), _lines_of(actual)
    if "\n" in expected + actual:
        yield from _diff(expected[:_VALUE_CHARS], actual[:_VALUE_CHARS], paint)
        return
    columns = shutil.get_terminal_size((160, 24)).columns
    if max(len(expected), len(actual)) > _BESIDE_CHARS:
        expected, actual = difference_window(expected, actual, max(columns - _MARGIN, _FLAT_CHARS))
    yield from _marked(expected, actual, paint, columns)


def _marked(expected: str, actual: str, paint: Paint, columns: int) -> Iterator[str]:
    """Mark the difference with colours, or without colours by a line below if it fits."""
    first, same = _ends(expected, actual)
    parts = [(text[:first], text[first : len(text) - same], text[len(text) - same :]) for text in (expected, actual)]
    for name, tone, (before, odd, after) in zip(
        ("expected: ", "actual:   "), (Tone.GOOD, Tone.BAD), parts, strict=True
    ):
        middle = paint(MARKED[tone], odd) if odd and before + after else paint(tone, odd)
        yield f"{name}{paint(tone, before) if before else ''}{middle}{paint(tone, after) if after else ''}"
    odd = max(parts[0][1], parts[1][1], key=len)
    wide = max(_width(expected), _width(actual))
    if first >= _MARK_FROM and wide + 15 <= columns and not paint(Tone.GOOD, ""):
        yield f"{' ' * (10 + _width(parts[0][0]))}{'^' * max(1, _width(odd))}"


def _ends(one: str, other: str) -> tuple[int, int]:
    """Return the lengths of the common prefix and the common suffix."""
    first = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    rest = zip(reversed(one[first:]), reversed(other[first:]), strict=False)
    return first, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], rest))


def _width(text: str) -> int:
    """Return the display width: wide characters take two columns, combining ones none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def _lines_of(value: str) -> str:
    """Split a long value into lines for a line diff."""
    if len(value) > _VALUE_CHARS:
        return value
    if value[:1] in ("'", '"'):
        return _unquoted(value)
    return spread(value) if re.match(r"[\w.:&<> ]*[(\[{]", value) else value


def _unquoted(value: str) -> str:
    if "\\n" not in value:
        return value
    from ast import literal_eval  # noqa: PLC0415 — seldom needed

    with suppress(ValueError, SyntaxError):
        text = literal_eval(value)
        return escape_control(text) if isinstance(text, str) else value
    return value


_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[(\[{]|[)\]}]|, ?|[^'\"(\[{)\]},]+|.", re.DOTALL)


def spread(value: str) -> str:
    """Put each element of a long bracketed value on its own line, for any language."""
    tokens = _TOKEN.findall(value)
    ends = _closing(tokens)
    closing = set(ends.values())
    lines, depth, at = [""], 0, 0
    while at < len(tokens):
        word, end = tokens[at], ends.get(at, at)
        if at in ends and end - at <= _FLAT_CHARS and len(flat := "".join(tokens[at : end + 1])) <= _FLAT_CHARS:
            lines[-1] += flat
            at = end
        elif at in closing:
            depth -= 1
            lines.append("  " * depth + word)
        elif at in ends or (word.startswith(",") and depth):
            depth += at in ends
            lines[-1] += word.rstrip()
            lines.append("  " * depth)
        else:
            lines[-1] += word if lines[-1].strip() else word.lstrip()
        at += 1
    return "\n".join(line for line in lines if line.strip())


def _closing(tokens: list[str]) -> dict[int, int]:
    """Map each opening bracket to its closing one; unbalanced brackets are treated as text."""
    pairs = {"(": ")", "[": "]", "{": "}"}
    found: dict[int, int] = {}
    waiting: list[int] = []
    for at, token in enumerate(tokens):
        if token in pairs:
            waiting.append(at)
        elif token in pairs.values() and waiting and pairs[tokens[waiting[-1]]] == token:
            found[waiting.pop()] = at
    return found


def _diff(expected: str, actual: str, paint: Paint) -> Iterator[str]:
    """Yield a line diff with a little context."""
    yield f"{paint(Tone.GOOD, '- expected')}  {paint(Tone.BAD, '+ actual')}"
    tones = {"-": Tone.GOOD, "+": Tone.BAD}
    rows = list(difflib.unified_diff(expected.splitlines(), actual.splitlines(), n=2, lineterm=""))[2:]
    if not rows:  # they differ in the line ending or beyond the limit
        one, other = difference_window(repr(expected), repr(actual), _LINE_CHARS)
        rows = [f"-{one}", f"+{other}"]
    rows = rows[1:] if rows[0].startswith(("@@ -1,", "@@ -1 ", "@@ -0")) else rows
    for row in _seen(rows[:_DIFF_LINES]):
        yield paint(tones.get(row[0], Tone.DIM), "  …" if row.startswith("@@") else short(f"{row[0]} {row[1:]}"))
    if len(rows) > _DIFF_LINES:
        yield paint(Tone.DIM, f"  … {len(rows) - _DIFF_LINES} more lines")


_BLANK = str.maketrans({" ": "·", "\t": "→"})


def _seen(rows: list[str]) -> list[str]:
    """For single-line replacements: cut long lines around the difference, and make differing whitespace visible."""
    shown = list(rows)
    for at, (one, other) in enumerate(pairwise(rows)):
        alone = (at == 0 or rows[at - 1][:1] != "-") and (at + 2 == len(rows) or rows[at + 2][:1] != "+")
        if one[:1] != "-" or other[:1] != "+" or not alone:
            continue
        left, right = difference_window(one[1:], other[1:], _LINE_CHARS - _MARGIN)
        if left.split() == right.split():
            left, right = left.translate(_BLANK), right.translate(_BLANK)
        shown[at : at + 2] = [f"-{left}", f"+{right}"]
    return shown
