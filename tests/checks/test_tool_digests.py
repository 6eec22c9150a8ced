"""Digests of the test tools, of what an agent may have put in their place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ratchet.checks.protocol import Target
from ratchet.checks.run import tool_digests as tools
from ratchet.tree_files import read_anywhere


@pytest.fixture
def target() -> Target:
    return Target(
        runner="command", language="javascript", root=".", command=["sh", "t.sh"], tests=[], protected=[], why=""
    )


def opened_below(folder: Path, target: Target, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what was read while digests were made."""
    opened: list[str] = []

    def noting(path: Path, *, max_bytes: int) -> bytes:
        opened.append(str(path))
        return read_anywhere(path, max_bytes=max_bytes)

    monkeypatch.setattr(tools, "read_anywhere", noting)
    tools.tool_digests([target], folder)
    return opened


@pytest.mark.parametrize("number", [1, 2_000])
def test_a_tool_that_is_a_link_to_the_system_is_not_read(
    tmp_path: Path, target: Target, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (outside := tmp_path / "system").mkdir()
    (outside / "library").write_text("x")
    (modules := tmp_path / "tree/node_modules").mkdir(parents=True)
    for each in range(number):
        (modules / f"jest-{each}").symlink_to(outside)
    assert str(outside / "library") not in opened_below(tmp_path / "tree", target, monkeypatch)
    before = tools.tool_digests([target], tmp_path / "tree")
    (modules / "jest-0").unlink()
    (modules / "jest-0").symlink_to(tmp_path)
    assert tools.changed_tools(before, tools.tool_digests([target], tmp_path / "tree")) == ["node_modules/jest-0"]


@pytest.mark.parametrize("place", ["tree/node_modules/.pnpm/jest@29/node_modules/jest", "global/lib/node_modules/jest"])
def test_a_tool_that_is_a_link_to_an_installed_package_is_read(tmp_path: Path, target: Target, place: str) -> None:
    (package := tmp_path / place).mkdir(parents=True)
    (package / "index.js").write_text("1")
    (modules := tmp_path / "tree/node_modules").mkdir(exist_ok=True, parents=True)
    (modules / "jest").symlink_to(os.path.relpath(package, modules))
    before = tools.tool_digests([target], tmp_path / "tree")
    (package / "index.js").write_text("22")
    assert tools.changed_tools(before, tools.tool_digests([target], tmp_path / "tree")) == ["node_modules/jest"]


def test_tools_without_end_are_looked_at_within_bounds(
    tmp_path: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "_ENTRIES_MAX", 50, raising=False)
    (package := tmp_path / "node_modules/jest").mkdir(parents=True)
    for each in range(100):
        (package / str(each)).touch()
    assert len(opened_below(tmp_path, target, monkeypatch)) <= 50
    assert tools.tool_digests([target], tmp_path)["node_modules/jest"] == "too much to read"


def test_links_in_a_circle_are_a_digest_too(tmp_path: Path, target: Target) -> None:
    (modules := tmp_path / "node_modules").mkdir()
    (modules / "jest").symlink_to("jest")
    (modules / "mocha").mkdir()
    (modules / "mocha/self").symlink_to("self")
    tools.tool_digests([target], tmp_path)
