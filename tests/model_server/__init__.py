"""A model provider that plays a script: real agents talk to it as they would to Anthropic, OpenAI or Google.

It knows who asks by the role that the prompt names, plays that role's turns in order, and can fail as providers do.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import msgspec

from tests.model_server.dialects import Dialect, Fault, Heard, Reply, dialect_of

__all__ = ["Fault", "ModelServer", "Turn"]

_ROLES = ("auditor", "implementer", "architect", "reviewer")
_SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Commands the model has run, one after the other, and what it says then. `text` is what it says to an agent that
    gives it no tools."""

    run: list[str] = []
    say: str = "All done."
    text: str = ""


class ModelServer:
    """`turns` are played for each role in order; `anyone` for prompts that name no role. `faults` come first, one a
    request, and None among them is none; a `lasting` one comes always."""

    def __init__(self, turns: dict[str, list[Turn]], *, lasting: Fault | None = None) -> None:
        self.turns, self.lasting = turns, lasting
        self.faults: deque[Fault | None] = deque()
        self.requests: list[Heard] = []
        self.arrived = threading.Event()
        self._prompts: dict[str, list[str]] = {}
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    # --- what the model does ---------------------------------------------------------------------------------

    def answer(self, received: Heard) -> Reply | Fault:
        with self._lock:
            role = _role_of(received.prompt)
            if received.has_tools and not received.shell:
                return Reply(text="nothing")
            if not received.has_tools and not any(turn.text for turns in self.turns.values() for turn in turns):
                return Reply(text="A title")  # a side call: titles, summaries, topics
            self.requests.append(received)
            self.arrived.set()
            if fault := self.lasting or (self.faults.popleft() if self.faults else None):
                return fault
            return self._play(self._turn(role, received.prompt), received)

    def _turn(self, role: str, prompt: str) -> Turn:
        """A prompt that was seen before is the same conversation, however often it is asked."""
        seen = self._prompts.setdefault(role, [])
        if prompt not in seen:
            seen.append(prompt)
        turns = self.turns.get(role) or self.turns["anyone"]
        return turns[min(seen.index(prompt), len(turns) - 1)]

    def _play(self, turn: Turn, received: Heard) -> Reply:
        if not received.has_tools:
            return Reply(text=turn.text or turn.say)
        if received.results < len(turn.run):
            return Reply(command=turn.run[received.results])
        if _SUBMIT in received.everything:
            return Reply(command=f"echo {_SUBMIT}; cat <<'END'\n{turn.say}\nEND")
        return Reply(text=turn.say)

    # --- HTTP ------------------------------------------------------------------------------------------------

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                _send(self, 200, {"object": "list", "data": [], "models": []})

            def do_HEAD(self) -> None:
                _send(self, 200, {})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    server.respond(self, body)

        return Handler

    def respond(self, http: BaseHTTPRequestHandler, body: bytes) -> None:
        dialect = dialect_of(http.path)
        if dialect is None:
            _send(http, 200, {"input_tokens": 10, "totalTokens": 10})
            return
        received = dialect.hear(msgspec.json.decode(body), http.path)
        reply = self.answer(received)
        if isinstance(reply, Fault):
            self._fail(http, dialect, reply, received)
        elif received.stream:
            _stream(http, dialect.events(reply, received))
        else:
            _send(http, 200, dialect.whole(reply, received))

    def _fail(self, http: BaseHTTPRequestHandler, dialect: Dialect, fault: Fault, received: Heard) -> None:
        match fault.kind:
            case "cut":
                _stream(http, dialect.events(Reply(text="I was about to"), received)[:2], whole=False)
            case "inside":
                _stream(http, dialect.inside(received))
            case "malformed":
                _stream(http, [b'data: {"this is": not json\n\n'])
            case "slow":
                time.sleep(fault.after_s)
                _stream(
                    http,
                    dialect.events(
                        self._play(self._turn(_role_of(received.prompt), received.prompt), received), received
                    ),
                )
            case _:
                status, body = dialect.error(fault.kind)
                headers = {"retry-after": str(int(fault.after_s))} if fault.after_s else {}
                _send(http, status, body, headers)


def _role_of(prompt: str) -> str:
    return next((role for role in _ROLES if f"You are the {role}" in prompt), "anyone")


def _send(http: BaseHTTPRequestHandler, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
    content = msgspec.json.encode(body)
    http.send_response(status)
    for name, value in {
        "content-type": "application/json",
        "content-length": str(len(content)),
        **(headers or {}),
    }.items():
        http.send_header(name, value)
    http.end_headers()
    http.wfile.write(content)


def _stream(http: BaseHTTPRequestHandler, events: list[bytes], *, whole: bool = True) -> None:
    http.send_response(200)
    http.send_header("content-type", "text/event-stream")
    http.send_header("transfer-encoding", "chunked")
    http.end_headers()
    for event in events:
        http.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
        http.wfile.flush()
    if whole:
        http.wfile.write(b"0\r\n\r\n")
    else:
        http.close_connection = True
