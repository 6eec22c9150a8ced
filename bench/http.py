"""HTTP: heartbeats against the bare framework's empty validated POST, and a thousand workers on one server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import uvloop

from bench import Goal, Row
from ratchet.core.item import Item
from ratchet.core.lease import Holder, Lease
from ratchet.store.protocols import Store, open_store

CLIENTS = (16, 64)
ROUNDS = 9
ROUND_S = 1.0
WORKERS = int(os.environ.get("RATCHET_BENCH_WORKERS", "1000"))
BEAT_S = 10.0
LEASE_S = 30.0
MINUTES = float(os.environ.get("RATCHET_BENCH_MINUTES", "1"))


def main() -> list[Row | Goal]:
    with tempfile.TemporaryDirectory() as folder:
        rates = [row for clients in CLIENTS for row in _rates(Path(folder), clients)]
        return [*rates, *_thousand(Path(folder))]


# --- heartbeats a second ------------------------------------------------------------------------------------------


def _rates(folder: Path, clients: int) -> Iterator[Row | Goal]:
    path = folder / f"rates{clients}.db"
    store = open_store(path)
    leases = _claim(store, clients)
    store.close()
    with _server("bare") as bare, _server("ratchet", str(path), "60") as ours:
        plain = [_post("/beat", "x" * 43)] * clients
        beats = [_post(f"/api/worker/{lease.worker}/heartbeat", lease.token) for lease in leases]
        rates: dict[str, list[float]] = {"bare": [], "ours": []}
        began = {port: _cpu_s(_PIDS[port]) for port in (bare, ours)}
        for _ in range(ROUNDS):
            rates["bare"].append(uvloop.run(_load(bare, plain)))
            rates["ours"].append(uvloop.run(_load(ours, beats)))
        bare_cpu, our_cpu = (
            (_cpu_s(_PIDS[port]) - began[port]) / (sum(rates[name]) * ROUND_S)
            for port, name in ((bare, "bare"), (ours, "ours"))
        )
    bare_rate, our_rate = (statistics.median(rates[name]) for name in ("bare", "ours"))
    ratio = statistics.median(one / other for one, other in zip(rates["ours"], rates["bare"], strict=True))
    yield f"Starlette + msgspec: an empty validated POST, {clients} clients", "/s", bare_rate
    yield f"a heartbeat: authenticated, fenced, written to SQLite, {clients} clients", "/s", our_rate
    yield Goal(
        measure=f"{clients} clients: heartbeats, of the bare framework's empty POST",
        value=ratio,
        unit="x",
        wanted=">= 0.4",
        ok=ratio >= 0.4,
        ours=f"{our_rate:,.0f}/s",
        other=f"{bare_rate:,.0f}/s",
    )
    yield "the bare server's processor time for each", "us", bare_cpu * 1e6
    yield "ours", "us", our_cpu * 1e6


def _claim(store: Store, count: int) -> list[Lease]:
    store.add_all([Item(id=f"i{n:05}", repo="/r", spec="s", title="t", base_commit="c", slug="s", created_at="2026")
                   for n in range(count)])  # fmt: skip
    holder = Holder(worker="bench", machine="m", pid=1, born="1")
    found = [store.claim_next(holder, run=f"run-{n:05}", ttl_s=LEASE_S) for n in range(count)]
    return [lease for lease in found if isinstance(lease, Lease)]


def _post(path: str, token: str) -> bytes:
    body = b'{"iteration":1}'
    return (
        f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode() + body


async def _load(port: int, requests: list[bytes]) -> float:
    """Each client sends when it has its answer; answers a second, all together."""
    links = [await _Link.open(port) for _ in requests]
    end = time.perf_counter() + ROUND_S
    counts = await asyncio.gather(*(_ask_until(link, what, end) for link, what in zip(links, requests, strict=True)))
    for link in links:
        link.close()
    return sum(counts) / ROUND_S


async def _ask_until(link: _Link, request: bytes, end: float) -> int:
    count = 0
    while time.perf_counter() < end:
        status = await link.ask(request)
        assert status == 200, status
        count += 1
    return count


class _Link(asyncio.Protocol):
    """As little client as will do: the answers are short and come in one piece or two."""

    def __init__(self) -> None:
        self._got = b""
        self._answer: asyncio.Future[int] | None = None

    @classmethod
    async def open(cls, port: int) -> _Link:
        _, link = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.WriteTransport = transport  # type: ignore[assignment]  # it is, on TCP

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, found, body = self._got.partition(b"\r\n\r\n")
        at = head.find(b"content-length: ")
        if found and len(body) >= int(head[at + 16 :].split(b"\r\n")[0]) and self._answer:
            self._answer.set_result(int(head[9:12]))
            self._got, self._answer = b"", None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError())

    async def ask(self, request: bytes) -> int:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._transport.write(request)
        return await answer

    def close(self) -> None:
        self._transport.close()


# --- a thousand workers -------------------------------------------------------------------------------------------


def _thousand(folder: Path) -> Iterator[Row | Goal]:
    """Each beats every ten seconds at its own moment; nobody may expire, and the server may not grow."""
    where = str(folder / "thousand.db")
    store = open_store(where)
    leases = _claim(store, WORKERS)
    with _server("ratchet", where, str(LEASE_S)) as port:
        pid = _PIDS[port]
        began, cpu_s = time.perf_counter(), _cpu_s(pid)
        worst, refused, sizes = uvloop.run(_beat_all(port, leases, pid))
        share = (_cpu_s(pid) - cpu_s) / (time.perf_counter() - began)
    lost = store.expire()
    live = len(store.workers(live=True, limit=WORKERS + 1))
    store.close()
    growth = sizes[-1] / sizes[len(sizes) // 3] - 1
    yield f"{WORKERS:,} workers beating every {BEAT_S:.0f} s: slowest answer", "ms", worst * 1000
    yield Goal(
        measure=f"{WORKERS:,} workers beating every {BEAT_S:.0f} s: share of a core",
        value=share,
        unit="x",
        wanted="< 0.1",
        ok=share < 0.1,
    )
    yield Goal(
        measure=f"{WORKERS:,} workers for {MINUTES:g} min: expired or refused wrongly",
        value=len(lost) + refused + WORKERS - live,
        unit="",
        wanted="0",
        ok=not lost and not refused and live == WORKERS,
    )
    yield Goal(
        measure="the server's memory, growth from a third of the time to its end",
        value=growth,
        unit="x",
        wanted="< 0.05",
        ok=growth < 0.05,
        detail=f"{sizes[-1] / 1e6:.0f} MB at the end",
    )


async def _beat_all(port: int, leases: list[Lease], pid: int) -> tuple[float, int, list[int]]:
    end = time.perf_counter() + MINUTES * 60
    sizes: list[int] = []

    async def measure() -> None:
        while time.perf_counter() < end:
            sizes.append(_memory(pid))
            await asyncio.sleep(1)

    measuring = asyncio.create_task(measure())
    reported = await asyncio.gather(*(_beat(port, lease, n, end) for n, lease in enumerate(leases)))
    await measuring
    return max(worst for worst, _ in reported), sum(refused for _, refused in reported), sizes


async def _beat(port: int, lease: Lease, number: int, end: float) -> tuple[float, int]:
    await asyncio.sleep(BEAT_S * number / WORKERS)
    link = await _Link.open(port)
    request, worst, refused = _post(f"/api/worker/{lease.worker}/heartbeat", lease.token), 0.0, 0
    while time.perf_counter() < end:
        began = time.perf_counter()
        refused += await link.ask(request) != 200
        worst = max(worst, time.perf_counter() - began)
        await asyncio.sleep(BEAT_S)
    link.close()
    return worst, refused


def _cpu_s(pid: int) -> float:
    """User and system: what a noisy machine does not change."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


