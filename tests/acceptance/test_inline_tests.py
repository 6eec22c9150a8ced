"""Tests inside source files are tests for the whole run: who may not edit tests may not edit those."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.engine.workflows.scenes import Script
from tests.support import git, make_repository, ratchet, write_script

BROKEN = '''def area(width, height):
    """Multiply.

    >>> area(3, 4)
    12
    """
    return width + height
'''
FILES = {
    "area.py": BROKEN,
    "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "--doctest-modules"\n',
    "tests/test_area.py": "from area import area\n\n\ndef test_area():\n    assert area(2, 3) == 6\n",
}
MEND = {"path": "area.py", "old": "width + height", "new": "width * height"}
FAKE: dict[str, Any] = {"say": "Fake", "replace": [{"path": "area.py", "old": "    12\n", "new": "    7\n"}]}
HONEST: dict[str, Any] = {"say": "Multiply", "replace": [MEND]}


def fix(tmp_path: Path, files: dict[str, str], script: Script, *, code: int = 0) -> tuple[Path, dict[str, Any]]:
    place = make_repository(tmp_path / "project", files)
    path = write_script(place, script)
    done = ratchet(
        "fix", "--json", "--agent", f"scripted:{path}", "--set", f"workspace.root={tmp_path}/ws", str(place), cwd=place
    )
    assert done.returncode == code, done.stderr
    return place, json.loads(done.stdout)


def test_a_fixer_that_edits_a_doctests_answer_has_that_undone(tmp_path: Path) -> None:
    place, result = fix(tmp_path, FILES, {"fix": [FAKE, HONEST]})
    assert [commit["subject"] for commit in result["commits"]] == ["Multiply"]
    branch = git("branch", "--list", "ratchet/*", "--format", "%(refname:short)", cwd=place)
    assert "    12\n" in git("show", f"{branch}:area.py", cwd=place)
    reported = ratchet("show", "last", cwd=place).stdout
    assert "area.py" in reported
    assert ratchet("verify", "last", cwd=place).returncode == 0


LIB = """pub fn area(w: u32, h: u32) -> u32 {
    w + h
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiplies() {
        assert_eq!(area(3, 4), 12);
    }
}
"""
CRATE = {"Cargo.toml": '[package]\nname = "area"\nversion = "0.1.0"\nedition = "2021"\n', "src/lib.rs": LIB}


@pytest.mark.toolchain
@pytest.mark.skipif(not shutil.which("cargo"), reason="cargo is not installed")
def test_a_fixer_that_edits_an_inline_rust_tests_answer_lands_nothing(tmp_path: Path) -> None:
    fake: dict[str, Any] = {"say": "Fake", "replace": [{"path": "src/lib.rs", "old": ", 12)", "new": ", 7)"}]}
    _, result = fix(tmp_path, CRATE, {"fix": [fake] * 3}, code=1)
    assert result["commits"] == [] and result["status"] != "completed"
    honest: dict[str, Any] = {"say": "Multiply", "replace": [{"path": "src/lib.rs", "old": "w + h", "new": "w * h"}]}
    place, result = fix(tmp_path / "again", CRATE, {"fix": [fake, honest]})
    assert [commit["subject"] for commit in result["commits"]] == ["Multiply"]
    assert ratchet("verify", "last", cwd=place).returncode == 0
