"""The APIs of the providers: what a request asks, and a reply or a fault as each of them would say it."""

from __future__ import annotations

import itertools
import re
from typing import Any, Protocol

import msgspec

_ids = itertools.count(1)


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """`kind`: rate_limit, overloaded, auth, context, cut, inside (an error in the stream), malformed, slow. `after_s`:
    when to come back, how slow."""

    kind: str
    after_s: float = 0.0


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """A request, whatever the dialect. `results` counts what tools answered since the last prompt."""

    prompt: str
    results: int
    everything: str
    has_tools: bool
    shell: str
    shell_takes: dict[str, Any]
    stream: bool
    model: str


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """Words, or a command for the agent's shell tool."""

    text: str = ""
    command: str = ""


class Dialect(Protocol):
    def hear(self, body: dict[str, Any], path: str) -> Heard: ...

    def whole(self, reply: Reply, received: Heard) -> dict[str, Any]: ...

    def events(self, reply: Reply, received: Heard) -> list[bytes]: ...

    def error(self, kind: str) -> tuple[int, dict[str, Any]]: ...

    def inside(self, received: Heard) -> list[bytes]:
        """A stream that begins well and ends in the provider's error."""
        ...


def dialect_of(path: str) -> Dialect | None:
    where = path.partition("?")[0]
    if where.endswith("/messages"):
        return Anthropic()
    if where.endswith("/chat/completions"):
        return Chat()
    if where.endswith("/responses"):
        return Responses()
    return Gemini() if where.endswith(("streamGenerateContent", "generateContent")) else None


_SHELLS = ("Bash", "exec_command", "shell_command", "shell", "run_shell_command", "bash", "developer__shell")
_TOKENS_IN, _TOKENS_OUT = 1_000, 20
_BEGUN = "I was about to"
_ERRORS = {
    "rate_limit": (429, "rate_limit_error", "Rate limit reached (scripted)"),
    "overloaded": (529, "overloaded_error", "Overloaded (scripted)"),
    "auth": (401, "authentication_error", "invalid api key (scripted)"),
    "context": (400, "invalid_request_error", "prompt is too long: 250000 tokens > 200000 maximum"),
}


def _received(turns: list[tuple[str, str]], tools: dict[str, dict[str, Any]], *, stream: bool, model: str) -> Heard:
    """`turns` are pairs of `user`, `result` or another role, and text."""
    asked = [number for number, (kind, text) in enumerate(turns) if kind == "user" and "# Your task" in text]
    last = asked[-1] if asked else max((n for n, (kind, _) in enumerate(turns) if kind == "user"), default=0)
    shell = next((name for name in _SHELLS if name in tools), "")
    return Heard(
        prompt=_asked(turns[last][1]) if turns else "",
        results=sum(kind == "result" for kind, _ in turns[last:]),
        everything="\n".join(text for _, text in turns),
        has_tools=bool(tools),
        shell=shell,
        shell_takes=tools.get(shell, {}),
        stream=stream,
        model=model,
    )


def _asked(text: str) -> str:
    """From the factory's words on: what agents put around them changes with every request."""
    return text[text.find("# Your task") :] if "# Your task" in text else text


def _arguments(reply: Reply, received: Heard) -> dict[str, Any]:
    """The command as this agent's shell tool takes it."""
    properties = received.shell_takes.get("properties", {})
    name = next((name for name in ("command", "cmd") if name in properties), "command")
    array = properties.get(name, {}).get("type") == "array"
    words: dict[str, Any] = {name: ["bash", "-lc", reply.command] if array else reply.command}
    return words | {extra: "as scripted" for extra in received.shell_takes.get("required", []) if extra not in words}


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content or [] if isinstance(part, dict))


