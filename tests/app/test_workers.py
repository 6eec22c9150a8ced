"""Real workers in real processes: stopped, killed, cancelled and lost, and nothing is lost with them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from ratchet.app.workers import PAUSE_MAX_S, Slot
from ratchet.core import events as ev
from ratchet.core.item import Item, ItemStatus
from ratchet.core.lease import Lease
from ratchet.core.state import RunStatus
from ratchet.engine import lease_keeper
from ratchet.errors import LeaseLost
from ratchet.interfaces.terminal.live_view import ignore_event
from ratchet.process.spawn import is_gone, this_process
from ratchet.store.protocols import RunRow, Store
from tests.app import flood
from tests.contract.servers import fresh_database
from tests.support import APPROVED, git, make_repository, open_factory, small_project, write_script

T = TypeVar("T")


class World:
    """A tiny repository, a store, and the workers that were started for it."""

    def __init__(self, folder: Path) -> None:
        self.place = flood.lay_out(folder)
        self.address = str(folder / "ratchet.db")
        self.store: Store = flood.open_world(self.address)
        self.head = git("rev-parse", "HEAD", cwd=self.place)
        self.started: list[subprocess.Popen[str]] = []

    def add(self, name: str, *, delay_s: float = 0.0) -> Item:
        return self.store.add(flood.item(self.place, name, self.head, delay_s=delay_s))

    def start(self, *args: str, count: int = 1) -> subprocess.Popen[str]:
        self.started.append(flood.start_workers(self.place, self.address, count, *args))
        return self.started[-1]

    def events(self, item: Item) -> list[Any]:
        run = self.store.item_row(item.id).run
        return [ev.decode(entry.kind, entry.data) for entry in self.store.entries(run)] if run else []

    def run(self, item: Item) -> RunRow:
        return self.store.run(self.store.item_row(item.id).run)

    def asking(self, item: Item) -> RunRow | None:
        """The run, once its first agent is at work."""
        begun = [event for event in self.events(item) if isinstance(event, ev.StepStarted)]
        return self.run(item) if begun and begun[-1].action == "audit" else None

    def log(self) -> str:
        return (self.place.parent / "workers.log").read_text()

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()
        self.store.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def until(found: Callable[[], T | None], *, within_s: float = 30.0) -> T:
    """What `found` comes to; a test waits for something to be so, never for time to pass."""
    deadline = time.monotonic() + within_s
    while not (answer := found()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)
    return answer


def status(world: World, item: Item, wanted: ItemStatus) -> Callable[[], bool]:
    return lambda: world.store.item_row(item.id).status is wanted


# --- pulling ---------------------------------------------------------------------------------------------------------


def test_a_worker_sets_itself_up_from_the_item_alone(world: World, tmp_path: Path) -> None:
    elsewhere = make_repository(tmp_path / "elsewhere" / "project", flood.FILES)
    other = flood.item(elsewhere, "other", git("rev-parse", "HEAD", cwd=elsewhere))
    world.store.add(other)
    here = world.add("here")
    assert world.start("--drain", count=2).wait(60) == 0
    for item in (here, other):
        assert world.store.item_row(item.id).status is ItemStatus.COMPLETED, world.log()
    assert "ratchet/other" in git("branch", "--list", "ratchet/*", cwd=elsewhere)
    assert "ratchet/other" not in git("branch", "--list", "ratchet/*", cwd=world.place)


def test_a_repository_that_is_elsewhere_is_fetched_and_the_newest_commit_is_the_base(
    world: World, tmp_path: Path
) -> None:
    origin = make_repository(tmp_path / "origin" / "project", flood.FILES)
    far = flood.item(origin, "far", "")
    world.store.add(msgspec.structs.replace(far, repo=f"file://{origin}"))
    assert world.start("--drain").wait(60) == 0
    assert world.store.item_row(far.id).status is ItemStatus.COMPLETED, world.log()
    started = world.events(far)[0]
    assert started.base_commit == git("rev-parse", "HEAD", cwd=origin)
    assert "ratchet/far-origin" in git("branch", "--list", cwd=origin)


def test_one_worker_takes_one_item_and_none_is_no_error(world: World) -> None:
    first, second = world.add("first"), world.add("second")
    assert world.start("--once").wait(60) == 0
    assert world.store.item_row(first.id).status is ItemStatus.COMPLETED
    assert world.store.item_row(second.id).status is ItemStatus.QUEUED
    assert [world.start("--once").wait(60) for _ in range(2)] == [0, 0]


def test_an_item_that_only_a_person_can_mend_fails_at_once_and_stops_no_other(world: World) -> None:
    bad = msgspec.structs.replace(flood.item(world.place, "bad", world.head), settings=["agent=scripted:/nowhere.json"])
    world.store.add(bad)
    good = world.add("good")
    world.start("--set", "worker.retry_s=[3600]")
    until(status(world, good, ItemStatus.COMPLETED))
    row = world.store.item_row(bad.id)
    assert row.status is ItemStatus.FAILED and row.attempts == 1 and "no such script" in row.detail


def test_limits_hold_for_all_workers_together(world: World) -> None:
    items = [world.add(f"thing{number}", delay_s=0.1) for number in range(3)]
    world.start("--drain", "--set", "limits.workers=1", count=3)
    most = 0
    while any(world.store.item_row(item.id).status is not ItemStatus.COMPLETED for item in items):
        most = max(most, len(world.store.workers(live=True)))
        assert world.started[0].poll() in (None, 0), world.log()
    assert most == 1


def test_text_of_an_issue_is_never_executed(world: World, tmp_path: Path) -> None:
    words = "$(touch PWNED) `touch PWNED` '; touch PWNED; \" && touch PWNED #"
    plain = flood.item(world.place, "thing", world.head)
    item = world.store.add(msgspec.structs.replace(plain, spec=f"# {words}\n\n{words}\n", title=words))
    assert world.start("--drain").wait(60) == 0
    assert world.store.item_row(item.id).status is ItemStatus.COMPLETED, world.log()
    assert not list(tmp_path.rglob("PWNED"))


# --- stopping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [os.kill, os.killpg], ids=["pool", "group"])
def test_a_worker_asked_to_stop_finishes_its_step_and_releases_the_run(
    world: World, stop: Callable[[int, int], None]
) -> None:
    """Ctrl-C on a terminal and supervisors signal the whole process group."""
    item = world.add("thing", delay_s=1.0)
    running = world.start()
    until(lambda: world.asking(item))
    stop(running.pid, signal.SIGTERM)
    assert running.wait(30) == 0
    events = world.events(item)
    assert isinstance(events[-1], ev.ReceiptFiled) and any(isinstance(event, ev.TestWritten) for event in events)
    row = world.store.item_row(item.id)
    assert row.status is ItemStatus.QUEUED and world.run(item).holder is None and row.attempts == row.returns == 0
    assert world.start("--drain").wait(60) == 0
    assert sum(isinstance(event, ev.TestWritten) for event in world.events(item)) == 1
    assert world.store.item_row(item.id).status is ItemStatus.COMPLETED


@pytest.mark.parametrize("how", ["twice", "too long"])
def test_a_step_that_does_not_end_in_time_or_is_stopped_twice_is_done_again(world: World, how: str) -> None:
    item = world.add("thing", delay_s=60.0)
    running = world.start("--set", "worker.stop_s=0.2" if how == "too long" else "worker.stop_s=60")
    until(lambda: world.asking(item))
    running.send_signal(signal.SIGTERM)
    if how == "twice":
        until(lambda: "repeat the signal to stop at once" in world.log())
        running.send_signal(signal.SIGTERM)
    assert running.wait(30) == 0
    assert world.run(item).holder is None and world.store.item_row(item.id).status is ItemStatus.QUEUED
    flood.item(world.place, "thing", world.head)  # the same script, without the delay
    assert world.start("--drain").wait(60) == 0
    assert any(isinstance(event, ev.StepResumed) for event in world.events(item))
    assert world.store.item_row(item.id).status is ItemStatus.COMPLETED


# --- requests of others --------------------------------------------------------------------------------------------


def test_a_cancelled_run_stops_within_seconds_and_the_worker_goes_on_with_the_next(world: World) -> None:
    item = world.add("thing", delay_s=60.0)
    world.start()
    until(lambda: world.asking(item))
    world.store.cancel(item.id, by="somebody")
    until(status(world, item, ItemStatus.CANCELLED), within_s=10)
    other = world.add("other")
    until(status(world, other, ItemStatus.COMPLETED))


def test_a_lease_is_renewed_while_its_work_prints_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clone, a test suite, a model that thinks: all of it is silence."""
    monkeypatch.setattr(lease_keeper, "HEARTBEAT_S", 0.01)
    store = flood.open_world(str(tmp_path / "ratchet.db"))
    store.add(flood.item(flood.lay_out(tmp_path), "thing", "HEAD"))
    lease = store.claim("item-thing", run="run-1", holder=this_process(), ttl_s=60)
    seen = {store.run("run-1").expires_at}

    def silence() -> bool:
        seen.add(store.run("run-1").expires_at)
        return len(seen) > 5

    async def work() -> None:
        async with lease_keeper.keep_lease(store, lease, lease_s=60):
            await asyncio.to_thread(until, silence)

    asyncio.run(work())
    assert max(seen) > min(seen) and store.run("run-1").epoch == 1 + 1, "kept all the time, then given back"
    store.close()


