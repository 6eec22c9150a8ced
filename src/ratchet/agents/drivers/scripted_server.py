"""The scripted agent as a line-protocol program: the reference implementation."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ratchet.agents.drivers.scripted import (
    FAILURES,
    Script,
    ScriptedFailure,
    ScriptError,
    Turn,
    opening_events,
    play,
    turn_of,
)
from ratchet.agents.protocol import SessionStarted, ToolCall, ToolResult, TurnEvent
from ratchet.core import line_protocol
from ratchet.core.failure import Reason
from ratchet.core.receipt import Artifact
from ratchet.core.timestamps import format_timestamp

BEAT_S = 1.0


def serve(script: Script, *, folder: Path, stdin: BinaryIO, stdout: BinaryIO) -> int:
    """Answer commands until stdin ends. A repeated key gets the earlier answer; the work is not repeated."""
    return _Server(script, folder, stdout).run(stdin)


class _Server:
    def __init__(self, script: Script, folder: Path, stdout: BinaryIO) -> None:
        self.script, self.folder, self.stdout = script, folder, stdout
        self.began, self.seq = time.monotonic(), -1
        self.played: dict[str, int] = {}
        self.answers: dict[str, line_protocol.AgentEvent] = {}

    def run(self, stdin: BinaryIO) -> int:
        self.beat(line_protocol.HeartbeatStatus.READY)
        for line in _lines(stdin):
            try:
                message = line_protocol.decode_line(line)
            except ValueError as error:
                self.put(line_protocol.Log(level="error", message=f"skipped a line: {error}", timestamp=_now()))
                continue
            if isinstance(message, line_protocol.Command) and (code := self.do(message)) is not None:
                return code
        return 0

    def do(self, command: line_protocol.Command) -> int | None:
        """Answer a command; return an exit code if the script says to exit instead."""
        self.beat(line_protocol.HeartbeatStatus.BUSY)
        if command.idempotency_key not in self.answers:
            number = int(command.inputs.get("turn", self.played.get(command.action, 0) + 1))
            self.played[command.action] = number
            turn = turn_of(self.script, command.action, number)
            if turn:
                self.work(command, turn)
            if turn and turn.fail and (code := _misbehave(turn.fail, self.stdout)) is not None:
                return code
            self.answers[command.idempotency_key] = _answer(command, turn, number, self.folder)
        self.put(self.answers[command.idempotency_key])
        return None

    def work(self, command: line_protocol.Command, turn: Turn) -> None:
        """Send the events of a turn, then wait `delay_s` while sending heartbeats."""
        for event in opening_events(turn):
            self.put(_progress(command, event))
        for usage in turn.reports:
            self.put(_event(command, line_protocol.EventName.PROGRESS, {"usage": msgspec.to_builtins(usage)}))
        until = time.monotonic() + turn.delay_s
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(BEAT_S, left))
            self.beat(line_protocol.HeartbeatStatus.BUSY)

    def beat(self, status: line_protocol.HeartbeatStatus) -> None:
        self.seq += 1
        self.put(
            line_protocol.Heartbeat(
                agent=line_protocol.Party(agent_type="scripted"),
                seq=self.seq,
                status=status,
                pid=os.getpid(),
                uptime_s=round(time.monotonic() - self.began, 3),
                last_activity_at=_now(),
            )
        )

    def put(self, message: line_protocol.Message) -> None:
        self.stdout.write(line_protocol.encode_line(message))
        self.stdout.flush()


def _lines(stdin: BinaryIO) -> Iterator[bytes]:
    """Yield lines; discard the rest of a line that is too long, which then fails to decode."""
    while line := stdin.readline(line_protocol.LINE_MAX_BYTES + 1):
        if len(line) > line_protocol.LINE_MAX_BYTES and not line.endswith(b"\n"):
            while (rest := stdin.readline(65_536)) and not rest.endswith(b"\n"):
                pass
        yield line


def _misbehave(fault: ScriptedFailure, stdout: BinaryIO) -> int | None:
    """Simulate failures at the protocol level; the others are sent as error events."""
    match fault:
        case ScriptedFailure.CRASH:
            return 134
        case ScriptedFailure.HANG:
            while True:
                time.sleep(3600)
        case ScriptedFailure.GARBAGE:
            stdout.write(b'{"kind": "event", \xff\xfe not json\n')
            stdout.flush()
        case ScriptedFailure.OVERSIZE:
            stdout.write(b'{"kind":"log","message":"' + b"x" * (2 * line_protocol.LINE_MAX_BYTES) + b'"}\n')
            stdout.flush()
    return None


def _progress(command: line_protocol.Command, event: TurnEvent) -> line_protocol.AgentEvent:
    match event:
        case SessionStarted(session=session):
            return _event(command, line_protocol.EventName.PROGRESS, {"session": session})
        case ToolCall(name=name, detail=detail):
            return _event(command, line_protocol.EventName.PROGRESS, {"tool": name, "detail": detail})
        case ToolResult(result=result):
            return _event(command, line_protocol.EventName.PROGRESS, {"result": result})
        case _:
            payload = {"text": getattr(event, "text", "")}
            return _event(command, line_protocol.EventName.PROGRESS, payload, status=line_protocol.ASKS)


def _answer(command: line_protocol.Command, turn: Turn | None, number: int, folder: Path) -> line_protocol.AgentEvent:
    if turn is None:
        return _error(command, Reason.AGENT_CRASHED, f"the script has no turn {number} for {command.action}")
    if turn.fail in FAILURES and turn.fail not in (
        ScriptedFailure.GARBAGE,
        ScriptedFailure.OVERSIZE,
        ScriptedFailure.WRONG_VERSION,
    ):
        return _error(command, FAILURES[turn.fail], turn.say or turn.fail, until=turn.until)
    try:
        paths = play(turn, folder)
    except (ScriptError, OSError) as error:
        return _error(command, Reason.AGENT_CRASHED, str(error))
    wrong = turn.fail is ScriptedFailure.WRONG_VERSION
    version = line_protocol.Version(snapshot_id="snap-000000000000") if wrong else command.version
    return msgspec.structs.replace(
        _event(
            command,
            line_protocol.EventName.REVIEW_COMPLETED
            if command.action == "review"
            else line_protocol.EventName.COMPLETED,
            {"text": turn.say, "usage": msgspec.to_builtins(turn.usage)},
        ),
        artifacts=[_artifact(folder, path) for path in paths if (folder / path).is_file()],
        observed_version=version,
    )


def _error(command: line_protocol.Command, reason: Reason, detail: str, *, until: str = "") -> line_protocol.AgentEvent:
    payload = {"reason": reason, "message": detail, "until": until}
    return _event(command, line_protocol.EventName.ERROR, payload, status="failed")


def _event(
    command: line_protocol.Command, name: line_protocol.EventName, payload: dict[str, Any], *, status: str = ""
) -> line_protocol.AgentEvent:
    return line_protocol.AgentEvent(
        message_id=f"evt-{command.idempotency_key[3:15]}",
        correlation_id=command.correlation_id,
        item=command.item,
        from_=line_protocol.Party(agent_type=command.to.agent_type, agent_id="scripted"),
        event=name,
        status=status,
        payload=payload,
        occurred_at=_now(),
    )


def _artifact(folder: Path, path: str) -> Artifact:
    content = (folder / path).read_bytes()
    return Artifact(path=path, sha256=hashlib.sha256(content).hexdigest(), size=len(content))


def _now() -> str:
    return format_timestamp(datetime.now(UTC))
