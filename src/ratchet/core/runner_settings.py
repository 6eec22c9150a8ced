"""Files that people may edit, with parts in them that decide how tests are run: those parts are nobody's to change."""

from __future__ import annotations

import configparser
import json
import tomllib
from typing import Any

_SECTIONS = {
    "pyproject.toml": ("pytest", "coverage", "tox"),
    "setup.cfg": ("tool:pytest", "coverage:run"),
    "tox.ini": ("pytest", "testenv"),
    "package.json": ("scripts", "jest", "mocha", "vitest", "ava"),
}


def says_how_tests_run(path: str) -> bool:
    return path.rsplit("/", 1)[-1] in _SECTIONS


def touches_runner(path: str, before: bytes | None, after: bytes | None) -> bool:
    """Whether the change reaches those parts. A file that cannot be read any more counts as changed there."""
    name = path.rsplit("/", 1)[-1]
    return bool(_settings(name, before) != _settings(name, after))


def _settings(name: str, content: bytes | None) -> Any:
    if content is None:
        return {}
    try:
        table = _table(name, content.decode())
    except (ValueError, configparser.Error):
        return content
    return {section: table[section] for section in _SECTIONS[name] if section in table}


def _table(name: str, text: str) -> dict[str, Any]:
    if name == "package.json":
        found = json.loads(text)
        return found if isinstance(found, dict) else {}
    if name == "pyproject.toml":
        tools = tomllib.loads(text).get("tool", {})
        return tools if isinstance(tools, dict) else {}
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read_string(text)
    return {section: dict(parser[section]) for section in parser.sections()}
