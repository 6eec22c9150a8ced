"""Codex: `codex exec --json`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ratchet.agents.drivers.cli_stream import CliAgent, CliProgram, Launch, LaunchSettings, decode_output
from ratchet.agents.protocol import (
    AgentRequest,
    FileChange,
    Notice,
    SessionStarted,
    Text,
    Thought,
    ToolCall,
    ToolResult,
    TurnFinished,
)
from ratchet.agents.provider_errors import classify_error
from ratchet.agents.turn_result import StreamEvent, UsageSample
from ratchet.agents.versions import VersionRange

# Features that access the network and block without it.
_QUIET = ("check_for_update_on_startup", "analytics.enabled", "features.plugins", "features.remote_plugin",
          "features.apps")  # fmt: skip


def launch(request: AgentRequest, settings: LaunchSettings) -> Launch:
    argv = ["exec", "--json", "--skip-git-repo-check"]
    argv += ["--sandbox", "danger-full-access" if settings.free else "workspace-write"]
    argv += [word for key in _QUIET for word in ("-c", f"{key}=false")]
    argv += ["--model", settings.model] if settings.model else []
    argv += ["resume", settings.session] if settings.session else []
    return Launch(argv=[*argv, "-"], stdin=request.prompt)


class _Change(msgspec.Struct, frozen=True):
    path: str = ""


class _Call(msgspec.Struct, frozen=True):
    """Any kind of item; each fills in its own fields."""

    type: str = ""
    text: str = ""
    command: str = ""
    message: str = ""
    server: str = ""
    tool: str = ""
    query: str = ""
    aggregated_output: str | None = ""
    changes: list[_Change] = []
    result: Any = None


class _ThreadStarted(msgspec.Struct, frozen=True, tag_field="type", tag="thread.started"):
    thread_id: str


class _ItemStarted(msgspec.Struct, frozen=True, tag_field="type", tag="item.started"):
    item: _Call


class _ItemCompleted(msgspec.Struct, frozen=True, tag_field="type", tag="item.completed"):
    item: _Call


class _Error(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    message: str = ""


class _Tokens(msgspec.Struct, frozen=True):
    input_tokens: int = 0
    output_tokens: int = 0


class _TurnCompleted(msgspec.Struct, frozen=True, tag_field="type", tag="turn.completed"):
    usage: _Tokens | None = None


class _Why(msgspec.Struct, frozen=True):
    message: str = ""


class _Failed(msgspec.Struct, frozen=True, tag_field="type", tag="turn.failed"):
    error: _Why = _Why()


_EVENTS = msgspec.json.Decoder(_ThreadStarted | _ItemStarted | _ItemCompleted | _Error | _TurnCompleted | _Failed)


def read(line: bytes) -> Iterator[StreamEvent]:
    match decode_output(line, _EVENTS):
        case _ThreadStarted(thread_id=session):
            yield SessionStarted(session)
        case _ItemStarted(item=item):
            yield from _started(item)
        case _ItemCompleted(item=item):
            yield from _completed(item)
        case _Error(message=message):
            yield Notice(message)  # also sent for requests that are retried: only the end of the turn decides
        case _TurnCompleted(usage=usage):
            usage = usage or _Tokens()
            yield UsageSample(whole=True, tokens_in=usage.input_tokens, tokens_out=usage.output_tokens)
            yield TurnFinished(text="")
        case _Failed(error=why):
            yield classify_error(why.message)


def _started(item: _Call) -> Iterator[StreamEvent]:
    match item.type:
        case "command_execution":
            yield ToolCall("shell", item.command[:200])
        case "mcp_tool_call":
            yield ToolCall(f"{item.server}.{item.tool}")
        case "web_search":
            yield ToolCall("web_search", item.query)
        case "file_change":
            yield ToolCall("edit", " ".join(change.path for change in item.changes)[:200])


def _completed(item: _Call) -> Iterator[StreamEvent]:
    match item.type:
        case "agent_message":
            yield Text(item.text)
        case "reasoning":
            yield Thought(item.text)
        case "file_change":
            yield from [FileChange(change.path) for change in item.changes]
        case "command_execution":
            yield ToolResult((item.aggregated_output or "")[-2_000:])
        case "mcp_tool_call" | "web_search":
            yield ToolResult(str(item.result)[:2_000])
        case "error":
            yield Notice(item.message)


PROGRAM = CliProgram(
    name="codex",
    launch=launch,
    read=read,
    tested=VersionRange(first="0.150", before="0.180"),
    variables=("OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN"),
    login_command="codex login",
    home_dirs=(".codex",),
    logins=(".codex/auth.json",),
    settings=(".codex/config.toml", ".codex/AGENTS.md"),
    cumulative=("tokens_in", "tokens_out"),
    default_model="gpt-5.5",
)


def agent(model: str) -> CliAgent:
    return CliAgent(PROGRAM, model)
