"""Parses coverage data of coverage.py, istanbul, lcov and Go into covered and uncovered lines."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import PurePath
from typing import Any

import msgspec

from ratchet.core.foreign_json import MALFORMED
from ratchet.core.gates import Coverage
from ratchet.core.lines import split_lines


def read_coverage(content: bytes, root: str = "") -> Coverage | None:
    """Detect the format by content. Paths below `root` become relative; None if the format is unknown."""
    with suppress(TypeError, ValueError, KeyError, AttributeError):  # what is tested may have written it
        return _read(content, root)
    return None


def _read(content: bytes, root: str) -> Coverage | None:
    text = content.decode(errors="replace")
    if text.startswith("mode:"):
        found = _go(text)
    elif text.startswith(("TN:", "SF:")):
        found = _lcov(text)
    else:
        found = _json(content)
    return Coverage(files={_relative(path, root): lines for path, lines in found.items()}) if found else None


def _relative(path: str, root: str) -> str:
    inside = root and PurePath(path).is_relative_to(root)
    return PurePath(path).relative_to(root).as_posix() if inside else path


def _json(content: bytes) -> dict[str, dict[int, bool]]:
    try:
        value = msgspec.json.decode(content)
    except MALFORMED:
        return {}
    if not isinstance(value, dict):
        return {}
    files = value.get("files")
    if isinstance(files, dict):
        return {path: _coverage_py(entry) for path, entry in files.items() if isinstance(entry, dict)}
    return {
        path: _istanbul(entry) for path, entry in value.items() if isinstance(entry, dict) and "statementMap" in entry
    }


def _coverage_py(entry: dict[str, Any]) -> dict[int, bool]:
    ran = dict.fromkeys(entry.get("executed_lines", []), True)
    return ran | dict.fromkeys(entry.get("missing_lines", []), False)


def _istanbul(entry: dict[str, Any]) -> dict[int, bool]:
    lines: dict[int, bool] = {}
    for key, place in entry["statementMap"].items():
        line = int(place["start"]["line"])
        lines[line] = lines.get(line, False) or entry.get("s", {}).get(key, 0) > 0
    return lines


def _lcov(text: str) -> dict[str, dict[int, bool]]:
    found: dict[str, dict[int, bool]] = {}
    path = ""
    for line in split_lines(text):
        if line.startswith("SF:"):
            path = line[3:].strip()
            found.setdefault(path, {})
        elif (hit := re.match(r"DA:(\d{1,9}),(\d{1,18})", line)) and path:
            found[path][int(hit[1])] = int(hit[2]) > 0
    return found


_BLOCK = re.compile(r"^(?P<path>.+):(?P<first>\d{1,7})\.\d+,(?P<last>\d{1,7})\.\d+ \d+ (?P<count>\d{1,18})$")


def _go(text: str) -> dict[str, dict[int, bool]]:
    """Parse a Go profile, which names files by module path."""
    found: dict[str, dict[int, bool]] = {}
    for block in filter(None, (_BLOCK.match(line) for line in split_lines(text))):
        lines = found.setdefault(block["path"], {})
        for line in range(int(block["first"]), int(block["last"]) + 1):
            lines[line] = lines.get(line, False) or int(block["count"]) > 0
    return found
