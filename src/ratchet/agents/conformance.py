"""Whether a program speaks the line protocol: what `ratchet agent check CMD…` tries on it, one promise after the other.

Each check starts the program anew in a folder of its own, talks with it as the factory would, and ends it.
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

from ratchet.agents.faults import stamp
from ratchet.agents.line import lines
from ratchet.core import wire
from ratchet.supervision import conversing

SILENCE_S = 30.0  # a program at work says at least that it lives
END_S = 10.0


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    check: str
    ok: bool
    detail: str = ""


class Broken(Exception):
    """A promise of the protocol that is not kept."""


class Silent(Broken):
    """Nothing came in time."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What is tried: `timeout_s` is what one command may take, `handshake_s` its first word."""

    argv: Sequence[str]
    env: Mapping[str, str]
    folder: Path
    action: wire.Action
    prompt: str
    timeout_s: float
    handshake_s: float = 10.0


class Talk:
    """One run of the program."""

    def __init__(self, trial: Trial, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.trial, self.reader, self.writer = trial, reader, writer
        self._lines = lines(reader)
        self.beats: list[wire.Heartbeat] = []
        self.events: list[wire.AgentEvent] = []
        self.gap_s = 0.0

    def send(self, content: bytes) -> None:
        self.writer.write(content)

    async def hear(self, within_s: float) -> wire.Message:
        """The next line, which has to be valid."""
        began = time.monotonic()
        try:
            line = await asyncio.wait_for(anext(self._lines, b""), within_s)
        except TimeoutError:
            raise Silent(f"it said nothing for {within_s:.0f} s") from None
        self.gap_s = max(self.gap_s, time.monotonic() - began)
        if line == b"":
            raise Broken(f"it ended: {self._last_words()}".removesuffix(": "))
        try:
            message = wire.decode_line(line or b"x" * (wire.LINE_MAX_BYTES + 1))
        except ValueError as error:
            raise Broken(f"none of the protocol's lines: {error}: {(line or b'')[:100]!r}") from None
        self._keep(message)
        return message

    def _last_words(self) -> str:
        lines = [line for line in _errors(self.trial).read_text("utf-8", errors="replace").splitlines() if line.strip()]
        return " ".join(line.strip() for line in lines[-2:])[:200]

    def _keep(self, message: wire.Message) -> None:
        if isinstance(message, wire.Heartbeat):
            if self.beats and message.seq <= self.beats[-1].seq:
                raise Broken(f"heartbeat {message.seq} after {self.beats[-1].seq}: they have to be numbered upwards")
            self.beats.append(message)
        elif isinstance(message, wire.AgentEvent):
            self.events.append(message)

    async def ready(self) -> None:
        while not isinstance(message := await self.hear(self.trial.handshake_s), wire.Heartbeat):
            pass
        if message.status not in (wire.HeartbeatStatus.STARTING, wire.HeartbeatStatus.READY):
            raise Broken(f"its first heartbeat says {message.status}, not starting or ready")

    async def answer(self, command: wire.Command) -> wire.AgentEvent:
        """Its answer to the command, for which the whole time is given; in between it has to show that it lives."""
        self.send(wire.encode_line(command))
        deadline = time.monotonic() + self.trial.timeout_s
        while (left := deadline - time.monotonic()) > 0:
            event = await self.hear(min(left, SILENCE_S))
            if isinstance(event, wire.AgentEvent) and event.event in wire.TERMINAL:
                return _fitting(event, command)
        raise Broken(f"no answer after {self.trial.timeout_s:.0f} s")


def _fitting(event: wire.AgentEvent, command: wire.Command) -> wire.AgentEvent:
    if (event.correlation_id, event.item) != (command.correlation_id, command.item):
        raise Broken(f"its answer is about {event.correlation_id}/{event.item}, not what it was asked")
    if event.event is wire.EventName.ERROR:
        raise Broken(f"it answered with an error: {event.payload.get('message') or event.payload}")
    return event


@asynccontextmanager
async def _talking(trial: Trial) -> AsyncIterator[Talk]:
    async with conversing(
        trial.argv, cwd=trial.folder, env=trial.env, errors=_errors(trial), grace_s=2.0
    ) as (reader, writer):  # fmt: skip
        yield Talk(trial, reader, writer)


def _errors(trial: Trial) -> Path:
    return trial.folder.parent / "agent.err"


def command_for(trial: Trial, what: str, *, snapshot: str = "snap-0123456789ab") -> wire.Command:
    """Its key is made from `what`, so that the same thing asked again has the same one."""
    key = hashlib.sha256(what.encode()).hexdigest()
    return wire.Command(
        message_id=f"cmd-{key[:12]}",
        correlation_id="run-conformance",
        item="item-conformance",
        idempotency_key=f"ik:{key}",
        to=wire.Party(agent_type="implementer"),
        action=trial.action,
        inputs={"prompt": trial.prompt, "turn": 1, "role": "implementer", "session": "", "model": ""},
        version=wire.Version(snapshot_id=snapshot),
        deadline=stamp(datetime.now(UTC) + timedelta(seconds=trial.timeout_s)),
    )


# --- the promises -------------------------------------------------------------------------------------------------


async def handshake(trial: Trial) -> str:
    """It says that it is ready before it is asked anything."""
    async with _talking(trial) as talk:
        await talk.ready()
        beat = talk.beats[0]
        return f"{beat.agent.agent_type}, {beat.status}"


async def answers(trial: Trial) -> str:
    """A command gets one answer, about what was asked."""
    async with _talking(trial) as talk:
        event = await talk.answer(command_for(trial, "answers"))
        return f"{event.event}, {len(talk.events) - 1} events before it"


async def heartbeat(trial: Trial) -> str:
    """While it works it shows that it lives, however slow it is."""
    async with _talking(trial) as talk:
        await talk.ready()
        await talk.answer(command_for(trial, "heartbeat"))
        if len(talk.beats) < 2:
            raise Broken("no heartbeat came while it worked")
        return f"{len(talk.beats)} heartbeats, at most {talk.gap_s:.1f} s of silence"


async def repeat(trial: Trial) -> str:
    """The same key again is the same answer, and nothing is done twice."""
    async with _talking(trial) as talk:
        first = await talk.answer(command_for(trial, "repeat"))
        before = _content(trial.folder)
        again = await talk.answer(command_for(trial, "repeat"))
    if (again.event, again.payload) != (first.event, first.payload):
        raise Broken("the same key got another answer")
    if _content(trial.folder) != before:
        raise Broken("the same key changed files again")
    return "the same answer"


async def version(trial: Trial) -> str:
    """It says on which version it worked, and that is the one it was asked about."""
    async with _talking(trial) as talk:
        event = await talk.answer(command_for(trial, "version", snapshot="snap-ba9876543210"))
    observed = event.observed_version.snapshot_id if event.observed_version else "nothing"
    if observed != "snap-ba9876543210":
        raise Broken(f"it observed {observed}, and was asked about snap-ba9876543210")
    return observed


async def malformed(trial: Trial) -> str:
    """A line it cannot read is skipped, and the next is answered."""
    return await _after(trial, "malformed", b'{"kind": "command", \xff\xfe\n{"kind":"unheard of"}\n\n')


async def oversize(trial: Trial) -> str:
    """So is one that is too long."""
    return await _after(trial, "oversize", b'{"kind":"log","message":"' + b"x" * (2 * wire.LINE_MAX_BYTES) + b'"}\n')


async def _after(trial: Trial, what: str, rubbish: bytes) -> str:
    async with _talking(trial) as talk:
        talk.send(rubbish)
        event = await talk.answer(command_for(trial, what))
        return f"{event.event} after it"


async def cancel(trial: Trial) -> str:
    """Told to stop in the middle of its work, it ends."""
    async with _talking(trial) as talk:
        await talk.ready()
        talk.send(wire.encode_line(command_for(trial, "cancel")))
        began = time.monotonic()
    took = time.monotonic() - began
    if took > END_S:
        raise Broken(f"it took {took:.0f} s to end")
    return f"ended after {took:.1f} s"


async def crash(trial: Trial) -> str:
    """Ended in the middle of its work, it can be started and asked the same again."""
    async with _talking(trial) as talk:
        await talk.ready()
        talk.send(wire.encode_line(command_for(trial, "crash")))
    async with _talking(trial) as talk:
        event = await talk.answer(command_for(trial, "crash"))
        return f"{event.event} when it was asked again"


async def end(trial: Trial) -> str:
    """When nobody will ask any more, it ends by itself."""
    async with _talking(trial) as talk:
        await talk.ready()
        talk.writer.close()
        try:
            async with asyncio.timeout(END_S):
                while await talk.reader.read(65_536):
                    pass
        except TimeoutError:
            raise Broken(f"its stdin ended, and {END_S:.0f} s later it had not") from None
    return "ended with its stdin"


CHECKS: tuple[Callable[[Trial], Awaitable[str]], ...] = (
    handshake, answers, heartbeat, repeat, version, malformed, oversize, cancel, crash, end,
)  # fmt: skip


async def check(trial: Trial) -> AsyncIterator[Finding]:
    """Each promise, as soon as it is tried. Who says nothing when greeted and nothing when asked speaks another
    language: for the rest we would wait in vain."""
    silent = set[str]()
    for promise in CHECKS:
        if {"handshake", "answers"} <= silent:
            yield Finding(check=promise.__name__, ok=False, detail="not tried: it says nothing")
            continue
        folder = trial.folder / promise.__name__
        (folder / "work").mkdir(parents=True)
        try:
            detail = await promise(msgspec.structs.replace(trial, folder=folder / "work"))
            yield Finding(check=promise.__name__, ok=True, detail=detail)
        except Broken as broken:
            silent |= {promise.__name__} if isinstance(broken, Silent) else set()
            yield Finding(check=promise.__name__, ok=False, detail=str(broken))


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
