"""Drives command-line agents that print events and exit. An adapter is two pure functions: launch and read.

`process.supervise` handles the process and its deadline.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ratchet.agents.protocol import (
    AgentRequest,
    Notice,
    OnEvent,
    SessionStarted,
    Thought,
    ToolCall,
    TurnEvent,
    TurnFailed,
    TurnOutcome,
)
from ratchet.agents.provider_errors import with_retry_time
from ratchet.agents.stderr_monitor import StderrMonitor, read_result, scratch_dir_of, stderr_log_of, tail
from ratchet.agents.turn_result import StreamEvent, TurnRecorder
from ratchet.agents.versions import VersionRange, version_of
from ratchet.core.failure import Reason
from ratchet.core.foreign_json import MALFORMED
from ratchet.core.prices import price_of
from ratchet.core.receipt import Price, Usage
from ratchet.errors import UsageError
from ratchet.process.spawn import ProcessResult, is_sandboxed, seconds_since_last_child
from ratchet.process.supervise import supervise
from ratchet.tree_files import remove_inside

LOOK_EVERY_S = 5.0
AT_ONCE_S = 1.0  # output arrives with a delay: the announced command may have started already


class LaunchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of a launch besides the request. `place` is a scratch directory of the turn that the program may write;
    `free`: a sandbox is active, so no restrictions are needed; `session` is the program's own session id."""

    scratch_dir: Path
    model: str = ""
    session: str = ""
    free: bool = False


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A command line. `files` are written to the scratch directory before, `results` are read from it afterwards."""

    argv: list[str]
    env: dict[str, str] = {}
    stdin: str = ""
    files: dict[str, str] = {}
    results: tuple[str, ...] = ()


class CliProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A command-line agent.

    `variables`: provider variables that are passed on. `login_command`: what a person types to log in.
    `home_dirs`: folders in the home with its login and sessions. `logins` and `settings`: files there that a sandbox
    lends, read-only; the rest of its home is its own.
    `logs`: patterns of log files in the home; `turn_logs`: log files in the scratch directory. `cumulative`: usage
    counters that continue when a session is resumed. `limitable`: it has an option to run no commands; if not, it runs
    only in a sandbox. `prepare`: prepares the workspace and returns extra variables. `leftovers`: files it leaves in
    the workspace. `reports_calls_late`: it reports a tool call only when the call has ended. `reports_as_it_works`: it
    prints events during the turn, not only at its end.
    """

    name: str
    launch: Callable[[AgentRequest, LaunchSettings], Launch]
    read: Callable[[bytes], Iterable[StreamEvent]]
    tested: VersionRange
    read_results: Callable[[list[bytes]], Iterable[StreamEvent]] = lambda _contents: ()
    prepare: Callable[[Path, Path], dict[str, str]] = lambda _folder, _place: {}
    variables: tuple[str, ...] = ()
    home_dirs: tuple[str, ...] = ()
    logins: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    login_command: str = ""
    logs: tuple[str, ...] = ()
    turn_logs: tuple[str, ...] = ()
    cumulative: tuple[str, ...] = ()
    limitable: bool = True
    must_speak: bool = False
    resumes: bool = True
    reports_cost: bool = False
    reports_calls_late: bool = False
    reports_as_it_works: bool = True
    leftovers: tuple[str, ...] = ()
    default_model: str = ""


