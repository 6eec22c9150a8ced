"""The event stream: each event is received once, however many connections are lost."""

from __future__ import annotations

import itertools
import socket
import threading

import pytest

from ratchet.core import events as ev
from ratchet.core.lease import Lease
from ratchet.errors import UsageError
from ratchet.interfaces.http import sse
from ratchet.interfaces.http.client import HttpClient
from ratchet.interfaces.http.event_stream import START
from ratchet.store.protocols import Store
from tests.contract.test_remote_workers import NOTE, claim
from tests.interfaces.http.serving import TOKEN, Served, serving


def test_each_event_is_received_once_although_the_connection_is_lost_repeatedly(any_served: Served) -> None:
    store = any_served.store
    leases = claim(store, 3)
    received: list[tuple[str, int]] = []

    def write(lease: Lease) -> None:
        for _ in range(25):
            store.append(lease, [NOTE])

    writing = [threading.Thread(target=write, args=(lease,)) for lease in leases]
    for thread in writing:
        thread.start()
    place = START
    with any_served.client() as client:
        for length in itertools.cycle((1, 2, 5, 9)):  # a listener that goes away after so many, and comes back
            for one in itertools.islice(client.events(place), min(length, 75 - len(received))):
                received.append((one.entry.run, one.entry.seq))
                place = one.id
            if len(received) == 75:
                break
    for thread in writing:
        thread.join()
    assert len(set(received)) == 75
    assert set(received) == {(lease.run, seq) for lease in leases for seq in range(1, 26)}


def test_a_new_listener_receives_only_later_signals(any_served: Served) -> None:
    (lease,) = claim(any_served.store, 1)
    any_served.store.append(lease, [NOTE])
    link = listen(any_served.port)
    link.recv(1000)  # the first words: from here on nothing is missed
    any_served.store.append(lease, [ev.RunClaimed(worker="new")])
    text = until(link, b"\n\n", after=b"event: run_claimed")
    assert b'"worker":"new"' in text and b'"seq":2' in text and b'"seq":1' not in text
    link.close()


def test_a_connection_lost_before_the_first_event_misses_nothing(any_served: Served) -> None:
    (lease,) = claim(any_served.store, 1)
    any_served.store.append(lease, [NOTE])

    def cut_off(client: socket.socket) -> None:
        """A bad network: it passes on where the stream begins, and no more; then something happens."""
        with client, socket.create_connection(("127.0.0.1", any_served.port), timeout=10) as server:
            server.sendall(client.recv(10_000))
            text = b""
            while text.count(b"\n\n") < 1:
                text += server.recv(1_000)
            client.sendall(text)
        any_served.store.append(lease, [ev.RunClaimed(worker="meanwhile")])

    def pass_on(client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", any_served.port), timeout=10) as server:
            server.sendall(client.recv(10_000))
            while text := server.recv(1_000):
                client.sendall(text)
                if b"meanwhile" in text:
                    return

    def relay(listening: socket.socket) -> None:
        cut_off(listening.accept()[0])
        pass_on(listening.accept()[0])

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)
        between = threading.Thread(target=relay, args=(listening,))
        between.start()
        with HttpClient(f"http://127.0.0.1:{listening.getsockname()[1]}", token=TOKEN, timeout_s=5) as client:
            received = next(client.events())
        between.join()
    assert received.entry.data["worker"] == "meanwhile"


def test_last_event_id_wins_and_an_invalid_one_is_rejected(served: Served) -> None:
    (lease,) = claim(served.store, 1)
    served.store.append(lease, [NOTE, NOTE])
    first, second = served.store.feed()
    link = listen(served.port, last=first.place, query="?after=start")
    text = until(link, b"\n\n", after=b"event: ")
    assert second.place.encode() in text and first.place.encode() + b"\nevent" not in text
    link.close()
    answer = served.ask("GET", "/api/events", headers={"last-event-id": "nonsense"})
    assert (answer.status, answer.code) == (422, "invalid")


def test_one_run_can_be_listened_to(served: Served) -> None:
    one, other = claim(served.store, 2)
    served.store.append(one, [NOTE])
    served.store.append(other, [NOTE])
    with served.client() as client:
        received = next(iter(client.events(START, run=other.run)))
    assert received.entry.run == other.run


def test_a_quiet_stream_says_that_it_is_still_there(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE_S", 0.05)
    link = listen(served.port)
    assert sse.KEEP_ALIVE in until(link, sse.KEEP_ALIVE)
    link.close()


def test_a_listener_that_does_not_read_costs_no_memory_and_others_nothing(served: Served) -> None:
    """What is not read waits in the store, not here."""
    (lease,) = claim(served.store, 1)
    deaf = listen(served.port, query="?after=start", buffer=4096)
    for _ in range(40):
        served.store.append(lease, [ev.RunClaimed(worker="x" * 100_000)])
    with served.client() as client:
        received = list(itertools.islice(client.events(START), 40))
    assert [one.entry.seq for one in received] == list(range(1, 41))
    deaf.close()


def test_streams_end_with_the_server(any_store: Store) -> None:
    with serving(any_store) as served:
        link = listen(served.port)
        until(link, b"retry")
    while link.recv(1000):  # up to the end: a reset would raise
        pass
    link.close()


def test_a_client_with_a_wrong_place_hears_what_is_wrong(served: Served) -> None:
    with HttpClient(served.url, token=TOKEN) as client, pytest.raises(UsageError, match="invalid feed position"):
        next(iter(client.events("nonsense")))


def listen(port: int, *, last: str = "", query: str = "", buffer: int = 0) -> socket.socket:
    link = socket.socket()
    if buffer:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    link.settimeout(20)
    link.connect(("127.0.0.1", port))
    more = f"last-event-id: {last}\r\n" if last else ""
    link.sendall(
        f"GET /api/events{query} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n{more}\r\n".encode()
    )
    return link


def until(link: socket.socket, end: bytes, *, after: bytes = b"") -> bytes:
    got = b""
    while end not in got[max(0, got.find(after)) :] or after not in got:
        piece = link.recv(65_536)
        assert piece, got
        got += piece
    return got
