"""The scripted agent as a program that speaks the line protocol: the reference any other can be compared with."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ratchet.agents import Said, SessionOpened, ToolCall, ToolEnded
from ratchet.agents.scripted import FAILURES, Fault, Script, ScriptError, Turn, play, spoken, turn_of
from ratchet.core import wire
from ratchet.core.failure import Reason
from ratchet.core.receipt import Artifact

BEAT_S = 1.0


def serve(script: Script, *, folder: Path, stdin: BinaryIO, stdout: BinaryIO) -> int:
    """Answer commands until stdin ends. A repeated key gets its earlier answer again, without doing the work again."""
    return _Server(script, folder, stdout).run(stdin)


class _Server:
    def __init__(self, script: Script, folder: Path, stdout: BinaryIO) -> None:
        self.script, self.folder, self.stdout = script, folder, stdout
        self.began, self.seq = time.monotonic(), -1
        self.played: dict[str, int] = {}
        self.answers: dict[str, wire.AgentEvent] = {}

    def run(self, stdin: BinaryIO) -> int:
        self.beat(wire.HeartbeatStatus.READY)
        for line in _lines(stdin):
            try:
                message = wire.decode_line(line)
            except ValueError as error:
                self.put(wire.Log(level="error", message=f"skipped a line: {error}", timestamp=_now()))
                continue
            if isinstance(message, wire.Command) and (code := self.do(message)) is not None:
                return code
        return 0

    def do(self, command: wire.Command) -> int | None:
        """Answers; returns an exit code where the script says to end instead."""
        self.beat(wire.HeartbeatStatus.BUSY)
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

    def work(self, command: wire.Command, turn: Turn) -> None:
        """What a turn tells, and how long it takes; who takes long says that it lives."""
        for said in spoken(turn):
            self.put(_progress(command, said))
        for usage in turn.reports:
            self.put(_event(command, wire.EventName.PROGRESS, {"usage": msgspec.to_builtins(usage)}))
        until = time.monotonic() + turn.delay_s
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(BEAT_S, left))
            self.beat(wire.HeartbeatStatus.BUSY)

    def beat(self, status: wire.HeartbeatStatus) -> None:
        self.seq += 1
        self.put(
            wire.Heartbeat(
                agent=wire.Party(agent_type="scripted"),
                seq=self.seq,
                status=status,
                pid=os.getpid(),
                uptime_s=round(time.monotonic() - self.began, 3),
                last_activity_at=_now(),
            )
        )

    def put(self, message: wire.Message) -> None:
        self.stdout.write(wire.encode_line(message))
        self.stdout.flush()


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


def _progress(command: wire.Command, said: Said) -> wire.AgentEvent:
    match said:
        case SessionOpened(session=session):
            return _event(command, wire.EventName.PROGRESS, {"session": session})
        case ToolCall(name=name, detail=detail):
            return _event(command, wire.EventName.PROGRESS, {"tool": name, "detail": detail})
        case ToolEnded(result=result):
            return _event(command, wire.EventName.PROGRESS, {"result": result})
        case _:
            payload = {"text": getattr(said, "text", "")}
            return _event(command, wire.EventName.PROGRESS, payload, status=wire.ASKS)


def _answer(command: wire.Command, turn: Turn | None, number: int, folder: Path) -> wire.AgentEvent:
    if turn is None:
        return _error(command, Reason.AGENT_CRASHED, f"the script has no turn {number} for {command.action}")
    if turn.fail in FAILURES and turn.fail not in (Fault.GARBAGE, Fault.OVERSIZE, Fault.WRONG_VERSION):
        return _error(command, FAILURES[turn.fail], turn.say or turn.fail, until=turn.until)
    try:
        paths = play(turn, folder)
    except (ScriptError, OSError) as error:
        return _error(command, Reason.AGENT_CRASHED, str(error))
    wrong = turn.fail is Fault.WRONG_VERSION
    version = wire.Version(snapshot_id="snap-000000000000") if wrong else command.version
    return msgspec.structs.replace(
        _event(
            command,
            wire.EventName.REVIEW_COMPLETED if command.action == "review" else wire.EventName.COMPLETED,
            {"text": turn.say, "usage": msgspec.to_builtins(turn.usage)},
        ),
        artifacts=[_artifact(folder, path) for path in paths if (folder / path).is_file()],
        observed_version=version,
    )


def _error(command: wire.Command, reason: Reason, detail: str, *, until: str = "") -> wire.AgentEvent:
    payload = {"reason": reason, "message": detail, "until": until}
    return _event(command, wire.EventName.ERROR, payload, status="failed")


def _event(
    command: wire.Command, name: wire.EventName, payload: dict[str, Any], *, status: str = ""
) -> wire.AgentEvent:
    return wire.AgentEvent(
        message_id=f"evt-{command.idempotency_key[3:15]}",
        correlation_id=command.correlation_id,
        item=command.item,
        from_=wire.Party(agent_type=command.to.agent_type, agent_id="scripted"),
        event=name,
        status=status,
        payload=payload,
        occurred_at=_now(),
    )


def _artifact(folder: Path, path: str) -> Artifact:
    content = (folder / path).read_bytes()
    return Artifact(path=path, sha256=hashlib.sha256(content).hexdigest(), size=len(content))


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
