"""goose: `goose run --output-format stream-json`. Over ACP (`acp:goose acp`) it reports more and can be restricted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from ratchet.agents.drivers.cli_stream import (
    CliAgent,
    CliProgram,
    Launch,
    LaunchSettings,
    decode_output,
    summarise_arguments,
)
from ratchet.agents.protocol import (
    AgentRequest,
    Notice,
    SessionStarted,
    Text,
    Thought,
    ToolCall,
    ToolResult,
    TurnCancelled,
    TurnFailed,
    TurnFinished,
)
from ratchet.agents.provider_errors import classify_error
from ratchet.agents.turn_result import StreamEvent, UsageSample
from ratchet.agents.versions import VersionRange
from ratchet.core.failure import Reason

_COMPLAINT = re.compile(r"Ran into this error[^:\n]*:|(?=Network error: Could not connect\b)")
_SESSION = re.compile(rb"\s(\d{8}_\d+)\s+\xc2\xb7\s")  # printed only in the banner


def launch(request: AgentRequest, settings: LaunchSettings) -> Launch:
    argv = ["run", "--output-format", "stream-json", "--no-profile", "--with-builtin", "developer"]
    provider, _, model = settings.model.rpartition("/")
    argv += ["--provider", provider] if provider else []
    argv += ["--model", model] if model else []
    argv += ["--resume", "--session-id", settings.session] if settings.session else []
    env = {"GOOSE_MODE": "auto", "GOOSE_DISABLE_KEYRING": "1", "GOOSE_TELEMETRY_ENABLED": "false"}
    return Launch(argv=[*argv, "--instructions", "-"], env=env, stdin=request.prompt)


class _Answered(msgspec.Struct, frozen=True):
    value: Any = None
    error: Any = None


class _Value(msgspec.Struct, frozen=True):
    name: str = ""
    arguments: dict[str, Any] | None = None


class _Called(msgspec.Struct, frozen=True):
    value: _Value = _Value()


class _Content(msgspec.Struct, frozen=True, rename={"call": "toolCall", "kind": "type", "result": "toolResult"}):
    kind: str = ""
    text: str = ""
    thinking: str = ""
    message: str = ""
    msg: str = ""
    call: _Called = _Called()
    result: _Answered = _Answered()


class _Words(msgspec.Struct, frozen=True):
    role: str = ""
    content: list[_Content] = []


class _Message(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    message: _Words


class _Complete(msgspec.Struct, frozen=True, tag_field="type", tag="complete"):
    input_tokens: int | None = 0
    output_tokens: int | None = 0


class _Error(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    error: str = ""


_EVENTS = msgspec.json.Decoder(_Message | _Complete | _Error)


def read(line: bytes) -> Iterator[StreamEvent]:
    if not line.startswith(b"{"):
        if banner := _SESSION.search(line):
            yield SessionStarted(banner[1].decode())
        elif line.lstrip().startswith(b"error: "):  # before the stream begins: no provider, no such extension
            yield classify_error(line.decode(errors="replace").strip().removeprefix("error: "))
        return
    match decode_output(line, _EVENTS):
        case _Message(message=_Words(role="assistant") as words):
            for content in words.content:
                yield from _events(content)
        case _Message(message=_Words(role="user") as words):
            for content in words.content:
                if content.kind == "toolResponse":
                    yield ToolResult(str(content.result.value or content.result.error)[:2_000])
        case _Complete() as complete:
            yield UsageSample(whole=True, tokens_in=complete.input_tokens or 0, tokens_out=complete.output_tokens or 0)
            yield TurnFinished(text="")
        case _Error(error=error):
            yield TurnCancelled(detail=error) if "interrupted" in error.lower() else classify_error(error)


def _events(content: _Content) -> Iterator[StreamEvent]:
    match content.kind:
        case "text" if _COMPLAINT.match(content.text):
            yield classify_error(_COMPLAINT.sub("", content.text, count=1).strip())
        case "text" if "reached the maximum number of actions" in content.text:
            yield TurnFailed(reason=Reason.NO_PROGRESS, detail=content.text)
        case "text":
            yield Text(content.text, continues=True)
        case "thinking":
            yield Thought(content.thinking)
        case "toolRequest":
            yield ToolCall(content.call.value.name, summarise_arguments(content.call.value.arguments))
        case "error":
            yield classify_error(content.message)
        case "systemNotification":
            yield Notice(content.msg)
            if "context limit" in content.msg.lower():
                yield classify_error(content.msg)  # cleared by later output: after compacting goose continues


PROGRAM = CliProgram(
    name="goose",
    launch=launch,
    read=read,
    tested=VersionRange(first="1.50", before="1.60"),
    variables=("GOOSE_PROVIDER", "GOOSE_MODEL", "OPENAI_API_KEY", "OPENAI_HOST", "OPENAI_BASE_PATH",
               "ANTHROPIC_API_KEY", "ANTHROPIC_HOST", "GOOGLE_API_KEY", "OPENROUTER_API_KEY"),
    login_command="goose configure",
    home_dirs=(".config/goose", ".local/share/goose", ".local/state/goose"),
    logins=(".config/goose/config.yaml",),
    settings=(".config/goose/secrets.yaml",),
    logs=(".local/state/goose/logs/*/*/*.log",),
    cumulative=("tokens_in", "tokens_out"),
    limitable=False,
)  # fmt: skip


def agent(model: str) -> CliAgent:
    return CliAgent(PROGRAM, model)
