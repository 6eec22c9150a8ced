"""The demo: creates a small project with a scripted agent and explains the result."""

from __future__ import annotations

import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import ratchet
from ratchet.app.runs import RunHistory
from ratchet.errors import EnvironmentCannot
from ratchet.interfaces.terminal.colour import Paint, Tone
from ratchet.interfaces.terminal.narrative import render_summary
from ratchet.plugins import install_extra
from ratchet.workspace.git.command import git
from ratchet.workspace.git.repository import message_of

SPEC, SCRIPT = "SPEC.md", "script.toml"


def create_project(folder: Path | None) -> Path:
    """Create a git repository with the example project; workspaces are created next to it."""
    if find_spec("pytest") is None:
        raise EnvironmentCannot("the demo needs pytest, which is not installed", hint=install_extra("demo"))
    base = folder.absolute() if folder else Path(tempfile.mkdtemp(prefix="ratchet-demo-"))
    place = base / "project"
    shutil.copytree(_example(), place, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    git("init", "--quiet", "--initial-branch=main", str(place))
    git("add", "--all", cwd=place)
    git("commit", "--quiet", "-m", "A project that reads seconds", cwd=place)
    return place


def slow_down(place: Path, seconds: float = 4.0) -> None:
    """Let every turn of the scripted agent take a few seconds, so that one can watch."""
    script = place / SCRIPT
    lines = script.read_text("utf-8").splitlines()
    slow = [f"{line}\ndelay_s = {seconds}" if line.startswith("[[") else line for line in lines]
    script.write_text("\n".join(slow) + "\n", "utf-8")


def settings(place: Path) -> list[str]:
    return [f"agent=scripted:{place / SCRIPT}", f"workspace.root={place.parent / 'workspaces'}"]


def _example() -> Path:
    """Find the example: inside the package in a wheel, at the top level in a checkout."""
    here = Path(ratchet.__file__).parent
    found = next((p for p in (here / "examples" / "demo", here.parents[1] / "examples" / "demo") if p.is_dir()), None)
    if found is None:
        raise EnvironmentCannot("this installation does not contain the demo project", hint="reinstall ratchet-factory")
    return found


def render_demo_summary(history: RunHistory, place: Path, paint: Paint) -> str:
    """Render the end of the demo: summary, the first commit with its proof, and what to try next."""
    run, started, commits = history.row.run, history.state.started, history.state.commits
    assert started
    proof = message_of(place, commits[0].commit) if commits else ""
    after = render_summary(history, paint)
    command = "ratchet" if shutil.which("ratchet") else str(Path(sys.argv[0]).absolute())
    steps = {
        f"cd {place}": "open the project",
        f"git log main..{started.branch}": "read the commits and their proofs",
        f"{command} verify {run}": "re-run each proof: failing at the parent, passing at the commit",
        f"{command} show {run}": "show the full timeline again",
        f"ls .ratchet/runs/{run}": "ledger, receipts, reports, prompts and answers as plain files",
    }
    shown = "\n".join(f"  {what}\n      {paint(Tone.DIM, why)}" for what, why in steps.items())
    quoted = "\n".join(f"  │ {line}".rstrip() for line in proof.strip().splitlines())
    return f"{after}\n\nThe first commit, with its proof:\n{quoted}\n\nWhat to try next:\n{shown}"
