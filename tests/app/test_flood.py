"""Many items, many workers, on each backend: all completed exactly once, whoever is killed meanwhile."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from ratchet.core.item import ItemStatus
from ratchet.store.protocols import Store
from tests.app import flood
from tests.app.conftest import SEEN
from tests.contract.servers import Server, fresh_database

LEASE_S = 3.0
BACKENDS = ("sqlite", "postgres")
SMALL, LARGE = (8, 3), pytest.param((200, 8), marks=[pytest.mark.certify, pytest.mark.timeout(1800)])
Running = subprocess.Popen[str]


@pytest.fixture(params=BACKENDS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "ratchet.db") if request.param == "sqlite" else fresh_database()


@pytest.fixture(params=[SMALL, LARGE], ids=["8 items, 3 workers", "200 items, 8 workers"])
def size(request: pytest.FixtureRequest) -> tuple[int, int]:
    items, workers = request.param
    return items, workers


def flooded(
    folder: Path,
    address: str,
    size: tuple[int, int],
    disturb: Callable[[Store, Running], Running] | None = None,
    *,
    disturbed: str = "nobody",
    killed: Sequence[int] = (),
    more: Sequence[str] = (),
) -> None:
    items, workers = size
    began = time.monotonic()
    place, store = flood.lay_out(folder), flood.open_world(address)
    wanted = flood.items(place, items)
    store.add_all(wanted)
    running = flood.start_workers(place, address, workers, "--drain", *more)
    try:
        while running.poll() is None:
            running = disturb(store, running) if disturb else _awaited(running)
            if running.poll() not in (None, 0):
                running = flood.start_workers(place, address, workers, "--drain", *more)
        seconds = time.monotonic() - began
        flood.check(store, place, wanted)
        SEEN.append(
            flood.seen(store, wanted, disturbed=disturbed, workers=workers, killed=len(killed), seconds=seconds)
        )
    except AssertionError as error:
        raise AssertionError(f"{error}\n{(place.parent / 'workers.log').read_text()[-3000:]}") from error
    finally:
        running.kill()
        running.wait()
        store.close()


def _awaited(running: Running) -> Running:
    running.wait()
    return running


def test_every_item_is_completed_exactly_once(tmp_path: Path, address: str, size: tuple[int, int]) -> None:
    flooded(tmp_path, address, size)


@pytest.fixture
def chance() -> Iterator[random.Random]:
    seed = random.SystemRandom().randrange(10**6)
    yield random.Random(seed)


def test_the_same_with_a_worker_killed_every_second(
    tmp_path: Path, address: str, size: tuple[int, int], chance: random.Random
) -> None:
    killed: list[int] = []

    def kill_one(store: Store, running: Running) -> Running:
        with suppress(subprocess.TimeoutExpired):
            running.wait(1.0)
            return running
        at_work = [row.holder.pid for row in store.runs() if row.holder]
        if at_work and (size[0] > 100 or len(killed) < size[0]):  # a few workers on a slow machine must come to an end
            killed.append(chance.choice(at_work))
            with suppress(ProcessLookupError):
                os.kill(killed[-1], signal.SIGKILL)
        return running

    flooded(tmp_path, address, size, kill_one, disturbed="workers", killed=killed)
    assert killed


def test_the_same_with_workers_stopped_past_their_lease_and_woken(
    tmp_path: Path, address: str, size: tuple[int, int], chance: random.Random
) -> None:
    stopped: list[int] = []
    due: dict[int, float] = {}

    def stop_one(store: Store, running: Running) -> Running:
        with suppress(subprocess.TimeoutExpired):
            running.wait(0.5)
            return running
        for pid in [pid for pid, at in due.items() if time.monotonic() > at]:
            del due[pid]
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        at_work = [row.holder.pid for row in store.runs() if row.holder and row.holder.pid not in due]
        if at_work and len(stopped) < size[0]:
            stopped.append(pid := chance.choice(at_work))
            due[pid] = time.monotonic() + 1.5 * LEASE_S
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        return running

    flooded(tmp_path, address, size, stop_one, disturbed="stopped workers", killed=stopped,
            more=("--set", f"lease_s={LEASE_S}"))  # fmt: skip
    assert stopped


def struck(
    folder: Path, address: str, size: tuple[int, int], strike: Callable[[Running], object], *, disturbed: str
) -> None:
    """Flooded, and struck each time that another quarter of the items is done."""
    due = [size[0] // 4, size[0] // 2, size[0] * 3 // 4]
    killed: list[int] = []

    def strike_when_due(store: Store, running: Running) -> Running:
        done = sum(count.items for count in store.stats() if count.status is ItemStatus.COMPLETED)
        if due and done >= due[0]:
            killed.append(due.pop(0))
            strike(running)
        with suppress(subprocess.TimeoutExpired):
            running.wait(0.1)
        return running

    flooded(folder, address, size, strike_when_due, disturbed=disturbed, killed=killed)
    assert not due


def test_the_same_with_the_dispatcher_killed_in_the_middle(tmp_path: Path, address: str, size: tuple[int, int]) -> None:
    struck(tmp_path, address, size, lambda running: running.send_signal(signal.SIGKILL), disturbed="dispatcher")


def test_the_same_with_the_database_killed_and_started_again_in_the_middle(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    server = Server()
    try:
        struck(tmp_path, server.address, size, lambda _running: server.restart(), disturbed="database")
    finally:
        server.stop()
