"""Plugins: built-in and third-party entry points of the `ratchet.*` groups, discovered once.

Reads `entry_points.txt` directly: `importlib.metadata` takes twenty milliseconds, noticeable when running one test.
"""

from __future__ import annotations

import shutil
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


class PluginEntry:
    """An entry point: a name, and `package.module:attribute`."""

    def __init__(self, name: str, value: str) -> None:
        self.name, self.value = name, value

    def load(self) -> Any:
        module, _, attribute = self.value.partition(":")
        found = import_module(module.strip())
        return attrgetter(attribute.strip())(found) if attribute else found


@cache
def entry_points(kind: str) -> dict[str, PluginEntry]:
    """Return the entry points of a group by name; the first on `sys.path` wins, as with modules."""
    entries: dict[str, PluginEntry] = {}
    for name, value in _installed().get(f"ratchet.{kind}", []):
        entries.setdefault(name, PluginEntry(name, value))
    return entries


def load_all() -> None:
    """Import all plugins before forking, so that children need not. Import errors are raised later, on use."""
    for kind in GROUPS:
        for entry in entry_points(kind).values():
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
    """Yield the entry points of all distributions installed in a folder, by distribution name."""
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


def install_extra(extra: str) -> str:
    """Return the command that adds an extra to this installation, by the tool that made it."""
    what = f"'ratchet-factory[{extra}]'"
    parts = Path(sys.prefix).parts
    if "pipx" in parts:
        return f"pipx runpip ratchet-factory install {what}"
    if parts[-3:-1] == ("uv", "tools"):
        return f"uv pip install --python {sys.prefix} {what}"
    pip = shutil.which("pip")
    if pip and Path(pip).parent == Path(sys.prefix) / "bin":
        return f"pip install {what}"
    return f"{sys.prefix}/bin/python -m pip install {what}"
