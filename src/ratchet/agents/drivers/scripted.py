"""The scripted agent: plays turns from a file instead of calling a model. Used by the demo and by tests.

A script is TOML or JSON: for each action a list of turns, played in order. A turn can `say` something, `write`,
`append`, `replace`, `delete` and `patch` files, make `calls`, `ask` a question, name its `session`, report `usage`,
take `delay_s`, or `fail`. `scripted_server.py` plays it over the line protocol.
"""

from __future__ import annotations

import asyncio
import os
import re
import tomllib
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import msgspec

from ratchet.agents.protocol import (
    AgentRequest,
    FileChange,
    OnEvent,
    Question,
    SessionStarted,
    Text,
    ToolCall,
    ToolResult,
    TurnEvent,
    TurnFailed,
    TurnFinished,
    TurnOutcome,
    UsageReported,
)
from ratchet.core import line_protocol
from ratchet.core.failure import Reason
from ratchet.core.receipt import Usage
from ratchet.errors import UsageError
from ratchet.process.spawn import run_command
from ratchet.tree_files import read_anywhere, read_inside, remove_inside, write_inside


class ScriptedFailure(StrEnum):
    CRASH = "crash"
    HANG = "hang"
    GARBAGE = "garbage"
    OVERSIZE = "oversize"
    WRONG_VERSION = "wrong_version"
    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    AUTH = "auth"
    REFUSED = "refused"


class Replacement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: str
    old: str
    new: str


class ScriptedCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call that is only reported, `times` times; without a result it never ends."""

    name: str
    detail: str = ""
    result: str | None = ""
    times: int = 1


class Turn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    say: str = ""
    write: dict[str, str] = {}
    append: dict[str, str] = {}
    replace: list[Replacement] = []
    delete: list[str] = []
    patch: str = ""  # a unified diff, as git makes them
    calls: list[ScriptedCall] = []
    ask: str = ""
    session: str = ""
    usage: Usage = Usage()
    reports: list[Usage] = []  # usage reports during the turn, `delay_s` apart
    delay_s: float = 0.0
    fail: ScriptedFailure | None = None
    until: str = ""


Script = dict[str, list[Turn]]

FAILURES = {
    ScriptedFailure.CRASH: Reason.AGENT_CRASHED,
    ScriptedFailure.GARBAGE: Reason.AGENT_CRASHED,
    ScriptedFailure.OVERSIZE: Reason.AGENT_CRASHED,
    ScriptedFailure.WRONG_VERSION: Reason.AGENT_CRASHED,
    ScriptedFailure.RATE_LIMIT: Reason.RATE_LIMITED,
    ScriptedFailure.OVERLOADED: Reason.OVERLOADED,
    ScriptedFailure.AUTH: Reason.AUTH,
    ScriptedFailure.REFUSED: Reason.AGENT_REFUSED,
}


def load(path: Path) -> Script:
    try:
        text = read_anywhere(path).decode()
        table = tomllib.loads(text) if path.suffix == ".toml" else msgspec.json.decode(text)
        return _known(msgspec.convert(table, Script))
    except FileNotFoundError as error:
        raise UsageError(f"no such script: {path}", hint="check the path after `scripted:`") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(
            f"the script {path} is malformed: {error}",
            hint="`ratchet agent scripted --help` shows the format",
        ) from error


def _known(script: Script) -> Script:
    """Reject unknown actions. Actions of custom workflows contain a dot (`docs.write`), so that typos are found."""
    for action in script:
        if "." not in action and action not in line_protocol.Action.__members__.values():
            raise msgspec.ValidationError(f"no such action {action!r}; actions: {', '.join(line_protocol.Action)}")
    return script


APPROVES = Turn(say='{"verdict": "approved", "summary": "the script has no judge"}')


def turn_of(script: Script, action: str, number: int) -> Turn | None:
    """Return a turn. A script that says nothing about the judge approves, because that gate is on by default."""
    if action == "gate.judge" and action not in script:
        return APPROVES
    turns = script.get(action, [])
    return turns[number - 1] if number <= len(turns) else None


def opening_events(turn: Turn) -> Iterator[TurnEvent]:
    """Yield the events of a turn before its edits."""
    if turn.session:
        yield SessionStarted(turn.session)
    for made in [each for each in turn.calls for _ in range(each.times)]:
        yield ToolCall(made.name, made.detail)
        if made.result is not None:
            yield ToolResult(made.result)
    if turn.ask:
        yield Question(turn.ask)


class ScriptError(ValueError):
    """An edit of the script cannot be applied."""


def play(turn: Turn, folder: Path) -> list[str]:
    """Make the turn's edits; returns the paths it touched. They follow no links: it runs outside of the sandbox."""
    for path, content in turn.write.items():
        write_inside(folder, _plain(path), content.encode())
    for path, content in turn.append.items():
        before = read_inside(folder, _plain(path)) or b""
        write_inside(folder, _plain(path), before + content.encode())
    for edit in turn.replace:
        text = (read_inside(folder, _plain(edit.path)) or b"").decode()
        if edit.old not in text:
            raise ScriptError(f"{edit.path} does not contain {edit.old!r}")
        write_inside(folder, _plain(edit.path), text.replace(edit.old, edit.new, 1).encode())
    for path in turn.delete:
        remove_inside(folder, _plain(path))
    patched = _apply(turn.patch, folder)
    return sorted({*turn.write, *turn.append, *(edit.path for edit in turn.replace), *turn.delete, *patched})


