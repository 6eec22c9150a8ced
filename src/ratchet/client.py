"""The typed client: asks a Ratchet server what `ratchet.desk` would answer from the store, and rides out its restarts.

Only what is safe to send twice is sent twice: reads, verbs that say so, and `add`, which carries a key of its own.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from ratchet.core import api
from ratchet.core.failure import Reason
from ratchet.core.learning import Learning
from ratchet.core.lease import Holder, Named
from ratchet.core.queue import ItemRow, Page
from ratchet.errors import (
    Conflict,
    EnvironmentCannot,
    LeaseHeld,
    LeaseLost,
    NotFound,
    RatchetError,
    UsageError,
)

T = TypeVar("T")
_AGAIN = frozenset({429, 502, 503, 504})
_WAIT_MAX_S = 2.0
_ERRORS: dict[str, type[RatchetError]] = {
    "not_found": NotFound,
    "conflict": Conflict,
    "lease_lost": LeaseLost,
    "lease_held": LeaseHeld,
    "unavailable": EnvironmentCannot,
    "too_many": EnvironmentCannot,
}


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the stream. `id` is what to go on after."""

    id: str
    entry: api.LedgerEntry


class Client:
    """Satisfies `core.api.Desk`. `patience_s` is how long a server may be away. One connection, for one thread at a
    time."""

    def __init__(self, server: str, *, token: str, patience_s: float = 30.0, timeout_s: float = 30.0) -> None:
        self._link = _Link(server, timeout_s)
        self._token, self._patience_s = token, patience_s

    def close(self) -> None:
        self._link.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- work ------------------------------------------------------------------------------------------------

    def add(self, work: api.Work, *, key: str = "") -> api.Added:
        """Without a key it gets one: an answer that was lost does not make a second item."""
        try:
            api.check_key(key)
        except ValueError as error:
            raise UsageError(str(error), hint="take another") from error
        headers = {"idempotency-key": key or f"client-{secrets.token_hex(16)}"}
        status, row = self._ask("POST", "/api/work", ItemRow, body=work, headers=headers)
        return api.Added(row=row, created=status == 201)

    def get(self, item: str) -> ItemRow:
        return self._get(f"/api/work/{_name(item)}", ItemRow)

    def queue(self, ask: api.QueueAsk) -> Page:
        return self._get("/api/queue", Page, ask)

    def cancel(self, item: str, by: api.By) -> api.CancelAnswer:
        return self._post(f"/api/work/{_name(item)}/cancel", api.CancelAnswer, by)

    def requeue(self, item: str) -> ItemRow:
        return self._post(f"/api/work/{_name(item)}/requeue", ItemRow)

    # --- workers ---------------------------------------------------------------------------------------------

    def workers(self, ask: api.WorkersAsk) -> api.WorkerList:
        return self._get("/api/workers", api.WorkerList, ask)

    def kill(self, worker: str, by: api.By) -> api.Done:
        return self._post(f"/api/workers/{_name(worker)}/kill", api.Done, by)

    def logs(self, worker: str) -> api.Logs:
        return self._get(f"/api/workers/{_name(worker)}/logs", api.Logs)

    def register(self, holder: Holder) -> api.Registered:
        """Not sent twice: a lease whose token was lost on the way expires, and comes back by itself."""
        ask = api.Register(holder=msgspec.convert(holder, Named, from_attributes=True))
        return self._ask("POST", "/api/worker/register", api.Registered, body=ask, once=True)[1]

    def worker(self, assignment: api.Assignment) -> WorkerClient:
        """What an assignment's own token may do."""
        return WorkerClient(self, assignment)

    # --- looking ---------------------------------------------------------------------------------------------

    def runs(self, ask: api.RunsAsk) -> api.RunPage:
        return self._get("/api/runs", api.RunPage, ask)

    def run(self, run: str) -> api.RunAnswer:
        return self._get(f"/api/runs/{_name(run)}", api.RunAnswer)

    def ledger(self, run: str, ask: api.LedgerAsk) -> api.LedgerPage:
        return self._get(f"/api/runs/{_name(run)}/ledger", api.LedgerPage, ask)

    def diff(self, run: str) -> api.Diff:
        return self._get(f"/api/runs/{_name(run)}/diff", api.Diff)

    def status(self) -> api.Status:
        return self._get("/api/status", api.Status)

    def metrics(self) -> api.Metrics:
        return self._get("/api/metrics", api.Metrics)

    def learn(self, ask: api.Learn) -> Learning:
        return self._post("/api/learnings", Learning, ask)

    def learnings(self, ask: api.LearningsAsk) -> api.LearningList:
        return self._get("/api/learnings", api.LearningList, ask)

    def health(self) -> api.Health:
        return self._get("/health", api.Health)

    def events(self, after: str = "", *, run: str = "") -> Generator[Heard, None, None]:
        """Every event once, over any number of lost connections, until the server is away for longer than we wait."""
        while True:
            for place, entry in self._listen(after, run):
                if entry:
                    yield Heard(id=place, entry=entry)
                after = place

    def _listen(self, after: str, run: str) -> Iterator[tuple[str, api.LedgerEntry | None]]:
        """One connection's worth of events, and first the place they come after: it ends when the connection does."""
        link = self._link.another()
        path = _path("/api/events", api.EventsAsk(after=after, run=run))
        response = self._patiently(lambda: link.send("GET", path, b"", self._headers()), once=False)
        try:
            if response.status != 200:
                raise _error(response.status, response.read())
            with suppress(OSError, HTTPException):
                yield from _heard(response)
        finally:
            link.close()

    # --- asking ----------------------------------------------------------------------------------------------

    def _get(self, path: str, kind: type[T], ask: api.Ask | None = None) -> T:
        return self._ask("GET", _path(path, ask), kind)[1]

    def _post(self, path: str, kind: type[T], body: api.Ask | None = None, *, token: str = "") -> T:
        return self._ask("POST", path, kind, body=body, token=token)[1]

    def _ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        body: api.Ask | None = None,
        headers: Mapping[str, str] | None = None,
        token: str = "",
        once: bool = False,
    ) -> tuple[int, T]:
        content = msgspec.json.encode(body) if body is not None else b""
        sent = self._headers(token) | dict(headers or {})
        if once:
            self._link.close()  # a kept connection may be dead, and only sending would tell
        status, answer = self._patiently(lambda: self._link.exchange(method, path, content, sent), once=once)
        if status >= 400:
            raise _error(status, answer)
        return status, msgspec.json.decode(answer, type=kind)

    def _headers(self, token: str = "") -> dict[str, str]:
        return {"authorization": f"Bearer {token or self._token}", "content-type": "application/json"}

    def _patiently(self, send: Any, *, once: bool) -> Any:
        """Again while the server is away or too busy, a little later each time, until patience ends."""
        end, wait_s = time.monotonic() + self._patience_s, 0.05
        while True:
            try:
                answer = send()
                status = answer.status if isinstance(answer, HTTPResponse) else answer[0]
                if status not in _AGAIN or time.monotonic() > end:
                    return answer
            except (OSError, HTTPException) as error:
                if once or time.monotonic() > end:
                    raise self._away(error) from error
            time.sleep(wait_s * random.uniform(0.5, 1.0))  # noqa: S311 — so that not all come back at once
            wait_s = min(wait_s * 2, _WAIT_MAX_S)

    def _away(self, error: Exception) -> EnvironmentCannot:
        why = str(error) or type(error).__name__
        return EnvironmentCannot(f"{self._link.server} does not answer: {why}", hint="is it running? ratchet serve")


