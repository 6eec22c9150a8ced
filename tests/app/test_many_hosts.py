"""Workers of other hosts, each with a home, clones and state of its own; they share a server and a remote."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from ratchet.core import events as ev
from ratchet.core.item import Item, ItemStatus
from ratchet.store.protocols import Store, open_store
from tests.app import flood
from tests.interfaces.http.serving import TOKEN, Served, serving
from tests.support import RATCHET, git, make_repository, quick_environment


class Hosts:
    """A server with its store, a bare repository that all hosts reach, and hosts by name."""

    def __init__(self, folder: Path, served: Served) -> None:
        self.folder, self.served = folder, served
        self.token = folder / "token"
        self.token.write_text(TOKEN)
        self.token.chmod(0o600)
        source = make_repository(folder / "source", flood.FILES)
        self.origin = folder / "origin.git"
        git("clone", "-q", "--bare", str(source), str(self.origin), cwd=folder)
        self.source, self.running = source, list[subprocess.Popen[bytes]]()

    def add(self, name: str, *, delay_s: float = 0.0, require_labels: Sequence[str] = ()) -> Item:
        made = flood.item(self.source, name, "", delay_s=delay_s)
        settings = [word for word in made.settings if not word.startswith("workspace.root")]
        made = msgspec.structs.replace(made, repo=f"file://{self.origin}", settings=settings)
        return self.served.store.add(msgspec.structs.replace(made, require_labels=list(require_labels)))

    def worker(self, host: str, *words: str, before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        home = self.folder / host
        (home / "empty").mkdir(parents=True, exist_ok=True)
        env = quick_environment() | {
            "HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "XDG_CACHE_HOME": str(home / "cache")
        }  # fmt: skip
        server = ["--server", self.served.url, "--token-file", str(self.token)]
        argv = [*before, *RATCHET, "worker", *server, "--set", "lease_s=5", *words]
        with (self.folder / f"{host}.log").open("ab") as log:
            self.running.append(subprocess.Popen(argv, cwd=home / "empty", env=env, stdout=log, stderr=log))
        return self.running[-1]

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in self.folder.glob("*.log"))

    def events(self, item: Item) -> list[ev.AnyEvent | ev.UnknownEvent]:
        run = self.served.store.item_row(item.id).run
        return [ev.decode(entry.kind, entry.data) for entry in self.served.store.entries(run)] if run else []

    def branch(self, item: Item) -> list[str]:
        return git("log", "--format=%s", f"main..ratchet/{item.slug}", cwd=self.origin).splitlines()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    store: Store = open_store(tmp_path / "server.db")
    with serving(store, lease_s=5.0) as served:
        made = Hosts(tmp_path, served)
        yield made
        for worker in made.running:
            if worker.poll() is None:
                worker.kill()
                worker.wait()
    store.close()


def until(seen: Callable[[], object], within_s: float = 120.0, reported: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + within_s
    while not seen():
        assert time.monotonic() < deadline, f"it did not happen in time: {reported()}"
        time.sleep(0.02)


def test_a_worker_with_only_a_servers_address_finishes_an_item_and_its_branch_is_on_the_remote(hosts: Hosts) -> None:
    item = hosts.add("thing")
    assert hosts.worker("one", "--once").wait(120) == 0
    assert hosts.served.store.item_row(item.id).status is ItemStatus.COMPLETED, hosts.log()
    assert hosts.branch(item) == ["Do thing"]


@pytest.mark.parametrize("step", ["verify_red", "implement", "judge", "verify", "review"])
def test_a_run_begun_on_one_host_is_finished_on_another(hosts: Hosts, step: str) -> None:
    """The first host is gone for good, with its workspace, its trees and its clone."""
    item = hosts.add("thing", delay_s=0.3)
    first = hosts.worker("one", "--once")
    until(lambda: any(isinstance(event, ev.StepStarted) and event.action == step for event in hosts.events(item)))
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    (hosts.folder / "one").rename(hosts.folder / "gone")
    hosts.worker("two")
    until(lambda: hosts.served.store.item_row(item.id).status is ItemStatus.COMPLETED, reported=hosts.log)
    events = hosts.events(item)
    assert sum(isinstance(event, ev.StepCommitted) for event in events) == 1
    assert sum(isinstance(event, ev.RunClaimed) for event in events) == 2
    assert hosts.branch(item) == ["Do thing"]


def test_an_item_that_requires_a_label_waits_for_a_worker_that_has_it(hosts: Hosts) -> None:
    item = hosts.add("thing", require_labels=["gpu"])
    assert hosts.worker("one", "--once", "--label", "arm64").wait(60) == 0
    assert hosts.served.store.item_row(item.id).status is ItemStatus.QUEUED, hosts.log()
    assert hosts.worker("two", "--once", "--label", "arm64", "--label", "gpu").wait(120) == 0
    assert hosts.served.store.item_row(item.id).status is ItemStatus.COMPLETED, hosts.log()
    assert [worker.labels for worker in hosts.served.store.workers()] == [["arm64", "gpu"]]


@pytest.mark.skipif(not shutil.which("faketime"), reason="needs faketime: scripts/system-packages")
@pytest.mark.parametrize("skew", ["-26h", "+26h"])
def test_a_host_with_a_wrong_clock_neither_loses_its_lease_nor_takes_another(hosts: Hosts, skew: str) -> None:
    """Leases are judged by the server's clock only."""
    first = hosts.add("first", delay_s=1.0)
    right = hosts.worker("one", "--once")
    until(lambda: hosts.served.store.item_row(first.id).status is ItemStatus.IN_PROGRESS, reported=hosts.log)
    second = hosts.add("second", delay_s=1.0)
    wrong = hosts.worker("two", "--once", before=("faketime", "-f", skew))
    assert right.wait(120) == wrong.wait(120) == 0
    for item in (first, second):
        assert hosts.served.store.item_row(item.id).status is ItemStatus.COMPLETED, hosts.log()
        assert sum(isinstance(event, ev.RunClaimed) for event in hosts.events(item)) == 1


def test_once_exits_with_an_error_when_its_worker_dies(hosts: Hosts) -> None:
    item = hosts.add("thing", delay_s=60.0)
    worker = hosts.worker("one", "--once")
    until(lambda: hosts.served.store.workers(live=True), reported=hosts.log)
    until(lambda: hosts.served.store.item_row(item.id).status is ItemStatus.IN_PROGRESS, reported=hosts.log)
    [row] = hosts.served.store.runs()
    assert row.holder
    os.kill(row.holder.pid, signal.SIGKILL)
    assert worker.wait(60) == 137
