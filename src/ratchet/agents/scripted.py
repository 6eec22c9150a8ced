"""The scripted agent: plays a file of turns instead of asking a model. It is the demo and the test double.

A script is TOML or JSON: for each action a list of turns, played in order. A turn can `say` something, `write`,
`append`, `replace` and `delete` files, report `usage`, take `delay_s`, or `fail`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ratchet.agents import Ask, Failed, FileChange, Finished, Outcome, Spent, Tell, Text
from ratchet.core import wire
from ratchet.core.failure import Reason
from ratchet.core.receipt import Artifact, Usage
from ratchet.errors import UsageError


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


class Turn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    say: str = ""
    write: dict[str, str] = {}
    append: dict[str, str] = {}
    replace: list[Replacement] = []
    delete: list[str] = []
    usage: Usage = Usage()
    reports: list[Usage] = []  # told one by one while it works, each `delay_s` after the one before
    delay_s: float = 0.0
    fail: Fault | None = None
    until: str = ""


Script = dict[str, list[Turn]]

_FAILURES = {
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
    return sorted({*turn.write, *turn.append, *(edit.path for edit in turn.replace), *turn.delete})


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
            return Failed(reason=_FAILURES[turn.fail], detail=turn.say or turn.fail, until=turn.until)
        return Finished(text=turn.say)


# --- the same script as a program that speaks the line protocol -----------------------------------------------


def serve(script: Script, *, folder: Path, stdin: BinaryIO, stdout: BinaryIO) -> int:
    """Answer commands until stdin ends. A repeated key gets its earlier answer again, without doing the work again."""
    began, seq = time.monotonic(), 0
    played: dict[str, int] = {}
    answers: dict[str, wire.AgentEvent] = {}
    _put(stdout, _heartbeat(seq, wire.HeartbeatStatus.READY, began))
    for line in _lines(stdin):
        try:
            message = wire.decode_line(line)
        except ValueError as error:
            _put(stdout, _log("error", f"skipped a line: {error}"))
            continue
        if not isinstance(message, wire.Command):
            continue
        seq += 1
        _put(stdout, _heartbeat(seq, wire.HeartbeatStatus.BUSY, began))
        if message.idempotency_key not in answers:
            number = int(message.inputs.get("turn", played.get(message.action, 0) + 1))
            played[message.action] = number
            turn = turn_of(script, message.action, number)
            if turn and turn.fail and (code := _misbehave(turn.fail, stdout)) is not None:
                return code
            answers[message.idempotency_key] = _answer(message, turn, number, folder)
        _put(stdout, answers[message.idempotency_key])
    return 0


def _lines(stdin: BinaryIO) -> Iterator[bytes]:
    """Whole lines; the rest of one that is too long is read away and what came of it is refused like any other."""
    while line := stdin.readline(wire.LINE_MAX_BYTES + 1):
        if len(line) > wire.LINE_MAX_BYTES and not line.endswith(b"\n"):
            while (rest := stdin.readline(65_536)) and not rest.endswith(b"\n"):
                pass
        yield line


def _misbehave(fault: Fault, stdout: BinaryIO) -> int | None:
    """The faults that show on the wire itself; the others are answered as errors."""
    match fault:
        case Fault.CRASH:
            return 134
        case Fault.HANG:
            while True:
                time.sleep(3600)
        case Fault.GARBAGE:
            stdout.write(b'{"kind": "event", \xff\xfe not json\n')
            stdout.flush()
        case Fault.OVERSIZE:
            stdout.write(b'{"kind":"log","message":"' + b"x" * (2 * wire.LINE_MAX_BYTES) + b'"}\n')
            stdout.flush()
    return None


def _answer(command: wire.Command, turn: Turn | None, number: int, folder: Path) -> wire.AgentEvent:
    if turn is None:
        return _error(command, Reason.AGENT_CRASHED, f"the script has no turn {number} for {command.action}")
    time.sleep(turn.delay_s)
    if turn.fail in _FAILURES and turn.fail not in (Fault.GARBAGE, Fault.OVERSIZE, Fault.WRONG_VERSION):
        return _error(command, _FAILURES[turn.fail], turn.say or turn.fail, until=turn.until)
    try:
        paths = play(turn, folder)
    except (ScriptError, OSError) as error:
        return _error(command, Reason.AGENT_CRASHED, str(error))
    wrong = turn.fail is Fault.WRONG_VERSION
    version = wire.Version(snapshot_id="snap-000000000000") if wrong else command.version
    name = wire.EventName.REVIEW_COMPLETED if command.action == "review" else wire.EventName.COMPLETED
    return wire.AgentEvent(
        **_envelope(command),
        event=name,
        payload={"text": turn.say, "usage": msgspec.to_builtins(turn.usage)},
        artifacts=[_artifact(folder, path) for path in paths if (folder / path).is_file()],
        observed_version=version,
    )


def _error(command: wire.Command, reason: Reason, detail: str, *, until: str = "") -> wire.AgentEvent:
    payload = {"reason": reason, "message": detail, "until": until}
    return wire.AgentEvent(**_envelope(command), event=wire.EventName.ERROR, status="failed", payload=payload)


def _envelope(command: wire.Command) -> dict[str, Any]:
    return {
        "message_id": f"evt-{command.idempotency_key[3:15]}",
        "correlation_id": command.correlation_id,
        "item": command.item,
        "from_": wire.Party(agent_type=command.to.agent_type, agent_id="scripted"),
        "occurred_at": _now(),
    }


def _artifact(folder: Path, path: str) -> Artifact:
    content = (folder / path).read_bytes()
    return Artifact(path=path, sha256=hashlib.sha256(content).hexdigest(), size=len(content))


def _heartbeat(seq: int, status: wire.HeartbeatStatus, began: float) -> wire.Heartbeat:
    return wire.Heartbeat(
        agent=wire.Party(agent_type="scripted"),
        seq=seq,
        status=status,
        pid=os.getpid(),
        uptime_s=round(time.monotonic() - began, 3),
        last_activity_at=_now(),
    )


def _log(level: str, message: str) -> wire.Log:
    return wire.Log(level=level, message=message, timestamp=_now())


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _put(stdout: BinaryIO, message: wire.Message) -> None:
    stdout.write(wire.encode_line(message))
    stdout.flush()