@pytest.mark.parametrize("reported", ["cancelled", "killed"])
@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_a_stop_request_takes_effect_at_once_and_not_at_the_next_heartbeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, reported: str
) -> None:
    monkeypatch.setattr(lease_keeper, "HEARTBEAT_S", 600.0)
    store = flood.open_world(str(tmp_path / "ratchet.db") if backend == "sqlite" else fresh_database())
    store.add(flood.item(flood.lay_out(tmp_path), "thing", "HEAD"))
    lease = store.claim("item-thing", run="run-1", holder=this_process(), ttl_s=3600)

    async def work() -> None:
        async with lease_keeper.keep_lease(store, lease, lease_s=3600):
            await asyncio.to_thread(until, lambda: store.worker(lease.worker).status == "running")
            store.cancel(lease.item, by="ann") if reported == "cancelled" else store.kill(lease.worker, by="ann")
            await asyncio.sleep(600)

    with pytest.raises(lease_keeper.AbortRequested if reported == "cancelled" else LeaseLost):
        asyncio.run(asyncio.wait_for(work(), 30))
    store.close()


def test_a_killed_worker_stops_writes_nothing_more_and_its_run_goes_on(world: World) -> None:
    item = world.add("thing", delay_s=60.0)
    world.start()
    until(lambda: world.asking(item))
    worker = world.store.workers(live=True)[0]
    flood.item(world.place, "thing", world.head)
    assert world.store.kill(worker.id, by="somebody")
    until(status(world, item, ItemStatus.COMPLETED))
    epochs = [entry.epoch for entry in world.store.entries(world.run(item).run)]
    assert epochs == sorted(epochs) and epochs[-1] > worker.epoch
    assert not world.store.kill(worker.id, by="somebody"), "killing finished work changes nothing"


