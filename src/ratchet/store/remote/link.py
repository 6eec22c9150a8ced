"""HTTP connections to a Ratchet server, and retries while it restarts.

Every request carries a token. On this machine any user can take the port of a server that has ended, so nothing is sent
before the kernel has said whose process has accepted the connection.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TypeVar
from urllib.parse import urlsplit

from ratchet.errors import EnvironmentCannot, UsageError
from ratchet.store.remote.local_users import VARIABLE, ForeignServer, check_server

Answer = TypeVar("Answer", HTTPResponse, tuple[int, bytes])
_AGAIN = frozenset({429, 502, 503, 504})
_WAIT_MAX_S = 2.0


def retry(send: Callable[[], Answer], *, server: str, patience_s: float) -> Answer:
    """Repeat with backoff while the server is unreachable or overloaded, for at most `patience_s`."""
    end, wait_s = time.monotonic() + patience_s, 0.05
    while True:
        try:
            answer = send()
            status = answer.status if isinstance(answer, HTTPResponse) else answer[0]
            if status not in _AGAIN or time.monotonic() > end:
                return answer
        except (OSError, HTTPException) as error:
            if time.monotonic() > end:
                why = str(error) or type(error).__name__
                raise EnvironmentCannot(f"cannot reach {server}: {why}", hint="start it with: ratchet serve") from error
        time.sleep(wait_s * random.uniform(0.5, 1.0))  # noqa: S311 — jitter, not cryptography
        wait_s = min(wait_s * 2, _WAIT_MAX_S)


def no_ratchet(status: int, content: bytes) -> EnvironmentCannot:
    """Return the error for an answer that no Ratchet server gives."""
    return EnvironmentCannot(
        f"the server answered {status}: {content[:200]!r}",
        hint="check that this is a Ratchet server, of the same version",
    )


class CheckedConnection(HTTPConnection):
    """Connects to a server of this user, of root or of RATCHET_SERVER_USER, or on another machine. With TLS the
    certificate proves the server instead."""

    def connect(self) -> None:
        """Try all addresses of the name: `localhost` has two, and another user may have one. Raises ForeignServer."""
        errors: list[OSError | ForeignServer] = []
        for family, kind, protocol, _, address in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            link = socket.socket(family, kind, protocol)
            try:
                link.settimeout(self.timeout)
                link.connect(address)
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                check_server(link, os.environ.get(VARIABLE, ""))
                self.sock = link
                return
            except (OSError, ForeignServer) as error:
                link.close()
                errors.append(error)
        raise next((error for error in errors if isinstance(error, ForeignServer)), errors[-1])


class Link:
    """A kept-alive connection to a server; one exchange at a time."""

    def __init__(self, server: str, timeout_s: float) -> None:
        parts = urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"invalid server address: {server}", hint="for example http://127.0.0.1:8484")
        self.server, self._timeout_s = server.rstrip("/"), timeout_s
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._under = parts.path.rstrip("/")
        self._open: HTTPConnection | None = None
        self._lock = threading.Lock()

    def another(self) -> Link:
        return Link(self.server, self._timeout_s)

    def exchange(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        with self._lock:
            fresh = self._open is None
            try:
                response = self.send(method, path, body, headers)
                answer = response.read()
            except (OSError, HTTPException):
                self.close()
                # The server may have closed the kept-alive connection: retry once on a new one.
                if fresh or method != "GET":
                    raise
                response = self.send(method, path, body, headers)
                answer = response.read()
            if response.will_close:
                self.close()
            return response.status, answer

    def send(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> HTTPResponse:
        if self._open is None:
            kind = HTTPSConnection if self._secure else CheckedConnection
            self._open = kind(self._host, self._port, timeout=self._timeout_s)
        self._open.request(method, self._under + path, body=body or None, headers=dict(headers))
        return self._open.getresponse()

    def abort(self) -> None:
        """End a response that another thread is reading."""
        if self._open and self._open.sock:
            with suppress(OSError):
                self._open.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._open:
            self._open.close()
            self._open = None
