"""Protects the server from web pages and from strangers: names it answers to, connections and guesses per address.

A page in a browser can send requests to any address, also after it has made its own name lead here (DNS rebinding). So
only requests to known names are answered, and only from pages of the server's own.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ratchet.config import ServerConfig
from ratchet.interfaces.http.errors import HttpError
from ratchet.store.remote.local_users import Endpoint, own_user, source_of

ErrorResponse = Callable[[HttpError], ASGIApp]
_HOST = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::[0-9]{1,5})?", re.ASCII)
_FAILURES_FREE = 3
_FORGET_S = 60.0
_ADDRESSES_MAX = 10_000
_DELAYED_MAX = 32  # answers to one address that wait at once; further guesses are refused without a look
_authenticated: ContextVar[Callable[[], None] | None] = ContextVar("authenticated", default=None)


def mark_authenticated() -> None:
    """Note that the request in progress has proved a token: its connection no longer counts as a stranger's."""
    if mark := _authenticated.get():
        mark()


class Guard:
    """Wraps the application; knows the open connections."""

    def __init__(self, settings: ServerConfig, *, host: str, connections_max: int) -> None:
        self.settings = settings
        self._names = {"localhost", socket.gethostname().lower(), _name(host), *map(_name, settings.hosts)}
        self._origins = {origin.lower().rstrip("/") for origin in settings.origins}
        self._strangers: dict[Endpoint, str] = {}
        self._by_source: Counter[str] = Counter()
        self._strangers_max = connections_max // 2
        self._failures = FailedTokens(settings.failed_token_delay_s)

    # --- connections -------------------------------------------------------------------------------------------------

    def accepts(self, client: Endpoint, server: Endpoint) -> bool:
        """Count a new connection; False when its source, or all together, have too many that have shown no token.

        On this machine each user is a source, whatever address is used: what one opens is not at the expense of others.
        """
        source = source_of(client, server)
        # Strangers together leave half of the descriptors to what is proven, and to the server's own user.
        is_full = len(self._strangers) >= self._strangers_max and source != own_user()
        if is_full or self._by_source[source] >= min(self.settings.connections_per_address, self._strangers_max // 2):
            return False
        self._strangers[client] = source
        self._by_source[source] += 1
        return True

    def closed(self, client: Endpoint) -> None:
        """Forget a connection as a stranger's: it has ended, or shown a token."""
        if source := self._strangers.pop(client, ""):
            self._by_source[source] -= 1
            if not self._by_source[source]:
                del self._by_source[source]

    # --- requests ----------------------------------------------------------------------------------------------------

    def why_refused(self, headers: Headers) -> HttpError | None:
        host, origin = _name(headers.get("host", "")), headers.get("origin")
        if not _HOST.fullmatch(headers.get("host", "").strip()) or not self._is_known(host):
            return HttpError(
                421, "unknown_host", f"this server does not answer to the name {host[:100]!r}",
                hint="add it to server.hosts in ratchet.toml",
            )  # fmt: skip
        if origin is not None and not self._is_own(origin, headers.get("host", "")):
            return HttpError(
                403, "foreign_origin", f"requests from pages of {origin[:100]!r} are not allowed",
                hint="add it to server.origins in ratchet.toml",
            )  # fmt: skip
        return None

    def _is_known(self, name: str) -> bool:
        """Whether the server answers to this name. IP addresses always count: DNS cannot redirect them."""
        return "*" in self._names or name in self._names or _is_address(name)

    def _is_own(self, origin: str, host: str) -> bool:
        scheme, _, name = origin.lower().partition("://")
        return (scheme in ("http", "https") and name == host.lower()) or origin.lower().rstrip("/") in self._origins

    def wrap(self, app: ASGIApp, error_response: ErrorResponse) -> ASGIApp:
        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            client, server = (tuple(scope.get(end) or ("", 0))[:2] for end in ("client", "server"))
            headers = Headers(scope=scope)
            # A page of others can send requests without a token, and must not delay or lock out anybody by them.
            is_guess = "authorization" in headers or scope.get("method") == "POST"
            source = partial(source_of, client, server)  # asked only for guesses: it is a call of the kernel
            why = self.why_refused(headers) or (self._failures.why_refused(source) if is_guess else None)
            if why:
                await error_response(why)(scope, receive, send)
                return
            _authenticated.set(lambda: self.closed(client))
            await app(scope, receive, self._failures.slowing(source, send) if is_guess else send)

        return guarded


class FailedTokens:
    """Delays the answers to wrong tokens, by source: the more there were, the longer, up to a limit."""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._failed: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._delayed: Counter[str] = Counter()

    def why_refused(self, source: Callable[[], str]) -> HttpError | None:
        if not self._delayed or self._delayed[source()] < _DELAYED_MAX:
            return None
        return HttpError(
            429, "too_many", "too many wrong tokens from this address", hint="retry later",
            headers={"retry-after": "1"},
        )  # fmt: skip

    def slowing(self, source: Callable[[], str], send: Send) -> Send:
        async def slow(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 401:
                await self._wait(source())
            await send(message)

        return slow

    async def _wait(self, source: str) -> None:
        count, at = self._failed.pop(source, (0, 0.0))
        count = count + 1 if time.monotonic() - at < _FORGET_S else 1
        self._failed[source] = count, time.monotonic()
        while len(self._failed) > _ADDRESSES_MAX:
            self._failed.popitem(last=False)
        if count > _FAILURES_FREE:
            self._delayed[source] += 1
            try:
                await asyncio.sleep(min(self._longest_s, 0.05 * 2.0 ** min(count - _FAILURES_FREE, 20)))
            finally:
                self._delayed[source] -= 1
                self._delayed += Counter()  # drops what is zero


def _name(host: str) -> str:
    """Return a Host header's name without the port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0].lstrip("[")
    return host if host.count(":") > 1 else host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
