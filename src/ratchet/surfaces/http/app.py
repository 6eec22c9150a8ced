"""The application: each route of the table as a place that admits, reads, asks the desk and answers."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from ratchet.errors import RatchetError
from ratchet.surfaces.http.auth import bearer
from ratchet.surfaces.http.house import House
from ratchet.surfaces.http.refusals import Refusal, refusal_of
from ratchet.surfaces.http.routes import EVENTS, JSON, Call, Reply, Route, Who, table
from ratchet.surfaces.mcp.door import Door

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Any]
Send = Callable[[Message], Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY_MAX_BYTES = 1_000_000
SEND_S = 30.0
_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_PRINTABLE = re.compile(rb"[!-~]{1,200}")
_HEADERS = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]


def make_app(house: House, routes: Sequence[Route] | None = None) -> App:
    """`routes` are those of the table unless others are named."""
    by_path: dict[str, list[Route]] = {}
    for route in table() if routes is None else routes:
        by_path.setdefault(route.path, []).append(route)
    places: dict[str, App] = {path: Place(house, there) for path, there in by_path.items()}
    return Places({**places, "/mcp": Beyond(house, "/mcp", Door(house).open)})


class Places:
    """Which place a path names: looked up, not matched one after the other. An `{id}` is one whole part of it."""

    def __init__(self, places: Mapping[str, App]) -> None:
        self._places = places
        self._named = tuple(dict.fromkeys(path.split("/").index("{id}") for path in places if "{id}" in path))

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return self._of(scope)(scope, receive, send)

    def _of(self, scope: Scope) -> App:
        if scope["type"] != "http":
            return nowhere
        scope["path_params"] = {}
        path = scope["path"]
        if "{" not in path and (place := self._places.get(path)):
            return place
        parts = path.split("/")
        for at in self._named:
            if len(parts) > at and parts[at] and (place := self._places.get(_with_id(parts, at))):
                scope["path_params"] = {"id": parts[at]}
                return place
        return nowhere


def _with_id(parts: list[str], at: int) -> str:
    return "/".join([*parts[:at], "{id}", *parts[at + 1 :]])


async def nowhere(scope: Scope, _receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        refused = Refusal(
            404, "not_found", f"there is nothing at {scope['path'][:200]}", hint="/openapi.json lists all"
        )
        await _refuse(send, refused)


class Place:
    """One path and what can be done there."""

    def __init__(self, house: House, routes: Sequence[Route]) -> None:
        self.house, self.path = house, routes[0].path
        self.handlers = {route.method: Handler(house, route) for route in routes}
        if "GET" in self.handlers and routes[0].media != EVENTS:
            self.handlers["HEAD"] = self.handlers["GET"]
        self.allow = ", ".join(sorted(self.handlers))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, method = 500, scope["method"]
        try:
            handler = self.handlers.get(method)
            if handler is None:
                raise Refusal(405, "method_not_allowed", f"{method} cannot be done here", headers={"allow": self.allow})
            status = await handler.handle(scope, receive, send)
        except Exception as error:  # noqa: BLE001 — the last stop: everything becomes an answer
            refused = refusal_of(error)
            status = refused.status
            await _refuse(send, refused)
        finally:
            self.house.count(method if method in self.handlers else "OTHER", self.path, status)


class Beyond:
    """A path behind the same token, where another protocol answers."""

    def __init__(self, house: House, path: str, open_door: Callable[[], Any]) -> None:
        self.house, self.path, self._open = house, path, open_door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 500

        async def heard(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.house.admit_owner(bearer(dict(scope["headers"])))
            answer = await self._open()
        except Exception as error:  # noqa: BLE001 — the last stop: everything becomes an answer
            await _refuse(heard, refusal_of(error))
        else:
            await answer(scope, receive, heard)
        finally:
            self.house.count(scope["method"], self.path, status)


class Handler:
    """One route, with what it needs prepared."""

    def __init__(self, house: House, route: Route) -> None:
        self.house, self.route = house, route
        self.waits = not inspect.iscoroutinefunction(route.verb)
        self.decode = msgspec.json.Decoder(route.body).decode if route.body else None
        self.content = [(b"content-type", route.media.encode()), *_HEADERS]

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> int:
        call = await self._call(scope, receive)
        verb = self.route.verb
        answer = await self.house.cross(verb, call) if self.waits else await verb(call)
        if self.route.media == EVENTS:
            await _stream(answer, self.content, receive, send)
            return self.route.status
        status = self.route.status
        if isinstance(answer, Reply):
            answer, status = answer.answer, answer.status
        body = msgspec.json.encode(answer) if self.route.media == JSON else answer
        await _send(send, status, self.content, body)
        return status

    async def _call(self, scope: Scope, receive: Receive) -> Call:
        """Who first: nothing of a stranger's is read."""
        headers = dict(scope["headers"])
        name = scope["path_params"].get("id", "")
        proven = None
        if self.route.who is Who.WORKER:
            proven = await self.house.admit_worker(bearer(headers), name)
        elif self.route.who is Who.OWNER:
            await self.house.admit_owner(bearer(headers))
        if name and not _ID.fullmatch(name):
            raise Refusal(404, "not_found", "there is nothing of that name", hint="ids are letters, digits, `-`, `_`")
        return Call(
            house=self.house,
            id=name,
            body=await self._body(headers, receive) if self.decode else None,
            query=_query(scope["query_string"], self.route.query) if self.route.query else None,
            proven=proven,
            key=_word(headers, b"idempotency-key") if self.route.keyed else "",
            last=_word(headers, b"last-event-id") if self.route.media == EVENTS else "",
        )

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive) -> Any:
        assert self.decode
        content = await _read(headers, receive)
        if content and headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
            raise Refusal(415, "unsupported_media_type", "the body must be JSON", hint="Content-Type: application/json")
        try:
            return self.decode(content or b"{}")
        except (UnicodeDecodeError, RecursionError) as error:
            raise msgspec.DecodeError(str(error)) from error


