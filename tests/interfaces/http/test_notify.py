"""A server that notifies a chat system of what needs a person."""

from __future__ import annotations

import queue
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import msgspec

from ratchet.app.notifications import Message
from ratchet.config import Config, NotifyConfig
from ratchet.core import events as ev
from ratchet.core.item import ParkReason
from ratchet.store.protocols import open_store
from tests.contract.test_queue import named, take
from tests.interfaces.http.serving import serving


def test_a_question_is_posted_with_the_address_of_the_inbox(tmp_path: Path) -> None:
    messages: queue.Queue[Message] = queue.Queue()

    class Chat(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            messages.put(msgspec.json.decode(body, type=Message))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            pass

    store = open_store(tmp_path / "ratchet.db")
    store.add(named("a"))
    lease = take(store)
    asked = ev.RunParked(reason=ParkReason.QUESTION, detail="question: which?")
    store.append(lease, [ev.RunClaimed(worker="w"), asked])
    with HTTPServer(("127.0.0.1", 0), Chat) as chat:
        thread = threading.Thread(target=chat.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        settings = Config(notify=NotifyConfig(webhook=f"http://127.0.0.1:{chat.server_port}/hook"))
        with serving(store, settings=settings) as served:
            message = messages.get(timeout=60)
            assert message.text.splitlines() == ["Question: Which? (r)", f"{served.url}/inbox"]
        chat.shutdown()
        thread.join()
    store.close()
