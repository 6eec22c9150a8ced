"""Restricts the scribe to its own sections of a spec."""

from __future__ import annotations

import re
from collections.abc import Iterator

OWN = ("status", "changelog", "completion", "open questions")

_HEADING = re.compile(r"^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_UNDERLINE = re.compile(r"^ {0,3}(=+|-+)[ \t]*$")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")


def rejection(before: str, after: str) -> str:
    """Return why the change is not allowed; '' if it is within the scribe's sections."""
    if _outside_own(before) != _outside_own(after):
        return f"only the sections {', '.join(name.title() for name in OWN)} may be changed"
    if any(text.count("<!--") > text.count("-->") for text in _own_sections(after)):
        return "a comment that is not closed would hide what follows it"
    return ""


def _outside_own(spec: str) -> str:
    """Return the text outside of the scribe's sections, without trailing blank lines: a section may be added."""
    return "".join(text for text, mine in _parts(spec) if not mine).rstrip("\r\n \t")


def _own_sections(spec: str) -> list[str]:
    return [text for text, mine in _parts(spec) if mine]


def _parts(spec: str) -> Iterator[tuple[str, bool]]:
    """Yield each line and whether it is in a section of the scribe: from its heading to the next one of the same or a
    higher level. Lines in code blocks are not headings."""
    mine_below = 0
    for line, level, title in _lines(spec):
        if level and (not mine_below or level <= mine_below):
            mine_below = level if title.strip().lower().rstrip(":") in OWN else 0
        yield line, bool(mine_below)


def _lines(spec: str) -> Iterator[tuple[str, int, str]]:
    """Yield each line with its line ending, its heading level (0 for none) and title."""
    rows = re.findall(r"[^\n]*\n|[^\n]+", spec)
    fence = ""
    for number, row in enumerate(rows):
        fence, inside = _track_fence(row, fence)
        level, title = (0, "") if inside else _heading(row, rows[number + 1] if number + 1 < len(rows) else "")
        yield row, level, title


def _track_fence(row: str, fence: str) -> tuple[str, bool]:
    """Return the fence that is open after this line, and whether the line is part of a code block."""
    mark = _FENCE.match(row.rstrip("\r\n"))
    if not fence:
        return (mark.group(1), True) if mark else ("", False)
    closes = mark and mark.group(1).startswith(fence) and not mark.group(2).strip()
    return ("" if closes else fence), True


def _heading(row: str, following: str) -> tuple[int, str]:
    text = row.rstrip("\r\n")
    if match := _HEADING.match(text):
        return len(match.group(1)), match.group(2) or ""
    under = _UNDERLINE.match(following.rstrip("\r\n"))
    if under and text.strip():
        return (1 if under.group(1)[0] == "=" else 2), text
    return 0, ""
