"""Globs written by users and in their projects, with one meaning on every Python version."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from ratchet.tree_files import is_source, is_source_folder, walk_inside

_NAMES_MAX, _PARTS_MAX = 1_000_000, 64


def find(folder: Path, pattern: str) -> Iterator[Path]:
    """Find what matches below a folder. `**` within a longer name means `*`, as in a shell; at the end, all below.

    Up to Python 3.12, pathlib rejects the first and finds only directories for the second.
    """
    return iter(()) if pattern.startswith("/") else folder.glob("/".join(_parts(pattern)))


def _parts(pattern: str) -> list[str]:
    """Split a pattern. `**/**` is `**`: pathlib would walk all folders again for each."""
    split = [part if part == "**" else re.sub(r"\*{2,}", "*", part) for part in pattern.split("/")]
    parts = [part for number, part in enumerate(split) if split[number - 1 : number + 1] != ["**", "**"]]
    return [*parts, "*"] if parts[-1] == "**" else parts


def find_files(folder: Path, pattern: str) -> Iterator[Path]:
    """Find regular files below a folder by a pattern that a repository may have made: it leads out only by links that
    `open_source` follows too, and takes time by the number of names, not by that of its `**`."""
    parts = [part for part in _parts(pattern) if part not in ("", ".")]
    if pattern.startswith("/") or ".." in parts or not 0 < len(parts) <= _PARTS_MAX:
        return
    plain = next((number for number, part in enumerate(parts) if re.search(r"[*?\[]", part)), len(parts) - 1)
    above, left = "/".join(parts[:plain]) or ".", parts[plain:]
    if not is_source_folder(folder, above):
        return
    top = folder / above
    at, names = {"": _reached({0}, left)}, 0
    for listing in walk_inside(top):
        here = at.pop(listing.path)
        names += len(listing.folders) + len(listing.files) + len(listing.links)
        if names > _NAMES_MAX:
            return
        for name in sorted([*listing.files, *listing.links]):
            if len(left) in _step(here, name, left) and is_source(top, f"{listing.path}{name}"):
                yield top / listing.path / name
        below = {name: _step(here, name, left) - {len(left)} for name in listing.folders}
        listing.folders[:] = sorted(name for name in listing.folders if below[name])
        at |= {f"{listing.path}{name}/": below[name] for name in listing.folders}


def _step(here: set[int], name: str, parts: list[str]) -> set[int]:
    """Return the places in the pattern after a name."""
    after = {at for at in here if parts[at : at + 1] == ["**"]}
    after |= {at + 1 for at in here if at < len(parts) and parts[at] != "**" and fnmatchcase(name, parts[at])}
    return _reached(after, parts)


def _reached(places: set[int], parts: list[str]) -> set[int]:
    """Add the place behind each `**`, which may stand for no folder."""
    return places | {at + 1 for at in places if parts[at : at + 1] == ["**"]}
