"""The demo: a small real project and the script its agents play, laid out where they can be looked at afterwards."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import ratchet
from ratchet.errors import EnvironmentCannot
from ratchet.factory import Story
from ratchet.surfaces.story import Paint
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


def told(story: Story, place: Path, paint: Paint, tell: Callable[[Story, Paint], str]) -> str:
    run, branch = story.row.run, story.state.started.branch if story.state.started else ""
    after = tell(story, paint).split("\n\n", 2)[2]  # the timeline has just gone by
    return f"""{after}

Where to look next (the project is in {place}):
  cd {place}
  git log main..{branch}            the commits with their proofs
  ratchet verify {run}   re-enact every proof: red at the parent, green at the commit
  ratchet show {run}     the whole story again
  ls .ratchet/runs/{run}  ledger, receipts, reports, prompts, history as plain files"""
