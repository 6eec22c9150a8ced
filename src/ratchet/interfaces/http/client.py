"""Typed HTTP client of a Ratchet server; retries while the server restarts.

Every request may be sent again: reads, idempotent verbs, and `add`, `register` and `stuck`, which send a key.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from ratchet.core import api
from ratchet.core.failure import Reason
from ratchet.core.learning import Learning
from ratchet.core.learning_lift import LiftReport
from ratchet.core.lease import Holder, NamedHolder
from ratchet.core.queue import ItemPage, ItemRow
from ratchet.errors import (
    Conflict,
    EnvironmentCannot,
    LeaseHeld,
    LeaseLost,
    NotFound,
    RatchetError,
    UsageError,
)
from ratchet.store.remote.link import Link, no_ratchet, retry

T = TypeVar("T")
_ERRORS: dict[str, type[RatchetError]] = {
    "not_found": NotFound,
    "conflict": Conflict,
    "lease_lost": LeaseLost,
    "lease_held": LeaseHeld,
    "unavailable": EnvironmentCannot,
    "too_many": EnvironmentCannot,
}


class ReceivedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the stream; pass `id` as `after` to resume behind it."""

    id: str
    entry: api.LedgerEntry


class HttpClient:
    """Implements `core.api.QueueService` over HTTP. `patience_s`: how long to retry while the server is unreachable.

    Uses one connection; not thread-safe.
    """

    def __init__(self, server: str, *, token: str, patience_s: float = 30.0, timeout_s: float = 30.0) -> None:
        self._link = Link(server, timeout_s)
        self._token, self._patience_s = token, patience_s

    def close(self) -> None:
        self._link.close()

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- work ------------------------------------------------------------------------------------------------

    def add(self, work: api.NewItem, *, key: str = "") -> api.AddResponse:
        """Add an item. Generates a key if none is given, so that a retry after a lost response adds no second item."""
        try:
            api.check_key(key)
        except ValueError as error:
            raise UsageError(str(error), hint="use another key") from error
        headers = {"idempotency-key": key or f"client-{secrets.token_hex(16)}"}
        status, row = self._ask("POST", "/api/work", ItemRow, body=work, headers=headers)
        return api.AddResponse(row=row, created=status == 201)

    def get(self, item: str) -> ItemRow:
        return self._get(f"/api/work/{_name(item)}", ItemRow)

    def queue(self, request: api.QueueQuery) -> ItemPage:
        return self._get("/api/queue", ItemPage, request)

    def cancel(self, item: str, by: api.Requester) -> api.CancelResponse:
        return self._post(f"/api/work/{_name(item)}/cancel", api.CancelResponse, by)

    def requeue(self, item: str) -> ItemRow:
        return self._post(f"/api/work/{_name(item)}/requeue", ItemRow)

    def nudge(self, item: str, request: api.Nudge) -> ItemRow:
        return self._post(f"/api/work/{_name(item)}/nudge", ItemRow, request)

    def inbox(self) -> api.Inbox:
        return self._get("/api/inbox", api.Inbox)

    # --- workers ---------------------------------------------------------------------------------------------

    def workers(self, request: api.WorkersQuery) -> api.WorkerList:
        return self._get("/api/workers", api.WorkerList, request)

    def kill(self, worker: str, by: api.Requester) -> api.Acknowledgement:
        return self._post(f"/api/workers/{_name(worker)}/kill", api.Acknowledgement, by)

    def logs(self, worker: str) -> api.Logs:
        return self._get(f"/api/workers/{_name(worker)}/logs", api.Logs)

    def register(self, holder: Holder, *, key: str = "", labels: Sequence[str] = ()) -> api.RegisterResponse:
        """Ask for work. Sends a key: a retry after a lost response gets the same lease."""
        named = msgspec.convert(holder, NamedHolder, from_attributes=True)
        request = api.RegisterRequest(holder=named, key=key or secrets.token_hex(32), labels=list(labels))
        return self._post("/api/worker/register", api.RegisterResponse, request)

    def worker(self, assignment: api.Assignment) -> WorkerClient:
        """Return a client for the routes of an assignment's lease token."""
        return WorkerClient(self, assignment)

    # --- reading ---------------------------------------------------------------------------------------------

    def runs(self, request: api.RunsQuery) -> api.RunPage:
        return self._get("/api/runs", api.RunPage, request)

    def run(self, run: str) -> api.RunResponse:
        return self._get(f"/api/runs/{_name(run)}", api.RunResponse)

    def ledger(self, run: str, request: api.LedgerQuery) -> api.LedgerPage:
        return self._get(f"/api/runs/{_name(run)}/ledger", api.LedgerPage, request)

    def diff(self, run: str) -> api.Diff:
        return self._get(f"/api/runs/{_name(run)}/diff", api.Diff)

    def status(self) -> api.Status:
        return self._get("/api/status", api.Status)

    def metrics(self, request: api.MetricsQuery = api.MetricsQuery()) -> api.Metrics:  # noqa: B008 — it is frozen
        return self._get("/api/metrics", api.Metrics, request)

    def learn(self, request: api.LearningRequest) -> Learning:
        return self._post("/api/learnings", Learning, request)

    def learnings(self, request: api.LearningsQuery) -> api.LearningList:
        return self._get("/api/learnings", api.LearningList, request)

    def learning(self, learning: str) -> Learning:
        return self._get(f"/api/learnings/{_name(learning)}", Learning)

    def learning_lift(self, request: api.LiftQuery) -> LiftReport:
        return self._get("/api/learning-lift", LiftReport, request)

    def retire_learning(self, learning: str, request: api.RetireRequest) -> Learning:
        return self._post(f"/api/learnings/{_name(learning)}/retire", Learning, request)

    def sign_in_link(self) -> api.SignInLink:
        return self._post("/api/sign-in-link", api.SignInLink)

    def health(self) -> api.Health:
        return self._get("/health", api.Health)

    def events(self, after: str = "", *, run: str = "") -> Generator[ReceivedEvent, None, None]:
        """Yield every event once, reconnecting as needed, until the server is unreachable for `patience_s`."""
        while True:
            for place, entry in self._listen(after, run):
                if entry:
                    yield ReceivedEvent(id=place, entry=entry)
                after = place

    def _listen(self, after: str, run: str) -> Iterator[tuple[str, api.LedgerEntry | None]]:
        """Yield the start position, then the events of one connection until it ends."""
        link = self._link.another()
        path = _path("/api/events", api.EventsQuery(after=after, run=run))
        response = self._patiently(lambda: link.send("GET", path, b"", self._headers()))
        try:
            if response.status != 200:
                raise _error(response.status, response.read())
            if response.headers.get_content_type() != "text/event-stream":
                raise no_ratchet(response.status, response.read(200))
            with suppress(OSError, HTTPException):
                yield from _parse_events(response)
        finally:
            link.close()

    # --- requests ----------------------------------------------------------------------------------------------

    def _get(self, path: str, kind: type[T], request: api.Request | None = None) -> T:
        return self._ask("GET", _path(path, request), kind)[1]

    def _post(self, path: str, kind: type[T], body: api.Request | None = None, *, token: str = "") -> T:
        return self._ask("POST", path, kind, body=body, token=token)[1]

    def _ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        body: api.Request | None = None,
        headers: Mapping[str, str] | None = None,
        token: str = "",
    ) -> tuple[int, T]:
        content = msgspec.json.encode(body) if body is not None else b""
        sent = self._headers(token) | dict(headers or {})
        status, answer = self._patiently(lambda: self._link.exchange(method, path, content, sent))
        if status >= 400:
            raise _error(status, answer)
        return status, _decode(status, answer, kind)

    def _headers(self, token: str = "") -> dict[str, str]:
        return {"authorization": f"Bearer {token or self._token}", "content-type": "application/json"}

    def _patiently(self, send: Any) -> Any:
        return retry(send, server=self._link.server, patience_s=self._patience_s)


