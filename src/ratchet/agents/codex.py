"""Codex: `codex exec --json`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ratchet.agents import Ask, FileChange, Finished, Noticed, SessionOpened, Text, Thought, ToolCall, ToolEnded
from ratchet.agents.faults import complaint
from ratchet.agents.hearing import Heard, Metered
from ratchet.agents.native import Launch, Native, Program, Setting, decoded
from ratchet.agents.versions import Tested

# Each of these reaches for the network on its own, and waits for it when there is none.
_QUIET = ("check_for_update_on_startup", "analytics.enabled", "features.plugins", "features.remote_plugin",
          "features.apps")  # fmt: skip


def launch(ask: Ask, setting: Setting) -> Launch:
    argv = ["exec", "--json", "--skip-git-repo-check"]
    argv += ["--sandbox", "danger-full-access" if setting.free else "workspace-write"]
    argv += [word for key in _QUIET for word in ("-c", f"{key}=false")]
    argv += ["--model", setting.model] if setting.model else []
    argv += ["resume", setting.session] if setting.session else []
    return Launch(argv=[*argv, "-"], stdin=ask.prompt)


class _Change(msgspec.Struct, frozen=True):
    path: str = ""


class _Call(msgspec.Struct, frozen=True):
    """Any item; each kind fills in what it has."""

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


def read(line: bytes) -> Iterator[Heard]:
    match decoded(line, _EVENTS):
        case _ThreadStarted(thread_id=session):
            yield SessionOpened(session)
        case _ItemStarted(item=item):
            yield from _started(item)
        case _ItemCompleted(item=item):
            yield from _completed(item)
        case _Error(message=message):
            yield Noticed(message)  # also of requests it tries again: only the turn's own end decides
        case _TurnCompleted(usage=usage):
            usage = usage or _Tokens()
            yield Metered(whole=True, tokens_in=usage.input_tokens, tokens_out=usage.output_tokens)
            yield Finished(text="")
        case _Failed(error=why):
            yield complaint(why.message)


def _started(item: _Call) -> Iterator[Heard]:
    match item.type:
        case "command_execution":
            yield ToolCall("shell", item.command[:200])
        case "mcp_tool_call":
            yield ToolCall(f"{item.server}.{item.tool}")
        case "web_search":
            yield ToolCall("web_search", item.query)
        case "file_change":
            yield ToolCall("edit", " ".join(change.path for change in item.changes)[:200])


def _completed(item: _Call) -> Iterator[Heard]:
    match item.type:
        case "agent_message":
            yield Text(item.text)
        case "reasoning":
            yield Thought(item.text)
        case "file_change":
            yield from [FileChange(change.path) for change in item.changes]
        case "command_execution":
            yield ToolEnded((item.aggregated_output or "")[-2_000:])
        case "mcp_tool_call" | "web_search":
            yield ToolEnded(str(item.result)[:2_000])
        case "error":
            yield Noticed(item.message)


PROGRAM = Program(
    name="codex",
    launch=launch,
    read=read,
    tested=Tested(first="0.150", before="0.180"),
    variables=("OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN"),
    homes=(".codex",),
    logins=(".codex/auth.json",),
    cumulative=("tokens_in", "tokens_out"),
    default_model="gpt-5.5",
)


def agent(model: str) -> Native:
    return Native(PROGRAM, model)
