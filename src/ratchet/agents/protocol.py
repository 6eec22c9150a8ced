"""The agent protocol: the request, the events of a turn, its outcome, and how an agent is opened."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ratchet import plugins
from ratchet.core.failure import Reason
from ratchet.core.receipt import Price, Usage
from ratchet.core.roles import PathRules
from ratchet.errors import UsageError


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to an agent. `turn` counts the requests of this run for this action, from 1.

    `session` is the id from an earlier `SessionStarted`, to resume it if the agent can. `scope` is what the role may
    write. `home` is the folder that is the agent's home in its sandbox. `allowance` limits the cost of the turn; zero
    means no limit. `modules` are variables such as PYTHONPATH that point to the project's modules; `activation` puts
    the project's interpreter and tools first on PATH.
    """

    run: str
    item: str
    role: str
    action: str
    turn: int
    key: str
    snapshot: str
    prompt: str
    inputs: dict[str, Any]
    folder: Path
    log: Path
    env: dict[str, str]
    timeout_s: float
    modules: dict[str, str] = {}
    activation: dict[str, str] = {}
    session: str = ""
    model: str = ""
    scope: PathRules | None = None
    home: Path | None = None
    allowance: Usage = Usage()
    prices: dict[str, Price] = {}

    def env_for(self, program: str) -> dict[str, str]:
        """Return the environment; without `modules` for a Python program, which would import the project's modules."""
        if not _is_python(program):
            return self.env | self.activation | self.modules
        # A script that looks for its interpreter on PATH must not find the project's.
        return self.env if _finds_python(program) else self.env | self.activation


def _is_python(program: str) -> bool:
    return Path(program).name.startswith("python") or re.match(rb"#!.*python", _first_line(program)) is not None


def _finds_python(program: str) -> bool:
    return re.match(rb"#!.*/env\s.*python", _first_line(program)) is not None


def _first_line(program: str) -> bytes:
    try:
        with Path(program).open("rb") as file:
            return file.readline(200)
    except OSError:
        return b""


# --- events of a turn -----------------------------------------------------------------------


class Text(msgspec.Struct, frozen=True):
    """Text from the agent; `continues`: a further piece of the previous text."""

    text: str
    continues: bool = False


class Thought(msgspec.Struct, frozen=True):
    text: str


class ToolCall(msgspec.Struct, frozen=True):
    name: str
    detail: str = ""


class ToolResult(msgspec.Struct, frozen=True):
    """The previous tool call ended. `result` is shortened; it is compared to detect repeated calls."""

    result: str = ""


class FileChange(msgspec.Struct, frozen=True):
    path: str


class UsageReported(msgspec.Struct, frozen=True):
    """`priced`: whether the cost of the turn so far is known."""

    usage: Usage
    priced: bool = True


class Question(msgspec.Struct, frozen=True):
    text: str


class SessionStarted(msgspec.Struct, frozen=True):
    session: str


class Notice(msgspec.Struct, frozen=True):
    """A message for people about the agent itself, such as an untested version or a rejected request."""

    text: str


TurnEvent = Text | Thought | ToolCall | ToolResult | FileChange | UsageReported | Question | SessionStarted | Notice
OnEvent = Callable[[TurnEvent], None]


# --- outcome of a turn ---------------------------------------------------------------------------------------------


class TurnFinished(msgspec.Struct, frozen=True, kw_only=True):
    """The agent reported that it is done; Ratchet checks whether it is."""

    text: str


class TurnFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The turn failed; `until` is the retry time given by the provider."""

    reason: Reason
    detail: str
    until: str = ""


class TurnCancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The agent reported that it was stopped."""

    detail: str = ""


TurnResult = TurnFinished | TurnFailed
TurnOutcome = TurnResult | TurnCancelled


class Agent(Protocol):
    name: str

    async def ask(self, request: AgentRequest, on_event: OnEvent) -> TurnOutcome:
        """Run one turn. Cancelling it ends all its processes."""
        ...


def lent_files(agent: Agent) -> tuple[str, ...]:
    """Return the files of the user's home that the agent's program reads: its login and settings."""
    lent: tuple[str, ...] = getattr(agent, "lent", ())
    return lent


def reports_as_it_works(agent: Agent) -> bool:
    """Whether the agent prints events while it works, so that silence means that nothing happens."""
    reports: bool = getattr(agent, "reports_as_it_works", False)
    return reports


_COMMANDS = ("command", "acp", "line")


def absolute_spec(spec: str) -> str:
    """Make relative paths in an agent spec absolute, so that it works from any folder."""
    kind, _, rest = spec.partition(":")
    head, space, tail = rest.partition(" ") if kind in _COMMANDS else (rest, "", "")
    is_path = kind == "scripted" or (kind in _COMMANDS and "/" in head)
    return f"{kind}:{Path(head).absolute()}{space}{tail}" if is_path and head else spec


def open_agent(spec: str) -> Agent:
    """Open an agent by its spec: `claude`, `codex:MODEL`, `acp:PROGRAM ARGS…`, `line:PROGRAM ARGS…`,
    `command:PROGRAM ARGS…`, `scripted:FILE`. The word before the colon is an entry point of `ratchet.agents`."""
    kind, _, rest = spec.partition(":")
    known = plugins.entry_points("agents")
    if kind not in known:
        near = [f"did you mean {name!r}? " for name in difflib.get_close_matches(kind, known, n=1)]
        raise UsageError(
            f"no such agent: {kind!r}" if kind else "no agent is configured",
            hint=f"{''.join(near)}use --agent KIND or KIND:…, where KIND is one of {', '.join(sorted(known))}",
        )
    agent: Agent = known[kind].load()(rest)
    return agent
