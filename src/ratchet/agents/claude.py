"""Claude Code: `claude -p --output-format stream-json`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from ratchet.agents import Ask, Cancelled, Finished, Noticed, SessionOpened, Text, Thought, ToolCall, ToolEnded
from ratchet.agents.faults import complaint, stamp
from ratchet.agents.hearing import ComeBack, Heard, Metered
from ratchet.agents.native import Launch, Native, Program, Setting, decoded, summary
from ratchet.agents.versions import Tested

# Named one by one and never bypassed as a whole: as root it refuses to be.
_EDITING = "Read,Edit,Write,MultiEdit,NotebookEdit,Glob,Grep,TodoWrite"
_ASKING = "AskUserQuestion,EnterPlanMode,ExitPlanMode,EnterWorktree,CronCreate,ScheduleWakeup"


def launch(ask: Ask, setting: Setting) -> Launch:
    tools = f"{_EDITING},Bash" if setting.free else _EDITING
    argv = ["-p", "--output-format", "stream-json", "--verbose", "--permission-mode", "acceptEdits"]
    argv += ["--allowedTools", tools, "--disallowedTools", _ASKING]
    argv += ["--model", setting.model] if setting.model else []
    argv += ["--resume", setting.session] if setting.session else []
    argv += ["--max-budget-usd", str(ask.allowance.cost_usd)] if ask.allowance.cost_usd else []
    env = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_MAX_RETRIES": "3",  # ten by default, which can take many minutes: parking is our part
    }
    return Launch(argv=argv, env=env, stdin=ask.prompt)


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
    resetsAt: float | None = None  # noqa: N815 — the program's word


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


def read(line: bytes) -> Iterator[Heard]:
    match decoded(line, _EVENTS):
        case _System(subtype="init", session_id=session):
            yield SessionOpened(session)
        case _System(subtype="api_retry") as retry:
            yield Noticed(f"tries again ({retry.attempt}): {retry.error_status or ''} {retry.error or ''}".rstrip())
        case _Assistant(message=message, is_api_error_message=False):
            yield from _blocks(message)
        case _User(message=_Message(content=list(blocks))):
            yield from [ToolEnded(str(block.content)[:2_000]) for block in blocks if block.type == "tool_result"]
        case _RateLimit(rate_limit_info=_Limit(status="rejected", resetsAt=float(at))):
            yield ComeBack(stamp(datetime.fromtimestamp(at, UTC)))
        case _Result() as result:
            yield from _end(result)


def _blocks(message: _Message) -> Iterator[Heard]:
    for block in message.content if isinstance(message.content, list) else []:
        match block.type:
            case "text":
                yield Text(block.text)
            case "thinking":
                yield Thought(block.thinking)
            case "tool_use":
                yield ToolCall(block.name, summary(block.input))
    # The same message comes once for each of its blocks. Its output is counted only in the end.
    yield Metered(of=message.id, tokens_in=message.usage.taken_in, tokens_out=message.usage.output_tokens)


def _end(result: _Result) -> Iterator[Heard]:
    usage = result.usage
    yield Metered(whole=True, tokens_in=usage.taken_in, tokens_out=usage.output_tokens, cost_usd=result.total_cost_usd)
    why = result.terminal_reason or ""
    if not result.is_error and why in ("", "completed"):
        yield Finished(text=result.result or "")
    elif why.startswith("aborted"):
        yield Cancelled(detail=why)
    else:
        said = result.result or "; ".join(map(str, result.errors)) or result.subtype
        yield complaint(f"{said} ({why or result.subtype})", status=result.api_error_status or 0)


PROGRAM = Program(
    name="claude",
    launch=launch,
    read=read,
    tested=Tested(first="2.1.0", before="2.2"),
    tells_cost=True,
    variables=("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN",
               "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"),
    homes=(".claude",),
    logins=(".claude/.credentials.json",),
    cumulative=("cost_usd",),
)  # fmt: skip


def agent(model: str) -> Native:
    return Native(PROGRAM, model)