class WorkerClient:
    """Client for the worker routes, authenticated by the lease token."""

    def __init__(self, client: HttpClient, assignment: api.Assignment) -> None:
        self.assignment = assignment
        self._client, self._path = client, f"/api/worker/{assignment.worker}"

    def heartbeat(self, iteration: int | None = None) -> api.HeartbeatResponse:
        return self._post("heartbeat", api.HeartbeatResponse, api.HeartbeatRequest(iteration=iteration))

    def lock(self, paths: list[str]) -> api.LocksResponse:
        """Lock paths. Raises Conflict, which names the holder."""
        return self._post("lock", api.LocksResponse, api.LockRequest(paths=paths))

    def unlock(self, paths: list[str] | None = None) -> api.LocksResponse:
        return self._post("unlock", api.LocksResponse, api.UnlockRequest(paths=paths))

    def complete(self, *, commits: int, head: str) -> api.Acknowledgement:
        return self._post("complete", api.Acknowledgement, api.CompleteRequest(commits=commits, head=head))

    def fail(self, reason: Reason, detail: str = "") -> api.RetryResponse:
        return self._post("fail", api.RetryResponse, api.FailRequest(reason=reason, detail=detail))

    def stuck(self, detail: str = "") -> api.RetryResponse:
        request = api.StuckRequest(detail=detail, key=secrets.token_hex(16))
        return self._post("stuck", api.RetryResponse, request)

    def release(self) -> api.Acknowledgement:
        return self._post("release", api.Acknowledgement)

    def append(self, events: list[dict[str, Any]], *, after: int) -> api.AppendResponse:
        return self._post("events", api.AppendResponse, api.AppendRequest(after=after, events=events))

    def _post(self, verb: str, kind: type[T], body: api.Request | None = None) -> T:
        return self._client._post(f"{self._path}/{verb}", kind, body, token=self.assignment.token)


def _parse_events(response: HTTPResponse) -> Iterator[tuple[str, api.LedgerEntry | None]]:
    """Parse server-sent events; ignore an incomplete last event."""
    fields: dict[str, str] = {}
    for raw in response:
        line = raw.decode(errors="replace").rstrip("\r\n")
        if not raw.endswith(b"\n"):
            return
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "id" in fields:
            data = fields.get("data")
            yield fields["id"], _decode(response.status, data.encode(), api.LedgerEntry) if data else None
            fields = {}


def _decode(status: int, content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise no_ratchet(status, content) from error


def _error(status: int, content: bytes) -> RatchetError:
    try:
        problem = msgspec.json.decode(content, type=api.Problem)
    except msgspec.MsgspecError:
        return no_ratchet(status, content)
    hint = "set RATCHET_TOKEN to the server's token" if status == 401 else problem.hint
    kind = _ERRORS.get(problem.code, EnvironmentCannot if status >= 500 else UsageError)
    return kind(problem.error, hint=hint, **{name: value for name, value in problem.details.items() if name != "hint"})


def _name(name: str) -> str:
    return quote(name, safe="") or "-"


def _path(path: str, request: api.Request | None) -> str:
    given = {} if request is None else msgspec.to_builtins(request)
    words = {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()}
    query = urlencode({name: value for name, value in words.items() if value not in (None, "")})
    return f"{path}?{query}" if query else path