def _apply(patch: str, folder: Path) -> list[str]:
    """Apply the patch and return its paths; git rejects paths outside of the folder."""
    if not patch:
        return []
    done = run_command(["git", "apply", "--whitespace=nowarn", "-"], cwd=folder, stdin=patch.encode())
    if done.exit_code:
        raise ScriptError(f"the patch does not apply: {done.stderr.decode(errors='replace').strip()}")
    return re.findall(r"^\+\+\+ b/(.+?)\s*$", patch, re.MULTILINE)


def _plain(path: str) -> str:
    plain = os.path.normpath(path)
    if os.path.isabs(plain) or plain.split("/")[0] == "..":  # noqa: PTH117 — a name, not a file
        raise ScriptError(f"{path} is outside the workspace")
    return plain


class ScriptedAgent:
    """Plays a script in-process."""

    def __init__(self, path: str) -> None:
        self.script = load(Path(path))
        self.name = f"scripted:{Path(path).name}"

    async def ask(self, request: AgentRequest, on_event: OnEvent) -> TurnOutcome:
        turn = turn_of(self.script, request.action, request.turn)
        if turn is None:
            return TurnFailed(
                reason=Reason.AGENT_CRASHED, detail=f"the script has no turn {request.turn} for {request.action}"
            )
        for event in opening_events(turn):
            on_event(event)
            await asyncio.sleep(0)  # lets the watchdog stop the turn
        await asyncio.sleep(turn.delay_s)
        for usage in turn.reports:
            on_event(UsageReported(usage))
            await asyncio.sleep(turn.delay_s)
        if turn.fail is ScriptedFailure.HANG:
            await asyncio.sleep(request.timeout_s)
            return TurnFailed(reason=Reason.AGENT_TIMED_OUT, detail=f"no end after {request.timeout_s:.0f} s")
        try:
            for path in play(turn, request.folder):
                on_event(FileChange(path))
        except (ScriptError, OSError) as error:
            return TurnFailed(reason=Reason.AGENT_CRASHED, detail=f"cannot play the script: {error}")
        on_event(UsageReported(turn.usage))
        on_event(Text(turn.say))
        if turn.fail:
            return TurnFailed(reason=FAILURES[turn.fail], detail=turn.say or turn.fail, until=turn.until)
        return TurnFinished(text=turn.say)
