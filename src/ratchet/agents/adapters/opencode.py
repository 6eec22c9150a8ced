"""opencode: `opencode run --format json`."""

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
    SessionStarted,
    Text,
    Thought,
    ToolCall,
    ToolResult,
    TurnFailed,
    TurnFinished,
)
from ratchet.agents.provider_errors import classify_error
from ratchet.agents.turn_result import StreamEvent, UsageSample
from ratchet.agents.versions import VersionRange
from ratchet.core.failure import Reason

_QUIET = ("MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
_EDITS_ONLY = '{"edit":"allow","bash":"deny","webfetch":"deny","external_directory":"deny","question":"deny"}'


def launch(request: AgentRequest, settings: LaunchSettings) -> Launch:
    argv = ["run", "--format", "json", "--title", request.action]
    argv += ["--auto"] if settings.free else []
    argv += ["--model", settings.model] if settings.model else []
    argv += ["--session", settings.session] if settings.session else []
    env = {f"OPENCODE_DISABLE_{name}": "1" for name in _QUIET}
    return Launch(
        argv=argv, env=env | ({} if settings.free else {"OPENCODE_PERMISSION": _EDITS_ONLY}), stdin=request.prompt
    )


class _Tokens(msgspec.Struct, frozen=True):
    input: float = 0
    output: float = 0
    reasoning: float = 0
    cache: dict[str, float] = {}


class _State(msgspec.Struct, frozen=True):
    input: dict[str, Any] | None = None
    output: Any = None


class _Part(msgspec.Struct, frozen=True):
    id: str = ""
    text: str = ""
    tool: str = ""
    reason: str = ""
    cost: float | None = None
    tokens: _Tokens = _Tokens()
    state: _State = _State()


class _StepStart(msgspec.Struct, frozen=True, tag_field="type", tag="step_start", rename={"session": "sessionID"}):
    session: str = ""


class _Text(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    part: _Part


class _Reasoning(msgspec.Struct, frozen=True, tag_field="type", tag="reasoning"):
    part: _Part


class _ToolUse(msgspec.Struct, frozen=True, tag_field="type", tag="tool_use"):
    part: _Part


class _StepFinish(msgspec.Struct, frozen=True, tag_field="type", tag="step_finish"):
    part: _Part


class _Error(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    error: dict[str, Any] = {}


_EVENTS = msgspec.json.Decoder(_StepStart | _Text | _Reasoning | _ToolUse | _StepFinish | _Error)


def read(line: bytes) -> Iterator[StreamEvent]:
    match decode_output(line, _EVENTS):
        case _StepStart(session=session):
            yield SessionStarted(session)
        case _Text(part=part):
            yield Text(part.text)
        case _Reasoning(part=part):
            yield Thought(part.text)
        case _ToolUse(part=part):
            yield ToolCall(part.tool, summarise_arguments(part.state.input))
            yield ToolResult(str(part.state.output)[:2_000])  # reported only after it ended
        case _StepFinish(part=part):
            yield from _finished(part)
        case _Error(error=error):
            yield _complaint(error)


def _finished(part: _Part) -> Iterator[StreamEvent]:
    tokens = part.tokens
    taken_in = int(tokens.input + tokens.cache.get("read", 0) + tokens.cache.get("write", 0))
    # A cost of 0 means that the model has no configured price.
    yield UsageSample(
        of=part.id, tokens_in=taken_in, tokens_out=int(tokens.output + tokens.reasoning), cost_usd=part.cost or None
    )
    if part.reason == "tool-calls":
        # Another step follows; if not, a permission was denied and the turn ended.
        yield TurnFailed(reason=Reason.AGENT_REFUSED, detail="it stopped at a tool call that was not permitted")
    else:
        yield TurnFinished(text="") if part.reason == "stop" else classify_error(f"the model stopped: {part.reason}")


def _complaint(error: dict[str, Any]) -> TurnFailed:
    details = error.get("data") if isinstance(error.get("data"), dict) else {}
    assert isinstance(details, dict)
    status = details.get("statusCode")
    message = str(details.get("message") or error.get("message") or error.get("name") or error)
    return classify_error(f"{error.get('name', '')}: {message}", status=status if isinstance(status, int) else 0)


PROGRAM = CliProgram(
    name="opencode",
    launch=launch,
    read=read,
    tested=VersionRange(first="1.18", before="1.20"),
    reports_cost=True,
    reports_calls_late=True,
    variables=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "GEMINI_API_KEY", "OPENROUTER_API_KEY",
               "OPENCODE_API_KEY", "OPENCODE_CONFIG", "OPENCODE_CONFIG_CONTENT"),
    login_command="opencode auth login",
    home_dirs=(".config/opencode", ".local/share/opencode", ".local/state/opencode"),
    logins=(".local/share/opencode/auth.json",),
    settings=(".config/opencode/opencode.json", ".config/opencode/AGENTS.md"),
    logs=(".local/share/opencode/log/*.log",),
)  # fmt: skip


def agent(model: str) -> CliAgent:
    return CliAgent(PROGRAM, model)
