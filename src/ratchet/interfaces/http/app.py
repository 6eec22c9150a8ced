"""The Starlette application: authenticates, decodes, calls the route's handler and encodes the response."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as StarletteRoute
from starlette.types import Message, Receive, Scope, Send

from ratchet.errors import RatchetError
from ratchet.interfaces.http.app_state import AppState
from ratchet.interfaces.http.auth import bearer_token
from ratchet.interfaces.http.errors import HttpError, http_error_of
from ratchet.interfaces.http.routes import EVENTS, JSON, Auth, Reply, Route, RouteCall, table
from ratchet.interfaces.mcp.transport import HttpTransport
from ratchet.store.remote.local_users import local_user

SEND_S = 30.0
_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_PRINTABLE = re.compile(r"[!-~]{1,200}")
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def make_app(app_state: AppState, routes: Sequence[Route] | None = None) -> Starlette:
    """Build the application; `routes` defaults to the full table."""
    by_path: dict[str, list[Route]] = {}
    for route in table() if routes is None else routes:
        by_path.setdefault(route.path, []).append(route)
    from ratchet.interfaces.web.routes import web_routes  # noqa: PLC0415 — it imports this module

    app = Starlette(
        routes=[
            *(Endpoint(app_state, there).starlette_route() for there in by_path.values()),
            StarletteRoute("/mcp", MountedApp(app_state, "/mcp", HttpTransport(app_state).open)),
            *(web_routes(app_state) if routes is None else ()),
        ],
        exception_handlers={HTTPException: _unrouted},
    )
    app.router.redirect_slashes = False
    return app


async def _unrouted(request: Request, error: Exception) -> Response:
    """Answer a request for an unknown path or with a method that the path does not have."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        return error_response(
            HttpError(405, "method_not_allowed", f"{request.method} is not allowed here", headers=error.headers)
        )
    path = request.scope["path"][:200]
    return error_response(HttpError(404, "not_found", f"no such path: {path}", hint="/openapi.json lists all routes"))


class Endpoint:
    """One path with its methods."""

    def __init__(self, app_state: AppState, routes: Sequence[Route]) -> None:
        self.app_state, self.path = app_state, routes[0].path
        self.handlers = {route.method: RouteHandler(app_state, route) for route in routes}

    def starlette_route(self) -> StarletteRoute:
        """Return the route. Starlette adds HEAD to GET, but a stream without a body would never end."""
        made = StarletteRoute(self.path, self.handle, methods=list(self.handlers))
        assert made.methods is not None
        if any(handler.route.media == EVENTS for handler in self.handlers.values()):
            made.methods.discard("HEAD")
        return made

    async def handle(self, request: Request) -> Response:
        method = request.method
        try:
            response = await self.handlers["GET" if method == "HEAD" else method].handle(request)
        except Exception as error:  # noqa: BLE001 — top level: every error becomes a response
            response = error_response(http_error_of(error))
        self.app_state.count(method, self.path, response.status_code)
        return response


