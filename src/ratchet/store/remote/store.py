"""`RemoteStore`: the verbs of the store as requests to a Ratchet server, for hosts without database credentials."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from queue import Empty, SimpleQueue
from typing import Any, Self, cast

import msgspec

from ratchet.core.api import Problem
from ratchet.core.signal import Topic
from ratchet.errors import EnvironmentCannot, RatchetError, UsageError
from ratchet.store.protocols import Store
from ratchet.store.remote.link import Link, no_ratchet, retry
from ratchet.store.remote.verbs import Verb, verbs

PATIENCE_S, TIMEOUT_S = 30.0, 30.0
# Verbs that renew a lease: a worker must learn soon that it cannot, so that it stops before its lease ends.
_IMPATIENT = {"renew", "renew_all"}


class RemoteStore:
    """All verbs of `Store`, executed by the server. Any thread may call any verb.

    A request whose response was lost is sent again. Verbs that would then take effect twice take a key, or the place
    in the ledger behind which they append.
    """

    is_shared = True

    def __init__(self, server: str, *, token: str, patience_s: float = PATIENCE_S) -> None:
        self._first = Link(server, TIMEOUT_S)
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        self._patience_s = patience_s
        self._idle: SimpleQueue[Link] = SimpleQueue()
        self._listeners: set[RemoteListener] = set()

    def listen(self, topic: Topic) -> RemoteListener:
        """Listen for changes on a topic. Signals that come while the connection is down are made up for by one."""
        listener = RemoteListener(self._first.another(), topic, self._headers, self._listeners.discard)
        self._listeners.add(listener)
        return listener

    def close(self) -> None:
        for listener in list(self._listeners):
            listener.close()
        with suppress(Empty):
            while True:
                self._idle.get_nowait().close()

    def _call(self, verb: Verb, *args: object, **named: object) -> Any:
        if verb.takes_key and not named.get("key"):
            named["key"] = secrets.token_hex(32)  # so that a request that is sent again takes effect once
        body, path = verb.encode_call(*args, **named), f"/api/store/{verb.name}"
        patience_s = min(self._patience_s, 1.0) if verb.name in _IMPATIENT else self._patience_s
        with self._link() as link:
            status, content = retry(
                lambda: link.exchange("POST", path, body, self._headers), server=link.server, patience_s=patience_s
            )
        if status != 200:
            raise _refusal(status, content)
        try:
            return verb.decode_outcome(content)
        except msgspec.MsgspecError as error:
            raise no_ratchet(status, content) from error

    @contextmanager
    def _link(self) -> Iterator[Link]:
        try:
            link = self._idle.get_nowait()
        except Empty:
            link = self._first.another()
        try:
            yield link
        except BaseException:
            link.close()
            raise
        self._idle.put(link)


def _method(verb: Verb) -> Callable[..., Any]:
    def call(self: RemoteStore, *args: object, **named: object) -> Any:
        return self._call(verb, *args, **named)

    call.__name__ = verb.name
    return call


for _verb in verbs().values():
    setattr(RemoteStore, _verb.name, _method(_verb))


def open_remote_store(server: str, *, token: str, patience_s: float = PATIENCE_S) -> Store:
    return cast(Store, RemoteStore(server, token=token, patience_s=patience_s))


def _refusal(status: int, content: bytes) -> RatchetError:
    if status == 422:
        try:
            problem = msgspec.json.decode(content, type=Problem)
        except msgspec.MsgspecError:
            return no_ratchet(status, content)
        return UsageError(problem.error, hint=problem.hint, **problem.details)
    hint = "give the server's token: --token-file FILE" if status in (401, 403) else "see the server's log"
    return EnvironmentCannot(f"the server answered {status}: {content[:300].decode(errors='replace')}", hint=hint)


class RemoteListener:
    """A stream of the server that has one line for each signal; reconnects until it is closed."""

    def __init__(self, link: Link, topic: Topic, headers: dict[str, str], ended: Callable[[Any], None]) -> None:
        self._link, self._path, self._headers = link, f"/api/store-signals/{topic}", headers
        self._signal, self._closing, self._ended = threading.Event(), threading.Event(), ended
        self._listening = threading.Event()
        threading.Thread(target=self._follow, name=f"ratchet-{topic}", daemon=True).start()
        self._listening.wait(TIMEOUT_S)

    def wait(self, timeout_s: float) -> bool:
        signalled = self._signal.wait(timeout_s)
        self._signal.clear()
        return signalled

    def wake(self) -> None:
        self._signal.set()

    def close(self) -> None:
        self._closing.set()
        self._link.abort()
        self._ended(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _follow(self) -> None:
        pause_s = 0.05
        while not self._closing.wait(pause_s if self._listening.is_set() else 0):
            with suppress(OSError, HTTPException, ValueError, RatchetError):  # a foreign server may go again
                response = self._link.send("GET", self._path, b"", self._headers)
                if self._listening.is_set():
                    self._signal.set()  # something may have changed while the connection was down
                for line in response:
                    self._listening.set()  # the first line says that the server listens
                    if line.startswith(b"data: signal"):
                        self._signal.set()
            self._link.close()
            self._listening.set()
            pause_s = min(pause_s * 2, 2.0)