def test_a_worker_killed_by_the_system_is_replaced_and_its_run_is_continued(world: World) -> None:
    item = world.add("thing", delay_s=60.0)
    running = world.start()
    row = until(lambda: world.asking(item))
    flood.item(world.place, "thing", world.head)
    assert row.holder and row.holder.pid != running.pid
    os.kill(row.holder.pid, signal.SIGKILL)
    until(status(world, item, ItemStatus.COMPLETED))
    assert running.poll() is None


def test_when_the_dispatcher_is_killed_its_workers_die_and_the_next_one_continues(world: World) -> None:
    item = world.add("thing", delay_s=60.0)
    running = world.start()
    row = until(lambda: world.asking(item))
    assert row.holder
    running.send_signal(signal.SIGKILL)
    running.wait()
    until(lambda: not Path(f"/proc/{row.holder.pid}/cmdline").exists() if row.holder else True)
    flood.item(world.place, "thing", world.head)
    assert world.start("--drain").wait(60) == 0
    assert world.store.item_row(item.id).status is ItemStatus.COMPLETED


def test_a_stalled_worker_is_killed_and_replaced(world: World) -> None:
    item = world.add("thing", delay_s=60.0)
    running = world.start("--set", "worker.stall_s=5", "--set", "lease_s=3600")
    row = until(lambda: world.asking(item))
    assert row.holder and row.holder.pid != running.pid
    flood.item(world.place, "thing", world.head)
    os.kill(row.holder.pid, signal.SIGSTOP)
    until(status(world, item, ItemStatus.COMPLETED), within_s=60)
    assert f"worker {row.holder.pid} has made no progress" in world.log() and running.poll() is None
    assert is_gone(row.holder) and world.run(item).epoch > row.epoch


# --- people's commits ------------------------------------------------------------------------------------------------


def commit_on(branch: str, place: Path) -> str:
    """Commit as a person does: nobody's tests have run on it."""
    made = git("commit-tree", f"{branch}^{{tree}}", "-p", branch, "-m", "mine", cwd=place)
    git("update-ref", f"refs/heads/{branch}", made, cwd=place)
    return made


