"""Names the server answers to, pages that may call it, connections and guesses of strangers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from ratchet.config import Config, ServerConfig
from ratchet.interfaces.http import server
from ratchet.interfaces.http.guard import Guard
from ratchet.store.protocols import open_store
from ratchet.store.remote import local_users
from tests.interfaces.http.serving import Served, serving


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Served]:
    store = open_store(tmp_path / "ratchet.db")
    settings = ServerConfig(
        hosts=["factory.example"], origins=["https://board.example"], connections_per_address=8,
        failed_token_delay_s=0.4,
    )  # fmt: skip
    with serving(store, settings=Config(server=settings)) as made:
        yield made
    store.close()


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "factory.example.evil", "", "127.0.0.1.evil"]
)
def test_a_foreign_name_that_resolves_to_this_server_is_not_answered(guarded: Served, host: str) -> None:
    answer = guarded.ask("GET", "/api/status", headers={"host": host})
    assert (answer.status, answer.code) == (421, "unknown_host")


@pytest.mark.parametrize("host", ["localhost:8484", "127.0.0.1", "[::1]:80", "factory.example", "10.0.0.7:8484"])
def test_own_names_and_addresses_are_answered(guarded: Served, host: str) -> None:
    assert guarded.ask("GET", "/api/status", headers={"host": host}).status == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost", "https://board.example.evil"])
def test_pages_of_others_may_not_call(guarded: Served, origin: str) -> None:
    answer = guarded.ask("GET", "/api/status", headers={"origin": origin})
    assert (answer.status, answer.code) == (403, "foreign_origin")


def test_own_pages_and_named_ones_may_call(guarded: Served) -> None:
    own = f"http://127.0.0.1:{guarded.port}"
    assert guarded.ask("GET", "/api/status", headers={"origin": own}).status == 200
    assert guarded.ask("GET", "/api/status", headers={"origin": "https://board.example"}).status == 200


def is_closed(link: socket.socket) -> bool:
    link.settimeout(5)
    try:
        return link.recv(1) == b""
    except TimeoutError:
        return False


def test_connections_without_a_token_are_limited_by_user_whatever_address_it_uses(guarded: Served) -> None:
    with ExitStack() as opened:
        links = [opened.enter_context(socket.create_connection(("127.0.0.1", guarded.port))) for _ in range(9)]
        assert is_closed(links[-1])
        elsewhere = socket.create_connection(("127.0.0.1", guarded.port), source_address=("127.0.0.2", 0))
        assert is_closed(opened.enter_context(elsewhere)), "127.0.0.2 is the same user"


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "http://[::1]:x", "["])
def test_a_malformed_origin_is_a_foreign_one(guarded: Served, origin: str) -> None:
    answer = guarded.ask("GET", "/health", headers={"origin": origin})
    assert (answer.status, answer.code) == (403, "foreign_origin")


@pytest.mark.parametrize("host", ["[::1", "127.0.0.1:abc", "127.0.0.1:80@evil.example", "[127.0.0.1]evil.example"])
def test_a_malformed_host_is_an_unknown_one(guarded: Served, host: str) -> None:
    answer = guarded.ask("GET", "/inbox", headers={"host": host})
    assert (answer.status, answer.code) == (421, "unknown_host")


def test_all_strangers_together_leave_room_for_the_servers_own_user() -> None:
    guard = Guard(ServerConfig(connections_per_address=100), host="127.0.0.1", connections_max=100)
    network = [(f"10.0.0.{number}", 1) for number in range(60)]
    assert [guard.accepts(client, ("10.0.0.99", 8484)) for client in network] == [True] * 50 + [False] * 10
    with socket.create_server(("127.0.0.1", 0)) as there, socket.create_connection(there.getsockname()) as own:
        assert guard.accepts(own.getsockname(), there.getsockname())


def test_a_head_above_the_limit_is_not_answered(guarded: Served) -> None:
    with socket.create_connection(("127.0.0.1", guarded.port)) as link:
        link.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 40_000 + b"\r\n\r\n")
        link.settimeout(10)
        with suppress(ConnectionResetError):
            assert link.recv(15) in (b"", b"HTTP/1.1 400 Ba")


def test_requests_that_come_before_an_answer_are_few(guarded: Served) -> None:
    with socket.create_connection(("127.0.0.1", guarded.port)) as link:
        link.settimeout(10)
        link.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n" * 1_000)
        answers = b""
        with suppress(ConnectionResetError):
            while part := link.recv(65_536):
                answers += part
    assert answers.count(b"HTTP/1.1 ") <= server.PIPELINED_MAX + 2


def test_a_client_that_reads_nothing_is_disconnected(
    guarded: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.3)
    with socket.socket() as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        link.connect(("127.0.0.1", guarded.port))
        link.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 60)
        ends, due = (link.getpeername(), link.getsockname()), time.monotonic() + 20
        while (found := local_users._owner(*ends)) and found.inode:
            assert time.monotonic() < due, "the server still holds the connection"
    assert guarded.ask("GET", "/health").status == 200
    assert "Traceback" not in caplog.text


def test_a_connection_that_showed_a_token_does_not_count(guarded: Served) -> None:
    request = f"GET /api/status HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {'a-token-for-tests-only'}\r\n\r\n"
    with ExitStack() as opened:
        for _ in range(20):
            link = opened.enter_context(socket.create_connection(("127.0.0.1", guarded.port)))
            link.sendall(request.encode())
            assert link.recv(15) == b"HTTP/1.1 200 OK"


def test_answers_to_wrong_tokens_come_later_and_later_and_right_ones_at_once(guarded: Served) -> None:
    def took(token: str) -> float:
        began = time.monotonic()
        guarded.ask("GET", "/api/status", token=token)
        return time.monotonic() - began

    times = [took("wrong") for _ in range(8)]
    assert times[-1] >= 0.4 > min(times)
    began = time.monotonic()
    assert guarded.ask("GET", "/api/status").status == 200
    assert time.monotonic() - began < 0.4


# Opens connections and sends a wrong token over each, as another user; then waits for the end of its standard input.
GUESSES = """
import encodings.idna, os, socket, sys
os.setuid(65534)
port, text = int(sys.argv[1]), sys.argv[2].encode()
links = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
for link in links:
    link.sendall(b"GET /api/status HTTP/1.1\\r\\nhost: localhost\\r\\n" + text + b"\\r\\n")
