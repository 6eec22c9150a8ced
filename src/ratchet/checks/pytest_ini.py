"""What a project's configuration tells pytest: where to look for tests when nobody names any, and of Django."""

from __future__ import annotations

from collections.abc import Iterator
from configparser import ConfigParser, Error
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import Any

from ratchet.checks.project import Project, under
from ratchet.core.roles import matches

_NAMES = ("testpaths", "norecursedirs")
_SECTIONS = {"pytest.ini": "pytest", ".pytest.ini": "pytest", "tox.ini": "pytest", "setup.cfg": "tool:pytest"}


def places(project: Project, root: str) -> dict[str, list[str]]:
    """`testpaths` and `norecursedirs` of the folder, as far as they are set; empty where pytest decides."""
    table = _table(project, root)
    return {name: _words(table[name]) for name in _NAMES if name in table}


def is_for_django(project: Project, root: str) -> bool:
    """Whether it is with pytest-django that the tests here run, which it is only told when it is."""
    table = {name.lower(): value for name, value in _table(project, root).items()}
    options = _words(table.get("addopts", ""))
    return "django_settings_module" in table or any(word.partition("=")[0] == "--ds" for word in options)


def is_looked_at(told: dict[str, list[str]], path: str) -> bool:
    above = PurePosixPath(path).parent.parts
    starts = [start.removeprefix("./").rstrip("/") for start in told.get("testpaths", [])]
    inside = any(start in ("", ".") or path == start or matches(path, f"{start}/**") for start in starts)
    return (inside or not starts) and not any(
        fnmatch(folder, pattern) for folder in above for pattern in told.get("norecursedirs", [])
    )


def _table(project: Project, root: str) -> dict[str, Any]:
    return next(filter(None, _tables(project, root)), {})


def _tables(project: Project, root: str) -> Iterator[dict[str, Any]]:
    """In the order in which pytest looks: the first that says anything to it is the one."""
    for file in ("pytest.toml", ".pytest.toml"):
        yield project.toml(*under(root, file)).get("pytest", {})
    for file in ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg"):
        yield _pyproject(project, root) if file == "pyproject.toml" else _ini(project, root, file)


def _pyproject(project: Project, root: str) -> dict[str, Any]:
    table: dict[str, Any] = project.toml(*under(root, "pyproject.toml")).get("tool", {}).get("pytest", {})
    own = table.get("ini_options", table)
    return own if isinstance(own, dict) else {}


def _ini(project: Project, root: str, file: str) -> dict[str, Any]:
    settings = ConfigParser(interpolation=None, strict=False)
    try:
        settings.read_string(project.text(*under(root, file)))
    except Error:
        return {}
    return dict(settings[_SECTIONS[file]]) if settings.has_section(_SECTIONS[file]) else {}


def _words(value: object) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else str(value).split()
