"""Branches of repositories given by URL: pushed by the holder of the lease only."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ratchet.app.runs import RunService
from ratchet.core import events as ev
from ratchet.core.state import RunState, RunStatus
from ratchet.engine.run_ledger import RunLedger
from ratchet.engine.travel import RunTravel
from ratchet.engine.workflow_registry import open_workflow
from ratchet.errors import BranchMoved, LeaseLost
from ratchet.interfaces.terminal.live_view import ignore_event
from ratchet.store.protocols import Store
from ratchet.store.run_directory import RunDirectory
from ratchet.workspace.git import repository
from tests.app import flood
from tests.contract.servers import World
from tests.contract.test_queue import holder
from tests.support import GOOD_SCRIPT, SMALL, git, make_repository, open_factory, write_script

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

    def commit(self, *, onto: str = "", by_ratchet: bool = True) -> RunState:
        if onto:
            git("pull", "-q", "origin", BRANCH, cwd=self.clone)
        ours = ["-c", "user.email=ratchet@localhost"] if by_ratchet else []
        git(*ours, "commit", "-q", "--allow-empty", "-m", "more\n\nRatchet-Run: run-1", cwd=self.clone)
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


def test_a_persons_commit_at_the_origin_is_not_pushed_over(world: World, tmp_path: Path) -> None:
    source = make_repository(tmp_path / "source", flood.FILES)
    origin, store = tmp_path / "origin.git", world.open()
    git("clone", "-q", "--bare", str(source), str(origin), cwd=tmp_path)
    store.add(msgspec.structs.replace(flood.item(source, "thing", ""), repo=f"file://{origin}"))
    host = Host(tmp_path, "one", origin, store)
    host.travel.publish(host.commit())
    person = tmp_path / "person"
    git("clone", "-q", "-b", BRANCH, str(origin), str(person), cwd=tmp_path)
    git("-c", "user.name=P", "-c", "user.email=p@example.com", "commit", "-q", "--amend", "--allow-empty",
        "--no-edit", "--reset-author", cwd=person)  # fmt: skip
    git("push", "-q", "--force", "origin", BRANCH, cwd=person)
    later = host.commit()
    with pytest.raises(BranchMoved, match="by somebody else"):
        host.travel.publish(later)
    assert git("rev-parse", BRANCH, cwd=origin) == git("rev-parse", "HEAD", cwd=person)
    git("push", "-q", "origin", "--delete", BRANCH, cwd=person)
    host.travel.publish(later)
    assert git("rev-parse", BRANCH, cwd=origin) == later.head


def test_a_worker_that_ends_before_it_has_pushed_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = make_repository(tmp_path / "origin", SMALL)
    place = tmp_path / "project"
    git("clone", "-q", str(origin), str(place), cwd=tmp_path)
    write_script(place, GOOD_SCRIPT)
    publish = RunTravel.publish

    def cut_off(travel: RunTravel, _state: RunState) -> None:
        if any(entry.kind == "landed" for entry in travel._store.entries(travel._run)):
            raise LeaseLost("cut off")

    with open_factory(place) as service:
        here = service.add(place / "SPEC.md")
        service.store.add(msgspec.structs.replace(here, id="far", repo=f"file://{origin}", source_ref="far"))
        monkeypatch.setattr(RunTravel, "publish", cut_off)
        branch = f"ratchet/{here.slug}"
        with pytest.raises(LeaseLost, match="cut off"):
            work(service, "far")
        assert not git("for-each-ref", f"refs/heads/{branch}", cwd=origin)
        monkeypatch.setattr(RunTravel, "publish", publish)
        state = work(service, "far")
    assert state.status is RunStatus.COMPLETED
    assert git("rev-parse", branch, cwd=origin) == state.head


def work(service: RunService, item: str) -> RunState:
    lease = service.claim(item)
    return asyncio.run(service.work(lease, watch=ignore_event, on_agent_event=lambda _said: None))


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