async def _read(headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
    """Counted as it comes: a length that was announced may be a lie, and one that was not may have no end."""
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and int(announced) > BODY_MAX_BYTES:
        raise _too_large()
    content, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(400, "gone", "the request was not sent to its end")
        content += message.get("body", b"")
        more = message.get("more_body", False)
        if len(content) > BODY_MAX_BYTES:
            raise _too_large()
    return content


def _too_large() -> Refusal:
    """The connection stays: what is still on its way is thrown away, so that the answer can be read."""
    return Refusal(413, "too_large", f"more than {BODY_MAX_BYTES:,} bytes", hint="split it")


def _query(text: bytes, kind: Any) -> Any:
    try:
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, max_num_fields=50, errors="strict")
    except ValueError as error:
        raise Refusal(400, "bad_query", f"the query cannot be read: {error}") from error
    given = dict(pairs)
    if len(given) != len(pairs):
        raise Refusal(422, "invalid", "a parameter is given twice", hint="/openapi.json describes what is taken")
    return msgspec.convert(given, kind, strict=False)


def _word(headers: Mapping[bytes, bytes], name: bytes) -> str:
    value = headers.get(name, b"")
    if value and not _PRINTABLE.fullmatch(value):
        raise Refusal(400, "bad_header", f"{name.decode()} is not 1 to 200 printable characters without spaces")
    return value.decode()


# --- answering ------------------------------------------------------------------------------------------------------


async def _send(send: Send, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def _refuse(send: Send, refused: Refusal) -> None:
    extra = [(name.encode(), value.encode()) for name, value in refused.headers.items()]
    headers = [(b"content-type", JSON.encode()), *_HEADERS, *extra]
    await _send(send, refused.status, headers, msgspec.json.encode(refused.problem))


async def _stream(
    chunks: AsyncGenerator[bytes, None], headers: Sequence[tuple[bytes, bytes]], receive: Receive, send: Send
) -> None:
    """Until there is no more, nobody listens, or whoever listens does not keep up: they come back where they were."""
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        chunk: bytes | None = await anext(chunks)
        await send({"type": "http.response.start", "status": 200, "headers": [*headers]})
        with suppress(TimeoutError, RatchetError):
            while chunk is not None:
                async with asyncio.timeout(SEND_S):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                chunk = await _next(chunks, gone)
            await send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()
        await chunks.aclose()


async def _next(chunks: AsyncGenerator[bytes, None], gone: asyncio.Future[None]) -> bytes | None:
    coming = asyncio.ensure_future(_one_of(chunks))
    either: set[asyncio.Future[Any]] = {coming, gone}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if coming.done():
        return coming.result()
    coming.cancel()
    with suppress(asyncio.CancelledError):
        await coming
    return None


async def _one_of(chunks: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(chunks, None)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
