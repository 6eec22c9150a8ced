"""Any user of the machine may take the port of a server that has ended: clients send their token to nobody else."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from ratchet.core.api import QueueQuery
from ratchet.core.signal import Topic
from ratchet.errors import EnvironmentCannot
from ratchet.interfaces.http.client import HttpClient
from ratchet.interfaces.http.event_stream import START
from ratchet.store.remote import local_users
from ratchet.store.remote.local_users import VARIABLE, ForeignServer
from ratchet.store.remote.store import open_remote_store
from tests.interfaces.http.serving import TOKEN, Served

second_user = pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
ANOTHER = 65534
# Listens as another user. It accepts at once, or when its standard input ends, and prints what it received.
LISTENER = """
import os, socket, sys
os.setuid(65534)
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
listening = socket.create_server((sys.argv[1], int(sys.argv[2])), family=family)
print(listening.getsockname()[1], flush=True)
if sys.argv[3] == "late":
    sys.stdin.read()
link, _ = listening.accept()
print(repr(link.recv(65_536)), flush=True)
link.sendall(b"HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\nconnection: close\\r\\n\\r\\nhi")
"""


@contextmanager
def another_user(
    host: str = "127.0.0.1", port: int = 0, accepts: str = "at once"
) -> Iterator[tuple[int, Callable[[], str]]]:
    """Yield the port of another user's server, and what to call for the first bytes it received."""
    argv = [sys.executable, "-c", LISTENER, host, str(port), accepts]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin and child.stdout
        yield int(child.stdout.readline()), lambda: str(child.communicate(timeout=20)[0].strip())
        child.kill()


@second_user
@pytest.mark.parametrize("remote", [False, True], ids=["client", "store"])
def test_a_token_is_not_sent_to_another_user_who_took_the_port(remote: bool) -> None:
    with another_user() as (port, received):
        url = f"http://127.0.0.1:{port}"
        store, client = open_remote_store(url, token=TOKEN), HttpClient(url, token=TOKEN)
        with pytest.raises(ForeignServer, match="another user of this machine") as error:
            _ = store.feed_end() if remote else client.status()
        assert "RATCHET_SERVER_USER" in error.value.hint
        assert received() == "b''"


@second_user
def test_a_connection_that_nobody_has_accepted_gets_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel counts it as root's until then."""
    monkeypatch.setattr(local_users, "_ACCEPT_S", 0.1)
    with another_user(accepts="late") as (port, received):
        with pytest.raises(EnvironmentCannot, match="nobody accepts"):
            HttpClient(f"http://127.0.0.1:{port}", token=TOKEN, patience_s=0.0).status()
        assert received() == "b''"


@second_user
def test_a_server_of_a_user_that_is_named_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (str(ANOTHER), "any"):
        monkeypatch.setenv(VARIABLE, name)
        with another_user() as (port, received):
            client = HttpClient(f"http://127.0.0.1:{port}", token=TOKEN, patience_s=0.0)
            with pytest.raises(EnvironmentCannot, match="answered 200"), client:
                client.status()
            assert TOKEN in received()


@second_user
def test_localhost_passes_over_the_address_that_another_user_took(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", served.port, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", served.port)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_named: found)
    with another_user("::1", served.port) as (_, received):
        with HttpClient(f"http://localhost:{served.port}", token=TOKEN) as client:
            assert client.queue(QueueQuery()).rows == []
        assert received() == "b''"


@second_user
def test_a_listener_for_signals_goes_on_when_the_server_is_its_own_again(served: Served) -> None:
    with another_user() as (port, _), closing(open_remote_store(f"http://127.0.0.1:{port}", token=TOKEN)) as store:
        listener: Any = store.listen(Topic.WORK)
        assert listener._listening.wait(10)
        names = {thread.name for thread in threading.enumerate()}
        assert f"ratchet-{Topic.WORK}" in names
        listener.close()


@contextmanager
def answering(content: bytes) -> Iterator[str]:
    """A server of our own that is no Ratchet server."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            link, _ = listening.accept()
            with link:
                link.recv(65_536)
                link.sendall(content)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join(10)


@pytest.mark.parametrize("status", ["200 OK", "422 Unprocessable", "500 Oops"])
@pytest.mark.parametrize("ask", ["status", "events", "store"])
def test_an_answer_that_is_no_ratchet_servers_is_an_error_with_a_hint(status: str, ask: str) -> None:
    page = b"<script>hi</script>"
    with answering(f"HTTP/1.1 {status}\r\ncontent-length: {len(page)}\r\n\r\n".encode() + page) as url:
        with (
            HttpClient(url, token=TOKEN, patience_s=0.0) as client,
            closing(open_remote_store(url, token=TOKEN)) as store,
        ):
            asks = {"status": client.status, "events": lambda: next(client.events(START)), "store": store.feed_end}
            with pytest.raises(EnvironmentCannot, match="answered") as error:
                asks[ask]()
        assert error.value.hint
