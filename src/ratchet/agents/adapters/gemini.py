"""Gemini CLI: `gemini --output-format stream-json`."""

from __future__ import annotations

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
from ratchet.agents.protocol import AgentRequest, SessionStarted, Text, ToolCall, ToolResult, TurnFinished
from ratchet.agents.provider_errors import classify_error
from ratchet.agents.turn_result import StreamEvent, UsageSample
from ratchet.agents.versions import VersionRange

_LOG = "debug.log"


def launch(request: AgentRequest, settings: LaunchSettings) -> Launch:
    argv = ["--output-format", "stream-json", "--approval-mode", "yolo" if settings.free else "auto_edit"]
    argv += ["--model", settings.model] if settings.model else []
    argv += ["--resume", settings.session] if settings.session else []
    # Its launcher ignores signals and relaunches itself: use one process.
    env = {"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_CLI_NO_RELAUNCH": "true"}
    env["GEMINI_DEBUG_LOG_FILE"] = str(settings.scratch_dir / _LOG)  # over ACP its stderr is empty until it exits
    return Launch(argv=argv, env=env, stdin=request.prompt)


class _Init(msgspec.Struct, frozen=True, tag_field="type", tag="init"):
    session_id: str = ""


class _Message(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    role: str = ""
    content: str = ""
    delta: bool = False


class _ToolUse(msgspec.Struct, frozen=True, tag_field="type", tag="tool_use"):
    tool_name: str = ""
    parameters: dict[str, Any] | None = None


class _ToolResult(msgspec.Struct, frozen=True, tag_field="type", tag="tool_result"):
    output: Any = None


class _Why(msgspec.Struct, frozen=True):
    type: str = ""
    message: str = ""


class _Stats(msgspec.Struct, frozen=True):
    input_tokens: int = 0
    output_tokens: int = 0


class _Result(msgspec.Struct, frozen=True, tag_field="type", tag="result"):
    status: str = ""
    error: _Why | None = None
    stats: _Stats | None = None


_EVENTS = msgspec.json.Decoder(_Init | _Message | _ToolUse | _ToolResult | _Result)


def read(line: bytes) -> Iterator[StreamEvent]:
    match decode_output(line, _EVENTS):
        case _Init(session_id=session):
            yield SessionStarted(session)
        case _Message(role="assistant") as message:
            yield Text(message.content, continues=message.delta)
        case _ToolUse() as call:
            yield ToolCall(call.tool_name, summarise_arguments(call.parameters))
        case _ToolResult(output=output):
            yield ToolResult(str(output)[:2_000])
        case _Result() as result:
            stats = result.stats or _Stats()
            yield UsageSample(whole=True, tokens_in=stats.input_tokens, tokens_out=stats.output_tokens)
            why = result.error.message if result.error else result.status
            yield TurnFinished(text="") if result.status == "success" else classify_error(why)


PROGRAM = CliProgram(
    name="gemini",
    launch=launch,
    read=read,
    tested=VersionRange(first="0.50", before="0.70"),
    variables=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_CLOUD_PROJECT",
               "GOOGLE_CLOUD_LOCATION", "GOOGLE_GENAI_USE_VERTEXAI"),
    login_command="gemini, then choose a login",
    home_dirs=(".gemini",),
    logins=(".gemini/oauth_creds.json",),
    settings=(".gemini/settings.json", ".gemini/google_accounts.json", ".gemini/GEMINI.md"),
    turn_logs=(_LOG,),
    must_speak=True,  # an error in the model's stream ends with `success` and no text
    default_model="gemini-2.5-pro",
)  # fmt: skip


def agent(model: str) -> CliAgent:
    return CliAgent(PROGRAM, model)
