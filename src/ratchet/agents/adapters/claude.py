"""Claude Code: `claude -p --output-format stream-json`."""

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
from ratchet.agents.protocol import (
    AgentRequest,
    Notice,
    SessionStarted,
    Text,
    Thought,
    ToolCall,
    ToolResult,
    TurnCancelled,
    TurnFinished,
)
from ratchet.agents.provider_errors import classify_error, timestamp_of_epoch
from ratchet.agents.turn_result import RetryAfter, StreamEvent, UsageSample
from ratchet.agents.versions import VersionRange

# Listed one by one: Claude Code refuses to skip permissions as root.
_EDITING = "Read,Edit,Write,MultiEdit,NotebookEdit,Glob,Grep,TodoWrite"
_ASKING = "AskUserQuestion,EnterPlanMode,ExitPlanMode,EnterWorktree,CronCreate,ScheduleWakeup"


def launch(request: AgentRequest, settings: LaunchSettings) -> Launch:
    tools = f"{_EDITING},Bash" if settings.free else _EDITING
    argv = ["-p", "--output-format", "stream-json", "--verbose", "--permission-mode", "acceptEdits"]
    argv += ["--allowedTools", tools, "--disallowedTools", _ASKING]
    argv += ["--model", settings.model] if settings.model else []
    argv += ["--resume", settings.session] if settings.session else []
    argv += ["--max-budget-usd", str(request.allowance.cost_usd)] if request.allowance.cost_usd else []
    env = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_MAX_RETRIES": "3",  # ten by default, which can take many minutes; Ratchet parks the run instead
    }
    return Launch(argv=argv, env=env, stdin=request.prompt)


class _Tokens(msgspec.Struct, frozen=True):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int | None = 0
    cache_read_input_tokens: int | None = 0

    @property
    def taken_in(self) -> int:
        return self.input_tokens + (self.cache_creation_input_tokens or 0) + (self.cache_read_input_tokens or 0)


class _Block(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""
    thinking: str = ""
    name: str = ""
    input: dict[str, Any] | None = None
    content: Any = None


class _Message(msgspec.Struct, frozen=True):
    id: str = ""
    content: list[_Block] | str = []
    usage: _Tokens = _Tokens()


class _System(msgspec.Struct, frozen=True, tag_field="type", tag="system"):
    subtype: str = ""
    session_id: str = ""
    attempt: int = 0
    error: str | None = None
    error_status: int | None = None


class _Assistant(msgspec.Struct, frozen=True, tag_field="type", tag="assistant"):
    message: _Message = _Message()
    is_api_error_message: bool = False


class _User(msgspec.Struct, frozen=True, tag_field="type", tag="user"):
    message: _Message = _Message()


class _Limit(msgspec.Struct, frozen=True):
    status: str = ""
    resetsAt: float | None = None  # noqa: N815 — field name of Claude Code


class _RateLimit(msgspec.Struct, frozen=True, tag_field="type", tag="rate_limit_event"):
    rate_limit_info: _Limit = _Limit()


class _Result(msgspec.Struct, frozen=True, tag_field="type", tag="result"):
    subtype: str = ""
    is_error: bool = False
    terminal_reason: str | None = None
    result: str | None = None
    errors: list[Any] = []
    usage: _Tokens = _Tokens()
    total_cost_usd: float | None = None
    api_error_status: int | None = None


_EVENTS = msgspec.json.Decoder(_System | _Assistant | _User | _RateLimit | _Result)


def read(line: bytes) -> Iterator[StreamEvent]:
    match decode_output(line, _EVENTS):
        case _System(subtype="init", session_id=session):
            yield SessionStarted(session)
        case _System(subtype="api_retry") as retry:
            yield Notice(f"retry {retry.attempt}: {retry.error_status or ''} {retry.error or ''}".rstrip())
        case _Assistant(message=message, is_api_error_message=False):
            yield from _blocks(message)
        case _User(message=_Message(content=list(blocks))):
            yield from [ToolResult(str(block.content)[:2_000]) for block in blocks if block.type == "tool_result"]
        case _RateLimit(rate_limit_info=_Limit(status="rejected", resetsAt=float(at))):
            yield RetryAfter(timestamp_of_epoch(at))
        case _Result() as result:
            yield from _end(result)


def _blocks(message: _Message) -> Iterator[StreamEvent]:
    for block in message.content if isinstance(message.content, list) else []:
        match block.type:
            case "text":
                yield Text(block.text)
            case "thinking":
                yield Thought(block.thinking)
            case "tool_use":
                yield ToolCall(block.name, summarise_arguments(block.input))
    # A message is repeated for each of its blocks; its output tokens are final only at the end.
    yield UsageSample(of=message.id, tokens_in=message.usage.taken_in, tokens_out=message.usage.output_tokens)


def _end(result: _Result) -> Iterator[StreamEvent]:
    usage = result.usage
    yield UsageSample(
        whole=True, tokens_in=usage.taken_in, tokens_out=usage.output_tokens, cost_usd=result.total_cost_usd
    )
    why = result.terminal_reason or ""
    if not result.is_error and why in ("", "completed"):
        yield TurnFinished(text=result.result or "")
    elif why.startswith("aborted"):
        yield TurnCancelled(detail=why)
    else:
        message = result.result or "; ".join(map(str, result.errors)) or result.subtype
        yield classify_error(f"{message} ({why or result.subtype})", status=result.api_error_status or 0)


PROGRAM = CliProgram(
    name="claude",
    launch=launch,
    read=read,
    tested=VersionRange(first="2.1.0", before="2.2"),
    reports_cost=True,
    variables=("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN",
               "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"),
    login_command="claude /login",
    home_dirs=(".claude",),
    logins=(".claude/.credentials.json",),
    settings=(".claude/settings.json", ".claude/CLAUDE.md"),
    cumulative=("cost_usd",),
)  # fmt: skip


def agent(model: str) -> CliAgent:
    return CliAgent(PROGRAM, model)
