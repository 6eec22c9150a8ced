"""Programs that print and exit: each is two pure functions, what to run and what a printed line means.

This is the one driver of all of them. The process, its deadline and its death are `process.supervise`'s.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ratchet.agents import Ask, Failed, Noticed, Outcome, Said, SessionOpened, Tell, ToolCall
from ratchet.agents.faults import dated
from ratchet.agents.hearing import Heard, Hearing
from ratchet.agents.undertone import Undertone, content_of, errors_of, place_of, tail
from ratchet.agents.versions import Tested, version_of
from ratchet.core.failure import Reason
from ratchet.core.receipt import Usage
from ratchet.errors import UsageError
from ratchet.process import Finished, contained, youngest_below
from ratchet.supervision import supervise

LOOK_EVERY_S = 5.0
AT_ONCE_S = 1.0  # a word is heard a little after it was said, and what it announced may have begun by then


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What a launch is made from besides the ask. `place` is a folder of this turn's own that the program may write;
    `free` says that a sandbox holds it, so that it may do as it likes; `session` is the program's own id."""

    place: Path
    model: str = ""
    session: str = ""
    free: bool = False


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. `files` are written in the place beforehand; `results` are files there that are read afterwards."""

    argv: list[str]
    env: dict[str, str] = {}
    stdin: str = ""
    files: dict[str, str] = {}
    results: tuple[str, ...] = ()


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A coding agent's program.

    `variables` are those of its provider that it may see; `homes` are the folders in the home that it keeps its login
    and its sessions in; `logs` are patterns of files there that it tells more than it tells us, `turn_logs` the same in
    its place. `cumulative` names what its usage goes on counting when a session is resumed. `limitable` says whether it
    can be told to run no commands: one that cannot is only started in a sandbox. `prepare` readies the workspace and
    says what to add to the environment; `litter` is what it leaves there. One that `tells_late` tells of a call only
    when it is over.
    """

    name: str
    launch: Callable[[Ask, Setting], Launch]
    read: Callable[[bytes], Iterable[Heard]]
    tested: Tested
    read_results: Callable[[list[bytes]], Iterable[Heard]] = lambda _contents: ()
    prepare: Callable[[Path, Path], dict[str, str]] = lambda _folder, _place: {}
    variables: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    logins: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    turn_logs: tuple[str, ...] = ()
    cumulative: tuple[str, ...] = ()
    limitable: bool = True
    must_speak: bool = False
    resumes: bool = True
    tells_cost: bool = False
    tells_late: bool = False
    litter: tuple[str, ...] = ()
    default_model: str = ""


class Native:
    """A program as an agent. What comes after the colon of `claude:MODEL` is the model."""

    def __init__(self, program: Program, model: str = "") -> None:
        found = shutil.which(program.name)
        if not found:
            raise UsageError(
                f"{program.name} is not installed", hint="install it, or choose another: `ratchet agents` lists them"
            )
        self.program, self.model, self.path = program, model, str(Path(found).absolute())
        self.name = f"{program.name}:{model}" if model else program.name
        self.warned = False

    async def ask(self, ask: Ask, tell: Tell) -> Outcome:
        free = contained()
        if not free and not self.program.limitable:
            return Failed(
                reason=Reason.MISCONFIGURED,
                detail=f"{self.program.name} runs any command unasked and there is no sandbox here: install bubblewrap"
                + (f", or use acp:{self.program.name} acp" if self.program.name == "goose" else ""),
            )
        session, before = split_handle(ask.session if self.program.resumes else "")
        place = make_place(ask)
        await self._warn(tell, place)
        setting = Setting(place=place, model=ask.model or self.model, session=session, free=free)
        launch = self.program.launch(ask, setting)
        turn = _Turn(self.program, ask, tell, setting, before)
        try:
            ended = await self._run(ask, launch, place, turn)
        except asyncio.CancelledError:
            if limited := turn.ears.complaint():
                tell(Noticed(limited.detail))  # whoever stops it for its silence hears what it was waiting for
            raise
        turn.take(*self.program.read_results([content_of(place / name) for name in launch.results]))
        _sweep(ask.folder, self.program.litter)
        return turn.close(ended, tail(errors_of(ask)))

    async def _run(self, ask: Ask, launch: Launch, place: Path, turn: _Turn) -> Finished:
        for name, content in launch.files.items():
            (place / name).write_text(content, "utf-8")
        make_homes(self.program)
        lookout = asyncio.ensure_future(turn.look_out()) if self.program.tells_late else None
        try:
            return await self._supervise(ask, launch, place, turn)
        finally:
            if lookout:
                lookout.cancel()

    async def _supervise(self, ask: Ask, launch: Launch, place: Path, turn: _Turn) -> Finished:
        return await supervise(
            [self.path, *launch.argv],
            cwd=ask.folder,
            env=ask.env_for(self.path)
            | present(self.program.variables)
            | launch.env
            | self.program.prepare(ask.folder, place),
            output=ask.log,
            errors=errors_of(ask),
            stdin=launch.stdin.encode(),
            timeout_s=ask.timeout_s,
            writable=[place],
            hear=turn.hear,
            started=turn.begin,
        )

    async def _warn(self, tell: Tell, place: Path) -> None:
        if self.warned:
            return
        self.warned = True
        version = await version_of(self.path, place=place)
        if warning := self.program.tested.warning(self.program.name, version):
            tell(Noticed(warning))


