"""Removes the prefixes that CI systems add to every line of a log: time, stream, service."""

from __future__ import annotations

import re

# GitHub, Azure, `gh run view --log`, Jenkins timestamps, GitLab with the stream after them.
_STAMP = re.compile(
    rb"^(?:[^\t\n]{1,100}\t[^\t\n]{1,100}\t)?\xef?\xbb?\xbf?(?:\[?\d{4}-\d\d-\d\dT[\d:.]+Z?\]?) ?(?:[0-9a-f]{2}[OE] )?",
    re.M,
)
_CONTINUED = re.compile(rb"\r?\n\d{4}-\d\d-\d\dT[\d:.]+Z [0-9a-f]{2}[OE]\+")  # GitLab splits long lines
# These may occur by chance, and count only if nearly every line has them.
_USUAL = (
    re.compile(rb"^\[\d\d:\d\d:\d\d\][ WEi]?:\t ?(?:\[[^\]\n]{1,60}\] ?)?", re.M),  # TeamCity
    re.compile(rb"^\[?\d\d:\d\d:\d\d(?:[.,]\d{3})?\]? {1,2}", re.M),  # Jenkins
    re.compile(rb"^[\w.-]{1,60} *\| ", re.M),  # docker compose
)
_SAMPLE = 32 << 10
_MOST = 0.8


def strip_prefixes(content: bytes) -> bytes:
    content = _STAMP.sub(b"", _CONTINUED.sub(b"", content))
    for prefix in _USUAL:
        if _is_usual(prefix, content):
            content = prefix.sub(b"", content)
    return content


def _is_usual(prefix: re.Pattern[bytes], content: bytes) -> bool:
    middle = len(content) // 2
    parts = [content[:_SAMPLE], content[middle : middle + _SAMPLE], content[-_SAMPLE:]]
    rows = [row for part in parts for row in part.splitlines()[1:-1] if row.strip()]
    return bool(rows) and sum(bool(prefix.match(row)) for row in rows) >= _MOST * len(rows)
