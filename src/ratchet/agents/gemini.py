"""Gemini CLI: `gemini --output-format stream-json`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ratchet.agents import Ask, Finished, SessionOpened, Text, ToolCall, ToolEnded
from ratchet.agents.faults import complaint
from ratchet.agents.hearing import Heard, Metered
from ratchet.agents.native import Launch, Native, Program, Setting, decoded, summary
from ratchet.agents.versions import Tested

_LOG = "debug.log"


def launch(ask: Ask, setting: Setting) -> Launch:
    argv = ["--output-format", "stream-json", "--approval-mode", "yolo" if setting.free else "auto_edit"]
    argv += ["--model", setting.model] if setting.model else []
    argv += ["--resume", setting.session] if setting.session else []
    # Its launcher swallows signals and starts it a second time: one process is enough.
    env = {"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_CLI_NO_RELAUNCH": "true"}
    env["GEMINI_DEBUG_LOG_FILE"] = str(setting.place / _LOG)  # over ACP its stderr says nothing until it ends
    return Launch(argv=argv, env=env, stdin=ask.prompt)


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


def read(line: bytes) -> Iterator[Heard]:
    match decoded(line, _EVENTS):
        case _Init(session_id=session):
            yield SessionOpened(session)
        case _Message(role="assistant") as message:
            yield Text(message.content, continues=message.delta)
        case _ToolUse() as call:
            yield ToolCall(call.tool_name, summary(call.parameters))
        case _ToolResult(output=output):
            yield ToolEnded(str(output)[:2_000])
        case _Result() as result:
            stats = result.stats or _Stats()
            yield Metered(whole=True, tokens_in=stats.input_tokens, tokens_out=stats.output_tokens)
            why = result.error.message if result.error else result.status
            yield Finished(text="") if result.status == "success" else complaint(why)


PROGRAM = Program(
    name="gemini",
    launch=launch,
    read=read,
    tested=Tested(first="0.50", before="0.70"),
    variables=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_CLOUD_PROJECT",
               "GOOGLE_CLOUD_LOCATION", "GOOGLE_GENAI_USE_VERTEXAI"),
    homes=(".gemini",),
    logins=(".gemini/oauth_creds.json",),
    turn_logs=(_LOG,),
    must_speak=True,  # an error inside the model's stream ends in `success`, without a word
    default_model="gemini-2.5-pro",
)  # fmt: skip


def agent(model: str) -> Native:
    return Native(PROGRAM, model)
