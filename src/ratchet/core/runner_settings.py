"""Protected parts of editable files: settings that decide how tests run."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from typing import Any

_SECTIONS = {
    "pyproject.toml": ("pytest", "coverage", "tox"),
    "setup.cfg": ("tool:pytest", "coverage:run"),
    "tox.ini": ("pytest", "testenv"),
    "package.json": ("scripts", "jest", "mocha", "vitest", "ava"),
}


def has_runner_settings(path: str) -> bool:
    return path.rsplit("/", 1)[-1] in _SECTIONS


def changes_runner_settings(path: str, before: bytes | None, after: bytes | None) -> bool:
    """Whether the change touches runner settings. A file that can no longer be parsed counts as changed."""
    name = path.rsplit("/", 1)[-1]
    return bool(_settings(name, before) != _settings(name, after))


def _settings(name: str, content: bytes | None) -> Any:
    if content is None:
        return {}
    try:
        table = _table(name, content.decode())
    except (ValueError, RecursionError, configparser.Error):
        return content
    return {section: _deciding(section, table[section]) for section in _SECTIONS[name] if section in table}


# Settings that cannot hide a test or a failure.
_HARMLESS = frozenset([
    "markers", "minversion", "required_plugins", "log_cli", "log_cli_level", "log_level", "console_output_style",
    "junit_family", "cache_dir", "verbose", "displayName", "collectCoverageFrom", "coverageDirectory",
    "coverageReporters", "clearMocks", "restoreMocks",
])  # fmt: skip
_OF_TESTS = re.compile(r"test|check|coverage|verify|\bci\b|install|prepare")


def _deciding(section: str, settings: Any) -> Any:
    if not isinstance(settings, dict):
        return settings
    if section == "scripts":
        return _test_scripts(settings)
    kept = {key: _deciding("", value) for key, value in settings.items() if key not in _HARMLESS}
    if kept.get("filterwarnings") in (["error"], "error"):  # nothing is stricter
        del kept["filterwarnings"]
    return {key: value for key, value in kept.items() if value != {}}


def _test_scripts(scripts: dict[str, Any]) -> dict[str, Any]:
    """Return scripts that run tests, by name or because such a script calls them."""
    kept = {name: text for name, text in scripts.items() if _OF_TESTS.search(name)}
    called = {name: text for name, text in scripts.items() if any(name in str(other) for other in kept.values())}
    return kept | called


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