def _sse(body: dict[str, Any], name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return head.encode() + b"data: " + msgspec.json.encode(body) + b"\n\n"


class Anthropic:
    def hear(self, body: dict[str, Any], path: str) -> Heard:
        turns = [turn for message in body["messages"] for turn in self._turns(message)]
        tools = {tool["name"]: tool.get("input_schema", {}) for tool in body.get("tools") or []}
        return _received(turns, tools, stream=bool(body.get("stream")), model=body.get("model", ""))

    def _turns(self, message: dict[str, Any]) -> list[tuple[str, str]]:
        content = message["content"]
        if isinstance(content, str):
            return [(message["role"], content)]
        results = [("result", "") for part in content if part.get("type") == "tool_result"]
        text = _words(content)
        return [*results, *([(message["role"], text)] if text else [])]

    def _blocks(self, reply: Reply, received: Heard) -> list[dict[str, Any]]:
        if not reply.command:
            return [{"type": "text", "text": reply.text}]
        call = {"id": f"toolu_{next(_ids)}", "name": received.shell, "input": _arguments(reply, received)}
        return [{"type": "tool_use", **call}]

    def whole(self, reply: Reply, received: Heard) -> dict[str, Any]:
        return {
            "id": f"msg_{next(_ids)}", "type": "message", "role": "assistant", "model": received.model,
            "content": self._blocks(reply, received), "stop_reason": "tool_use" if reply.command else "end_turn",
            "stop_sequence": None, "usage": {"input_tokens": _TOKENS_IN, "output_tokens": _TOKENS_OUT},
        }  # fmt: skip

    def events(self, reply: Reply, received: Heard) -> list[bytes]:
        message = self.whole(reply, received)
        (block,) = message["content"]
        start = message | {
            "content": [],
            "stop_reason": None,
            "usage": {"input_tokens": _TOKENS_IN, "output_tokens": 1},
        }
        empty: dict[str, Any] = block | ({"text": ""} if block["type"] == "text" else {"input": dict[str, Any]()})
        delta = (
            {"type": "text_delta", "text": block["text"]}
            if block["type"] == "text"
            else {"type": "input_json_delta", "partial_json": msgspec.json.encode(block["input"]).decode()}
        )
        stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        reported: list[dict[str, Any]] = [
            {"type": "message_start", "message": start},
            {"type": "content_block_start", "index": 0, "content_block": empty},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": stop, "usage": {"output_tokens": _TOKENS_OUT}},
            {"type": "message_stop"},
        ]
        return [_sse(event, event["type"]) for event in reported]

    def error(self, kind: str) -> tuple[int, dict[str, Any]]:
        status, name, message = _ERRORS[kind]
        return status, {"type": "error", "error": {"type": name, "message": message}}

    def inside(self, received: Heard) -> list[bytes]:
        return [self.events(Reply(text=_BEGUN), received)[0], _sse(self.error("overloaded")[1], "error")]


class Chat:
    def hear(self, body: dict[str, Any], path: str) -> Heard:
        turns = [
            ("result" if message["role"] == "tool" else message["role"], _words(message.get("content")))
            for message in body["messages"]
        ]
        tools = {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in body.get("tools") or []}
        return _received(turns, tools, stream=bool(body.get("stream")), model=body.get("model", ""))

    def _message(self, reply: Reply, received: Heard) -> dict[str, Any]:
        if not reply.command:
            return {"role": "assistant", "content": reply.text}
        function = {"name": received.shell, "arguments": msgspec.json.encode(_arguments(reply, received)).decode()}
        call = {"index": 0, "id": f"call_{next(_ids)}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    def _frame(self, received: Heard, kind: str, **choice: Any) -> dict[str, Any]:
        usage = {
            "prompt_tokens": _TOKENS_IN,
            "completion_tokens": _TOKENS_OUT,
            "total_tokens": _TOKENS_IN + _TOKENS_OUT,
        }
        return {
            "id": "chatcmpl-1", "object": kind, "created": 1, "model": received.model,
            "choices": [{"index": 0, **choice}], "usage": usage,
        }  # fmt: skip

    def whole(self, reply: Reply, received: Heard) -> dict[str, Any]:
        end = "tool_calls" if reply.command else "stop"
        return self._frame(received, "chat.completion", message=self._message(reply, received), finish_reason=end)

    def events(self, reply: Reply, received: Heard) -> list[bytes]:
        kind, end = "chat.completion.chunk", "tool_calls" if reply.command else "stop"
        first = self._frame(received, kind, delta=self._message(reply, received), finish_reason=None) | {"usage": None}
        last = self._frame(received, kind, delta={}, finish_reason=end)
        return [_sse(first), _sse(last), b"data: [DONE]\n\n"]

    def error(self, kind: str) -> tuple[int, dict[str, Any]]:
        status, name, message = _ERRORS[kind]
        code = "context_length_exceeded" if kind == "context" else name
        if kind == "context":
            message = "This model's maximum context length is 200000 tokens."
        return (503 if status == 529 else status), {"error": {"message": message, "type": name, "code": code}}

    def inside(self, received: Heard) -> list[bytes]:
        return [self.events(Reply(text=_BEGUN), received)[0], _sse(self.error("overloaded")[1])]


class Responses:
    def hear(self, body: dict[str, Any], path: str) -> Heard:
        items = body["input"] if isinstance(body["input"], list) else [{"role": "user", "content": body["input"]}]
        turns = [
            ("result", "")
            if str(item.get("type", "")).endswith("_output")
            else (item.get("role", ""), _words(item.get("content")))
            for item in items
        ]
        tools = {tool["name"]: tool.get("parameters", {}) for tool in body.get("tools") or [] if tool.get("name")}
        return _received(turns, tools, stream=bool(body.get("stream")), model=body.get("model", ""))

    def _item(self, reply: Reply, received: Heard) -> dict[str, Any]:
        number = next(_ids)
        if not reply.command:
            content = [{"type": "output_text", "text": reply.text, "annotations": []}]
            return {
                "id": f"msg_{number}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        arguments = msgspec.json.encode(_arguments(reply, received)).decode()
        call = {"call_id": f"call_{number}", "name": received.shell, "arguments": arguments}
        return {"id": f"fc_{number}", "type": "function_call", "status": "completed", **call}

    def whole(self, reply: Reply, received: Heard) -> dict[str, Any]:
        usage = {
            "input_tokens": _TOKENS_IN, "output_tokens": _TOKENS_OUT, "total_tokens": _TOKENS_IN + _TOKENS_OUT,
            "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
        }  # fmt: skip
        return {
            "id": f"resp_{next(_ids)}", "object": "response", "created_at": 1, "status": "completed",
            "model": received.model, "output": [self._item(reply, received)], "usage": usage,
        }  # fmt: skip

    def events(self, reply: Reply, received: Heard) -> list[bytes]:
        response = self.whole(reply, received)
        (item,) = response["output"]
        begun = response | {"status": "in_progress", "output": [], "usage": None}
        reported: list[dict[str, Any]] = [
            {"type": "response.created", "response": begun},
            {"type": "response.output_item.added", "output_index": 0, "item": item | {"status": "in_progress"}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": response},
        ]
        return [_sse(event | {"sequence_number": number}, event["type"]) for number, event in enumerate(reported)]

    def error(self, kind: str) -> tuple[int, dict[str, Any]]:
        return Chat().error(kind)

    def inside(self, received: Heard) -> list[bytes]:
        begun = self.whole(Reply(), received) | {"output": [], "usage": None}
        error = {"code": "server_is_overloaded", "message": "Selected model is at capacity (scripted)"}
        reported = (
            ("created", begun | {"status": "in_progress"}),
            ("failed", begun | {"status": "failed", "error": error}),
        )
        return [_sse({"type": f"response.{end}", "response": body}, f"response.{end}") for end, body in reported]


class Gemini:
    def hear(self, body: dict[str, Any], path: str) -> Heard:
        turns = [turn for content in body.get("contents", []) for turn in self._turns(content)]
        declared = [each for tool in body.get("tools") or [] for each in tool.get("functionDeclarations", [])]
        tools = {each["name"]: each.get("parametersJsonSchema") or each.get("parameters", {}) for each in declared}
        model = re.search(r"models/([^:]+)", path)
        return _received(turns, tools, stream="streamGenerate" in path, model=model[1] if model else "")

    def _turns(self, content: dict[str, Any]) -> list[tuple[str, str]]:
        parts = content.get("parts", [])
        results = [("result", "") for part in parts if "functionResponse" in part]
        text = _words(parts)
        return [*results, *([(content.get("role", "user"), text)] if text else [])]

    def whole(self, reply: Reply, received: Heard) -> dict[str, Any]:
        call = {"functionCall": {"name": received.shell, "args": _arguments(reply, received)}}
        part = call if reply.command else {"text": reply.text}
        total = _TOKENS_IN + _TOKENS_OUT
        return {
            "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {
                "promptTokenCount": _TOKENS_IN, "candidatesTokenCount": _TOKENS_OUT, "totalTokenCount": total,
            },
            "modelVersion": received.model,
        }  # fmt: skip

    def events(self, reply: Reply, received: Heard) -> list[bytes]:
        return [_sse(self.whole(reply, received))]

    def error(self, kind: str) -> tuple[int, dict[str, Any]]:
        status, _, message = _ERRORS[kind]
        names = {429: "RESOURCE_EXHAUSTED", 529: "UNAVAILABLE", 401: "UNAUTHENTICATED", 400: "INVALID_ARGUMENT"}
        if kind == "context":
            message = "The input token count (1250000) exceeds the maximum number of tokens allowed (1048576)."
        code = 503 if status == 529 else status
        return code, {"error": {"code": code, "message": message, "status": names[status]}}

    def inside(self, received: Heard) -> list[bytes]:
        return [_sse(self.error("overloaded")[1])]
