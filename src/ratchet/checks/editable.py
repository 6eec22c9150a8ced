"""Where an interpreter's editable installs lead: into the developer's tree, which a mirror's tests must not load."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def editable_folders(python: str, repo: Path) -> list[str]:
    """The folders inside the repository that the interpreter looks for modules in, relative to it."""
    found: dict[str, None] = {}
    for place in Path(python).parent.parent.glob("lib/python*/site-packages"):
        for folder in _named(place):
            if folder.is_absolute() and folder.is_relative_to(repo):
                found[folder.relative_to(repo).as_posix()] = None
    return list(found)


def _named(place: Path) -> Iterator[Path]:
    for file in place.glob("*.pth"):
        for line in _lines(file):
            if line and not line.startswith(("#", "import ", "import\t")):
                yield Path(line)
    for file in place.glob("__editable___*_finder.py"):
        for target in _mapping(file).values():
            yield Path(target).parent


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _mapping(file: Path) -> dict[str, str]:
    """setuptools keeps it in a variable of a module it writes."""
    for line in _lines(file):
        name, _, value = line.partition("=")
        if name.split(":")[0].strip() == "MAPPING":
            try:
                found = ast.literal_eval(value.strip())
            except (ValueError, SyntaxError):
                return {}
            return found if isinstance(found, dict) else {}
    return {}