print("sent", flush=True)
sys.stdin.read()
"""
WRONG = "authorization: Bearer a-wrong-token-of-another\r\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
@pytest.mark.parametrize("sent", [WRONG, "x: half of a head"])
def test_another_user_of_the_machine_locks_nobody_out(tmp_path: Path, sent: str) -> None:
    store = open_store(tmp_path / "ratchet.db")
    settings = ServerConfig(connections_per_address=40, failed_token_delay_s=20.0)
    with serving(store, settings=Config(server=settings)) as made:
        argv = [sys.executable, "-c", GUESSES, str(made.port), sent]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout and other.stdout.readline() == "sent\n"
            assert [made.ask("GET", "/api/status").status for _ in range(3)] == [200] * 3
            other.kill()
    store.close()


def test_guesses_of_one_source_are_refused_when_too_many_wait(tmp_path: Path) -> None:
    store = open_store(tmp_path / "ratchet.db")
    with serving(store, settings=Config(server=ServerConfig(failed_token_delay_s=3.0))) as made:
        codes: list[int] = []

        def guess() -> None:
            codes.append(made.ask("GET", "/api/status", token="a-wrong-token-of-anybody").status)

        threads = [threading.Thread(target=guess) for _ in range(60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(codes) == {401, 429}
    store.close()


def test_requests_without_a_token_as_any_page_can_send_are_no_guesses(guarded: Served) -> None:
    began = time.monotonic()
    for path in ["/events", "/api/status", "/mcp", "/sign-in?key=none"] * 10:
        assert guarded.ask("GET", path, token=None).status == 401
    assert guarded.ask("GET", "/api/status").status == 200
    assert time.monotonic() - began < 4  # each delay would be 0.4 s
