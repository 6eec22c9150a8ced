"""Branches of repositories given by URL: pushed by the holder of the lease only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ratchet.core import events as ev
from ratchet.core.state import RunState
from ratchet.engine.run_ledger import RunLedger
from ratchet.engine.travel import RunTravel
from ratchet.engine.workflow_registry import open_workflow
from ratchet.errors import LeaseLost
from ratchet.store.protocols import Store
from ratchet.store.run_directory import RunDirectory
from ratchet.workspace.git import repository
from tests.app import flood
from tests.contract.servers import World
from tests.contract.test_queue import holder
from tests.support import git, make_repository

BRANCH = "ratchet/thing"


class Host:
    """A clone of the origin, and a run that it claimed."""

    def __init__(self, folder: Path, name: str, origin: Path, store: Store) -> None:
        self.clone = folder / name
        git("clone", "-q", str(origin), str(self.clone), cwd=folder)
        git("config", "user.email", "t@example.com", cwd=self.clone)
        git("config", "user.name", "T", cwd=self.clone)
        lease: Any = store.claim_next(holder(name), run="run-1", ttl_s=10)
        ledger = RunLedger(
            store,
            lease,
            store.item(lease.item),
            open_workflow("tdd"),
            RunDirectory(folder / f"{name}-runs", "run-1"),
            on_event=lambda *_: None,
        )
        workspace: Any = None  # not asked
        self.travel = RunTravel(ledger, repository.find_repository(self.clone), workspace)

    def commit(self, *, onto: str = "") -> RunState:
        if onto:
            git("pull", "-q", "origin", BRANCH, cwd=self.clone)
        git("commit", "-q", "--allow-empty", "-m", "more", cwd=self.clone)
        started = ev.RunStarted(
            item="i", title="", workflow="tdd", repo="", base_commit="b", branch=BRANCH, slug="thing",
            policy={}, tests=[], protected=[], test_command=["true"],
        )  # fmt: skip
        return RunState(run="run-1", started=started, head=git("rev-parse", "HEAD", cwd=self.clone))


@pytest.fixture
def world(tmp_path: Path) -> Any:
    world = World(tmp_path / "store.db")
    yield world
    world.close()


def test_only_the_holder_of_the_lease_pushes_over_the_commits_of_others(world: World, tmp_path: Path) -> None:
    source = make_repository(tmp_path / "source", flood.FILES)
    origin, store = tmp_path / "origin.git", world.open()
    git("clone", "-q", "--bare", str(source), str(origin), cwd=tmp_path)
    store.add(msgspec.structs.replace(flood.item(source, "thing", ""), repo=f"file://{origin}"))
    first = Host(tmp_path, "one", origin, store)
    early = first.commit()
    first.travel.publish(early)
    late = first.commit()
    world.pass_time(20)
    second = Host(tmp_path, "two", origin, store)
    newer = second.commit(onto=BRANCH)
    second.travel.publish(newer)
    with pytest.raises(LeaseLost):
        first.travel.publish(late)
    assert git("rev-parse", BRANCH, cwd=origin) == newer.head


def test_a_push_takes_back_nothing_that_came_after_the_branch_was_read(tmp_path: Path) -> None:
    origin = make_repository(tmp_path / "origin", {"a": "a"})
    clones = [tmp_path / name for name in ("one", "two")]
    for clone in clones:
        git("clone", "-q", str(origin), str(clone), cwd=tmp_path)
    git("commit", "-q", "--allow-empty", "-m", "next", cwd=origin)
    git("fetch", "-q", cwd=clones[1])
    head, early = git("rev-parse", "HEAD", cwd=origin), git("rev-parse", "HEAD", cwd=clones[0])
    there = repository.remote_branch(clones[0], BRANCH)
    assert there == ""
    assert repository.publish_branch(clones[1], BRANCH, head, instead_of="")
    assert not repository.publish_branch(clones[0], BRANCH, early, instead_of=there)
    assert repository.remote_branch(clones[0], BRANCH) == head
