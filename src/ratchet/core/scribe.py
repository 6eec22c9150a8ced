"""What the scribe may change of a spec: the sections that are its own, and not a byte besides."""

from __future__ import annotations

import re
from collections.abc import Iterator

OWN = ("status", "changelog", "completion", "open questions")

_HEADING = re.compile(r"^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_UNDERLINE = re.compile(r"^ {0,3}(=+|-+)[ \t]*$")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")


def refused(before: str, after: str) -> str:
    """Why the scribe may not make this change; empty when all of it is inside its own sections."""
    if _others(before) != _others(after):
        return f"only the sections {', '.join(name.title() for name in OWN)} may be changed"
    if any(text.count("<!--") > text.count("-->") for text in _own(after)):
        return "a comment that is not closed would hide what follows it"
    return ""


def _others(spec: str) -> str:
    """All that is not the scribe's, to the byte. A section of its own may be added, so blank lines around it count
    for nothing."""
    return "".join(text for text, mine in _parts(spec) if not mine).rstrip("\r\n \t")


def _own(spec: str) -> list[str]:
    return [text for text, mine in _parts(spec) if mine]


def _parts(spec: str) -> Iterator[tuple[str, bool]]:
    """The lines of a spec, and whether each is in a section of the scribe's: from such a heading to the next one of
    the same level or above. What is in a code block is no heading."""
    mine_below = 0
    for line, level, title in _lines(spec):
        if level and (not mine_below or level <= mine_below):
            mine_below = level if title.strip().lower().rstrip(":") in OWN else 0
        yield line, bool(mine_below)


def _lines(spec: str) -> Iterator[tuple[str, int, str]]:
    """Each line with its end, and as a heading: its level and title, or 0."""
    rows = re.findall(r"[^\n]*\n|[^\n]+", spec)
    fence = ""
    for number, row in enumerate(rows):
        fence, inside = _fenced(row, fence)
        level, title = (0, "") if inside else _heading(row, rows[number + 1] if number + 1 < len(rows) else "")
        yield row, level, title


def _fenced(row: str, fence: str) -> tuple[str, bool]:
    """The code block that is open after this line, and whether the line belongs to one."""
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
