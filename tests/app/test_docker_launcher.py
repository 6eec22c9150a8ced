"""Workers in containers of a real engine: items done, the engine killed, memory exhausted, leftovers removed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from ratchet.core import events as ev
from ratchet.core.item import Item, ItemStatus
from ratchet.store.protocols import Store, open_store
from tests import podman as engines
from tests.app import flood
from tests.interfaces.http.serving import TOKEN, serving
from tests.podman import IMAGE, USER, Podman
from tests.support import RATCHET, git, quick_environment


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    with engines.podman() as started:
        yield started


class Factory:
    """A repository and a store that an unprivileged user owns, and pools of containers that work for them."""

    def __init__(self, folder: Path, podman: Podman) -> None:
        self.folder, self.podman = folder, podman
        self.place = flood.lay_out(folder)
        self.address = folder / "ratchet.db"
        self.pools: list[subprocess.Popen[bytes]] = []
        self.store: Store = open_store(self.address)

    def add(self, count: int, *, delay_s: float = 0.0) -> list[Item]:
        made = [self.store.add(without_workspaces(item)) for item in flood.items(self.place, count, delay_s=delay_s)]
        self.give_away()
        return made

    def give_away(self) -> None:
        for path in (self.folder, *self.folder.rglob("*")):
            os.chown(path, USER, USER, follow_symlinks=False)

    def pool(self, *words: str, count: int = 2, server: str = "") -> subprocess.Popen[bytes]:
        mounts = [f"{self.folder}:{self.folder}", *engines.mounts()]
        settings = {
            "containers.user": f"{USER}:{USER}",
            "containers.network": "host",
            "containers.mounts": json.dumps(mounts),
            "containers.env": '["PATH"]',
            "lease_s": "30",
        }
        argv = [
            *RATCHET, "worker", "--launcher", "docker", "--engine", self.podman.address, "--image", IMAGE,
            "--count", str(count), *(["--server", server] if server else ["--store", str(self.address)]), *words,
            *[word for key, value in settings.items() for word in ("--set", f"{key}={value}")],
        ]  # fmt: skip
        env = quick_environment() | {"XDG_STATE_HOME": str(self.folder / "state"), "PATH": engines.path()}
        env |= {"RATCHET_TOKEN": TOKEN} if server else {}
        with (self.folder / "pool.log").open("ab") as log:
            self.pools.append(subprocess.Popen(argv, cwd=self.folder, env=env, stdout=log, stderr=log))
        return self.pools[-1]

    def log(self) -> str:
        return (self.folder / "pool.log").read_text(errors="replace")

    def status(self, item: Item) -> ItemStatus:
        return self.store.item_row(item.id).status

    def all_done(self, items: list[Item]) -> bool:
        return all(self.status(item) is ItemStatus.COMPLETED for item in items)

    def events(self, item: Item) -> list[ev.AnyEvent | ev.UnknownEvent]:
        run = self.store.item_row(item.id).run
        return [ev.decode(entry.kind, entry.data) for entry in self.store.entries(run)] if run else []

    def containers(self) -> list[str]:
        return [row.name for row in self.podman.engine.containers("ratchet.owner")]

    def close(self) -> None:
        for pool in self.pools:
            if pool.poll() is None:
                pool.kill()
                pool.wait()
        for name in self.containers():
            self.podman.engine.remove(name)
        self.store.close()


def without_workspaces(item: Item) -> Item:
    """Each container has workspaces of its own."""
    settings = [setting for setting in item.settings if not setting.startswith("workspace.root")]
    return msgspec.structs.replace(item, settings=settings)


@pytest.fixture
def factory(tmp_path: Path, podman: Podman, monkeypatch: pytest.MonkeyPatch) -> Iterator[Factory]:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")  # the test is root, the repository another's
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "safe.directory")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "*")
    made = Factory(tmp_path, podman)
    yield made
    made.close()


def until(seen: Callable[[], object], factory: Factory, within_s: float = 200.0) -> None:
    deadline = time.monotonic() + within_s
    while not seen():
        assert time.monotonic() < deadline, f"it did not happen in time: {factory.log()}"
        time.sleep(0.05)


def test_items_are_done_in_containers_and_none_is_left(factory: Factory) -> None:
    with (factory.place / "ratchet.toml").open("a") as file:
        file.write('[workspace]\nkind = "container"\n')
    git("add", "-A", cwd=factory.place)
    git("commit", "-q", "-m", "of no use in a container", cwd=factory.place)
    items = factory.add(3)
    pool = factory.pool()
    until(lambda: factory.all_done(items), factory)
    names = {row.name.partition(":")[0] for row in factory.store.workers()}
    assert len(names) == 3 and all(name.startswith("ratchet-") for name in names), "one container for each item"
    pool.send_signal(signal.SIGTERM)
    assert pool.wait(60) == 0, factory.log()
    assert factory.containers() == []
    logs = "".join(path.read_text() for path in (factory.folder / "state").rglob("container-logs/*.log"))
    assert all(factory.store.item_row(item.id).run in logs for item in items), "logs stay readable"
    assert "completed" in factory.log()


@pytest.mark.engines
@pytest.mark.timeout(900)
def test_twenty_items_are_done_although_the_engine_is_killed_in_the_middle(factory: Factory) -> None:
    items = factory.add(20)
    pool = factory.pool(count=3)
    until(lambda: sum(factory.status(item) is ItemStatus.COMPLETED for item in items) >= 5, factory)
    factory.podman.kill()
    before = sum(factory.status(item) is ItemStatus.COMPLETED for item in items)
    until(lambda: sum(factory.status(item) is ItemStatus.COMPLETED for item in items) > before, factory)
    factory.podman.start()
    until(lambda: factory.all_done(items), factory, within_s=600)
    pool.send_signal(signal.SIGTERM)
    assert pool.wait(60) == 0, factory.log()
    flood.check(factory.store, factory.place, items)
    assert factory.containers() == []


@pytest.mark.engines
def test_a_worker_over_its_memory_limit_says_so_and_its_run_goes_on_where_there_is_more(factory: Factory) -> None:
    item = factory.add(1)[0]
    script = Path(item.settings[0].partition(":")[2])
    script.write_text(script.read_text() + " " * (400 << 20))  # the worker reads it whole
    pool = factory.pool("--set", "containers.memory_mb=200", count=1)
    until(lambda: any(isinstance(event, ev.RunReturned) for event in factory.events(item)), factory)
    returned = next(event for event in factory.events(item) if isinstance(event, ev.RunReturned))
    assert returned.detail == "out of memory (its limit is 200 MB)", factory.log()
    assert "out of memory (its limit is 200 MB)" in factory.log()
    pool.send_signal(signal.SIGTERM)
    assert pool.wait(60) == 0
    factory.pool("--set", "containers.memory_mb=4000", count=1)
    until(lambda: factory.all_done([item]), factory)


@pytest.mark.engines
def test_the_containers_of_a_dead_pool_are_removed_by_the_next_which_finishes_the_run(factory: Factory) -> None:
    item = factory.add(1, delay_s=3.0)[0]
    pool = factory.pool(count=1)
    until(lambda: any(isinstance(event, ev.StepStarted) for event in factory.events(item)), factory)
    pool.kill()
    pool.wait()
    (left,) = factory.containers()
    factory.pool("--set", "worker.stop_s=0.5", count=1)
    until(lambda: left not in factory.containers(), factory)
    assert f"{left} was left by a pool that has died: removed" in factory.log()
    until(lambda: factory.all_done([item]), factory)


@pytest.mark.engines
def test_containers_work_for_a_server_and_the_branch_is_at_the_origin(factory: Factory) -> None:
    origin = factory.folder / "origin.git"
    git("clone", "-q", "--bare", str(factory.place), str(origin), cwd=factory.folder)
    [made] = flood.items(factory.place, 1)
    item = factory.store.add(msgspec.structs.replace(without_workspaces(made), repo=f"file://{origin}", base_commit=""))
    factory.give_away()
    with serving(factory.store) as served:
        pool = factory.pool(count=1, server=served.url)
        until(lambda: factory.all_done([item]), factory)
        pool.send_signal(signal.SIGTERM)
        assert pool.wait(60) == 0, factory.log()
    assert git("log", "--format=%s", f"main..ratchet/{item.slug}", cwd=origin) == "Do thing0"


@pytest.mark.engines
def test_the_second_signal_stops_containers_at_once(factory: Factory) -> None:
    item = factory.add(1, delay_s=60.0)[0]
    pool = factory.pool(count=1)
    until(lambda: any(isinstance(event, ev.StepStarted) for event in factory.events(item)), factory)
    pool.send_signal(signal.SIGTERM)
    until(lambda: "repeat the signal" in factory.log(), factory)
    pool.send_signal(signal.SIGTERM)
    assert pool.wait(25) == 0, factory.log()
    assert factory.containers() == []
