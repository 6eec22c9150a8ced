"""The power is cut before and after every durable write of a run, of each workflow. Every start again comes to the
same end."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ratchet.core import events as ev
from ratchet.core import trailers
from ratchet.core.state import RunStatus
from ratchet.engine.budget_meter import LOST
from ratchet.interfaces.terminal.live_view import ignore_event
from ratchet.store.run_directory import RunDirectory
from tests.crash.record import ask, open_run
from tests.engine.workflows import scenes
from tests.support import git, lay_out_demo, quick_environment

# One moment in twenty-four in every run of the tests, all of them when it is certified, in six shards.
IN_EVERY_RUN = [(13, 24)]
ALL = [pytest.param((shard, 6), marks=pytest.mark.certify) for shard in range(6)]


def _is_own(event: ev.Event) -> bool:
    """What being cut off adds to a ledger: who took over, and what the lost worker had spent."""
    return isinstance(event, ev.RunClaimed | ev.StepResumed) or (
        isinstance(event, ev.UsageMetered) and event.agent == LOST
    )


def record(tmp_path: Path, scene: str = "") -> tuple[Path, list[Path]]:
    """After write N is before write N + 1, so one copy before each, and one at the end, are all there is."""
    whole = tmp_path / "whole"
    place = scenes.lay_out(whole, scenes.SCENES[scene]) if scene else lay_out_demo(whole)
    copies = tmp_path / "copies"
    copies.mkdir()
    argv = [sys.executable, "-m", "tests.crash.record", str(place), str(copies), "--scene", scene]
    env = quick_environment() | {"GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(argv, check=True, env=env, cwd=Path(__file__).parents[2], timeout=240)
    return place, sorted(copies.iterdir())


def ending(place: Path, scene: str = "") -> dict[str, Any]:
    """All of a run's end that must not depend on where it was cut."""
    with open_run(place, scene) as factory:
        story = factory.history("last")
        directory: RunDirectory = factory.directory(story.row.run)
        for receipt in story.receipts:
            for artifact in receipt.artifacts:
                directory.get(artifact)
    state = story.state
    assert state.started
    log = git("log", "--format=%T %s%n%B%x00", f"main..{state.started.branch}", cwd=place).split("\0")
    proofs = [trailers.parse_proof(text.strip("\n")) for text in log if text.strip()]
    return {
        "status": state.status,
        "commits": [text.strip().splitlines()[0] for text in log if text.strip()],
        "proofs": [(p.key, p.tests, p.red, p.green) for p in proofs if p],
        "steps": [(receipt.step, receipt.key, receipt.outcome, receipt.snapshot_after) for receipt in story.receipts],
        "events": [ev.kind_of(event) for event in story.events if isinstance(event, ev.Event) and not _is_own(event)],
        "reverts": state.reverts,
    }


ONE_ASK_USD = 0.06  # more than any scripted turn of these scenes costs: the dearest is 0.05


def cost_of(place: Path, scene: str) -> float:
    with open_run(place, scene) as factory:
        return factory.history("last").state.usage.cost_usd


def start_again(place: Path, scene: str = "") -> int:
    """What `ratchet run` does after a power cut; returns how many steps were found in doubt."""
    with open_run(place, scene) as factory:
        if any(row.status is RunStatus.COMPLETED for row in factory.store.runs()):
            factory.remove_finished_workspaces()
            return 0
        lease = factory.claim(ask(factory, place, scene))
        asyncio.run(factory.work(lease, watch=ignore_event, on_agent_event=lambda _text: None))
        story = factory.history(lease.run)
    return sum(isinstance(event, ev.StepResumed) for event in story.events)


def cut_at(copies: list[Path], place: Path, expected: dict[str, Any], scene: str = "") -> None:
    """Start again from each of these states of the disk."""
    cost = cost_of(place, scene)
    for copy in copies:
        shutil.rmtree(place.parent)
        shutil.copytree(copy, place.parent, symlinks=True)
        resumed = start_again(place, scene)
        normal, wanted = ending(place, scene), expected
        if copy.name.startswith(("000", "001")):  # not even the item was there: a new one, with keys of its own
            normal, wanted = {**normal, "steps": 0, "proofs": 0}, {**expected, "steps": 0, "proofs": 0}
        assert normal == wanted, f"cut before {copy.name}"
        # Money spent is spent: what an ask had cost when the power went is told, and asking again costs again. Who else
        # of a swarm was how far when the first won is nobody's promise.
        more = cost_of(place, scene) - cost
        assert scene == "swarm" or 0 <= round(more, 9) < ONE_ASK_USD, f"cut before {copy.name}: ${more} more"
        assert resumed <= 1, f"cut before {copy.name}: more than the step in flight was repeated"
        assert git("worktree", "list", cwd=place).count("\n") == 0, f"cut before {copy.name}: a worktree was left"
        branches = git("branch", "--list", "ratchet/*", cwd=place).splitlines()
        assert len(branches) == 1, f"cut before {copy.name}: branches of forks were left: {branches}"


@pytest.mark.slow
@pytest.mark.parametrize("shard", [*IN_EVERY_RUN, *ALL], ids=str)
def test_wherever_the_power_is_cut_the_run_reaches_the_same_end(tmp_path: Path, shard: tuple[int, int]) -> None:
    place, copies = record(tmp_path)
    expected = ending(place)
    assert expected["status"] is RunStatus.COMPLETED and len(expected["commits"]) == 4
    assert len(copies) > 80
    first, each = shard
    cut_at(copies[first::each], place, expected)


SAMPLED = 3


@pytest.mark.slow
@pytest.mark.parametrize("scene", scenes.SCENES)
def test_each_workflow_reaches_the_same_end_wherever_it_is_cut_in_a_sample(tmp_path: Path, scene: str) -> None:
    place, copies = record(tmp_path, scene)
    expected = ending(place, scene)
    assert expected["status"] is RunStatus.COMPLETED and len(expected["commits"]) == len(scenes.SCENES[scene].commits)
    chance = random.Random(seed := int(os.environ.get("RATCHET_TEST_SEED", random.SystemRandom().randrange(10**6))))
    print(f"RATCHET_TEST_SEED={seed}")
    cut_at(chance.sample(copies, SAMPLED), place, expected, scene)


@pytest.mark.certify
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scene", scenes.SCENES)
def test_each_workflow_reaches_the_same_end_wherever_it_is_cut(tmp_path: Path, scene: str) -> None:
    place, copies = record(tmp_path, scene)
    print(f"{scene}: {len(copies)} moments")
    cut_at(copies, place, ending(place, scene), scene)
