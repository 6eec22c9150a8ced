"""mini-swe-agent: `mini`. What it prints is for people; its trajectory says everything, at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ratchet.agents import Ask, Failed, Finished, Text, ToolCall
from ratchet.agents.faults import complaint
from ratchet.agents.hearing import Heard, Metered
from ratchet.agents.native import Launch, Native, Program, Setting, decoded
from ratchet.agents.versions import Tested
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


def launch(ask: Ask, setting: Setting) -> Launch:
    # The task goes in as configuration (JSON is YAML): an argument has a limit, a file has none.
    task = msgspec.json.encode({"run": {"task": ask.prompt}}).decode()
    argv = ["-y", "--exit-immediately", "-o", str(setting.place / _TRAJECTORY), "-l", str(ask.allowance.cost_usd or 0)]
    argv += ["-c", "mini.yaml", "-c", str(setting.place / _TASK), "-c", "model.cost_tracking=ignore_errors"]
    argv += ["-m", setting.model] if setting.model else []
    env = {
        "MSWEA_CONFIGURED": "true",
        "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "3",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    return Launch(argv=argv, env=env, files={_TASK: task}, results=(_TRAJECTORY,))


def read(_line: bytes) -> Iterator[Heard]:
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


def read_results(contents: list[bytes]) -> Iterator[Heard]:
    run = decoded(b"".join(contents), _RUN)
    if not run:
        return
    for message in run.messages:
        yield from _said(message)
    used = [_usage(message) for message in run.messages]
    yield Metered(
        whole=True,
        tokens_in=sum(taken_in for taken_in, _ in used),
        tokens_out=sum(given_out for _, given_out in used),
        cost_usd=run.info.model_stats.instance_cost or None,
    )
    yield from _end(run)


def _said(message: _Message) -> Iterator[Heard]:
    if message.role != "assistant":
        return
    for action in message.extra.get("actions") or []:
        yield ToolCall("bash", str(action.get("command", "") if isinstance(action, dict) else action)[:200])
    # After the call it came with: the last message submits, and what it says is the answer.
    if isinstance(message.content, str) and message.content.strip():
        yield Text(message.content)


def _usage(message: _Message) -> tuple[int, int]:
    response = message.extra.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    if not isinstance(usage, dict):
        return 0, 0
    return int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)


def _end(run: _Trajectory) -> Iterator[Heard]:
    status = run.info.exit_status or ""
    if status == "Submitted":
        yield Finished(text=(run.info.submission or "").strip())
    elif status:
        said = run.info.exception_str or str(run.messages[-1].content if run.messages else "")[-400:]
        reason = _REASONS.get(status) or complaint(f"{status} {said}").reason
        yield Failed(reason=reason, detail=f"{status}: {said}")


PROGRAM = Program(
    name="mini",
    launch=launch,
    read=read,
    read_results=read_results,
    tested=Tested(first="2.4", before="2.5"),
    tells_cost=True,
    variables=("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "GEMINI_API_KEY",
               "OPENROUTER_API_KEY", "MSWEA_MODEL_NAME"),
    homes=(".config/mini-swe-agent",),
    limitable=False,
    resumes=False,
)  # fmt: skip


def agent(model: str) -> Native:
    return Native(PROGRAM, model)
