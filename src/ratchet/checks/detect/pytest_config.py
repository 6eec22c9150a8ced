"""Reads a project's pytest configuration: where tests are collected by default, and whether pytest-django is used."""

from __future__ import annotations

from collections.abc import Iterator
from configparser import ConfigParser, Error
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import Any

from ratchet.checks.detect.project import Project, join_root
from ratchet.core.roles import matches_glob

_NAMES = ("testpaths", "norecursedirs")
_SECTIONS = {"pytest.ini": "pytest", ".pytest.ini": "pytest", "tox.ini": "pytest", "setup.cfg": "tool:pytest"}


def collection_settings(project: Project, root: str) -> dict[str, list[str]]:
    """Return `testpaths` and `norecursedirs` as far as they are set; empty if pytest's defaults apply."""
    table = _table(project, root)
    return {name: _words(table[name]) for name in _NAMES if name in table}


def own_test_files(project: Project, root: str) -> list[str]:
    """Return patterns of the files that the configuration alone makes tests, such as `test.py` or `check_*.py`."""
    table = _table(project, root)
    named = [word for word in _words(table.get("testpaths", "")) if word.endswith(".py")]
    patterns = [word for word in _words(table.get("python_files", "")) if word.strip("*") not in ("", ".py")]
    return [*named, *(f"**/{word}" for word in patterns if word.endswith(".py"))]


def uses_pytest_django(project: Project, root: str) -> bool:
    """Return whether the tests run with pytest-django: it is configured only when it is used."""
    table = {name.lower(): value for name, value in _table(project, root).items()}
    options = _words(table.get("addopts", ""))
    return "django_settings_module" in table or any(word.partition("=")[0] == "--ds" for word in options)


def is_collected(settings: dict[str, list[str]], path: str) -> bool:
    above = PurePosixPath(path).parent.parts
    starts = [start.removeprefix("./").rstrip("/") for start in settings.get("testpaths", [])]
    inside = any(start in ("", ".") or path == start or matches_glob(path, f"{start}/**") for start in starts)
    return (inside or not starts) and not any(
        fnmatch(folder, pattern) for folder in above for pattern in settings.get("norecursedirs", [])
    )


def _table(project: Project, root: str) -> dict[str, Any]:
    return next(filter(None, _tables(project, root)), {})


def _tables(project: Project, root: str) -> Iterator[dict[str, Any]]:
    """Yield the configuration tables in pytest's order of precedence; the first non-empty one applies."""
    for file in ("pytest.toml", ".pytest.toml"):
        yield project.toml(*join_root(root, file)).get("pytest", {})
    for file in ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg"):
        yield _pyproject(project, root) if file == "pyproject.toml" else _ini(project, root, file)


def _pyproject(project: Project, root: str) -> dict[str, Any]:
    table: dict[str, Any] = project.toml(*join_root(root, "pyproject.toml")).get("tool", {}).get("pytest", {})
    own = table.get("ini_options", table)
    return own if isinstance(own, dict) else {}


def _ini(project: Project, root: str, file: str) -> dict[str, Any]:
    settings = ConfigParser(interpolation=None, strict=False)
    try:
        settings.read_string(project.text(*join_root(root, file)))
    except Error:
        return {}
    return dict(settings[_SECTIONS[file]]) if settings.has_section(_SECTIONS[file]) else {}


def _words(value: object) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else str(value).split()
