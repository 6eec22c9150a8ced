"""A real Redis beside PostgreSQL: it keeps load away, and decides nothing, so that losing it exceeds no limit."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.core.budget import Amount, Cap, Caps, OverBudget
from ratchet.core.queue import ClaimLimits, NoWork, NoWorkReason
from ratchet.store.postgres.store import PostgresStore
from tests.contract.servers import new_world
from tests.contract.test_provider_slots import leased
from tests.contract.test_queue import holder, named

redis = pytest.importorskip("redis", reason="needs the extra `redis`")
pytestmark = pytest.mark.skipif(not shutil.which("redis-server"), reason="needs redis-server: scripts/engines redis")
LIMIT = 4


class Redis:
    """A redis-server that keeps nothing on disk: restarted, it is empty."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder, self.url = folder, f"redis://127.0.0.1:{self.port}"
        self.client = redis.Redis.from_url(self.url, retry=None)
        self.start()

    def start(self) -> None:
        argv = [
            "redis-server",
            "--port",
            str(self.port),
            "--save",
            "",
            "--dir",
            str(self.folder),
            "--bind",
            "127.0.0.1",
        ]
        self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while True:
            try:
                self.client.ping()
                return
            except redis.RedisError:
                assert time.monotonic() < deadline and self.process.poll() is None, "redis-server did not start"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Redis]:
    made = Redis(tmp_path)
    yield made
    made.client.close()
    made.kill()


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    world = new_world("postgres", tmp_path)
    world.open()
    yield str(world.address)
    world.close()


class Crowd:
    """Hosts that take and free slots all the time, and what they saw: never more at once than the limit."""

    def __init__(self, address: str, url: str, hosts: int) -> None:
        self.stores = [PostgresStore(address, redis=url, connections=2) for _ in range(hosts)]
        self.stop, self.held, self.most, self.turns = threading.Event(), 0, 0, 0
        self._lock, self._errors = threading.Lock(), list[BaseException]()
        leases = [leased(store, f"i{n}") for n, store in enumerate(self.stores)]
        self._threads = [
            threading.Thread(target=self._work, args=(n, store, leases[n])) for n, store in enumerate(self.stores)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, n: int, store: PostgresStore, lease: object) -> None:
        turn = 0
        try:
            while not self.stop.is_set():
                turn += 1
                slot = f"s{n}-{turn}"
                while not store.take_slot(lease, "claude", slot, limit=LIMIT, quiet_s=60):  # type: ignore[arg-type]
                    if self.stop.wait(0.005):
                        return
                self._count(1)
                self.stop.wait(0.01)
                self._count(-1)
                store.free_slot("claude", slot, refused=False)
        except BaseException as error:  # noqa: BLE001 — raised in `end`
            self._errors.append(error)

    def _count(self, change: int) -> None:
        with self._lock:
            self.held += change
            self.most, self.turns = max(self.most, self.held), self.turns + (change > 0)

    def go_on(self, turns: int) -> None:
        """Wait until so many more turns are done."""
        goal, deadline = self.turns + turns, time.monotonic() + 60
        while self.turns < goal:
            assert time.monotonic() < deadline and not self._errors, (self.turns, self._errors)
            time.sleep(0.005)

    def end(self) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join()
        for store in self.stores:
            store.close()
        assert not self._errors, self._errors


def test_no_limit_is_exceeded_while_redis_is_killed_restarted_and_emptied(server: Redis, address: str) -> None:
    crowd = Crowd(address, server.url, 10)
    try:
        crowd.go_on(30)
        server.client.flushall()
        crowd.go_on(30)
        server.kill()
        crowd.go_on(30)
        server.start()
        for store in crowd.stores:
            store.gate._down_until = 0.0  # type: ignore[attr-defined]  # believe in it again at once
        crowd.go_on(30)
    finally:
        crowd.end()
    assert crowd.most == LIMIT
    assert server.client.info("commandstats")["cmdstat_evalsha"]["calls"] > 30, "Redis does not take part again"


def test_slots_of_a_dead_host_in_redis_do_not_keep_others_out_for_long(server: Redis, address: str) -> None:
    store = PostgresStore(address, redis=server.url)
    lease = leased(store, "a")
    assert store.take_slot(lease, "claude", "s1", limit=1, quiet_s=60)
    assert not store.take_slot(lease, "claude", "s2", limit=1, quiet_s=60)
    [key] = server.client.keys("ratchet:*:slots:claude")
    assert 0 < server.client.pttl(key) <= 120_000
    store.close()


def test_a_refusal_that_only_time_ends_is_known_to_all_hosts(server: Redis, address: str) -> None:
    one, two = (PostgresStore(address, redis=server.url) for _ in range(2))
    for name in ("a", "b"):
        one.add(named(name))
    limits = ClaimLimits(cooldown_s=60)
    assert not isinstance(one.claim_next(holder(), run="run-1", ttl_s=60, limits=limits), NoWork)
    refused = one.claim_next(holder(), run="run-2", ttl_s=60, limits=limits)
    assert isinstance(refused, NoWork) and refused.why is NoWorkReason.COOLDOWN
    two._claims = None  # type: ignore[assignment]  # the database is not asked
    two._pool.close()
    assert two.claim_next(holder(), run="run-3", ttl_s=60, limits=limits) == refused
    [key] = server.client.keys("ratchet:*:claims:*")
    assert 0 < server.client.pttl(key) <= 30_000
    server.kill()
    assert one.claim_next(holder(), run="run-4", ttl_s=60, limits=limits) == refused
    one.close()
    two.close()


def test_budgets_hold_without_redis(server: Redis, address: str) -> None:
    store = PostgresStore(address, redis=server.url)
    lease, caps = leased(store, "a"), Caps(day=Cap(cost_usd=1.0))
    server.kill()
    assert not isinstance(store.reserve(lease, Amount(cost_usd=0.75), caps=caps), OverBudget)
    assert isinstance(store.reserve(lease, Amount(cost_usd=0.75), caps=caps), OverBudget)
    store.close()