# --- servers, each a process of its own ---------------------------------------------------------------------------

_PIDS: dict[int, int] = {}


@contextlib.contextmanager
def _server(*kind: str) -> Iterator[int]:
    child = subprocess.Popen(
        [sys.executable, "-c", "from bench.http import _child; _child()", *kind], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout
    try:
        ready, _, _ = select.select([child.stdout], [], [], 30)
        port = int(child.stdout.readline()) if ready else 0
        _PIDS[port] = child.pid
        yield port
    finally:
        child.terminate()
        child.wait(30)
        child.stdout.close()


def _child() -> None:
    _bare() if sys.argv[1] == "bare" else _ratchet(sys.argv[2], float(sys.argv[3]))


def _bare() -> None:
    """What the framework alone does for the same request: a route, a body, a type, an answer."""
    import msgspec  # noqa: PLC0415
    import uvicorn  # noqa: PLC0415
    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.requests import Request  # noqa: PLC0415
    from starlette.responses import Response  # noqa: PLC0415
    from starlette.routing import Route  # noqa: PLC0415

    from ratchet.core.api import HeartbeatRequest  # noqa: PLC0415
    from ratchet.interfaces.http import server  # noqa: PLC0415

    decode = msgspec.json.Decoder(HeartbeatRequest).decode

    async def beat(request: Request) -> Response:
        decode(await request.body())
        return Response(b'{"stop":""}', media_type="application/json")

    listening = server.listen("127.0.0.1", 0)
    print(listening.getsockname()[1], flush=True)
    app = Starlette(routes=[Route("/beat", beat, methods=["POST"])])
    config = uvicorn.Config(app, http="httptools", loop="uvloop", log_level="critical", access_log=False)
    uvloop.run(uvicorn.Server(config).serve(sockets=[listening]))


def _ratchet(where: str, lease_s: float) -> None:
    from ratchet.app.queue import StoreQueueService  # noqa: PLC0415
    from ratchet.interfaces.http import server  # noqa: PLC0415

    listening = server.listen("127.0.0.1", 0)

    async def run() -> None:
        desk = StoreQueueService(open_store(where), lease_s=lease_s)
        ready = lambda: print(listening.getsockname()[1], flush=True)  # noqa: E731
        await server.serve(desk, listening, token="x" * 32, stop=server.stop_on_signals(), ready=ready)

    uvloop.run(run())
