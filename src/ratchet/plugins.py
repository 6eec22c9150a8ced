"""What is installed for a kind of part, ours and anybody's alike: the entry points of `ratchet.*`, looked for once.

Read from where installers write them: the library that does it takes twenty milliseconds to load and to look, which
whoever runs one test would wait for.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

GROUPS = ("agents", "workflows", "steps", "gates", "runners", "prompts")
_FOLDERS = (".dist-info", ".egg-info")


class Entry:
    """A name, and `package.module:attribute`, where the part is."""

    def __init__(self, name: str, value: str) -> None:
        self.name, self.value = name, value

    def load(self) -> Any:
        module, _, attribute = self.value.partition(":")
        found = import_module(module.strip())
        return attrgetter(attribute.strip())(found) if attribute else found


@cache
def found(kind: str) -> dict[str, Entry]:
    """By name. Of two of the same name the one that lies first on the path, as with modules."""
    entries: dict[str, Entry] = {}
    for name, value in _installed().get(f"ratchet.{kind}", []):
        entries.setdefault(name, Entry(name, value))
    return entries


def load_all() -> None:
    """Import them now, for those who are forked from us: each would else do it again. What cannot be imported is told
    to whoever asks for it by name."""
    for kind in GROUPS:
        for entry in found(kind).values():
            with suppress(Exception):
                entry.load()


@cache
def _installed() -> dict[str, list[tuple[str, str]]]:
    groups: dict[str, list[tuple[str, str]]] = {}
    for place in sys.path:
        for group, name, value in _entries(place or "."):
            groups.setdefault(group, []).append((name, value))
    return groups


def _entries(place: str) -> Iterator[tuple[str, str, str]]:
    """Of all that is installed in a folder, by name; of one version after the other where two were left."""
    with suppress(OSError):
        for folder in sorted(path for path in Path(place).iterdir() if path.suffix in _FOLDERS):
            with suppress(OSError):
                yield from _rows((folder / "entry_points.txt").read_text("utf-8"))


def _rows(text: str) -> Iterator[tuple[str, str, str]]:
    group = ""
    for line in map(str.strip, text.splitlines() if "[ratchet." in text else ()):
        if line.startswith("["):
            group = line.strip("[]").strip()
        elif "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield group, name.strip(), value.partition("[")[0].strip()
