"""Constructs with another meaning on some of the supported Python versions must not appear in the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "ratchet"

# Globs that are put together elsewhere, all from constants in the package.
COMPUTED = {
    "agents/drivers/cli_stream.py": "pattern",
    "agents/stderr_monitor.py": "pattern",
    "checks/runners/meson_log.py": "pattern",
    "checks/runners/rust.py": "_EVENTS.format('*')",
    "checks/runners/go.py": "_CHANNEL.format('*')",
    "checks/run/path_redirect.py": "_INSTALLED",
    "workspace/sandbox_view.py": "pattern",
}
NORMALISES = "checks/globs.py"


def globs_in(source: str) -> Iterator[tuple[str, bool]]:
    """Yield the argument of each call of `glob` or `rglob`, and whether it is a literal."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="project"))):
                continue  # `Project.glob` matches by our own rules
            case ast.Call(func=ast.Attribute(attr="glob" | "rglob"), args=[argument, *_]):
                yield _text(argument)


def _text(argument: ast.expr) -> tuple[str, bool]:
    match argument:
        case ast.Constant(value=str(text)):
            return text, True
        case ast.JoinedStr(values=parts):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts), True
        case _:
            return ast.unparse(argument), False


def is_safe(pattern: str) -> bool:
    """Up to Python 3.12, pathlib rejects `**x`, and finds only directories for `x/**`."""
    parts = pattern.split("/")
    return parts[-1] != "**" and not any("**" in part and part != "**" for part in parts)


@pytest.mark.parametrize("pattern", ["**x.xml", "a/x**/b", "a/**", "**", "***/a"])
def test_the_search_finds_each_unsafe_glob(pattern: str) -> None:
    assert list(globs_in(f"folder.glob({pattern!r})")) == [(pattern, True)]
    assert not is_safe(pattern)


@pytest.mark.parametrize("pattern", ["*", "**/*.xml", "a/**/b", "{}.*.pyc"])
def test_the_search_accepts_globs_with_one_meaning(pattern: str) -> None:
    assert is_safe(pattern)


def test_no_glob_in_the_source_depends_on_the_version() -> None:
    seen = 0
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        for pattern, is_literal in globs_in(path.read_text("utf-8")) if name != NORMALISES else ():
            seen += 1
            assert is_safe(pattern) if is_literal else COMPUTED.get(name) == pattern, (
                f"{name}: glob({pattern}): use ratchet.checks.globs.find for patterns that users write"
            )
    assert seen > 20


def test_every_schema_is_made_with_clean_descriptions() -> None:
    """Python 3.13 and later remove the indentation of docstrings, which msgspec takes for descriptions."""
    made = [
        path for path in SOURCE.rglob("*.py") if re.search(r"json\.schema(_components)?\(", path.read_text("utf-8"))
    ]
    assert len(made) == 3
    assert [path.name for path in made if "clean_descriptions(" not in path.read_text("utf-8")] == []
