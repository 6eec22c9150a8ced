"""Settings of other users above a folder in which tests run as its owner."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ratchet.checks.runners import find_upward
from ratchet.errors import EnvironmentCannot
from ratchet.files import require_own_settings
from ratchet.paths import isolated_copies

NOBODY = 65534


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder as /tmp is: anybody can make files in it."""
    (place := tmp_path / "shared").mkdir()
    place.chmod(0o1777)
    return place


@pytest.mark.parametrize("name", ["pytest.ini", "node_modules", ".cargo", "package.json", "babel.config.js", ".git"])
def test_settings_of_another_user_above_a_folder_are_refused_and_ones_own_are_not(shared: Path, name: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("making a file of another user needs root")
    (folder := shared / "mine" / "project").mkdir(parents=True)
    (shared / name).touch()
    (shared / "notes.txt").touch()
    os.chown(shared / "notes.txt", NOBODY, NOBODY)
    require_own_settings(folder)
    os.chown(shared / name, NOBODY, NOBODY)
    with pytest.raises(EnvironmentCannot, match=name):
        require_own_settings(folder)


def test_a_projects_own_programs_are_looked_up_within_its_repository(tmp_path: Path) -> None:
    for place in ("", "repo", "repo/packages/a"):
        (tmp_path / place / "node_modules" / ".bin").mkdir(parents=True)
    (tmp_path / "repo" / ".git").mkdir()
    (tmp_path / "node_modules/.bin/mocha").touch()
    (tmp_path / "repo/node_modules/.bin/jest").touch()
    assert find_upward(tmp_path / "repo/packages/a", "node_modules/.bin/mocha") is None
    found = find_upward(tmp_path / "repo/packages/a", "node_modules/.bin/jest")
    assert found == tmp_path / "repo/node_modules/.bin/jest"


def test_without_a_repository_no_program_is_taken_from_where_others_can_write(shared: Path) -> None:
    (folder := shared / "mine" / "project").mkdir(parents=True)
    (shared / "node_modules").mkdir()
    (shared / "mine" / "vendor").mkdir()
    assert find_upward(folder, "node_modules") is None
    assert find_upward(folder, "vendor") == shared / "mine" / "vendor"


def test_isolated_copies_are_made_in_the_users_own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert isolated_copies() == tmp_path / "ratchet" / "isolated"
