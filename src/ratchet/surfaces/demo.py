"""The demo: a small real project and the script its agents play, laid out where they can be looked at afterwards."""

from __future__ import annotations

import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import ratchet
from ratchet.errors import EnvironmentCannot
from ratchet.factory import Story
from ratchet.repository import message_of
from ratchet.surfaces.story import Paint, Tone, ending
from ratchet.workspace.git import git

SPEC, SCRIPT = "SPEC.md", "script.toml"


def lay_out(folder: Path | None) -> Path:
    """A fresh git repository with the example in it; beside it will be its workspaces."""
    if find_spec("pytest") is None:
        raise EnvironmentCannot("the demo's tests need pytest", hint="pip install 'ratchet-factory[demo]'")
    base = folder.absolute() if folder else Path(tempfile.mkdtemp(prefix="ratchet-demo-"))
    place = base / "project"
    shutil.copytree(_example(), place, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    git("init", "--quiet", "--initial-branch=main", str(place))
    git("add", "--all", cwd=place)
    git("commit", "--quiet", "-m", "A project that reads seconds", cwd=place)
    return place


def settings(place: Path) -> list[str]:
    return [f"agent=scripted:{place / SCRIPT}", f"workspace.root={place.parent / 'workspaces'}"]


def _example() -> Path:
    """In the wheel beside the code, in a checkout at its top."""
    here = Path(ratchet.__file__).parent
    found = next((p for p in (here / "examples" / "demo", here.parents[1] / "examples" / "demo") if p.is_dir()), None)
    if found is None:
        raise EnvironmentCannot(
            "the demo's project is missing from this installation", hint="reinstall ratchet-factory"
        )
    return found


def told(story: Story, place: Path, paint: Paint) -> str:
    """The end of the demo: the timeline has just gone by, so only what it came to, one proof whole, and what next."""
    run, started, commits = story.row.run, story.state.started, story.state.commits
    assert started
    proof = message_of(place, commits[0].commit) if commits else ""
    after = ending(story, paint)
    command = "ratchet" if shutil.which("ratchet") else str(Path(sys.argv[0]).absolute())
    steps = {
        f"cd {place}": "the project, its branch, its runs",
        f"git log main..{started.branch}": "all commits with their proofs",
        f"{command} verify {run}": "re-enact each: red at the parent, green at the commit",
        f"{command} show {run}": "the whole story again",
        f"ls .ratchet/runs/{run}": "ledger, receipts, reports, prompts, answers as plain files",
    }
    shown = "\n".join(f"  {what}\n      {paint(Tone.DIM, why)}" for what, why in steps.items())
    quoted = "\n".join(f"  │ {line}".rstrip() for line in proof.strip().splitlines())
    return f"{after}\n\nThe first of them, with its proof:\n{quoted}\n\nWhere to look next:\n{shown}"
