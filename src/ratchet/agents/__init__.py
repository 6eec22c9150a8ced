"""Agents: the programs that play a role, each behind an adapter that tells what happened and how it ended."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ratchet import plugins
from ratchet.core.failure import Reason
from ratchet.core.receipt import Price, Usage
from ratchet.core.roles import Scope
from ratchet.errors import UsageError


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One thing asked of an agent. `turn` counts what this run has asked for this action, from 1.

    `session` is what an earlier `SessionOpened` named: the agent goes on there where it can. `scope` is what the role
    may write. `allowance` is what may be spent on it; a zero in it is no bound. `modules` are variables that say where
    the project's modules are.
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
    session: str = ""
    model: str = ""
    scope: Scope | None = None
    allowance: Usage = Usage()
    prices: dict[str, Price] = {}

    def env_for(self, program: str) -> dict[str, str]:
        """For one in Python not where the project has its modules: it would load them in place of its own."""
        return self.env if _is_python(program) else self.env | self.modules


def _is_python(program: str) -> bool:
    if Path(program).name.startswith("python"):
        return True
    try:
        with Path(program).open("rb") as file:
            return re.match(rb"#!.*python", file.readline(200)) is not None
    except OSError:
        return False


# --- what an agent tells while it works -----------------------------------------------------------------------


class Text(msgspec.Struct, frozen=True):
    """`continues` says that it is the next piece of the text before it."""

    text: str
    continues: bool = False


class Thought(msgspec.Struct, frozen=True):
    text: str


class ToolCall(msgspec.Struct, frozen=True):
    name: str
    detail: str = ""


class ToolEnded(msgspec.Struct, frozen=True):
    """The call before is over. `result` is enough of it to tell whether it is the same as another's."""

    result: str = ""


class FileChange(msgspec.Struct, frozen=True):
    path: str


class Spent(msgspec.Struct, frozen=True):
    usage: Usage


class Question(msgspec.Struct, frozen=True):
    text: str


class SessionOpened(msgspec.Struct, frozen=True):
    session: str


class Noticed(msgspec.Struct, frozen=True):
    """Something about the agent itself that people should know: an untested version, a refused request."""

    text: str


Said = Text | Thought | ToolCall | ToolEnded | FileChange | Spent | Question | SessionOpened | Noticed
Tell = Callable[[Said], None]


# --- how it ended ---------------------------------------------------------------------------------------------


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The agent said it is done. Whether it is, the factory finds out."""

    text: str


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """`until` is when a provider said to come back."""

    reason: Reason
    detail: str
    until: str = ""


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """It was stopped before its end, and says so."""

    detail: str = ""


Answered = Finished | Failed
Outcome = Answered | Cancelled


class Agent(Protocol):
    name: str

    async def ask(self, ask: Ask, tell: Tell) -> Outcome:
        """Play the role once. Being cancelled leaves no process behind."""
        ...


_COMMANDS = ("command", "acp", "line")


def settled(spec: str) -> str:
    """The same agent named so that it is found from any folder: relative paths made absolute."""
    kind, _, rest = spec.partition(":")
    head, space, tail = rest.partition(" ") if kind in _COMMANDS else (rest, "", "")
    is_path = kind == "scripted" or (kind in _COMMANDS and "/" in head)
    return f"{kind}:{Path(head).absolute()}{space}{tail}" if is_path and head else spec


def open_agent(spec: str) -> Agent:
    """`claude`, `codex:MODEL`, `acp:PROGRAM ARGS…`, `line:PROGRAM ARGS…`, `command:PROGRAM ARGS…`, `scripted:FILE`: the
    word before the colon names an entry point of `ratchet.agents`."""
    kind, _, rest = spec.partition(":")
    known = plugins.found("agents")
    if kind not in known:
        raise UsageError(
            f"there is no agent kind {kind!r}" if kind else "no agent is configured",
            hint=f"an agent is KIND or KIND:…, where KIND is one of {', '.join(sorted(known))}",
        )
    agent: Agent = known[kind].load()(rest)
    return agent