class WorkerClient:
    """A worker's own routes, by the token of its lease."""

    def __init__(self, client: Client, assignment: api.Assignment) -> None:
        self.assignment = assignment
        self._client, self._path = client, f"/api/worker/{assignment.worker}"

    def heartbeat(self, iteration: int | None = None) -> api.Beaten:
        return self._post("heartbeat", api.Beaten, api.Heartbeat(iteration=iteration))

    def lock(self, paths: list[str]) -> api.Held:
        """Raises Conflict, which names who holds what."""
        return self._post("lock", api.Held, api.LockAsk(paths=paths))

    def unlock(self, paths: list[str] | None = None) -> api.Held:
        return self._post("unlock", api.Held, api.UnlockAsk(paths=paths))

    def complete(self, *, commits: int, head: str) -> api.Done:
        return self._post("complete", api.Done, api.Complete(commits=commits, head=head))

    def fail(self, reason: Reason, detail: str = "") -> api.Back:
        return self._post("fail", api.Back, api.Fail(reason=reason, detail=detail))

    def stuck(self, detail: str = "") -> api.Back:
        return self._post("stuck", api.Back, api.Stuck(detail=detail))

    def release(self) -> api.Done:
        return self._post("release", api.Done)

    def append(self, events: list[dict[str, Any]], *, after: int) -> api.Appended:
        return self._post("events", api.Appended, api.Append(after=after, events=events))

    def _post(self, verb: str, kind: type[T], body: api.Ask | None = None) -> T:
        return self._client._post(f"{self._path}/{verb}", kind, body, token=self.assignment.token)


