"""What many tests need: a small repository, a script for its agents, and a run carried to its end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ratchet import config
from ratchet.app.runs import RunService
from ratchet.core import events as ev
from ratchet.core.ledger import Entry
from ratchet.core.state import RunState
from ratchet.interfaces.cli import demo
from ratchet.interfaces.terminal.live_view import ignore_event
from ratchet.workspace.git import repository

RATCHET = [sys.executable, "-m", "ratchet"]


def quick_environment() -> dict[str, str]:
    """Ours, without what would leak into a project's pytest and slow it down."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "RATCHET_", "GIT_"))}
    return env | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def ratchet(*args: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RATCHET, *map(str, args)],
        cwd=cwd,
        env=quick_environment() | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def git(*args: str, cwd: Path) -> str:
    done = subprocess.run(["git", *args], cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def make_repository(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    git("init", "-q", "-b", "main", ".", cwd=folder)
    git("config", "user.email", "t@example.com", cwd=folder)
    git("config", "user.name", "T", cwd=folder)
    git("add", "-A", cwd=folder)
    git("commit", "-q", "-m", "start", cwd=folder)
    return folder


def install_editable(project: Path, folder: str = "src") -> Path:
    """A virtual environment of the project's with our pytest, in which the project is installed from its own folder."""
    venv.create(project / ".venv", symlinks=True, with_pip=False)
    (site,) = (project / ".venv").glob("lib/python*/site-packages")
    (site / "ours.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    (site / "__editable__.project.pth").write_text(f"{project / folder}\n")
    with (project / ".git" / "info" / "exclude").open("a") as exclude:
        exclude.write(".venv\n")
    return project / ".venv" / "bin" / "python"


SMALL = {
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\n',
    "calc.py": "def add(a, b):\n    return a + b\n",
    "tests/test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
    "SPEC.md": "# Subtract\n\n`calc.sub(a, b)` subtracts.\n",
}
RED_TEST = "from calc import sub\n\n\ndef test_sub():\n    assert sub(3, 2) == 1\n"
RIGHT = "\n\ndef sub(a, b):\n    return a - b\n"
WRONG = "\n\ndef sub(a, b):\n    return b - a\n"
APPROVED = '{"verdict": "approved", "summary": "fine"}'
AUDIT = {"say": "sub subtracts", "write": {"tests/test_sub.py": RED_TEST}}
IMPLEMENT = {"say": "Subtract", "append": {"calc.py": RIGHT}}
COMPLETE = {"say": "REQUIREMENTS_COMPLETE"}
REVIEW = {"say": APPROVED}
GOOD_SCRIPT: dict[str, list[dict[str, Any]]] = {
    "audit": [AUDIT, COMPLETE],
    "implement": [IMPLEMENT],
    "review": [REVIEW],
}


def small_project(tmp_path: Path, script: dict[str, Any] | None = None) -> Path:
    place = make_repository(tmp_path / "project", SMALL)
    write_script(place, GOOD_SCRIPT if script is None else script)
    return place


def write_script(place: Path, script: dict[str, Any]) -> Path:
    path = place.parent / "script.json"
    path.write_bytes(msgspec.json.encode(script))
    return path


def open_factory(place: Path, *settings: str, agent: str = "") -> RunService:
    repo = repository.find_repository(place)
    flags = [
        f"agent={agent or f'scripted:{place.parent}/script.json'}",
        f"workspace.root={place.parent}/workspaces",
        "tdd.sealed=false",  # tests about it switch it on: the others need no second test file
        *settings,
    ]
    return RunService(repo, config.load(repo.root, environ={}, flags=flags).config)


def carry(
    factory: RunService, spec: Path, watch: Callable[[Entry, ev.Event, RunState], None] = ignore_event
) -> RunState:
    lease = factory.claim(factory.add(spec).id)
    return asyncio.run(factory.work(lease, watch=watch, on_agent_event=lambda _text: None))


def carry_script(tmp_path: Path, script: dict[str, Any], *settings: str) -> tuple[RunState, list[ev.Event], Path]:
    """A fresh small project taken through a script; returns how it ended, what happened, and where."""
    place = small_project(tmp_path, script)
    received: list[ev.Event] = []

    def watch(_entry: Entry, event: ev.Event, _state: RunState) -> None:
        received.append(event)

    with open_factory(place, *settings) as factory:
        lease = factory.claim(factory.add(place / "SPEC.md").id)
        state = asyncio.run(factory.work(lease, watch=watch, on_agent_event=lambda _text: None))
    return state, received, place


def lay_out_demo(folder: Path) -> Path:
    return demo.create_project(folder)


def kinds(events: list[ev.Event]) -> list[str]:
    return [ev.kind_of(event) for event in events]
