"""A real server for tests: uvicorn on a free port in a thread, over a real store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from ratchet.app.queue import StoreQueueService
from ratchet.config import Config
from ratchet.core import events as ev
from ratchet.core.state import advance, fold
from ratchet.core.workflows.tdd import TDD
from ratchet.interfaces.http import server
from ratchet.interfaces.http.client import HttpClient
from ratchet.interfaces.http.sessions import Sessions
from ratchet.store.protocols import Store
from tests.core.playing import outcome
from tests.support import make_repository

TOKEN = "a-token-for-tests-only"


class Answer(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        return str(self.json["code"])


class Served:
    def __init__(self, port: int, store: Store) -> None:
        self.port, self.store = port, store
        self.url = f"http://127.0.0.1:{port}"

    def client(self, **options: Any) -> HttpClient:
        return HttpClient(self.url, token=TOKEN, **options)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = TOKEN,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request on a connection of its own. A body that is not bytes is sent as JSON."""
        sent = {"authorization": f"Bearer {token}"} if token is not None else {}
        content = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        if content is not None:
            sent["content-type"] = "application/json"
        link = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            link.request(method, path, body=content, headers=sent | dict(headers or {}))
            response = link.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            link.close()


@contextmanager
def serving(
    store: Store,
    *,
    lease_s: float = 60.0,
    token: str = TOKEN,
    host: str = "127.0.0.1",
    port: int = 0,
    settings: Config | None = None,
    sessions: Sessions | None = None,
) -> Iterator[Served]:
    listening = server.listen(host, port)
    port = listening.getsockname()[1]
    ready = threading.Event()
    ends: list[Any] = []

    async def run() -> None:
        stop = asyncio.Event()
        ends.append((asyncio.get_running_loop(), stop))
        desk = StoreQueueService(store, lease_s=lease_s)
        await server.serve(
            desk, listening, token=token, stop=stop, settings=settings, sessions=sessions, ready=ready.set
        )

    def thread() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())

    answering = threading.Thread(target=thread, daemon=True)
    answering.start()
    assert ready.wait(10)
    try:
        yield Served(port, store)
    finally:
        loop, stop = ends[0]
        loop.call_soon_threadsafe(stop.set)
        answering.join(15)
        listening.close()
        assert not answering.is_alive(), "the server did not end"


def add(served: Served, **fields: Any) -> dict[str, Any]:
    """Queue something for a repository that is elsewhere, so that nothing has to be there."""
    answer = served.ask("POST", "/api/work", {"repo": "owner/name", "spec": "# Do it"} | fields)
    assert answer.status in (200, 201), answer.body
    found: dict[str, Any] = answer.json
    return found


def register(served: Served) -> dict[str, Any]:
    """A worker with an item of its own."""
    add(served)
    holder = {"worker": "w", "machine": "m", "pid": 1, "born": "1"}
    answer = served.ask("POST", "/api/worker/register", {"holder": holder})
    found: dict[str, Any] = answer.json["assignment"]
    return found


def ending() -> list[dict[str, Any]]:
    """The events of a run of `tdd` that found nothing to do, up to its verified end."""
    state, events = fold("run-1", TDD.table, []), []
    for kind in (ev.BaselineTaken, ev.RequirementsMet, ev.ReviewApproved, ev.FinalVerified, ev.Landed):
        events.append(outcome(kind, state))
        state = advance(state, TDD.table, events[-1])
    return [msgspec.to_builtins(event) for event in events]


def end_run(served: Served, mine: dict[str, Any]) -> None:
    path = f"/api/worker/{mine['worker']}/events"
    answer = served.ask("POST", path, {"after": 0, "events": ending()}, token=mine["token"])
    assert answer.status == 200, answer.body


def repo_path(folder: Path) -> str:
    """A repository on this machine, as small as can be."""
    return str(make_repository(folder / "repo", {"a.txt": "a\n", "test_a.py": "def test_a(): pass\n"}))
