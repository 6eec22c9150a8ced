"""A real coding agent, configured by `ratchet mcp install`, fixes a failing project through the tools alone."""

from __future__ import annotations

import re
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agents.real import needs, pointed_at, ratchet
from tests.interfaces.mcp.clients import PATCH, broken_project

pytestmark = pytest.mark.agents
_WAIT_S = 240


class Model:
    """Speaks as Anthropic does. It calls one tool after the other, and takes the workspace's id from what it hears."""

    def __init__(self, calls: list[tuple[str, dict[str, Any]]]) -> None:
        self.calls, self.received = calls, list[str]()

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        names = [tool["name"] for tool in body.get("tools") or []]
        parts = [
            part for message in body["messages"] if isinstance(message["content"], list) for part in message["content"]
        ]
        results = [msgspec.json.encode(part).decode() for part in parts if part.get("type") == "tool_result"]
        if not any(name.startswith("mcp__ratchet__") for name in names) or len(results) >= len(self.calls):
            self.received = max(self.received, results, key=len)
            return {"type": "text", "text": "All done."}
        tool, arguments = self.calls[len(results)]
        known = re.search(r"tw-[0-9a-f]{12}", "".join(results))
        workspace = {"workspace": known[0]} if known else {}
        name = f"mcp__ratchet__{tool}"
        return {"type": "tool_use", "id": f"toolu_{len(results)}", "name": name, "input": arguments | workspace}


def events(block: dict[str, Any]) -> bytes:
    calls = block["type"] == "tool_use"
    start: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted",
                             "content": [], "stop_reason": None, "stop_sequence": None,
                             "usage": {"input_tokens": 9, "output_tokens": 1}}  # fmt: skip
    delta = (
        {"type": "input_json_delta", "partial_json": msgspec.json.encode(block["input"]).decode()}
        if calls
        else {"type": "text_delta", "text": block["text"]}
    )
    stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    empty: dict[str, Any] = block | ({"input": dict[str, Any]()} if calls else {"text": ""})
    reported: list[dict[str, Any]] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    return b"".join(b"event: %s\ndata: %s\n\n" % (row["type"].encode(), msgspec.json.encode(row)) for row in reported)


def served(model: Model) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = msgspec.json.decode(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
            asked = self.path.partition("?")[0].endswith("/messages")
            streamed = asked and body.get("stream")
            content = events(model.reply(body)) if streamed else b'{"input_tokens": 9}'
            self.send_response(200)
            self.send_header("content-type", "text/event-stream" if streamed else "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    return made


def test_claude_mends_a_failing_project_through_the_tools_alone(tmp_path: Path) -> None:
    program, project = needs("claude"), broken_project(tmp_path)
    model = Model(
        [
            ("create_workspace", {"path": str(project)}),
            ("run_tests", {}),
            ("apply_patch", {"patch": PATCH}),
            ("run_tests", {}),
            ("diff", {}),
        ]
    )
    server = served(model)
    try:
        env = pointed_at(f"http://127.0.0.1:{server.server_address[1]}", tmp_path / "home") | {
            "ENABLE_TOOL_SEARCH": "false"
        }
        assert ratchet("mcp", "install", "claude", cwd=project, env=env).returncode == 0
        words = ["-p", "mend it", "--mcp-config", ".mcp.json", "--strict-mcp-config", "--allowedTools", "mcp__ratchet"]
        done = subprocess.run(
            [program, *words], cwd=project, env=env, capture_output=True, text=True, timeout=_WAIT_S, check=False
        )
    finally:
        server.shutdown()
        server.server_close()
    assert "All done." in done.stdout, done.stdout + done.stderr
    assert len(model.received) == len(model.calls), (model.received, done.stderr)
    _, red, patched, green, diff = model.received
    assert "failed" in red and "passed" in green and "+" in diff, (red, patched, green, diff)
