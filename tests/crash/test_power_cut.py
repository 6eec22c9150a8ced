"""The power is cut before and after every durable write of the demo's run. Every start again comes to the same end."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ratchet.core import events as ev
from ratchet.core import trailers
from ratchet.core.state import RunStatus
from ratchet.factory import Factory
from ratchet.store.rundir import RunDirectory
from ratchet.surfaces import demo
from ratchet.surfaces.live import silent
from tests.support import git, lay_out_demo, open_factory, quick_environment

SHARDS = 6
_OWN = {"run_claimed", "step_resumed"}  # what being cut off adds to a ledger


def record(tmp_path: Path) -> tuple[Path, list[Path]]:
    """After write N is before write N + 1, so one copy before each, and one at the end, are all there is."""
    place = lay_out_demo(tmp_path / "demo")
    copies = tmp_path / "copies"
    copies.mkdir()
    argv = [sys.executable, "-m", "tests.crash.record", str(place), str(copies)]
    env = quick_environment() | {"GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(argv, check=True, env=env, cwd=Path(__file__).parents[2], timeout=240)
    return place, sorted(copies.iterdir())


def open_demo(place: Path) -> Factory:
    return open_factory(place, agent=f"scripted:{place / demo.SCRIPT}")


def ending(place: Path) -> dict[str, Any]:
    """All of a run's end that must not depend on where it was cut."""
    with open_demo(place) as factory:
        story = factory.story("last")
        directory: RunDirectory = factory.directory(story.row.run)
        for receipt in story.receipts:
            for artifact in receipt.artifacts:
                directory.get(artifact)
    state = story.state
    assert state.started
    log = git("log", "--format=%T %s%n%B%x00", f"main..{state.started.branch}", cwd=place).split("\0")
    proofs = [trailers.parse(text.strip("\n")) for text in log if text.strip()]
    return {
        "status": state.status,
        "commits": [text.strip().splitlines()[0] for text in log if text.strip()],
        "proofs": [(p.key, p.tests, p.red, p.green, p.cost) for p in proofs if p],
        "steps": [(receipt.step, receipt.key, receipt.outcome, receipt.snapshot_after) for receipt in story.receipts],
        "events": [
            ev.kind_of(event) for event in story.events if isinstance(event, ev.Event) and ev.kind_of(event) not in _OWN
        ],
        "reverts": state.reverts,
        "cost": state.usage.cost_usd,
    }


def start_again(place: Path) -> int:
    """What `ratchet run` does after a power cut; returns how many steps were found in doubt."""
    with open_demo(place) as factory:
        if any(row.status is RunStatus.COMPLETED for row in factory.store.runs()):
            factory.tidy()
            return 0
        lease = factory.claim(factory.add(place / demo.SPEC).id)
        asyncio.run(factory.work(lease, watch=silent, tell=lambda _said: None))
        story = factory.story(lease.run)
    return sum(isinstance(event, ev.StepResumed) for event in story.events)


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_wherever_the_power_is_cut_the_run_comes_to_the_same_end(tmp_path: Path, shard: int) -> None:
    place, copies = record(tmp_path)
    expected = normal = ending(place)
    assert expected["status"] is RunStatus.COMPLETED and len(expected["commits"]) == 4
    assert len(copies) > 80
    for copy in copies[shard::SHARDS]:
        shutil.rmtree(place.parent)
        shutil.copytree(copy, place.parent, symlinks=True)
        resumed = start_again(place)
        normal = ending(place)
        if copy.name.startswith(("000", "001")):  # not even the item was there: a new one, with keys of its own
            normal, expected_here = {**normal, "steps": 0, "proofs": 0}, {**expected, "steps": 0, "proofs": 0}
        else:
            expected_here = expected
        assert normal == expected_here, f"cut before {copy.name}"
        assert resumed <= 1, f"cut before {copy.name}: more than the step in flight was repeated"
        assert git("worktree", "list", cwd=place).count("\n") == 0, f"cut before {copy.name}: a worktree was left"