class _Turn:
    """One turn while it is heard."""

    def __init__(self, program: Program, ask: Ask, tell: Tell, setting: Setting, before: Usage) -> None:
        self.program, self.ask, self._tell = program, ask, tell
        model = setting.model or program.default_model
        counted = Usage(**{name: getattr(before, name) for name in program.cumulative})
        self.ears = Undertone(ask, logs=program.logs, turn_logs=program.turn_logs)
        self.hearing = Hearing(ask, self._pass_on, model=model, must_speak=program.must_speak, before=counted)
        self.session, self.pid = setting.session, 0
        self.begun_at, self.heard_at, self.calling = 0.0, 0.0, False

    def begin(self, pid: int) -> None:
        self.pid, self.begun_at = pid, time.monotonic()

    def hear(self, line: bytes) -> bool:
        self.heard_at, self.calling = time.monotonic(), False
        self.take(*self.program.read(line))
        return self.hearing.overspent

    async def look_out(self) -> None:
        """A process that was started after the last word is a call that will be told of when it is over."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if not self.heard_at or self.calling:
                continue
            youngest_s = await asyncio.to_thread(youngest_below, self.pid)
            now = time.monotonic()
            quiet_s, running_s = now - self.heard_at, now - self.begun_at
            # What began with the program is the program.
            if youngest_s < min(quiet_s + AT_ONCE_S, running_s - AT_ONCE_S) and not self.calling:
                self.calling = True
                self.take(ToolCall("command", f"begun in the {quiet_s:.0f} s since its last word"))

    def take(self, *heard: Heard) -> None:
        for each in heard:
            self.hearing.take(each)

    def _pass_on(self, said: Said) -> None:
        self.ears.heard(said)
        if isinstance(said, SessionOpened):
            if said.session == self.session:
                return
            self.session = said.session
        self._tell(said)

    def close(self, ended: Finished, stderr: str) -> Outcome:
        if self.session and self.program.cumulative:
            meter = self.hearing.meter
            self._tell(SessionOpened(handle(self.session, meter.before + meter.total)))
        if ended.timed_out:
            failed = self.hearing.outcome
            return failed if isinstance(failed, Failed) else self.ears.timed_out()
        outcome = self.hearing.close(ended=f"exit {ended.exit_code}", stderr=stderr)
        return dated(outcome, now=datetime.now().astimezone()) if isinstance(outcome, Failed) else outcome


# --- a session's handle ---------------------------------------------------------------------------------------
# Some programs count a resumed session's usage from its beginning: the handle remembers what was told already.


def handle(session: str, spent: Usage) -> str:
    return f"{session}#{spent.tokens_in},{spent.tokens_out},{spent.cost_usd}"


def split_handle(handle: str) -> tuple[str, Usage]:
    session, _, spent = handle.partition("#")
    try:
        tokens_in, tokens_out, cost = spent.split(",")
        return session, Usage(tokens_in=int(tokens_in), tokens_out=int(tokens_out), cost_usd=float(cost))
    except ValueError:
        return session, Usage()


# --- files ----------------------------------------------------------------------------------------------------


def make_place(ask: Ask) -> Path:
    place = place_of(ask)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700, parents=True)
    return place


def make_homes(program: Program | None) -> None:
    """A sandbox shares what exists: without its own folders a program's session would end with the turn."""
    for home in program.homes if program else ():
        (Path.home() / home).mkdir(parents=True, exist_ok=True)


def present(names: Iterable[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


def _sweep(folder: Path, litter: Iterable[str]) -> None:
    for path in [path for pattern in litter for path in folder.glob(pattern)]:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


# --- reading --------------------------------------------------------------------------------------------------

T = TypeVar("T")


def decoded(line: bytes, decoder: msgspec.json.Decoder[T]) -> T | None:
    """A printed line as one of the events we know; None for everything else: newer versions print new things."""
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def summary(arguments: dict[str, Any] | None) -> str:
    """A tool call's arguments in one short line: its command or path, where it has one."""
    known = ("command", "cmd", "file_path", "filePath", "path", "pattern", "query", "url")
    values = [str(arguments[name]) for name in known if name in arguments] if arguments else []
    return (values[0] if values else " ".join(map(str, (arguments or {}).values())))[:200]
