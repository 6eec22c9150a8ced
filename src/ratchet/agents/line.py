"""`line:PROGRAM ARGS…`: any program that speaks the line protocol. Every line is checked against the protocol's types.

What does not fit is counted, told of and skipped: it never stops the reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from ratchet.agents import (
    Ask,
    Failed,
    FileChange,
    Finished,
    Noticed,
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
from ratchet.agents.command import words_of
from ratchet.agents.faults import complaint, dated, stamp
from ratchet.agents.native import make_place
from ratchet.agents.undertone import errors_of, tail
from ratchet.core import wire
from ratchet.core.failure import Reason
from ratchet.core.receipt import Usage
from ratchet.files import open_private
from ratchet.supervision import conversing

LOG_MAX_BYTES = 16 * 1024 * 1024
_CHUNK_BYTES = 65_536


class LineAgent:
    def __init__(self, command: str) -> None:
        self.argv = words_of(command)
        self.name = f"line:{Path(self.argv[0]).name}"

    async def ask(self, ask: Ask, tell: Tell) -> Outcome:
        if ask.action not in wire.Action.__members__.values():
            return Failed(reason=Reason.MISCONFIGURED, detail=f"the line protocol has no action {ask.action!r}")
        place = make_place(ask)
        command = command_of(ask, place, now=datetime.now(UTC))
        talk = Talk(command, tell)
        try:
            async with (
                asyncio.timeout(ask.timeout_s),
                conversing(
                    self.argv, cwd=ask.folder, env=ask.env_for(self.argv[0]), errors=errors_of(ask), writable=[place]
                ) as (reader, writer),
            ):  # fmt: skip
                writer.write(wire.encode_line(command))
                await _hear(reader, talk, ask.log)
        except TimeoutError:
            return Failed(reason=Reason.AGENT_TIMED_OUT, detail=f"no end after {ask.timeout_s:.0f} s")
        return talk.close(tail(errors_of(ask)))


async def _hear(reader: asyncio.StreamReader, talk: Talk, log: Path) -> None:
    """Until it has answered or ended; the log keeps what fits into it."""
    room = LOG_MAX_BYTES
    with open_private(log) as file:
        async for line in lines(reader):
            file.write((line or b"(a line that was too long)\n")[:room])
            file.flush()
            room = max(0, room - len(line or b""))
            talk.take(line)
            if talk.outcome:
                return


async def lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes | None]:
    """Each line; None for one that is too long, of which no more is held than fits."""
    begun, is_long = b"", False
    while chunk := await reader.read(_CHUNK_BYTES):
        *whole, begun = (begun + chunk).split(b"\n")
        for line in whole:
            yield None if is_long or len(line) >= wire.LINE_MAX_BYTES else line + b"\n"
            is_long = False
        if len(begun) >= wire.LINE_MAX_BYTES:
            begun, is_long = b"", True
    if begun and not is_long:
        yield begun


def command_of(ask: Ask, place: Path, *, now: datetime) -> wire.Command:
    """A prompt that is too long for a line is in a file, and the line says where."""
    told = {"prompt": ask.prompt, "role": ask.role, "turn": ask.turn, "model": ask.model, "session": ask.session}
    command = wire.Command(
        message_id=f"cmd-{ask.key[3:15]}",
        correlation_id=ask.run,
        item=ask.item,
        idempotency_key=ask.key,
        to=wire.Party(agent_type=ask.role),
        action=wire.Action(ask.action),
        inputs={**ask.inputs, **told},
        version=wire.Version(snapshot_id=ask.snapshot),
        deadline=stamp(now + timedelta(seconds=ask.timeout_s)),
        retry=wire.Retry(attempt=ask.turn, max_attempts=max(1, ask.turn)),
    )
    if len(msgspec.json.encode(command)) < wire.LINE_MAX_BYTES:
        return command
    path = place / "prompt.md"
    path.write_text(ask.prompt, "utf-8")
    told |= {"prompt": "", "prompt_path": str(path)}
    return msgspec.structs.replace(command, inputs=told)


class Talk:
    """One command, as far as it is answered. Plain."""

    def __init__(self, command: wire.Command, tell: Tell) -> None:
        self.command, self._tell = command, tell
        self.outcome: Outcome | None = None
        self.skipped: list[str] = []

    def take(self, line: bytes | None) -> None:
        try:
            message = wire.decode_line(line) if line is not None else None
        except ValueError as error:
            return self._skip(str(error))
        if message is None:
            return self._skip(f"more than {wire.LINE_MAX_BYTES} bytes")
        if isinstance(message, wire.AgentEvent):
            if message.correlation_id != self.command.correlation_id or message.item != self.command.item:
                return self._skip("an event of something else")
            self._hear(message)
        return None

    def _skip(self, why: str) -> None:
        self.skipped.append(why)
        if len(self.skipped) == 1:
            self._tell(Noticed(f"a line was skipped: {why}"))

    def _hear(self, event: wire.AgentEvent) -> None:
        for said in told(event):
            self._tell(said)
        if event.event in wire.TERMINAL:
            self.outcome = self._ending(event)

    def _ending(self, event: wire.AgentEvent) -> Outcome:
        observed = event.observed_version
        if observed and observed != self.command.version:
            wanted = self.command.version.snapshot_id
            detail = f"it worked on {observed.snapshot_id}, and was asked about {wanted}"
            return Failed(reason=Reason.AGENT_CRASHED, detail=detail)
        if event.event is wire.EventName.ERROR:
            return _failed(event.payload)
        return Finished(text=str(event.payload.get("text", "")))

    def close(self, stderr: str) -> Outcome:
        if len(self.skipped) > 1:
            self._tell(Noticed(f"{len(self.skipped)} lines were skipped"))
        if self.outcome:
            return self.outcome
        said = complaint(stderr.strip()[-2_000:])
        detail = f"it ended without an answer: {said.detail}".rstrip(": ")
        return msgspec.structs.replace(said, detail=detail)


def told(event: wire.AgentEvent) -> Iterator[Said]:
    """What an event tells besides its outcome; what is not understood of a payload is passed over."""
    payload: dict[str, Any] = event.payload
    if session := payload.get("session"):
        yield SessionOpened(str(session))
    if tool := payload.get("tool"):
        yield ToolCall(str(tool), str(payload.get("detail", "")))
    if (result := payload.get("result")) is not None:
        yield ToolEnded(str(result)[:2_000])
    if (usage := _usage(payload.get("usage"))) is not None:
        yield Spent(usage)
    if event.event is wire.EventName.PROGRESS and (text := payload.get("text")):
        yield Question(str(text)) if event.status == wire.ASKS else Text(str(text))
    for artifact in event.artifacts:
        yield FileChange(artifact.path)


def _usage(value: Any) -> Usage | None:
    try:
        return msgspec.convert(value, Usage) if isinstance(value, dict) else None
    except msgspec.ValidationError:
        return None


def _failed(payload: dict[str, Any]) -> Failed:
    message = str(payload.get("message", ""))
    known = payload.get("reason") in Reason.__members__.values()
    reason = Reason(payload["reason"]) if known else complaint(message).reason
    failed = Failed(reason=reason, detail=message or str(reason), until=str(payload.get("until", "")))
    return dated(failed, now=datetime.now().astimezone())
