"""Hosts as network namespaces of this machine, each with a home, state and process ids of its own, that are cut off."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ratchet.core import events as ev
from ratchet.core.item import Item, ItemStatus
from ratchet.store.protocols import Store, open_store
from tests.app import flood, networks
from tests.contract.servers import Server
from tests.interfaces.http.serving import TOKEN, serving
from tests.support import RATCHET, git, make_repository, quick_environment

WHY_NOT = networks.why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
LEASE_S = 5.0


class CutStore:
    """A server's store that does something, such as cutting a link, after it has appended one kind of event."""

    def __init__(self, store: Store, is_meant: Callable[[ev.Event], bool], then: Callable[[], None]) -> None:
        self._store, self._is_meant, self._then = store, is_meant, then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(self, lease: Any, events: Any, *args: Any, **named: Any) -> Any:
        appended = self._store.append(lease, events, *args, **named)
        if any(map(self._is_meant, events)):
            self._then()
        return appended


class Hosts:
    """A store, a bare repository behind a git daemon, and hosts by name that reach both by network only."""

    def __init__(self, folder: Path, road: str, opened: ExitStack, *, database: bool) -> None:
        self.folder, self.road, self._opened = folder, road, opened
        self.networks: dict[str, networks.Network] = {}
        self.running: list[subprocess.Popen[bytes]] = []
        self.source = make_repository(folder / "source", flood.FILES)
        self.origin = folder / "shared" / "origin.git"
        git("clone", "-q", "--bare", str(self.source), str(self.origin), cwd=folder)
        self.url = f"git://{road}:{self._serve_git()}/origin.git"
        if database:
            server = Server(listen=road)
            opened.callback(server.stop)
            self.store, self.database = open_store(server.address), f"postgresql://ratchet@{road}/postgres"
        else:
            self.store, self.database = open_store(folder / "server.db"), ""
        opened.enter_context(closing(self.store))
        self.server = ""

    def serve(self, store: Store | None = None) -> None:
        served = self._opened.enter_context(serving(store or self.store, lease_s=LEASE_S, host=self.road))
        self.server = f"http://{self.road}:{served.port}"

    def _serve_git(self) -> int:
        with socket.socket() as free:
            free.bind((self.road, 0))
            port: int = free.getsockname()[1]
        words = ["--export-all", "--enable=receive-pack", "--reuseaddr", f"--base-path={self.origin.parent}"]
        daemon = subprocess.Popen(["git", "daemon", f"--listen={self.road}", f"--port={port}", *words])
        self._opened.callback(daemon.wait)
        self._opened.callback(daemon.terminate)  # `git` passes it on to the daemon
        until(lambda: _answers(self.road, port))
        return port

    # --- hosts ---

    def network(self, host: str) -> networks.Network:
        if host not in self.networks:
            made = self.networks[host] = networks.Network(len(self.networks))
            self._opened.callback(made.remove)
            for name in ("empty", "state", "cache"):
                (self.folder / host / name).mkdir(parents=True)
        return self.networks[host]

    def start(
        self, host: str, *words: str, cwd: Path | None = None, before: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        """Start `ratchet WORDS` on a host."""
        argv = [*self.network(host).command(host), *before, *RATCHET, *words]
        home = self.folder / host
        env = quick_environment() | {
            "HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "XDG_CACHE_HOME": str(home / "cache"),
            "RATCHET_TOKEN": TOKEN,
        }  # fmt: skip
        with (self.folder / f"{host}.log").open("ab") as log:
            self.running.append(subprocess.Popen(argv, cwd=cwd or home / "empty", env=env, stdout=log, stderr=log))
        return self.running[-1]

    def worker(self, host: str, *words: str, before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        where = ["--server", self.server] if self.server else ["--store", self.database]
        return self.start(host, "worker", *where, "--set", f"lease_s={LEASE_S}", *words, before=before)

    def ask(self, host: str, *words: str, cwd: Path | None = None) -> tuple[int, str]:
        """Run `ratchet WORDS` on a host with the database as its store; returns its exit code and all it printed."""
        log = self.folder / f"{host}.log"
        log.unlink(missing_ok=True)
        code = self.start(host, *words, "--set", f"store={self.database}", cwd=cwd).wait(120)
        return code, log.read_text()

    def left_behind(self, host: str) -> list[str]:
        """Processes of a host, and what is in the folders of its workspaces."""
        places = [path for path in (self.folder / host).rglob("workspaces/*") if not path.name.startswith(".")]
        return [*self.network(host).processes(), *map(str, places)]

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in self.folder.glob("*.log"))

    # --- items ---

    def add(self, name: str, *, delay_s: float = 0.0) -> Item:
        made = flood.item(self.source, name, "", delay_s=delay_s)
        settings = [word for word in made.settings if not word.startswith("workspace.root")]
        return self.store.add(msgspec.structs.replace(made, repo=self.url, settings=settings))

    def add_two(self, name: str) -> Item:
        """Add an item whose run makes two commits."""
        item = flood.item(self.source, name, "")
        one, two = flood.script(name), flood.script(f"{name}2")
        script = one | {
            "audit": [one["audit"][0], *two["audit"]],
            "implement": [one["implement"][0], two["implement"][0]],
        }
        Path(item.settings[0].partition(":")[2]).write_bytes(msgspec.json.encode(script))
        return self.store.add(msgspec.structs.replace(item, repo=self.url, settings=item.settings[:1]))

    def events(self, item: Item) -> list[ev.AnyEvent | ev.UnknownEvent]:
        run = self.store.item_row(item.id).run
        return [ev.decode(entry.kind, entry.data) for entry in self.store.entries(run)] if run else []

    def count(self, item: Item, kind: type[ev.AnyEvent]) -> int:
        return sum(isinstance(event, kind) for event in self.events(item))

    def in_step(self, item: Item, step: str) -> bool:
        return any(_begins(event, step) for event in self.events(item))

    def is_completed(self, item: Item) -> bool:
        return self.store.item_row(item.id).status is ItemStatus.COMPLETED

    def branch(self, item: Item) -> list[str]:
        """Commits of the item's branch on the remote, newest first."""
        name = f"refs/heads/ratchet/{item.slug}"
        return (
            git("rev-list", "--ignore-missing", f"main..{name}", cwd=self.origin).splitlines()
            if git("for-each-ref", name, cwd=self.origin)
            else []
        )


def _begins(event: ev.Event | ev.UnknownEvent, step: str) -> bool:
    return isinstance(event, ev.StepStarted) and event.action == step


def _answers(host: str, port: int) -> bool:
    with socket.socket() as link:
        return link.connect_ex((host, port)) == 0


def until(seen: Callable[[], object], within_s: float = 90.0, reported: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + within_s
    while not seen():
        assert time.monotonic() < deadline, f"it did not happen in time: {reported()}"
        time.sleep(0.02)


@pytest.fixture(params=["server"])
def hosts(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Hosts]:
    with ExitStack() as opened:
        road = opened.enter_context(networks.common_address())
        made = Hosts(tmp_path, road, opened, database=request.param == "database")
        yield made
        for process in made.running:
            if process.poll() is None:
                process.kill()
                process.wait()


STEPS = ["baseline", "audit", "verify_red", "implement", "judge", "verify", "review", "final", "land"]
certify = pytest.mark.certify
CUTS = [
    pytest.param(step, how, marks=[] if (step, how) == ("implement", "frozen") else certify)
    for step in STEPS
    for how in ("awake", "frozen")
]


@pytest.mark.parametrize(("step", "how"), CUTS)
def test_a_run_of_a_host_that_is_cut_off_is_finished_on_another(hosts: Hosts, step: str, how: str) -> None:
    """One that is awake stops by itself. One that was frozen comes back and believes that it has the lease."""
    link, cuts = hosts.network("one"), list[str]()

    def cut() -> None:
        if not cuts:
            cuts.append(step)
            link.cut()
            if how == "frozen":
                link.freeze()

    # The last step is over too soon for a look at the ledger.
    hosts.serve(CutStore(hosts.store, lambda event: step == "land" and _begins(event, step), cut))
    item = hosts.add("thing", delay_s=0.3)
    first = hosts.worker("one", "--once")
    until(lambda: hosts.in_step(item, step), reported=hosts.log)
    cut()
    kept = hosts.branch(item)
    assert hosts.worker("two", "--once", "--wait").wait(90) == 0
    assert hosts.is_completed(item), hosts.log()
    events, branch = hosts.events(item), hosts.branch(item)
    link.join()
    link.freeze(signal.SIGCONT)
    first.wait(90)
    assert hosts.events(item) == events and hosts.branch(item) == branch
    assert len(branch) == 1 and kept in ([], branch)
    assert hosts.count(item, ev.StepCommitted) == hosts.count(item, ev.RunCompleted) == 1
    assert hosts.count(item, ev.RunClaimed) == (2 if hosts.count(item, ev.RunReturned) else 1)
    assert hosts.left_behind("one") == hosts.left_behind("two") == []


@certify
def test_a_host_that_comes_back_does_not_push_its_commit_over_newer_ones(hosts: Hosts) -> None:
    """It was frozen when the ledger had its commit and the remote not yet."""
    first: list[subprocess.Popen[bytes]] = []

    def freeze() -> None:
        if len(hosts.networks) == 1:
            hosts.network("one").freeze()

    hosts.serve(CutStore(hosts.store, lambda event: isinstance(event, ev.StepCommitted), freeze))
    item = hosts.add_two("thing")
    first.append(hosts.worker("one", "--once"))
    until(lambda: hosts.count(item, ev.StepCommitted), reported=hosts.log)
    assert hosts.branch(item) == []
    assert hosts.worker("two", "--once", "--wait").wait(90) == 0
    branch = hosts.branch(item)
    assert len(branch) == 2 and hosts.is_completed(item), hosts.log()
    hosts.network("one").freeze(signal.SIGCONT)
    first[0].wait(90)
    assert hosts.branch(item) == branch, hosts.log()


@pytest.mark.parametrize("lost", ["response", pytest.param("request", marks=certify)])
def test_a_completion_during_a_partition_is_delivered_later_and_once(hosts: Hosts, lost: str) -> None:
    link, cuts = hosts.network("one"), list[float]()

    def cut() -> None:
        if not cuts:
            cuts.append(time.monotonic())
            link.cut()

    def is_meant(event: ev.Event) -> bool:
        return isinstance(event, ev.RunCompleted) if lost == "response" else _begins(event, "land")

    hosts.serve(CutStore(hosts.store, is_meant, cut))
    item = hosts.add("thing", delay_s=0.3)
    worker = hosts.worker("one", "--once", "--set", "lease_s=60")
    until(lambda: cuts and time.monotonic() > cuts[0] + 2, reported=hosts.log)
    assert hosts.is_completed(item) == (lost == "response")
    link.join()
    assert worker.wait(90) == 0
    assert hosts.is_completed(item), hosts.log()
    assert hosts.count(item, ev.RunCompleted) == hosts.count(item, ev.RunClaimed) == 1
    assert hosts.left_behind("one") == []


@certify
@pytest.mark.parametrize("hosts", ["database"], indirect=True)
def test_a_run_can_be_seen_and_proven_where_it_was_submitted_and_on_a_third_host(hosts: Hosts) -> None:
    desk = hosts.folder / "three" / "checkout"
    for host in ("one", "two", "three"):
        hosts.network(host)
    git("clone", "-q", str(hosts.origin), str(desk), cwd=hosts.folder)
    item = hosts.add_two("thing")
    worker = hosts.worker("one", "--once")
    seen = set[int]()
    until(lambda: seen.update([len(hosts.branch(item))]) or worker.poll() is not None, reported=hosts.log)  # type: ignore[func-returns-value]
    assert seen == {0, 1, 2}, "the branch is on the remote after each commit"
    run = hosts.store.item_row(item.id).run
    for host, folder in (("three", desk), ("two", None)):
        for words in (["show", run], ["logs", run], ["diff", run], ["verify", run], ["verify", "last"]):
            if words[1] == "last" and folder:
                continue
            code, printed = hosts.ask(host, *words, cwd=folder)
            assert code == 0, (host, words, printed)
            if words[0] == "diff":
                assert "+done" in printed
