"""Workers as tasks of a real Ray cluster of two nodes: resources of items, a node killed, a pool stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from ratchet.app.launchers.ray import task_options
from ratchet.config import RayConfig
from ratchet.core import events as ev
from ratchet.core.item import Item, ItemStatus
from ratchet.store.protocols import open_store
from tests.app import flood
from tests.contract.servers import fresh_database
from tests.support import RATCHET, git, make_repository, quick_environment

needs_ray = pytest.mark.skipif(not find_spec("ray"), reason="needs Ray: scripts/engines ray")


def test_a_task_asks_for_the_resources_and_labels_of_its_item() -> None:
    wanted = RayConfig(cpus=2.5, memory_mb=10, resources=["GPU=1", "fpga=0.5"])
    assert task_options(wanted, ["arm64", "fpga"]) == {
        "num_cpus": 2.5, "num_gpus": 1.0, "memory": 10 << 20, "resources": {"arm64": 0.001, "fpga": 0.5},
    }  # fmt: skip


def test_a_store_on_this_machines_disk_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [*RATCHET, "worker", "--launcher", "ray", "--store", str(tmp_path / "here.db")],
        cwd=tmp_path, env=quick_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3 and "cannot reach" in done.stderr and "--server" in done.stderr


class Cluster:
    """Two nodes, a store in PostgreSQL, a bare repository, and pools."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        source = make_repository(folder / "source", flood.FILES)
        self.source, self.origin = source, folder / "origin.git"
        git("clone", "-q", "--bare", str(source), str(self.origin), cwd=folder)
        self.address = fresh_database()
        self.store = open_store(self.address)
        with (folder / "ray.log").open("wb") as log:
            self.ray = subprocess.Popen(
                [sys.executable, "-m", "tests.ray_cluster", str(folder / "nodes")],
                cwd=Path(__file__).parents[2], env=quick_environment(), text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        self.head, self.pools = self._line(), list[subprocess.Popen[bytes]]()
        assert self.head, (folder / "ray.log").read_text()

    def add(self, name: str, *, delay_s: float = 0.0, settings: Sequence[str] = (), labels: Sequence[str] = ()) -> Item:
        made = flood.item(self.source, name, "", delay_s=delay_s, footprints=False)
        kept = [word for word in made.settings if not word.startswith("workspace.root")]
        return self.store.add(
            msgspec.structs.replace(
                made, repo=f"file://{self.origin}", settings=[*kept, *settings], require_labels=list(labels)
            )
        )

    def pool(self, *words: str, count: int = 4) -> subprocess.Popen[bytes]:
        argv = [
            *RATCHET, "worker", "--launcher", "ray", "--ray-address", self.head, "--store", self.address,
            "--count", str(count), "--set", "lease_s=5", *words,
        ]  # fmt: skip
        env = quick_environment() | {"HOME": str(self.folder), "XDG_STATE_HOME": str(self.folder / "state")}
        with (self.folder / "pool.log").open("ab") as log:
            self.pools.append(subprocess.Popen(argv, cwd=self.folder, env=env, stdout=log, stderr=log))
        return self.pools[-1]

    def kill_a_node(self) -> None:
        assert self.ray.stdin
        self.ray.stdin.write("kill\n")
        self.ray.stdin.flush()
        assert self._line() == "killed"

    def done(self, items: Sequence[Item]) -> int:
        return sum(self.store.item_row(item.id).status is ItemStatus.COMPLETED for item in items)

    def count(self, item: Item, kind: type[ev.AnyEvent]) -> int:
        run = self.store.item_row(item.id).run
        return sum(isinstance(ev.decode(one.kind, one.data), kind) for one in self.store.entries(run)) if run else 0

    def ran_on(self, item: Item) -> list[str]:
        nodes = self.folder / "nodes"
        return [path.relative_to(nodes).parts[0] for path in nodes.glob(f"*/state/**/ray-logs/{item.id}.log")]

    def log(self) -> str:
        return (self.folder / "pool.log").read_text(errors="replace")

    def until(self, seen: Callable[[], object], within_s: float = 120.0) -> None:
        deadline = time.monotonic() + within_s
        while not seen():
            assert time.monotonic() < deadline, f"it did not happen in time: {self.log()}"
            time.sleep(0.05)

    def _line(self) -> str:
        assert self.ray.stdout
        return self.ray.stdout.readline().strip()

    def close(self) -> None:
        for pool in self.pools:
            if pool.poll() is None:
                pool.kill()
                pool.wait()
        self.ray.communicate()
        self.store.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


@needs_ray
@pytest.mark.engines
@pytest.mark.timeout(900)
def test_fifty_items_are_done_exactly_once_although_a_node_is_killed_in_the_middle(cluster: Cluster) -> None:
    items = [cluster.add(f"thing{number}", delay_s=0.7) for number in range(50)]
    pool = cluster.pool("--drain")
    cluster.until(lambda: cluster.done(items) >= 15, within_s=400)
    cluster.until(lambda: any(cluster.ran_on(item) == ["two"] and _is_asked(cluster, item) for item in items))
    cluster.kill_a_node()
    assert pool.wait(600) == 0 or "NodeDiedError" in cluster.log(), cluster.log()
    assert cluster.done(items) == 50, cluster.log()
    for item in items:
        assert cluster.count(item, ev.RunCompleted) == cluster.count(item, ev.StepCommitted) == 1
        assert git("log", "--format=%s", f"main..ratchet/{item.slug}", cwd=cluster.origin) == f"Do {item.title}"
    assert {place for item in items for place in cluster.ran_on(item)} == {"one", "two"}
    assert any(cluster.count(item, ev.RunClaimed) > 1 for item in items), "no run was in progress on the node"


def _is_asked(cluster: Cluster, item: Item) -> bool:
    """Whether the run's first agent is at work: it has seconds to go."""
    return cluster.count(item, ev.StepStarted) == 2


@needs_ray
@pytest.mark.engines
def test_an_item_runs_where_its_resources_and_labels_are(cluster: Cluster) -> None:
    special = [cluster.add(f"special{number}", settings=["ray.resources=fpga=1"]) for number in range(2)]
    labelled = cluster.add("labelled", labels=["fpga"])
    elsewhere = cluster.add("elsewhere", labels=["s390x"])
    assert cluster.pool("--drain", "--label", "fpga").wait(200) == 0, cluster.log()
    assert cluster.done([*special, labelled]) == 3
    assert all(cluster.ran_on(item) == ["two"] for item in [*special, labelled])
    assert cluster.store.item_row(elsewhere.id).status is ItemStatus.QUEUED


@needs_ray
@pytest.mark.engines
def test_a_stopped_pool_gives_its_runs_back_after_their_steps(cluster: Cluster) -> None:
    item = cluster.add("thing", delay_s=2.0)
    pool = cluster.pool()
    cluster.until(lambda: cluster.count(item, ev.StepStarted))
    pool.send_signal(signal.SIGTERM)
    assert pool.wait(60) == 0, cluster.log()
    assert cluster.store.item_row(item.id).status is ItemStatus.QUEUED
    cluster.pool("--drain").wait(120)
    assert cluster.done([item]) == 1, cluster.log()
    assert cluster.count(item, ev.StepResumed) == 0, "the step was not cut off"


@needs_ray
@pytest.mark.engines
def test_a_run_whose_worker_died_goes_on_in_another_task(cluster: Cluster) -> None:
    item = cluster.add("thing", delay_s=2.0)
    pool = cluster.pool("--drain")
    cluster.until(lambda: cluster.count(item, ev.StepStarted))
    [row] = cluster.store.runs()
    assert row.holder
    os.kill(row.holder.pid, signal.SIGKILL)
    pool.wait(120)
    assert cluster.done([item]) == 1 and cluster.count(item, ev.RunClaimed) == 2, cluster.log()
