"""mini-swe-agent: `mini`. The result is read from its trajectory file at the end; its output is for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ratchet.agents.drivers.cli_stream import CliAgent, CliProgram, Launch, LaunchSettings, decode_output
from ratchet.agents.protocol import AgentRequest, Text, ToolCall, TurnFailed, TurnFinished
from ratchet.agents.provider_errors import classify_error
from ratchet.agents.turn_result import StreamEvent, UsageSample
from ratchet.agents.versions import VersionRange
from ratchet.core.failure import Reason

_TASK, _TRAJECTORY = "task.yaml", "trajectory.json"
_REASONS = {
    "RateLimitError": Reason.RATE_LIMITED,
    "AuthenticationError": Reason.AUTH,
    "PermissionDeniedError": Reason.AUTH,
    "ContextWindowExceededError": Reason.CONTEXT_OVERFLOW,
    "InternalServerError": Reason.OVERLOADED,
    "ServiceUnavailableError": Reason.OVERLOADED,
    "APIConnectionError": Reason.OVERLOADED,
    "Timeout": Reason.OVERLOADED,
    "LimitsExceeded": Reason.BUDGET_SPENT,
}


def launch(request: AgentRequest, settings: LaunchSettings) -> Launch:
    # Pass the task in a configuration file (JSON is YAML): arguments have a size limit.
    task = msgspec.json.encode({"run": {"task": request.prompt}}).decode()
    argv = [
        "-y",
        "--exit-immediately",
        "-o",
        str(settings.scratch_dir / _TRAJECTORY),
        "-l",
        str(request.allowance.cost_usd or 0),
    ]
    argv += ["-c", "mini.yaml", "-c", str(settings.scratch_dir / _TASK), "-c", "model.cost_tracking=ignore_errors"]
    argv += ["-m", settings.model] if settings.model else []
    env = {
        "MSWEA_CONFIGURED": "true",
        "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "3",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    return Launch(argv=argv, env=env, files={_TASK: task}, results=(_TRAJECTORY,))


def read(_line: bytes) -> Iterator[StreamEvent]:
    return iter(())


class _Stats(msgspec.Struct, frozen=True):
    instance_cost: float = 0.0


class _Info(msgspec.Struct, frozen=True):
    exit_status: str | None = ""
    submission: str | None = ""
    exception_str: str | None = ""
    model_stats: _Stats = _Stats()


class _Message(msgspec.Struct, frozen=True):
    role: str = ""
    content: Any = ""
    extra: dict[str, Any] = {}


class _Trajectory(msgspec.Struct, frozen=True):
    info: _Info = _Info()
    messages: list[_Message] = []


_RUN = msgspec.json.Decoder(_Trajectory)


def read_results(contents: list[bytes]) -> Iterator[StreamEvent]:
    run = decode_output(b"".join(contents), _RUN)
    if not run:
        return
    for message in run.messages:
        yield from _events(message)
    used = [_usage(message) for message in run.messages]
    yield UsageSample(
        whole=True,
        tokens_in=sum(taken_in for taken_in, _ in used),
        tokens_out=sum(given_out for _, given_out in used),
        cost_usd=run.info.model_stats.instance_cost or None,
    )
    yield from _end(run)


def _events(message: _Message) -> Iterator[StreamEvent]:
    if message.role != "assistant":
        return
    for action in message.extra.get("actions") or []:
        yield ToolCall("bash", str(action.get("command", "") if isinstance(action, dict) else action)[:200])
    # Text after the call: a call clears earlier text, and the text of the last message, which submits, is the answer.
    if isinstance(message.content, str) and message.content.strip():
        yield Text(message.content)


def _usage(message: _Message) -> tuple[int, int]:
    response = message.extra.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    if not isinstance(usage, dict):
        return 0, 0
    return int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)


def _end(run: _Trajectory) -> Iterator[StreamEvent]:
    status = run.info.exit_status or ""
    if status == "Submitted":
        yield TurnFinished(text=(run.info.submission or "").strip())
    elif status:
        message = run.info.exception_str or str(run.messages[-1].content if run.messages else "")[-400:]
        reason = _REASONS.get(status) or classify_error(f"{status} {message}").reason
        yield TurnFailed(reason=reason, detail=f"{status}: {message}")


PROGRAM = CliProgram(
    name="mini",
    launch=launch,
    read=read,
    read_results=read_results,
    tested=VersionRange(first="2.4", before="2.5"),
    reports_cost=True,
    reports_as_it_works=False,
    variables=("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "GEMINI_API_KEY",
               "OPENROUTER_API_KEY", "MSWEA_MODEL_NAME"),
    login_command="mini-extra config setup",
    home_dirs=(".config/mini-swe-agent",),
    settings=(".config/mini-swe-agent/.env",),
    limitable=False,
    resumes=False,
)  # fmt: skip


def agent(model: str) -> CliAgent:
    return CliAgent(PROGRAM, model)