class MountedApp:
    """A mounted ASGI application (MCP) behind the owner's token."""

    def __init__(self, app_state: AppState, path: str, open_app: Callable[[], Any]) -> None:
        self.app_state, self.path, self._open = app_state, path, open_app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 500

        async def record_status(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app_state.authenticate_owner(bearer_token(Request(scope).headers))
            answer = await self._open()
        except Exception as error:  # noqa: BLE001 — top level: every error becomes a response
            answer = error_response(http_error_of(error))
        try:
            await answer(scope, receive, record_status)
        finally:
            self.app_state.count(scope["method"], self.path, status)


class RouteHandler:
    """Handles one route, with decoder and headers prepared."""

    def __init__(self, app_state: AppState, route: Route) -> None:
        self.app_state, self.route = app_state, route
        self.waits = not inspect.iscoroutinefunction(route.handler)
        self.decode = msgspec.json.Decoder(route.body).decode if route.body else None
        self.headers = {"content-type": route.media, **_HEADERS}

    async def handle(self, request: Request) -> Response:
        call = await self._call(request)
        verb = self.route.handler
        work = self.app_state.run_blocking(verb, call) if self.waits else verb(call)
        answer = await (_while_connected(request, work) if self.route.ends_with_client else work)
        if self.route.media == EVENTS:
            return await EventStreamResponse.open(answer, self.headers)
        status = self.route.status
        if isinstance(answer, Reply):
            answer, status = answer.answer, answer.status
        return Response(msgspec.json.encode(answer) if self.route.media == JSON else answer, status, self.headers)

    async def _call(self, request: Request) -> RouteCall:
        """Authenticate before reading the body."""
        token, name = bearer_token(request.headers), request.path_params.get("id", "")
        worker = None
        if self.route.auth is Auth.WORKER:
            worker = await self.app_state.authenticate_worker(token, name)
        elif self.route.auth is Auth.OWNER:
            await self.app_state.authenticate_owner(token)
        if name and not _ID.fullmatch(name):
            raise HttpError(404, "not_found", "no such id", hint="ids consist of letters, digits, `.`, `-` and `_`")
        return RouteCall(
            state=self.app_state,
            id=name,
            body=await self._body(request) if self.decode else None,
            query=_query(request.scope["query_string"], self.route.query) if self.route.query else None,
            worker=worker,
            user=partial(browser_user, request),
            idempotency_key=_word(request, "idempotency-key") if self.route.keyed else "",
            last_event_id=_word(request, "last-event-id") if self.route.media == EVENTS else "",
        )

    async def _body(self, request: Request) -> Any:
        assert self.decode
        content = await read_body(request, self.route.body_max_bytes)
        if content and media_type(request) != JSON:
            raise HttpError(
                415, "unsupported_media_type", "the body must be JSON", hint="Content-Type: application/json"
            )
        try:
            return self.decode(content or b"{}")
        except (UnicodeDecodeError, RecursionError) as error:
            raise msgspec.DecodeError(str(error)) from error


def browser_user(request: Request) -> str:
    """Return which user of this machine the client belongs to; empty when it is on another one."""
    client, server = request.scope.get("client"), request.scope.get("server")
    return local_user(tuple(client)[:2], tuple(server)[:2]) if client and server else ""


async def _while_connected(request: Request, work: Awaitable[Any]) -> Any:
    """Cancel the work when the client disconnects, and wait for its end."""
    tasks = working, _leaving = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise HttpError(400, "gone", "the client disconnected before the call had ended")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Read the body and enforce the size limit while reading: Content-Length may be wrong or missing."""
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > max_bytes:
        raise _too_large(max_bytes)
    content = b""
    try:
        async for chunk in request.stream():
            content += chunk
            if len(content) > max_bytes:
                raise _too_large(max_bytes)
    except ClientDisconnect as error:
        raise HttpError(400, "gone", "the client disconnected before sending the whole request") from error
    return content


def _too_large(max_bytes: int) -> HttpError:
    """Keep the connection open and discard the rest of the body, so that the client can read the response."""
    return HttpError(413, "too_large", f"the body exceeds {max_bytes:,} bytes", hint="split the request")


def _query(text: bytes, kind: Any) -> Any:
    try:
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, max_num_fields=50, errors="strict")
    except ValueError as error:
        raise HttpError(400, "bad_query", f"cannot parse the query string: {error}") from error
    given = dict(pairs)
    if len(given) != len(pairs):
        raise HttpError(
            422, "invalid", "a query parameter is given twice", hint="/openapi.json describes the parameters"
        )
    return msgspec.convert(given, kind, strict=False)


def _word(request: Request, name: str) -> str:
    value = request.headers.get(name, "")
    if value and not _PRINTABLE.fullmatch(value):
        raise HttpError(400, "bad_header", f"{name} must be 1 to 200 printable characters without spaces")
    return value


def error_response(refused: HttpError) -> Response:
    headers = {"content-type": JSON, **_HEADERS, **refused.headers}
    return Response(msgspec.json.encode(refused.problem), refused.status, headers)


class EventStreamResponse(StreamingResponse):
    """Streams until the end, a disconnect, or a client that reads too slowly; the client resumes with Last-Event-ID."""

    @classmethod
    async def open(cls, chunks: AsyncGenerator[bytes, None], headers: dict[str, str]) -> EventStreamResponse:
        """Wait for the first chunk: what it raises becomes an error response instead of a stream."""
        return cls(_chain(await anext(chunks), chunks), headers=headers)

    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(SEND_S):
                await send(message)

        with suppress(TimeoutError, RatchetError):
            await super().stream_response(send_in_time)


async def _chain(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(rest):
        yield first
        async for chunk in rest:
            yield chunk