class CliAgent:
    """A command-line agent; in `claude:MODEL` the part after the colon is the model."""

    def __init__(self, program: CliProgram, model: str = "") -> None:
        found = shutil.which(program.name)
        if not found:
            raise UsageError(
                f"{program.name} is not installed", hint="install it or choose another; `ratchet agents` lists them"
            )
        self.program, self.model, self.path = program, model, str(Path(found).absolute())
        self.name = f"{program.name}:{model}" if model else program.name
        self.lent = lent_by(program)
        self.warned = False
        self.login_command = program.login_command
        self.reports_as_it_works = program.reports_as_it_works

    def is_priced(self, prices: Mapping[str, Price]) -> bool:
        """Whether the cost of a turn will be known."""
        model = self.model or self.program.default_model
        return self.program.reports_cost or price_of(model, prices) is not None

    async def ask(self, request: AgentRequest, on_event: OnEvent) -> TurnOutcome:
        free = is_sandboxed()
        if not free and not self.program.limitable:
            return TurnFailed(
                reason=Reason.MISCONFIGURED,
                detail=f"{self.program.name} runs commands without asking and there is no sandbox: install bubblewrap"
                + (f", or use acp:{self.program.name} acp" if self.program.name == "goose" else ""),
            )
        session, before = parse_session_handle(request.session if self.program.resumes else "")
        scratch_dir = make_scratch_dir(request)
        await self._warn(on_event, scratch_dir)
        settings = LaunchSettings(
            scratch_dir=scratch_dir, model=request.model or self.model, session=session, free=free
        )
        launch = self.program.launch(request, settings)
        turn = _Turn(self.program, request, on_event, settings, before)
        try:
            ended = await self._run(request, launch, scratch_dir, turn)
        except asyncio.CancelledError:
            if limited := turn.monitor.provider_error():
                on_event(Notice(limited.detail))  # shows the watchdog that the agent was waiting for its provider
            raise
        turn.add(*self.program.read_results([read_result(scratch_dir / name) for name in launch.results]))
        _remove_leftovers(request.folder, self.program.leftovers)
        return turn.close(ended, tail(stderr_log_of(request)))

    async def _run(self, request: AgentRequest, launch: Launch, scratch_dir: Path, turn: _Turn) -> ProcessResult:
        for name, content in launch.files.items():
            (scratch_dir / name).write_text(content, "utf-8")
        make_home_dirs(self.program)
        lookout = asyncio.ensure_future(turn.detect_unreported_calls()) if self.program.reports_calls_late else None
        try:
            return await self._supervise(request, launch, scratch_dir, turn)
        finally:
            if lookout:
                lookout.cancel()

    async def _supervise(self, request: AgentRequest, launch: Launch, scratch_dir: Path, turn: _Turn) -> ProcessResult:
        return await supervise(
            [self.path, *launch.argv],
            cwd=request.folder,
            env=request.env_for(self.path)
            | present_variables(self.program.variables)
            | launch.env
            | self.program.prepare(request.folder, scratch_dir),
            output=request.log,
            errors=stderr_log_of(request),
            stdin=launch.stdin.encode(),
            timeout_s=request.timeout_s,
            writable=[scratch_dir],
            on_line=turn.on_line,
            on_start=turn.begin,
        )

    async def _warn(self, on_event: OnEvent, scratch_dir: Path) -> None:
        if self.warned:
            return
        self.warned = True
        version = await version_of(self.path, scratch_dir=scratch_dir)
        if warning := self.program.tested.warning(self.program.name, version):
            on_event(Notice(warning))


