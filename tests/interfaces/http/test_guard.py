"""Names the server answers to, pages that may call it, connections and guesses of strangers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ratchet.config import Config, ServerConfig
from ratchet.store.protocols import open_store
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


def test_connections_without_a_token_are_limited_by_address_and_others_are_served(guarded: Served) -> None:
    with ExitStack() as opened:
        links = [opened.enter_context(socket.create_connection(("127.0.0.1", guarded.port))) for _ in range(9)]
        assert is_closed(links[-1])
        other = opened.enter_context(
            socket.create_connection(("127.0.0.1", guarded.port), source_address=("127.0.0.2", 0))
        )
        other.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert other.recv(15) == b"HTTP/1.1 200 OK"


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
import os, socket, sys
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