class _Link:
    """One connection, kept while it works."""

    def __init__(self, server: str, timeout_s: float) -> None:
        parts = urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{server} is no server's address", hint="http://127.0.0.1:8484")
        self.server, self._timeout_s = server.rstrip("/"), timeout_s
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._under = parts.path.rstrip("/")
        self._open: HTTPConnection | None = None
        self._lock = threading.Lock()

    def another(self) -> _Link:
        return _Link(self.server, self._timeout_s)

    def exchange(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        with self._lock:
            fresh = self._open is None
            try:
                response = self.send(method, path, body, headers)
                answer = response.read()
            except (OSError, HTTPException):
                self.close()
                # A kept connection that the server had closed meanwhile says nothing about the server.
                if fresh or method != "GET":
                    raise
                response = self.send(method, path, body, headers)
                answer = response.read()
            if response.will_close:
                self.close()
            return response.status, answer

    def send(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> HTTPResponse:
        if self._open is None:
            kind = HTTPSConnection if self._secure else HTTPConnection
            self._open = kind(self._host, self._port, timeout=self._timeout_s)
        self._open.request(method, self._under + path, body=body or None, headers=dict(headers))
        return self._open.getresponse()

    def close(self) -> None:
        if self._open:
            self._open.close()
            self._open = None


def _heard(response: HTTPResponse) -> Iterator[tuple[str, api.LedgerEntry | None]]:
    """Only what came whole: an event ends with an empty line."""
    fields: dict[str, str] = {}
    for raw in response:
        line = raw.decode().rstrip("\r\n")
        if not raw.endswith(b"\n"):
            return
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "id" in fields:
            data = fields.get("data")
            yield fields["id"], msgspec.json.decode(data, type=api.LedgerEntry) if data else None
            fields = {}


def _error(status: int, content: bytes) -> RatchetError:
    try:
        problem = msgspec.json.decode(content, type=api.Problem)
    except msgspec.MsgspecError:
        return EnvironmentCannot(f"the server answered {status}: {content[:200]!r}", hint="is it a Ratchet server?")
    hint = "RATCHET_TOKEN holds the server's token" if status == 401 else problem.hint
    kind = _ERRORS.get(problem.code, EnvironmentCannot if status >= 500 else UsageError)
    return kind(problem.error, hint=hint, **{name: value for name, value in problem.details.items() if name != "hint"})


def _name(name: str) -> str:
    return quote(name, safe="") or "-"


def _path(path: str, ask: api.Ask | None) -> str:
    given = {} if ask is None else msgspec.to_builtins(ask)
    words = {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()}
    query = urlencode({name: value for name, value in words.items() if value not in (None, "")})
    return f"{path}?{query}" if query else path
