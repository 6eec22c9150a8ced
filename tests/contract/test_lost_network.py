"""A PostgreSQL host that vanishes without a word, as by a cut cable: a real link between two network namespaces."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ratchet.core import events as ev
from ratchet.core.budget import Amount, Caps
from ratchet.core.lease import Lease, LeaseRenewal
from ratchet.errors import EnvironmentCannot
from ratchet.store.postgres import deadlines
from ratchet.store.postgres import store as postgres
from ratchet.store.postgres.store import PostgresStore
from ratchet.store.protocols import Store
from tests.contract.servers import Server
from tests.contract.test_queue import holder, named, take

CLAIMED = ev.RunClaimed(worker="w")
TOTAL_S, SLACK_S = 4.0, 6.0
VERBS: dict[str, Callable[[Store, Lease], object]] = {
    "renew": lambda store, lease: store.renew(lease, ttl_s=60),
    "renew_all": lambda store, lease: store.renew_all([LeaseRenewal(run=lease.run, epoch=lease.epoch)], ttl_s=60),
    "append": lambda store, lease: store.append(lease, [CLAIMED]),
    "claim_next": lambda store, _: store.claim_next(holder("x"), run="run-x", ttl_s=60),
    "reserve": lambda store, lease: store.reserve(lease, Amount(tokens=1), caps=Caps()),
    "entries": lambda store, lease: store.entries(lease.run),
    "feed": lambda store, _: store.feed(),
    "complete": lambda store, lease: store.complete(lease, commits=0, head="h"),
}


class Link:
    """A veth pair to a namespace of its own."""

    def __init__(self) -> None:
        number = os.getpid() % 250
        self.space, self.ours, self.theirs = f"ratchet{os.getpid()}", f"rto{number}", f"rti{number}"
        self.address = f"10.83.{number}.2"
        self._ip("netns", "add", self.space)
        self._ip("link", "add", self.ours, "type", "veth", "peer", "name", self.theirs, "netns", self.space)
        self._ip("addr", "add", f"10.83.{number}.1/30", "dev", self.ours)
        self._ip("link", "set", self.ours, "up")
        for words in (["addr", "add", f"{self.address}/30", "dev", self.theirs], ["link", "set", self.theirs, "up"]):
            self._ip("-n", self.space, *words)

    def cut(self, *, off: bool = True) -> None:
        self._ip("link", "set", self.ours, "down" if off else "up")

    def remove(self) -> None:
        self._ip("netns", "del", self.space)

    def _ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


@pytest.fixture
def link() -> Iterator[Link]:
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("needs root and `ip` for a network namespace")
    try:
        made = Link()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespace here: {error.stderr.decode().strip()}")
    yield made
    made.remove()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "ANSWER_S", 2.0)
    monkeypatch.setattr(postgres, "RETRY_S", TOTAL_S)
    monkeypatch.setattr(postgres, "CONNECT_S", 2)
    monkeypatch.setattr(deadlines, "TICK_S", 0.1)


def ended_after(store: PostgresStore, leases: dict[str, Lease]) -> dict[str, float]:
    """Call all verbs at once; return after how many seconds each has failed."""

    def call(verb: str) -> float:
        began = time.monotonic()
        with pytest.raises(EnvironmentCannot):
            VERBS[verb](store, leases[verb])
        return time.monotonic() - began

    with ThreadPoolExecutor(len(VERBS)) as threads:
        return dict(zip(VERBS, threads.map(call, VERBS), strict=True))


def started(address: str) -> tuple[PostgresStore, dict[str, Lease]]:
    store = PostgresStore(address)
    store.add_all([named(verb) for verb in VERBS])
    return store, {verb: take(store, verb) for verb in VERBS}


@pytest.mark.usefixtures("quick")
def test_every_verb_ends_in_time_when_the_host_of_the_database_vanishes(link: Link) -> None:
    server = Server(space=link.space, listen=link.address)
    try:
        store, leases = started(f"postgresql://ratchet@{link.address}/postgres")
        link.cut()
        late = {verb: took for verb, took in ended_after(store, leases).items() if took > TOTAL_S + SLACK_S}
        link.cut(off=False)
        assert late == {}
        assert store.renew(leases["renew"], ttl_s=60) == ""
        assert [entry.seq for entry in store.append(leases["append"], [CLAIMED])] == [1]
        store.close()
    finally:
        server.stop()


@pytest.mark.usefixtures("quick")
def test_every_verb_ends_in_time_when_the_server_is_frozen() -> None:
    server = Server()
    try:
        store, leases = started(server.address)
        server.freeze()
        late = {verb: took for verb, took in ended_after(store, leases).items() if took > TOTAL_S + SLACK_S}
        server.freeze(signal.SIGCONT)
        assert late == {}
        assert store.renew(leases["renew"], ttl_s=60) == ""
        store.close()
    finally:
        server.stop()
