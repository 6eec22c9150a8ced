"""Conformance tests of the line protocol, run by `ratchet agent check CMD…`.

Each check starts the program in its own folder, talks to it as Ratchet does, and stops it.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from ratchet.agents.drivers.line import lines
from ratchet.core import line_protocol
from ratchet.core.timestamps import format_timestamp
from ratchet.process.supervise import interactive_process

SILENCE_S = 30.0  # a busy program sends heartbeats at least this often
END_S = 10.0


class ConformanceCheck(msgspec.Struct, frozen=True, kw_only=True):
    check: str
    ok: bool
    detail: str = ""


class ProtocolViolation(Exception):
    """The program violates the protocol."""


class ResponseTimeout(ProtocolViolation):
    """The program sent nothing in time."""


class ConformanceTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The program to check. `timeout_s` limits one command, `handshake_s` the first heartbeat."""

    argv: Sequence[str]
    env: Mapping[str, str]
    folder: Path
    action: line_protocol.Action
    prompt: str
    timeout_s: float
    handshake_s: float = 10.0


class CheckSession:
    """One process of the program under test."""

    def __init__(self, target: ConformanceTarget, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.target, self.reader, self.writer = target, reader, writer
        self._lines = lines(reader)
        self.beats: list[line_protocol.Heartbeat] = []
        self.events: list[line_protocol.AgentEvent] = []
        self.gap_s = 0.0

    def send(self, content: bytes) -> None:
        self.writer.write(content)

    async def receive(self, within_s: float) -> line_protocol.Message:
        """Read the next line, which must be valid."""
        began = time.monotonic()
        try:
            line = await asyncio.wait_for(anext(self._lines, b""), within_s)
        except TimeoutError:
            raise ResponseTimeout(f"no output for {within_s:.0f} s") from None
        self.gap_s = max(self.gap_s, time.monotonic() - began)
        if line == b"":
            raise ProtocolViolation(f"the program exited: {self._last_words()}".removesuffix(": "))
        try:
            message = line_protocol.decode_line(line or b"x" * (line_protocol.LINE_MAX_BYTES + 1))
        except ValueError as error:
            raise ProtocolViolation(f"invalid line: {error}: {(line or b'')[:100]!r}") from None
        self._keep(message)
        return message

    def _last_words(self) -> str:
        lines = [
            line for line in _errors(self.target).read_text("utf-8", errors="replace").splitlines() if line.strip()
        ]
        return " ".join(line.strip() for line in lines[-2:])[:200]

    def _keep(self, message: line_protocol.Message) -> None:
        if isinstance(message, line_protocol.Heartbeat):
            if self.beats and message.seq <= self.beats[-1].seq:
                raise ProtocolViolation(
                    f"heartbeat {message.seq} after {self.beats[-1].seq}: sequence numbers must increase"
                )
            self.beats.append(message)
        elif isinstance(message, line_protocol.AgentEvent):
            self.events.append(message)

    async def handshake(self) -> None:
        while not isinstance(message := await self.receive(self.target.handshake_s), line_protocol.Heartbeat):
            pass
        if message.status not in (line_protocol.HeartbeatStatus.STARTING, line_protocol.HeartbeatStatus.READY):
            raise ProtocolViolation(f"the first heartbeat has status {message.status}, not starting or ready")

    async def answer(self, command: line_protocol.Command) -> line_protocol.AgentEvent:
        """Send a command and wait for its answer; heartbeats must arrive in between."""
        self.send(line_protocol.encode_line(command))
        deadline = time.monotonic() + self.target.timeout_s
        while (left := deadline - time.monotonic()) > 0:
            event = await self.receive(min(left, SILENCE_S))
            if isinstance(event, line_protocol.AgentEvent) and event.event in line_protocol.TERMINAL:
                return _fitting(event, command)
        raise ProtocolViolation(f"no answer after {self.target.timeout_s:.0f} s")


def _fitting(event: line_protocol.AgentEvent, command: line_protocol.Command) -> line_protocol.AgentEvent:
    if (event.correlation_id, event.item) != (command.correlation_id, command.item):
        raise ProtocolViolation(f"the answer has the ids {event.correlation_id}/{event.item}, not those of the command")
    if event.event is line_protocol.EventName.ERROR:
        raise ProtocolViolation(f"the answer is an error: {event.payload.get('message') or event.payload}")
    return event


@asynccontextmanager
async def _connect(target: ConformanceTarget) -> AsyncIterator[CheckSession]:
    async with interactive_process(
        target.argv, cwd=target.folder, env=target.env, errors=_errors(target), grace_s=2.0
    ) as (reader, writer):  # fmt: skip
        yield CheckSession(target, reader, writer)


def _errors(target: ConformanceTarget) -> Path:
    return target.folder.parent / "agent.err"


def command_for(target: ConformanceTarget, what: str, *, snapshot: str = "snap-0123456789ab") -> line_protocol.Command:
    """Build a command; its idempotency key is derived from `what`."""
    key = hashlib.sha256(what.encode()).hexdigest()
    return line_protocol.Command(
        message_id=f"cmd-{key[:12]}",
        correlation_id="run-conformance",
        item="item-conformance",
        idempotency_key=f"ik:{key}",
        to=line_protocol.Party(agent_type="implementer"),
        action=target.action,
        inputs={"prompt": target.prompt, "turn": 1, "role": "implementer", "session": "", "model": ""},
        version=line_protocol.Version(snapshot_id=snapshot),
        deadline=format_timestamp(datetime.now(UTC) + timedelta(seconds=target.timeout_s), timespec="seconds"),
    )


# --- checks -------------------------------------------------------------------------------------------------


async def handshake(target: ConformanceTarget) -> str:
    """The program sends a heartbeat before the first command."""
    async with _connect(target) as session:
        await session.handshake()
        beat = session.beats[0]
        return f"{beat.agent.agent_type}, {beat.status}"


async def answers(target: ConformanceTarget) -> str:
    """A command gets one answer with matching ids."""
    async with _connect(target) as session:
        event = await session.answer(command_for(target, "answers"))
        return f"{event.event}, {len(session.events) - 1} events before it"


async def heartbeat(target: ConformanceTarget) -> str:
    """The program sends heartbeats while it works."""
    async with _connect(target) as session:
        await session.handshake()
        await session.answer(command_for(target, "heartbeat"))
        if len(session.beats) < 2:
            raise ProtocolViolation("no heartbeat during the work")
        return f"{len(session.beats)} heartbeats, at most {session.gap_s:.1f} s of silence"


async def repeat(target: ConformanceTarget) -> str:
    """A repeated idempotency key gets the same answer without doing the work again."""
    async with _connect(target) as session:
        first = await session.answer(command_for(target, "repeat"))
        before = _content(target.folder)
        again = await session.answer(command_for(target, "repeat"))
    if (again.event, again.payload) != (first.event, first.payload):
        raise ProtocolViolation("the same key got a different answer")
    if _content(target.folder) != before:
        raise ProtocolViolation("the same key changed files again")
    return "the same answer"


async def version(target: ConformanceTarget) -> str:
    """The answer names the version that was asked for."""
    async with _connect(target) as session:
        event = await session.answer(command_for(target, "version", snapshot="snap-ba9876543210"))
    observed = event.observed_version.snapshot_id if event.observed_version else "nothing"
    if observed != "snap-ba9876543210":
        raise ProtocolViolation(f"observed_version is {observed}, not snap-ba9876543210")
    return observed


async def malformed(target: ConformanceTarget) -> str:
    """Invalid lines are skipped and the next command is answered."""
    return await _after(target, "malformed", b'{"kind": "command", \xff\xfe\n{"kind":"unheard of"}\n\n')


async def oversize(target: ConformanceTarget) -> str:
    """A line that is too long is skipped and the next command is answered."""
    return await _after(
        target, "oversize", b'{"kind":"log","message":"' + b"x" * (2 * line_protocol.LINE_MAX_BYTES) + b'"}\n'
    )


async def _after(target: ConformanceTarget, what: str, rubbish: bytes) -> str:
    async with _connect(target) as session:
        session.send(rubbish)
        event = await session.answer(command_for(target, what))
        return f"{event.event} after it"


async def cancel(target: ConformanceTarget) -> str:
    """The program exits when stopped during its work."""
    async with _connect(target) as session:
        await session.handshake()
        session.send(line_protocol.encode_line(command_for(target, "cancel")))
        began = time.monotonic()
    took = time.monotonic() - began
    if took > END_S:
        raise ProtocolViolation(f"took {took:.0f} s to exit")
    return f"exited after {took:.1f} s"


async def crash(target: ConformanceTarget) -> str:
    """After being stopped during its work, a new process answers the same command."""
    async with _connect(target) as session:
        await session.handshake()
        session.send(line_protocol.encode_line(command_for(target, "crash")))
    async with _connect(target) as session:
        event = await session.answer(command_for(target, "crash"))
        return f"{event.event} after a restart"


async def end(target: ConformanceTarget) -> str:
    """The program exits when its stdin is closed."""
    async with _connect(target) as session:
        await session.handshake()
        session.writer.close()
        try:
            async with asyncio.timeout(END_S):
                while await session.reader.read(65_536):
                    pass
        except TimeoutError:
            raise ProtocolViolation(f"still running {END_S:.0f} s after its stdin was closed") from None
    return "exited after its stdin was closed"


CHECKS: tuple[Callable[[ConformanceTarget], Awaitable[str]], ...] = (
    handshake, answers, heartbeat, repeat, version, malformed, oversize, cancel, crash, end,
)  # fmt: skip


async def check(target: ConformanceTarget) -> AsyncIterator[ConformanceCheck]:
    """Run all checks and yield each result. If the program neither greets nor answers, skip the rest: each would time
    out."""
    silent = set[str]()
    for promise in CHECKS:
        if {"handshake", "answers"} <= silent:
            yield ConformanceCheck(check=promise.__name__, ok=False, detail="skipped: the program sends nothing")
            continue
        folder = target.folder / promise.__name__
        (folder / "work").mkdir(parents=True)
        try:
            detail = await promise(msgspec.structs.replace(target, folder=folder / "work"))
            yield ConformanceCheck(check=promise.__name__, ok=True, detail=detail)
        except ProtocolViolation as broken:
            silent |= {promise.__name__} if isinstance(broken, ResponseTimeout) else set()
            yield ConformanceCheck(check=promise.__name__, ok=False, detail=str(broken))


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
