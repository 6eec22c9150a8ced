"""The workflow in `examples/` is installed as a user would install it, and drives a run."""

from __future__ import annotations

import os
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support import SMALL, git, make_repository, ratchet, write_script

EXAMPLE = Path(__file__).parents[3] / "examples" / "workflow"
GOOD: dict[str, Any] = {
    "say": "Write the handbook",
    "write": {"docs/index.md": "[add](add.md)\n", "docs/add.md": "It adds.\n"},
}
DEAD: dict[str, Any] = {"say": "Dead link", "write": {"docs/index.md": "[sub](sub.md)\n"}}


@pytest.fixture
def installed(tmp_path: Path) -> str:
    """Laid out as an installer does it, from the example's own metadata; pip would have to fetch its build backend."""
    site = tmp_path / "site"
    shutil.copytree(EXAMPLE, site, ignore=shutil.ignore_patterns("*.md", "__pycache__"))
    project = tomllib.loads((site / "pyproject.toml").read_text())["project"]
    folder = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    rows = [f"[{group}]\n" + "".join(f"{name} = {at}\n" for name, at in entries.items()) for group, entries in groups]
    (folder / "entry_points.txt").write_text("\n".join(rows))
    return str(site)


def run(tmp_path: Path, site: str, turns: list[dict[str, Any]], *settings: str) -> tuple[Path, str]:
    place = make_repository(tmp_path / "project", SMALL)
    script = write_script(place, {"handbook.write": turns})
    root = f"workspace.root={tmp_path}/ws"
    env = {"PYTHONPATH": os.pathsep.join([site, os.environ.get("PYTHONPATH", "")])}
    done = ratchet("run", "SPEC.md", "--workflow", "handbook", "--agent", f"scripted:{script}", "--set", root,
                   *(word for setting in settings for word in ("--set", setting)), cwd=place, **env)  # fmt: skip
    reported = ratchet("show", "last", cwd=place, **env)
    return place, f"{done.stdout}{done.stderr}{reported.stdout}{reported.stderr}"


def test_a_dead_link_is_refused_a_good_page_kept_and_source_is_not_the_writers(tmp_path: Path, installed: str) -> None:
    sly = GOOD | {"append": {"calc.py": "\nX = 1\n"}}
    place, reported = run(tmp_path, installed, [DEAD, sly])
    assert "links to pages that do not exist: sub.md" in reported and "completed: 1 commit kept" in reported, reported
    assert "forbidden writes reverted: calc.py" in reported
    branch = git("for-each-ref", "--format=%(refname:short)", "refs/heads/ratchet", cwd=place)
    assert git("diff", "--name-only", f"main..{branch}", cwd=place).split() == ["docs/add.md", "docs/index.md"]


def test_its_bounds_hold_and_without_it_the_name_is_unknown(tmp_path: Path, installed: str) -> None:
    place, reported = run(tmp_path, installed, [DEAD] * 3)
    assert "failed (no_progress): no page that will do: 3 attempts in vain" in reported
    alone = ratchet("run", "SPEC.md", "--workflow", "handbook", "--agent", "scripted:x", cwd=place)
    assert alone.returncode == 2 and "there is no workflow 'handbook'" in alone.stderr


def test_its_gate_refuses_in_its_own_words(tmp_path: Path, installed: str) -> None:
    long = GOOD | {"write": {"docs/index.md": "word\n" * 300}}
    _, reported = run(tmp_path, installed, [long, GOOD], 'gates=[{"name": "short"}]')
    assert "gate short failed: pages of more than 200 lines: index.md" in reported, reported
    assert "completed: 1 commit kept" in reported
