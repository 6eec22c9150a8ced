"""Scale: 1 to 32 worker processes on one PostgreSQL, and the requests of 10,000 workers against one server.

The workers' agents are scripted and take a fixed time, so that a run's length is known: the efficiency is what remains
of it, until the machine's cores are the limit. Run it on a quiet machine. The second
part sends what workers send (heartbeats, claims, events with receipts, artifacts, completions) as fast as answers come,
and says for how many workers that is enough, and which process was busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count as counter
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from bench import Goal, Row
from bench.http import _PIDS, _cpu_s, _Link, _server
from bench.store import _database
from bench.store import _server as _postgres
from ratchet.core import events as ev
from ratchet.core.item import Item, ItemStatus
from ratchet.core.lease import Holder, Lease
from ratchet.engine.lease_keeper import HEARTBEAT_S
from ratchet.errors import LeaseLost
from ratchet.store.protocols import Store, open_store
from ratchet.store.remote.verbs import verb
from ratchet.workspace.git import repository
from tests.app import flood

TURN_S = float(os.environ.get("RATCHET_BENCH_TURN_S", "5"))
COUNTS = [int(n) for n in os.environ.get("RATCHET_BENCH_PROCESSES", "1 2 4 8 16 32").split()]
TURNS = 4  # of agents in a run of `flood`
APPENDS = 24  # events with receipts that a run of `flood` writes
SECONDS = float(os.environ.get("RATCHET_BENCH_SECONDS", "8"))
WORKERS = 10_000
CLIENTS = 32
PACED_S = 20.0
HOLDER = Holder(worker="bench", machine="m", pid=1, born="1")
BUSY = 0.8  # of the cores: from there on they are the limit


def main() -> list[Row | Goal]:
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="ratchet-scale-") as folder:
        address = os.environ.get("RATCHET_STORE", "") or _postgres()
        rows: list[Row | Goal] = [("cores", "", float(os.cpu_count() or 1)), ("load before", "", load)]
        rows += _processes(Path(folder), address)
        return [*rows, *_simulation(address)]


# --- worker processes -------------------------------------------------------------------------------------------------


class Sample(msgspec.Struct, frozen=True):
    """Processor time of PostgreSQL and of all, and transactions, so far."""

    store_s: float
    busy_s: float
    commits: int
    at: float

    @classmethod
    def take(cls, url: str, pid: int) -> Sample:
        import psycopg  # noqa: PLC0415 — may be missing

        with psycopg.connect(url, autocommit=True) as db:
            row = db.execute("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").fetchone()
        fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        busy = sum(fields) - fields[3] - fields[4]
        return cls(_store_cpu_s(pid), busy / os.sysconf("SC_CLK_TCK"), int(row[0]) if row else 0, time.perf_counter())


def _server_pid(url: str) -> int:
    """Return the process of a PostgreSQL of this machine, the parent of its backends."""
    import psycopg  # noqa: PLC0415 — may be missing

    with psycopg.connect(url) as db:
        row = db.execute("SELECT pg_backend_pid()").fetchone()
        return int(_stat(int(row[0]))[1]) if row else 0


def _store_cpu_s(pid: int) -> float:
    """Processor time of PostgreSQL: of its processes that run, and of those that have ended."""
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    ticks = sum(int(field) for field in _stat(pid)[11:15])
    for child in children:
        with contextlib.suppress(OSError):
            ticks += sum(int(field) for field in _stat(child)[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    """Return the fields that follow the name."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _children_s() -> float:
    """Processor time of the programs that were started here and have ended, with all of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _processes(folder: Path, address: str) -> Iterator[Row | Goal]:
    alone_s = 0.0
    for number, count in enumerate(COUNTS):
        place = flood.lay_out(folder / str(number))
        url = _database(address, 0)
        store = open_store(url)
        own_s = _children_s()
        took_s, before, after, items = _drain(store, place, url, count)
        own_s = _children_s() - own_s
        store.close()
        rounds = items / count
        alone_s = alone_s or took_s / rounds
        wall_s = after.at - before.at
        cores = (after.busy_s - before.busy_s) / wall_s
        efficiency = alone_s * rounds / took_s
        store_s = (after.store_s - before.store_s) / items
        busy = (own_s / (items + 1) + store_s) * items / wall_s / (os.cpu_count() or 1)
        yield f"{count} workers: items a minute", "", items / took_s * 60
        yield f"{count} workers: cores busy on this machine", "", cores
        yield f"{count} workers: processor time of an item, without PostgreSQL", "s", own_s / (items + 1)
        yield f"{count} workers: PostgreSQL's processor time of an item", "s", store_s
        yield (
            f"{count} workers: PostgreSQL's share of all processor time",
            "",
            store_s / (store_s + own_s / (items + 1)),
        )
        yield f"{count} workers: transactions of an item", "", (after.commits - before.commits) / items
        yield Goal(
            measure=f"{count} workers: of {count} times one worker",
            value=efficiency,
            unit="x",
            wanted=f">= 0.9, or {BUSY:.0%} of the cores busy with it",
            ok=efficiency >= 0.9 or busy >= BUSY,
            ours=f"{took_s / rounds:.1f} s an item",
            other=f"{alone_s:.1f} s alone, {TURNS * TURN_S:.0f} s of agents",
        )


def _drain(store: Store, place: Path, url: str, count: int) -> tuple[float, Sample, Sample, int]:
    """Process two items for each worker; the workers are started before."""
    pid = _server_pid(url)
    head = repository.find_repository(place).head
    argv = [sys.executable, "-m", "ratchet", "worker", "--count", str(count), "--store", url]
    argv += ["--set", "budget.repo.cost_usd=1000000", "--set", "budget.day.cost_usd=1000000"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("RATCHET_")}
    env |= {"XDG_STATE_HOME": str(place.parent / "state"), "XDG_CACHE_HOME": str(place.parent / "cache")}
    with (place.parent / "log").open("w") as log:
        pool = subprocess.Popen(argv, cwd=place, env=env, stdout=log, stderr=log)
    try:
        _until(store.pools)
        warm = store.add(flood.item(place, "warm", head))  # prepares the checkout
        _until(lambda: _done(store, [warm]))
        items = [
            msgspec.structs.replace(flood.item(place, f"thing{n}", head, delay_s=TURN_S), footprint=[])
            for n in range(2 * count)
        ]
        before, began = Sample.take(url, pid), time.perf_counter()
        store.add_all(items)
        looks = _until(lambda: _done(store, [warm, *items]))
        took_s, after = time.perf_counter() - began, Sample.take(url, pid)
        return took_s, before, msgspec.structs.replace(after, commits=after.commits - looks), len(items)
    finally:
        pool.terminate()
        pool.wait(60)


def _done(store: Store, items: list[Item]) -> bool:
    """Whether all are completed, by one transaction."""
    rows = {row.status: row.items for row in store.stats()}
    assert not rows.get(ItemStatus.FAILED), "an item failed"
    return rows.get(ItemStatus.COMPLETED, 0) == len(items)


def _until(seen: Callable[[], object]) -> int:
    """Look until it is so; return how often."""
    deadline, looks = time.monotonic() + 1_800, 1
    while not seen():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.25)
        looks += 1
    return looks


# --- the requests of ten thousand workers -----------------------------------------------------------------------------


class Caller(_Link):
    """A connection that keeps the answer to the last call."""

    body = b""

    def data_received(self, data: bytes) -> None:
        self.body = (self._got + data).partition(b"\r\n\r\n")[2]
        super().data_received(data)

    async def call(self, name: str, *args: object, **named: object) -> Any:
        body = verb(name).encode_call(*args, **named)
        head = (
            f"POST /api/store/{name} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {'x' * 32}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        status = await self.ask(head.encode() + body)
        assert status == 200, (status, self.body)
        return verb(name).decode_outcome(self.body)


Work = Callable[[Caller, float], Awaitable[list[float]]]


def _simulation(address: str) -> Iterator[Row | Goal]:
    url = _database(address, WORKERS + 20_000)
    pid = _server_pid(url)
    store = open_store(url)
    with ThreadPoolExecutor(CLIENTS) as threads:
        claims = threads.map(lambda n: store.claim_next(HOLDER, run=f"run-{n:07}", ttl_s=3_600), range(WORKERS))
        leases = [lease for lease in claims if isinstance(lease, Lease)]
    with _server("ratchet", url, "3600") as port:
        runs, beats = counter(WORKERS), counter()

        async def beat(caller: Caller, end: float) -> list[float]:
            took = []
            while (began := time.perf_counter()) < end:
                await caller.call("renew", leases[next(beats) % WORKERS], ttl_s=3_600, iteration=1)
                took.append(time.perf_counter() - began)
            return took

        async def run(caller: Caller, end: float) -> list[float]:
            took = []
            while (began := time.perf_counter()) < end:
                await _one_run(caller, f"run-{next(runs):07}")
                took.append(time.perf_counter() - began)
            return took

        beat_s = yield from _cost("a heartbeat", beat, port, pid)
        run_s = yield from _cost(f"a run of {2 * APPENDS + 2} requests", run, port, pid)
        yield from _paced(port, leases)
    store.close()
    for minutes in (5, 30):
        server, database = (b / HEARTBEAT_S + r / (60 * minutes) for b, r in zip(beat_s, run_s, strict=True))
        what = f"runs of {minutes} minutes"
        yield f"{what}: workers that one server process (one core) carries", "", 1 / server
        yield f"{what}: workers that a core of PostgreSQL carries", "", 1 / database


def _cost(what: str, work: Work, port: int, pid: int) -> Generator[Row, None, tuple[float, float]]:
    """Do this on all connections; returns the processor time of the server and of PostgreSQL for one."""
    store_s, server_s, began = _store_cpu_s(pid), _cpu_s(_PIDS[port]), time.perf_counter()
    took = sorted(uvloop.run(_all(work, port)))
    wall_s = time.perf_counter() - began
    store_s, server_s = _store_cpu_s(pid) - store_s, _cpu_s(_PIDS[port]) - server_s
    yield f"{what}: a second, {CLIENTS} connections", "", len(took) / wall_s
    yield f"{what}: median", "ms", took[len(took) // 2] * 1000
    yield f"{what}: the server's processor time", "ms", server_s / len(took) * 1000
    yield f"{what}: PostgreSQL's processor time", "ms", store_s / len(took) * 1000
    yield f"{what}: share of the machine's cores that the server got", "", server_s / wall_s
    return server_s / len(took), store_s / len(took)


def _paced(port: int, leases: list[Lease]) -> Iterator[Row | Goal]:
    """Let all workers beat at their own times; what is late shows that the server cannot keep up."""
    began = time.perf_counter()
    late, lost = uvloop.run(_beat_in_time(port, leases))
    took_s = time.perf_counter() - began
    late.sort()
    yield f"{WORKERS:,} workers beating every {HEARTBEAT_S:g} s: heartbeats a second", "", len(late) / took_s
    yield f"{WORKERS:,} workers: answer after it was due, median", "ms", late[len(late) // 2] * 1000
    yield Goal(
        measure=f"{WORKERS:,} workers: answer after it was due, slowest of a hundred",
        value=late[len(late) * 99 // 100],
        unit="s",
        wanted="< 10 (leases last 60 s), none lost",
        ok=late[len(late) * 99 // 100] < 10 and not lost,
        detail=f"{lost} lost",
    )


async def _beat_in_time(port: int, leases: list[Lease]) -> tuple[list[float], int]:
    loop, began = asyncio.get_running_loop(), time.perf_counter()
    callers = [(await loop.create_connection(Caller, "127.0.0.1", port))[1] for _ in range(CLIENTS)]
    late, lost = list[float](), list[str]()

    async def beat(caller: Caller, own: list[Lease]) -> None:
        for round_ in range(int(PACED_S / HEARTBEAT_S)):
            for n, lease in enumerate(own):
                due = began + HEARTBEAT_S * (round_ + n / len(own))
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                try:
                    await caller.call("renew", lease, ttl_s=60, iteration=1)
                except LeaseLost:
                    lost.append(lease.run)
                late.append(time.perf_counter() - due)

    await asyncio.gather(*(beat(caller, leases[n::CLIENTS]) for n, caller in enumerate(callers)))
    for caller in callers:
        caller.close()
    return late, len(lost)


async def _all(work: Work, port: int) -> list[float]:
    loop, end = asyncio.get_running_loop(), time.perf_counter() + SECONDS
    callers = [(await loop.create_connection(Caller, "127.0.0.1", port))[1] for _ in range(CLIENTS)]
    took = await asyncio.gather(*(work(caller, end) for caller in callers))
    for caller in callers:
        caller.close()
    return [one for each in took for one in each]


async def _one_run(caller: Caller, name: str) -> None:
    lease = await caller.call("claim_next", HOLDER, run=name, ttl_s=3_600)
    assert isinstance(lease, Lease), lease
    for step in range(APPENDS):
        await caller.call("put_artifact", name, f"{name} {step} ".encode() * 200)
        usage = ev.UsageMetered(step=step, role="implementer", agent="bench", tokens_in=1_000, seconds=60.0)
        await caller.call("append", lease, [usage, ev.ReceiptFiled(step=step, sha256="0" * 64)])
    await caller.call("complete", lease, commits=1, head="h")