class _Turn:
    """A turn in progress."""

    def __init__(
        self, program: CliProgram, request: AgentRequest, on_event: OnEvent, settings: LaunchSettings, before: Usage
    ) -> None:
        self.program, self.request, self._on_event = program, request, on_event
        model = settings.model or program.default_model
        counted = Usage(**{name: getattr(before, name) for name in program.cumulative})
        self.monitor = StderrMonitor(request, logs=program.logs, turn_logs=program.turn_logs)
        self.recorder = TurnRecorder(request, self._forward, model=model, must_speak=program.must_speak, before=counted)
        self.session, self.pid = settings.session, 0
        self.begun_at, self.last_output_at, self.calling = 0.0, 0.0, False

    def begin(self, pid: int) -> None:
        self.pid, self.begun_at = pid, time.monotonic()

    def on_line(self, line: bytes) -> bool:
        self.last_output_at, self.calling = time.monotonic(), False
        self.add(*self.program.read(line))
        return self.recorder.overspent

    async def detect_unreported_calls(self) -> None:
        """Report a tool call when a child process starts after the last output: the program reports it at its end."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if not self.last_output_at:
                continue
            youngest_s = await asyncio.to_thread(seconds_since_last_child, self.pid)
            now = time.monotonic()
            quiet_s, running_s = now - self.last_output_at, now - self.begun_at
            # Processes that started with the program belong to the program itself.
            at_work = youngest_s < min(quiet_s + AT_ONCE_S, running_s - AT_ONCE_S)
            if self.calling and not at_work:
                self.calling = False
                self._forward(Thought(""))  # it ended, and silence counts again
            elif at_work and not self.calling:
                self.calling = True
                # Not recorded: it may be a process of the program's own, and a recorded call ends the answer before it.
                self._forward(ToolCall("command", f"started in the {quiet_s:.0f} s since the last output"))

    def add(self, *events: StreamEvent) -> None:
        for each in events:
            self.recorder.add(each)

    def _forward(self, event: TurnEvent) -> None:
        self.monitor.on_event(event)
        if isinstance(event, SessionStarted):
            if event.session == self.session:
                return
            self.session = event.session
        self._on_event(event)

    def close(self, ended: ProcessResult, stderr: str) -> TurnOutcome:
        if self.session and self.program.cumulative:
            meter = self.recorder.meter
            self._on_event(SessionStarted(session_handle(self.session, meter.before + meter.total)))
        if ended.timed_out:
            failed = self.recorder.outcome
            return failed if isinstance(failed, TurnFailed) else self.monitor.timed_out()
        outcome = self.recorder.close(ended=f"exit {ended.exit_code}", stderr=stderr)
        return with_retry_time(outcome, now=datetime.now().astimezone()) if isinstance(outcome, TurnFailed) else outcome


# --- session handles ---------------------------------------------------------------------------------------
# Some programs count the usage of a resumed session from its start: the handle stores what was already reported.


def session_handle(session: str, spent: Usage) -> str:
    return f"{session}#{spent.tokens_in},{spent.tokens_out},{spent.cost_usd}"


_SESSION = re.compile(r"[A-Za-z0-9._:][A-Za-z0-9._:-]{0,199}")


def parse_session_handle(handle: str) -> tuple[str, Usage]:
    """Return the program's session id and its usage. Without an id if it is none: an agent may have printed a path or
    an option in its place, which would become a word of the next command."""
    session, _, spent = handle.partition("#")
    if not _SESSION.fullmatch(session):
        return "", Usage()
    try:
        tokens_in, tokens_out, cost = spent.split(",")
        return session, Usage(tokens_in=int(tokens_in), tokens_out=int(tokens_out), cost_usd=float(cost))
    except ValueError:
        return session, Usage()


# --- files ----------------------------------------------------------------------------------------------------


def make_scratch_dir(request: AgentRequest) -> Path:
    scratch_dir = scratch_dir_of(request)
    remove_inside(scratch_dir.parent, scratch_dir.name)  # the agent may have nested folders without end
    scratch_dir.mkdir(mode=0o700, parents=True)
    return scratch_dir


def make_home_dirs(program: CliProgram | None) -> None:
    """Create the program's home folders, which hold its sessions. In a sandbox it has a home of its own."""
    for home in program.home_dirs if program and not is_sandboxed() else ():
        (Path.home() / home).mkdir(parents=True, exist_ok=True)


def lent_by(program: CliProgram | None) -> tuple[str, ...]:
    return (*program.logins, *program.settings) if program else ()


def present_variables(names: Iterable[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


def _remove_leftovers(folder: Path, litter: Iterable[str]) -> None:
    for path in [path for pattern in litter for path in folder.glob(pattern)]:
        remove_inside(folder, str(path.relative_to(folder)))


# --- reading --------------------------------------------------------------------------------------------------

T = TypeVar("T")


def decode_output(line: bytes, decoder: msgspec.json.Decoder[T]) -> T | None:
    """Decode a line of output; None if it is not a known event, as newer versions add events."""
    try:
        return decoder.decode(line)
    except MALFORMED:
        return None


def summarise_arguments(arguments: dict[str, Any] | None) -> str:
    """Summarise the arguments of a tool call in one line: the command or path if there is one."""
    known = ("command", "cmd", "file_path", "filePath", "path", "pattern", "query", "url")
    values = [str(arguments[name]) for name in known if name in arguments] if arguments else []
    return (values[0] if values else " ".join(map(str, (arguments or {}).values())))[:200]
