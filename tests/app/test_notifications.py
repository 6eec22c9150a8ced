"""New entries of the inbox are told to chat systems: each once, and later where a chat system was down."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import msgspec
import pytest

from ratchet.app import notifications
from ratchet.app.notifications import InboxNotifier, Message, NotSent, message_of, open_notifier, post, run_command
from ratchet.config import NotifyConfig
from ratchet.core.inbox import InboxEntry, InboxKind

QUESTION = InboxEntry(kind=InboxKind.QUESTION, key="question-1", title="May it be empty?", repo="/r/shop")
FAILED = InboxEntry(kind=InboxKind.FAILED, key="failed-1", title="“It” failed")


class Chat(BaseHTTPRequestHandler):
    said: list[dict[str, object]]
    status = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.status == 200:
            self.said.append(msgspec.json.decode(body))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def chat() -> Iterator[tuple[str, type[Chat]]]:
    handler = type("OneChat", (Chat,), {"said": []})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", handler
    server.shutdown()
    thread.join()
    server.server_close()


def notifier_to(address: str, entries: list[InboxEntry], tmp_path: Path) -> InboxNotifier:
    async def send(message: Message) -> None:
        post(address, message)

    return InboxNotifier(lambda: entries, "http://here", {"webhook": send}, tmp_path / "told.json")


def test_what_is_new_is_posted_once_and_not_again_by_the_next_server(
    chat: tuple[str, type[Chat]], tmp_path: Path
) -> None:
    address, said = chat
    entries = [QUESTION]
    notifier = notifier_to(address, entries, tmp_path)
    asyncio.run(notifier.send_new())
    entries.append(FAILED)
    asyncio.run(notifier.send_new())
    asyncio.run(notifier_to(address, entries, tmp_path).send_new())
    assert [one["text"] for one in said.said] == [
        "Question: May it be empty? (shop)\nhttp://here/inbox",
        "Failed: “It” failed\nhttp://here/inbox",
    ]


def test_what_a_chat_system_did_not_take_is_sent_again(chat: tuple[str, type[Chat]], tmp_path: Path) -> None:
    address, said = chat
    notifier = notifier_to(address, [QUESTION], tmp_path)
    said.status = 503
    with pytest.raises(NotSent) as refused:
        asyncio.run(notifier.send_new())
    assert address not in str(refused.value)  # the address of a webhook is a secret
    said.status = 200
    asyncio.run(notifier.send_new())
    assert len(said.said) == 1


def test_a_command_gets_the_message_as_json_and_its_text(tmp_path: Path) -> None:
    told = tmp_path / "told"
    message = message_of([QUESTION], "http://here")
    asyncio.run(run_command(f'cat >{told}; printf "%s" "$RATCHET_TEXT" >{told}.text', message))
    assert msgspec.json.decode(told.read_bytes(), type=Message) == message
    assert Path(f"{told}.text").read_text() == message.text
    with pytest.raises(NotSent, match="ended with 3: no such room"):
        asyncio.run(run_command("echo no such room; exit 3", message))


def test_what_an_agent_wrote_calls_nobody_in_a_chat() -> None:
    hostile = msgspec.structs.replace(QUESTION, title="<!channel> @here\n<http://evil|click> [x](http://evil)")
    line = message_of([hostile], "http://here").text.splitlines()[0]
    assert "<" not in line and "@here" not in line and "](" not in line


def test_control_characters_that_an_agent_wrote_do_not_stop_notifications(tmp_path: Path) -> None:
    hostile = msgspec.structs.replace(QUESTION, title="May it\0 be \x1b[31mred?")
    told = tmp_path / "told"
    asyncio.run(run_command(f'printf "%s" "$RATCHET_TEXT" >{told}', message_of([hostile], "http://here")))
    assert told.read_text().startswith("Question: May it  be  [31mred?")


@pytest.mark.parametrize("answer", [b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n", b""])
def test_a_malformed_answer_of_a_webhook_is_a_message_that_was_not_sent(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def reply() -> None:
            link, _ = listening.accept()
            with link:
                link.recv(65_536)
                link.sendall(answer)

        thread = threading.Thread(target=reply)
        thread.start()
        with pytest.raises(NotSent, match="the webhook failed"):
            post(f"http://127.0.0.1:{listening.getsockname()[1]}", message_of([QUESTION], "http://here"))
        thread.join(10)


@pytest.mark.parametrize("error", [ValueError("embedded null byte"), HTTPException("odd"), KeyError("unforeseen")])
def test_a_channel_that_fails_in_an_unforeseen_way_is_tried_again(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "EVERY_S", 0.01)
    tries: list[Message] = []

    async def until_the_second_try() -> None:
        done = asyncio.Event()

        async def send(message: Message) -> None:
            tries.append(message)
            if len(tries) == 1:
                raise error
            done.set()

        notifier = InboxNotifier(lambda: [QUESTION], "http://here", {"chat": send}, tmp_path / "told.json")
        running = asyncio.ensure_future(notifier.run())
        waiting = asyncio.ensure_future(done.wait())
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        assert not running.done()
        running.cancel()

    asyncio.run(until_the_second_try())


def test_nothing_is_told_without_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RATCHET_WEBHOOK", raising=False)
    assert open_notifier(NotifyConfig(), lambda: [QUESTION], address="", store="") is None
