"""Finds the tox environments and nox sessions that run pytest. Others run linters or build documents, and environments
without an installed interpreter cannot run."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from configparser import ConfigParser, Error
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any

from ratchet.checks.detect.project import Project

_BRACES = re.compile(r"\{([^{}]*)\}")
_VERSION = re.compile(r"(?:^|-)(?:py|python)?(3)\.?(\d+)(?=-|$)")
_PYTEST = re.compile(r"\bpy\.?test\b")
# If some names suggest the tests, the other environments run them for another purpose.
_LIKELY = re.compile(r"py|test|unit|3\.?\d")


def pytest_environments(project: Project, path: str) -> list[str]:
    """Return the environments that run pytest and have an interpreter; empty if the file does not name them."""
    configured = _of_nox(project.text(path)) if path.endswith(".py") else _of_tox(project, path)
    found = list(dict.fromkeys(configured))
    found = [name for name in found if _LIKELY.match(name)] or found
    return [name for name in found if _has_interpreter(name)] or found[:1]


def runs_pytest(project: Project, path: str) -> bool:
    """Return whether any environment runs pytest, whether or not it could be created here."""
    by_name = PurePosixPath(path).name in ("tox.ini", "noxfile.py") and _PYTEST.search(project.text(path))
    return bool(by_name or pytest_environments(project, path))


def _has_interpreter(name: str) -> bool:
    version = _VERSION.search(name)
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep)]
    # A pyenv shim exists for every installed version, even for those that it refuses to start.
    return not version or any(
        (folder / f"python{version[1]}.{version[2]}").exists() for folder in folders if folder.name != "shims"
    )


def _of_tox(project: Project, path: str) -> Iterator[str]:
    if PurePosixPath(path).suffix == ".toml":
        table = project.toml(path)
        own = table.get("tool", {}).get("tox", {}) if path.endswith("pyproject.toml") else table
        if isinstance(own, dict):
            yield from _of_table(own) if "legacy_tox_ini" not in own else _of_ini(str(own["legacy_tox_ini"]))
    else:
        yield from _of_ini(project.text(path))


def _of_table(table: dict[str, Any]) -> Iterator[str]:
    base, own = table.get("env_run_base", {}), table.get("env", {})
    for name in map(str, table.get("env_list", [])):
        commands = own.get(name, {}).get("commands", base.get("commands", []))
        if _PYTEST.search(str(commands)):
            yield name


def _of_ini(text: str) -> Iterator[str]:
    settings = ConfigParser(interpolation=None, strict=False)
    try:
        settings.read_string(text)
    except Error:
        return
    listed = settings.get("tox", "env_list", fallback="") or settings.get("tox", "envlist", fallback="")
    for name in _expanded(listed):
        usual = settings.get("testenv", "commands", fallback="")
        if _PYTEST.search(settings.get(f"testenv:{name}", "commands", fallback=usual)):
            yield name


def _expanded(listed: str) -> Iterator[str]:
    """Expand braces: `py{311,312}-a, lint` gives py311-a, py312-a and lint."""
    for word in re.findall(r"(?:\{[^{}]*\}|[^\s,{}#])+", listed):
        parts = [part.split(",") if at % 2 else [part] for at, part in enumerate(_BRACES.split(word))]
        yield from ("".join(piece.strip() for piece in pieces) for pieces in product(*parts))


def _of_nox(text: str) -> Iterator[str]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        calls = [each for each in function.decorator_list if "session" in ast.unparse(each).partition("(")[0]]
        if calls and "pytest" in (ast.get_source_segment(text, function) or ""):
            yield from _sessions(function.name, calls[0])


def _sessions(name: str, decorator: ast.expr) -> Iterator[str]:
    given = {word.arg: word.value for word in decorator.keywords} if isinstance(decorator, ast.Call) else {}
    configured = {key: _literal(given[key]) for key in ("name", "python", "venv_backend") if key in given}
    own = configured.get("name") or name
    pythons = configured.get("python") if configured.get("venv_backend") != "none" else None
    yield from (f"{own}-{python}" for python in pythons) if isinstance(pythons, list | tuple) else [str(own)]


def _literal(value: ast.expr) -> Any:
    try:
        return ast.literal_eval(value)
    except ValueError:
        return None