@pytest.mark.parametrize("sandbox", ["auto", "off"])
def test_a_persons_commit_on_a_runs_branch_parks_the_run_and_is_not_overwritten(world: World, sandbox: str) -> None:
    item, script = world.add("thing"), flood.script("thing")
    branch, go = f"ratchet/{item.slug}", world.place.parent / "go"
    if sandbox == "off":  # while the tests of a change run
        waits = f'if [ "$(cat src/thing)" = done ]; then until [ -e {go} ]; do sleep 0.02; done; fi\n'
        script["audit"][0]["write"] = {"t/thing.t": waits + flood.TEST.format(name="thing")}
    else:  # while an agent works
        script["implement"][0]["delay_s"] = 4.0
    (world.place.parent / "scripts" / "thing.json").write_bytes(msgspec.json.encode(script))
    world.start("--set", f"sandbox.mode={sandbox}")
    action = "judge" if sandbox == "off" else "implement"
    until(lambda: any(isinstance(each, ev.StepStarted) and each.action == action for each in world.events(item)))
    before = git("rev-parse", branch, cwd=world.place)
    mine = commit_on(branch, world.place)
    go.touch()
    until(status(world, item, ItemStatus.PARKED))
    row = world.store.item_row(item.id)
    assert row.park_reason == "question" and mine[:12] in row.detail and "git branch mine" in row.detail, row.detail
    assert git("rev-parse", branch, cwd=world.place) == mine

    git("branch", "mine", mine, cwd=world.place)
    git("update-ref", f"refs/heads/{branch}", before, cwd=world.place)
    world.store.unpark(item.id)
    until(status(world, item, ItemStatus.COMPLETED))
    assert git("rev-parse", "mine", cwd=world.place) == mine
    subjects = git("log", "--format=%s", f"{world.head}..{branch}", cwd=world.place).splitlines()
    assert len(subjects) == 1 and subjects != ["mine"]


def test_children_that_fail_at_once_are_replaced_more_and_more_slowly() -> None:
    slot = Slot()
    pauses = []
    for _ in range(12):
        slot.begun = 100.0
        slot.ended(1, 100.5)
        pauses.append(slot.pause_s)
    assert pauses == sorted(pauses) and pauses[0] > 0 and pauses[-1] == PAUSE_MAX_S
    slot.ended(0, 200.0)
    assert slot.pause_s == 0


# --- late results ----------------------------------------------------------------------------------------------------


def test_a_commit_of_a_worker_that_lost_its_lease_is_found_by_its_key_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = small_project(tmp_path)
    with open_factory(place) as factory:
        lease = factory.claim(factory.add(place / "SPEC.md").id)
        append = factory.store.append
        made: list[str] = []

        def lose(lease: Lease, events: list[ev.Event], receipt: Any = None, **named: Any) -> Any:
            if any(isinstance(event, ev.StepCommitted) for event in events) and not made:
                made.extend(event.commit for event in events if isinstance(event, ev.StepCommitted))
                factory.store.kill(lease.worker, by="the test")
            return append(lease, events, receipt, **named)

        monkeypatch.setattr(factory.store, "append", lose)
        with pytest.raises(LeaseLost):
            asyncio.run(factory.work(lease, watch=ignore_event, on_agent_event=lambda _text: None))
        length = factory.store.run(lease.run).length
        assert factory.store.run(lease.run).holder is None
        write_script(place, {"audit": [{}, {"say": "REQUIREMENTS_COMPLETE"}], "review": [{"say": APPROVED}]})
        state = asyncio.run(
            factory.work(factory.claim(lease.item), watch=ignore_event, on_agent_event=lambda _text: None)
        )
        kept = [event for event in factory.history(lease.run).events[length:] if isinstance(event, ev.StepCommitted)]
    assert state.status is RunStatus.COMPLETED and [event.commit for event in kept] == made
    assert state.started and git("rev-parse", state.started.branch, cwd=place) == made[0]


def test_a_worker_shows_the_iteration_its_run_is_in(world: World) -> None:
    item, reported = world.add("thing"), flood.script("thing")
    reported["audit"][1]["delay_s"] = 2.5  # longer than a heartbeat takes to come round
    (world.place.parent / "scripts" / "thing.json").write_bytes(msgspec.json.encode(reported))
    world.start("--once")
    shown = set[int]()

    def over() -> bool:
        shown.update(row.iteration for row in world.store.workers())
        return world.store.item_row(item.id).status is ItemStatus.COMPLETED

    until(lambda: over() or None)
    assert max(shown) == 2
