"""Agents: the programs that play a role, each behind an adapter that tells what happened and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ratchet.core.failure import Reason
from ratchet.core.receipt import Usage
from ratchet.errors import UsageError


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One thing asked of an agent. `turn` counts what this run has asked for this action, from 1."""

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
    session: str = ""


# --- what an agent tells while it works -----------------------------------------------------------------------


class Text(msgspec.Struct, frozen=True):
    text: str


class Thought(msgspec.Struct, frozen=True):
    text: str


class ToolCall(msgspec.Struct, frozen=True):
    name: str
    detail: str = ""


class FileChange(msgspec.Struct, frozen=True):
    path: str


class Spent(msgspec.Struct, frozen=True):
    usage: Usage


class Question(msgspec.Struct, frozen=True):
    text: str


class SessionOpened(msgspec.Struct, frozen=True):
    session: str


Said = Text | Thought | ToolCall | FileChange | Spent | Question | SessionOpened
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


Outcome = Finished | Failed


class Agent(Protocol):
    name: str

    async def ask(self, ask: Ask, tell: Tell) -> Outcome:
        """Play the role once. Being cancelled leaves no process behind."""
        ...


def settled(spec: str) -> str:
    """The same agent named so that it is found from any folder: relative paths made absolute."""
    kind, _, rest = spec.partition(":")
    head, space, tail = rest.partition(" ") if kind == "command" else (rest, "", "")
    is_path = kind == "scripted" or (kind == "command" and "/" in head)
    return f"{kind}:{Path(head).absolute()}{space}{tail}" if is_path and head else spec


def open_agent(spec: str) -> Agent:
    """`scripted:FILE`, `command:PROGRAM ARGS…`: the word before the colon names an entry point of `ratchet.agents`."""
    kind, _, rest = spec.partition(":")
    known = {entry.name: entry for entry in entry_points(group="ratchet.agents")}
    if kind not in known:
        raise UsageError(
            f"there is no agent kind {kind!r}" if kind else "no agent is configured",
            hint=f"write --agent KIND:…, where KIND is one of {', '.join(sorted(known))}",
        )
    agent: Agent = known[kind].load()(rest)
    return agent
