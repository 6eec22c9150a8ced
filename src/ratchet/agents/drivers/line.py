"""`line:PROGRAM ARGS…`: drives any program that implements the line protocol. Every line is validated.

Invalid lines are counted, reported and skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from ratchet.agents.drivers.cli_stream import make_scratch_dir
from ratchet.agents.drivers.command import split_command
from ratchet.agents.protocol import (
    AgentRequest,
    FileChange,
    Notice,
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
from ratchet.agents.provider_errors import classify_error, with_retry_time
from ratchet.agents.stderr_monitor import stderr_log_of, tail
from ratchet.core import line_protocol
from ratchet.core.failure import Reason
from ratchet.core.receipt import Usage
from ratchet.core.timestamps import format_timestamp
from ratchet.files import open_private
from ratchet.process.supervise import interactive_process

LOG_MAX_BYTES = 16 * 1024 * 1024
_CHUNK_BYTES = 65_536


class LineAgent:
    def __init__(self, command: str) -> None:
        self.argv = split_command(command)
        self.name = f"line:{Path(self.argv[0]).name}"

    async def ask(self, request: AgentRequest, on_event: OnEvent) -> TurnOutcome:
        if request.action not in line_protocol.Action.__members__.values():
            return TurnFailed(reason=Reason.MISCONFIGURED, detail=f"the line protocol has no action {request.action!r}")
        scratch_dir = make_scratch_dir(request)
        command = command_of(request, scratch_dir, now=datetime.now(UTC))
        conversation = LineConversation(command, on_event)
        try:
            async with (
                asyncio.timeout(request.timeout_s),
                interactive_process(
                    self.argv,
                    cwd=request.folder,
                    env=request.env_for(self.argv[0]),
                    errors=stderr_log_of(request),
                    writable=[scratch_dir],
                ) as (reader, writer),
            ):
                writer.write(line_protocol.encode_line(command))
                await _read_lines(reader, conversation, request.log)
        except TimeoutError:
            return TurnFailed(reason=Reason.AGENT_TIMED_OUT, detail=f"no end after {request.timeout_s:.0f} s")
        return conversation.close(tail(stderr_log_of(request)))


async def _read_lines(reader: asyncio.StreamReader, conversation: LineConversation, log: Path) -> None:
    """Read lines until an answer or the end of output; log them up to `LOG_MAX_BYTES`."""
    room = LOG_MAX_BYTES
    with open_private(log) as file:
        async for line in lines(reader):
            file.write((line or b"(line too long)\n")[:room])
            file.flush()
            room = max(0, room - len(line or b""))
            conversation.add_line(line)
            if conversation.outcome:
                return


async def lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes | None]:
    """Yield lines, and None for a line that is too long, without buffering it."""
    begun, is_long = b"", False
    while chunk := await reader.read(_CHUNK_BYTES):
        *whole, begun = (begun + chunk).split(b"\n")
        for line in whole:
            yield None if is_long or len(line) >= line_protocol.LINE_MAX_BYTES else line + b"\n"
            is_long = False
        if len(begun) >= line_protocol.LINE_MAX_BYTES:
            begun, is_long = b"", True
    if begun and not is_long:
        yield begun


def command_of(request: AgentRequest, scratch_dir: Path, *, now: datetime) -> line_protocol.Command:
    """Build the command; a prompt that does not fit into a line is passed in a file."""
    inputs = {
        "prompt": request.prompt,
        "role": request.role,
        "turn": request.turn,
        "model": request.model,
        "session": request.session,
    }
    command = line_protocol.Command(
        message_id=f"cmd-{request.key[3:15]}",
        correlation_id=request.run,
        item=request.item,
        idempotency_key=request.key,
        to=line_protocol.Party(agent_type=request.role),
        action=line_protocol.Action(request.action),
        inputs={**request.inputs, **inputs},
        version=line_protocol.Version(snapshot_id=request.snapshot),
        deadline=format_timestamp(now + timedelta(seconds=request.timeout_s), timespec="seconds"),
        retry=line_protocol.Retry(attempt=request.turn, max_attempts=max(1, request.turn)),
    )
    if len(msgspec.json.encode(command)) < line_protocol.LINE_MAX_BYTES:
        return command
    path = scratch_dir / "prompt.md"
    path.write_text(request.prompt, "utf-8")
    inputs |= {"prompt": "", "prompt_path": str(path)}
    return msgspec.structs.replace(command, inputs=inputs)


class LineConversation:
    """State of one command: skipped lines and the outcome. Does no I/O."""

    def __init__(self, command: line_protocol.Command, on_event: OnEvent) -> None:
        self.command, self._on_event = command, on_event
        self.outcome: TurnOutcome | None = None
        self.skipped: list[str] = []

    def add_line(self, line: bytes | None) -> None:
        try:
            message = line_protocol.decode_line(line) if line is not None else None
        except ValueError as error:
            return self._skip(str(error))
        if message is None:
            return self._skip(f"more than {line_protocol.LINE_MAX_BYTES} bytes")
        if isinstance(message, line_protocol.AgentEvent):
            if message.correlation_id != self.command.correlation_id or message.item != self.command.item:
                return self._skip("an event for another command")
            self._handle(message)
        return None

    def _skip(self, why: str) -> None:
        self.skipped.append(why)
        if len(self.skipped) == 1:
            self._on_event(Notice(f"skipped a line: {why}"))

    def _handle(self, event: line_protocol.AgentEvent) -> None:
        for turn_event in turn_events(event):
            self._on_event(turn_event)
        if event.event in line_protocol.TERMINAL:
            self.outcome = self._outcome(event)

    def _outcome(self, event: line_protocol.AgentEvent) -> TurnOutcome:
        observed = event.observed_version
        if observed and observed != self.command.version:
            wanted = self.command.version.snapshot_id
            detail = f"the answer is for {observed.snapshot_id}, not {wanted}"
            return TurnFailed(reason=Reason.AGENT_CRASHED, detail=detail)
        if event.event is line_protocol.EventName.ERROR:
            return _failed(event.payload)
        return TurnFinished(text=str(event.payload.get("text", "")))

    def close(self, stderr: str) -> TurnOutcome:
        if len(self.skipped) > 1:
            self._on_event(Notice(f"{len(self.skipped)} lines skipped"))
        if self.outcome:
            return self.outcome
        event = classify_error(stderr.strip()[-2_000:])
        detail = f"the program exited without an answer: {event.detail}".rstrip(": ")
        return msgspec.structs.replace(event, detail=detail)


def turn_events(event: line_protocol.AgentEvent) -> Iterator[TurnEvent]:
    """Translate an event; unknown payload fields are ignored."""
    payload: dict[str, Any] = event.payload
    if session := payload.get("session"):
        yield SessionStarted(str(session))
    if tool := payload.get("tool"):
        yield ToolCall(str(tool), str(payload.get("detail", "")))
    if (result := payload.get("result")) is not None:
        yield ToolResult(str(result)[:2_000])
    if (usage := _usage(payload.get("usage"))) is not None:
        yield UsageReported(usage)
    if event.event is line_protocol.EventName.PROGRESS and (text := payload.get("text")):
        yield Question(str(text)) if event.status == line_protocol.ASKS else Text(str(text))
    for artifact in event.artifacts:
        yield FileChange(artifact.path)


def _usage(value: Any) -> Usage | None:
    try:
        return msgspec.convert(value, Usage) if isinstance(value, dict) else None
    except msgspec.ValidationError:
        return None


def _failed(payload: dict[str, Any]) -> TurnFailed:
    message = str(payload.get("message", ""))
    known = payload.get("reason") in Reason.__members__.values()
    reason = Reason(payload["reason"]) if known else classify_error(message).reason
    failed = TurnFailed(reason=reason, detail=message or str(reason), until=str(payload.get("until", "")))
    return with_retry_time(failed, now=datetime.now().astimezone())
