"""The scripted agent: plays a file of turns instead of asking a model. It is the demo and the test double.

A script is TOML or JSON: for each action a list of turns, played in order. A turn can `say` something, `write`,
`append`, `replace`, `delete` and `patch` files, make `calls`, `ask` a question, name its `session`, report `usage`,
take `delay_s`, or `fail`. `serving.py` plays the same over the line protocol.
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

from ratchet.agents import (
    Ask,
    Failed,
    FileChange,
    Finished,
    Outcome,
    Question,
    Said,
    SessionOpened,
    Spent,
    Tell,
    Text,
    ToolCall,
    ToolEnded,
)
from ratchet.core import wire
from ratchet.core.failure import Reason
from ratchet.core.receipt import Usage
from ratchet.errors import UsageError
from ratchet.process import call


class Fault(StrEnum):
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


class Call(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call that is only told of, `times` over; without a result it never ends."""

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
    calls: list[Call] = []
    ask: str = ""
    session: str = ""
    usage: Usage = Usage()
    reports: list[Usage] = []  # told one by one while it works, each `delay_s` after the one before
    delay_s: float = 0.0
    fail: Fault | None = None
    until: str = ""


Script = dict[str, list[Turn]]

FAILURES = {
    Fault.CRASH: Reason.AGENT_CRASHED,
    Fault.GARBAGE: Reason.AGENT_CRASHED,
    Fault.OVERSIZE: Reason.AGENT_CRASHED,
    Fault.WRONG_VERSION: Reason.AGENT_CRASHED,
    Fault.RATE_LIMIT: Reason.RATE_LIMITED,
    Fault.OVERLOADED: Reason.OVERLOADED,
    Fault.AUTH: Reason.AUTH,
    Fault.REFUSED: Reason.AGENT_REFUSED,
}


def load(path: Path) -> Script:
    try:
        text = path.read_text("utf-8")
        table = tomllib.loads(text) if path.suffix == ".toml" else msgspec.json.decode(text)
        return _known(msgspec.convert(table, Script))
    except FileNotFoundError as error:
        raise UsageError(f"there is no script {path}", hint="check the path after `scripted:`") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.MsgspecError) as error:
        raise UsageError(
            f"the script {path} is malformed: {error}",
            hint="`ratchet agent scripted --help` shows the format",
        ) from error


def _known(script: Script) -> Script:
    """An action of somebody's own workflow has a dot in it (`docs.write`), so that a slip of the pen is not one."""
    for action in script:
        if "." not in action and action not in wire.Action.__members__.values():
            raise msgspec.ValidationError(f"there is no action {action!r}: {', '.join(wire.Action)}")
    return script


def turn_of(script: Script, action: str, number: int) -> Turn | None:
    turns = script.get(action, [])
    return turns[number - 1] if number <= len(turns) else None


def spoken(turn: Turn) -> Iterator[Said]:
    """What a turn tells before it does anything."""
    if turn.session:
        yield SessionOpened(turn.session)
    for made in [each for each in turn.calls for _ in range(each.times)]:
        yield ToolCall(made.name, made.detail)
        if made.result is not None:
            yield ToolEnded(made.result)
    if turn.ask:
        yield Question(turn.ask)


class ScriptError(ValueError):
    """The script asks for an edit that cannot be made."""


def play(turn: Turn, folder: Path) -> list[str]:
    """Make the turn's edits; returns the paths it touched."""
    for path, content in turn.write.items():
        target = _inside(folder, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, "utf-8")
    for path, content in turn.append.items():
        with _inside(folder, path).open("a", encoding="utf-8") as file:
            file.write(content)
    for edit in turn.replace:
        target = _inside(folder, edit.path)
        before = target.read_text("utf-8") if target.exists() else ""
        if edit.old not in before:
            raise ScriptError(f"{edit.path} does not hold {edit.old!r}")
        target.write_text(before.replace(edit.old, edit.new, 1), "utf-8")
    for path in turn.delete:
        _inside(folder, path).unlink(missing_ok=True)
    patched = _apply(turn.patch, folder)
    return sorted({*turn.write, *turn.append, *(edit.path for edit in turn.replace), *turn.delete, *patched})


def _apply(patch: str, folder: Path) -> list[str]:
    """The patch's paths; git refuses those that lead outside."""
    if not patch:
        return []
    done = call(["git", "apply", "--whitespace=nowarn", "-"], cwd=folder, stdin=patch.encode())
    if done.exit_code:
        raise ScriptError(f"the patch does not apply: {done.stderr.decode(errors='replace').strip()}")
    return re.findall(r"^\+\+\+ b/(.+?)\s*$", patch, re.MULTILINE)


def _inside(folder: Path, path: str) -> Path:
    target = Path(os.path.normpath(folder / path))
    if not target.is_relative_to(folder):
        raise ScriptError(f"{path} is outside the workspace")
    return target


class ScriptedAgent:
    """The script as an adapter, without a process."""

    def __init__(self, path: str) -> None:
        self.script = load(Path(path))
        self.name = f"scripted:{Path(path).name}"

    async def ask(self, ask: Ask, tell: Tell) -> Outcome:
        turn = turn_of(self.script, ask.action, ask.turn)
        if turn is None:
            return Failed(reason=Reason.AGENT_CRASHED, detail=f"the script has no turn {ask.turn} for {ask.action}")
        for said in spoken(turn):
            tell(said)
            await asyncio.sleep(0)  # whoever watches may have heard enough
        await asyncio.sleep(turn.delay_s)
        for usage in turn.reports:
            tell(Spent(usage))
            await asyncio.sleep(turn.delay_s)
        if turn.fail is Fault.HANG:
            await asyncio.sleep(ask.timeout_s)
            return Failed(reason=Reason.AGENT_TIMED_OUT, detail=f"no end after {ask.timeout_s:.0f} s")
        try:
            for path in play(turn, ask.folder):
                tell(FileChange(path))
        except (ScriptError, OSError) as error:
            return Failed(reason=Reason.AGENT_CRASHED, detail=f"the script cannot be played: {error}")
        tell(Spent(turn.usage))
        tell(Text(turn.say))
        if turn.fail:
            return Failed(reason=FAILURES[turn.fail], detail=turn.say or turn.fail, until=turn.until)
        return Finished(text=turn.say)
