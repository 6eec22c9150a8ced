"""The client side of ACP: translates session updates and handles permission, file and terminal requests.

File requests run outside of the sandbox, so only paths inside the workspace are allowed, and symlinks are not followed.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import acp
from acp import RequestError, schema

from ratchet.agents.drivers.cli_stream import session_handle
from ratchet.agents.protocol import (
    AgentRequest,
    FileChange,
    Notice,
    Question,
    SessionStarted,
    Text,
    Thought,
    ToolCall,
    ToolResult,
    TurnCancelled,
    TurnFailed,
    TurnFinished,
    TurnOutcome,
)
from ratchet.agents.provider_errors import classify_error
from ratchet.agents.safe_files import OutsideFolder, SafeFolder
from ratchet.agents.turn_result import StreamEvent, TurnRecorder, UsageSample
from ratchet.core.failure import Reason
from ratchet.process.spawn import ProcessResult as Ended
from ratchet.process.spawn import ProgramMissing, is_sandboxed
from ratchet.process.supervise import supervise

__all__ = ["Conversation", "RequestError"]

_CHANGING = ("edit", "delete", "move")
# At the start of the text; goose's message also after other text.
_COMPLAINTS = re.compile(
    r"\A\s*(ran into this error|\[?api error|error:)|Ran into this error[^:\n]*: .*Please (retry|try again)",
    re.IGNORECASE | re.DOTALL,
)
_CANCEL_S = 1.0
_FREE_MODE = "agent-full-access"  # a mode of Codex
_ENDINGS = {
    "max_tokens": Reason.CONTEXT_OVERFLOW,
    "max_turn_requests": Reason.NO_PROGRESS,
    "refusal": Reason.AGENT_REFUSED,
}


class Conversation:
    """One turn on one connection."""

    def __init__(self, request: AgentRequest, recorder: TurnRecorder, scratch_dir: Path, *, serves_files: bool) -> None:
        self.request, self.recorder, self.serves_files = request, recorder, serves_files
        self.callbacks = AcpCallbacks(request, recorder, scratch_dir)
        self.session = ""
        self.connection: Any = None

    async def open(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, session: str) -> None:
        self.connection = acp.connect_to_agent(cast(acp.Client, self.callbacks), writer, reader)
        files = schema.FileSystemCapabilities(read_text_file=self.serves_files, write_text_file=self.serves_files)
        able = await self.connection.initialize(
            protocol_version=acp.PROTOCOL_VERSION,
            client_capabilities=schema.ClientCapabilities(fs=files, terminal=is_sandboxed()),
            client_info=schema.Implementation(name="ratchet", version="1"),
        )
        resumes = bool(able.agent_capabilities and able.agent_capabilities.load_session)
        self.session = (session and resumes and await self._load(session)) or await self._begin()
        self.recorder.add(SessionStarted(self.session))

    async def _load(self, session: str) -> str:
        """Resume a session; ignore the updates that replay its history."""
        self.callbacks.replaying = True
        try:
            loaded = await self.connection.load_session(
                cwd=self.callbacks.inside.shown, session_id=session, mcp_servers=[]
            )
            await self._free(session, loaded.modes if loaded else None)
        except RequestError as error:
            self.recorder.add(Notice(f"cannot resume the session {session}: {error}"))
            return ""
        finally:
            self.callbacks.replaying = False
        return session

    async def _begin(self) -> str:
        made = await self.connection.new_session(cwd=self.callbacks.inside.shown, mcp_servers=[])
        await self._free(made.session_id, made.modes)
        options = [option.id for option in made.config_options or []]
        if self.request.model and "model" in options:
            await self.connection.set_config_option(
                config_id="model", session_id=made.session_id, value=self.request.model
            )
        return str(made.session_id)

    async def _free(self, session: str, modes: schema.SessionModeState | None) -> None:
        """Disable the agent's own sandbox, which does not start inside ours."""
        known = {mode.id for mode in modes.available_modes} if modes else set()
        if self.callbacks.free and _FREE_MODE in known:
            await self.connection.set_session_mode(session_id=session, mode_id=_FREE_MODE)

    async def turn(self) -> TurnOutcome | None:
        asked = asyncio.ensure_future(
            self.connection.prompt(session_id=self.session, prompt=[acp.text_block(self.request.prompt)])
        )
        overspent = asyncio.ensure_future(self.callbacks.overspent.wait())
        try:
            await asyncio.wait({asked, overspent}, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                for event in ending(
                    asked.result(), self.recorder, self.callbacks.cost_usd, broken=self.callbacks.broken
                ):
                    self.recorder.add(event)
        finally:
            for each in (asked, overspent):
                each.cancel()
        self.recorder.add(
            SessionStarted(session_handle(self.session, self.recorder.meter.before + self.recorder.meter.total))
        )
        return self.recorder.close(ended="stopped")

    async def cancel(self) -> None:
        """Ask the agent to stop, so that it can save its session; its process is ended afterwards."""
        if self.session:
            with suppress(Exception):
                await asyncio.wait_for(self.connection.cancel(session_id=self.session), _CANCEL_S)

    async def close(self) -> None:
        await self.callbacks.close()
        if self.connection:
            with suppress(Exception):
                await self.connection.close()


def ending(
    response: schema.PromptResponse, recorder: TurnRecorder, cost_usd: float | None, *, broken: bool = False
) -> Iterator[StreamEvent]:
    """Translate the end of a turn. Some agents report `end_turn` after an error that they sent as text; `broken` is
    Codex's marker for that."""
    if usage := response.usage:
        taken_in = usage.input_tokens + (usage.cached_read_tokens or 0) + (usage.cached_write_tokens or 0)
        yield UsageSample(whole=True, tokens_in=taken_in, tokens_out=usage.output_tokens, cost_usd=cost_usd)
    elif cost_usd is not None:
        yield UsageSample(whole=True, cost_usd=cost_usd)
    text = "".join(recorder.texts)
    if response.stop_reason == "cancelled":
        yield TurnCancelled(detail="stopped on request")
    elif response.stop_reason != "end_turn":
        yield TurnFailed(reason=_ENDINGS.get(response.stop_reason, Reason.AGENT_CRASHED), detail=response.stop_reason)
    elif broken or _COMPLAINTS.search(text) or (not usage and not recorder.acted and _is_known(text)):
        yield classify_error(text)
    else:
        yield TurnFinished(text="")


def _is_known(text: str) -> bool:
    return len(text) < 1_000 and classify_error(text).reason is not Reason.AGENT_CRASHED


def events_of(update: Any, calls: set[str]) -> Iterator[StreamEvent]:
    """Translate a session update; unknown ones yield nothing.

    `calls` are the ids of calls already reported: some agents report a call only when it ends.
    """
    match update:
        case schema.AgentMessageChunk(content=schema.TextContentBlock(text=text)):
            yield Text(text, continues=True)
        case schema.AgentThoughtChunk(content=schema.TextContentBlock(text=text)):
            yield Thought(text)
        case schema.ToolCallStart() | schema.ToolCallProgress():
            if update.tool_call_id not in calls:
                calls.add(update.tool_call_id)
                where = update.locations[0].path if update.locations else ""
                yield ToolCall(update.title or update.kind or "tool", where)
            yield from _changes(update.content)
            if update.status in ("completed", "failed"):
                yield ToolResult(str(update.raw_output or update.content)[:2_000])
        case schema.SessionInfoUpdate() if error := _of_codex(update, "error"):
            yield Notice(f"{error.get('message', '')}: {error.get('additionalDetails') or ''}")  # Codex retries


def _is_broken(update: Any, before: bool) -> bool:
    """Return whether Codex's thread status says that the following text is an error."""
    status = _of_codex(update, "threadStatus")
    return status.get("type") == "systemError" if status else before


def _of_codex(update: Any, name: str) -> dict[str, Any]:
    """Return an object from Codex's extension metadata."""
    meta = update.field_meta if isinstance(update, schema.SessionInfoUpdate) else None
    found = ((meta or {}).get("codex") or {}).get(name)
    return found if isinstance(found, dict) else {}


def _changes(content: Any) -> Iterator[StreamEvent]:
    for part in content or []:
        if isinstance(part, schema.FileEditToolCallContent):
            yield FileChange(part.path)


class AcpCallbacks:
    """Callbacks for the agent's requests. Implements the ACP library's `Client`; extra arguments are ignored."""

    def __init__(self, request: AgentRequest, recorder: TurnRecorder, scratch_dir: Path) -> None:
        self.request, self.recorder, self.scratch_dir = request, recorder, scratch_dir
        self.inside = SafeFolder(request.folder)
        self.free = is_sandboxed()
        self.replaying = False
        self.calls: set[str] = set()
        self.cost_usd: float | None = None
        self.broken = False
        self.overspent = asyncio.Event()
        self.terminals: dict[str, Terminal] = {}

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        if self.replaying:
            return
        with self.request.log.open("ab") as log:
            log.write(update.model_dump_json(exclude_none=True).encode() + b"\n")
        if isinstance(update, schema.UsageUpdate) and update.cost:
            self.cost_usd = update.cost.amount
            self.recorder.add(
                UsageSample(of="cost", cost_usd=max(0.0, update.cost.amount - self.recorder.meter.before.cost_usd))
            )
        self.broken = _is_broken(update, self.broken)
        for event in events_of(update, self.calls):
            self.recorder.add(event)
        if self.recorder.overspent:
            self.overspent.set()

    # --- permissions -----------------------------------------------------------------------------------------

    async def request_permission(
        self, session_id: str, tool_call: schema.ToolCallUpdate, options: list[schema.PermissionOption], **_: Any
    ) -> schema.RequestPermissionResponse:
        why = self._forbids(tool_call)
        if why:
            self.recorder.add(Notice(f"refused: {tool_call.title or tool_call.kind}: {why}"))
        wanted = ("reject_once", "reject_always") if why else ("allow_once", "allow_always")
        chosen = next((option for kind in wanted for option in options if option.kind == kind), None)
        if chosen is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        outcome = schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        return schema.RequestPermissionResponse(outcome=outcome)

    def _forbids(self, call: schema.ToolCallUpdate) -> str:
        """Return why a call is forbidden; empty if allowed. Calls of unknown kind are allowed only in a sandbox."""
        if call.kind in ("read", "search", "think"):
            return ""
        if call.kind in _CHANGING:
            diffs = [part.path for part in call.content or [] if isinstance(part, schema.FileEditToolCallContent)]
            paths = [*(location.path for location in call.locations or []), *diffs]
            return next((why for path in paths if (why := self._forbids_writing(path))), "")
        return "" if self.free else "not allowed without a sandbox"

    def _forbids_writing(self, path: str) -> str:
        try:
            name = self.inside.name(path)
        except OutsideFolder as error:
            return str(error)
        scope, role = self.request.scope, self.request.role
        return "" if scope is None or scope.may_write(role, name) else f"the {role} may not write {name}"

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        self.recorder.add(Question(message))
        return schema.CancelElicitationResponse(action="cancel")

    async def complete_elicitation(self, elicitation_id: str, **_: Any) -> None:
        pass

    # --- files -----------------------------------------------------------------------------------------------

    async def read_text_file(
        self, session_id: str, path: str, line: int | None = None, limit: int | None = None, **_: Any
    ) -> schema.ReadTextFileResponse:
        try:
            text = self.inside.read(path).decode("utf-8", errors="replace")
        except (OutsideFolder, FileNotFoundError, NotADirectoryError) as error:
            raise RequestError.resource_not_found(path) from error
        except OSError as error:
            raise RequestError.invalid_params({"path": path, "why": str(error)}) from error
        if line is not None or limit is not None:
            first = max(0, (line or 1) - 1)
            text = "".join(text.splitlines(keepends=True)[first : None if limit is None else first + limit])
        return schema.ReadTextFileResponse(content=text)

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> None:
        if why := self._forbids_writing(path):
            self.recorder.add(Notice(f"refused: {why}"))
            raise RequestError.invalid_params({"path": path, "why": why})
        try:
            self.inside.write(path, content.encode())
        except (OutsideFolder, OSError) as error:
            raise RequestError.invalid_params({"path": path, "why": str(error)}) from error
        self.recorder.add(FileChange(self.inside.name(path)))

    # --- terminals -------------------------------------------------------------------------------------------

    async def create_terminal(
        self,
        session_id: str,
        command: str,
        args: list[str] | None = None,
        env: list[schema.EnvVariable] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
        **_: Any,
    ) -> schema.CreateTerminalResponse:
        if not self.free:
            raise RequestError.invalid_request({"why": "commands are not allowed without a sandbox"})
        try:
            folder = self.inside.folder / self.inside.name(cwd) if cwd else self.inside.folder
        except OutsideFolder as error:
            raise RequestError.invalid_params({"cwd": cwd, "why": str(error)}) from error
        number = f"terminal-{len(self.terminals) + 1}"
        environment = self.request.env | {variable.name: variable.value for variable in env or []}
        self.terminals[number] = Terminal(
            _argv(command, args or []), folder, environment, self.scratch_dir / f"{number}.log", self.request.timeout_s,
            output_byte_limit,
        )  # fmt: skip
        return schema.CreateTerminalResponse(terminal_id=number)

    async def terminal_output(self, session_id: str, terminal_id: str, **_: Any) -> schema.TerminalOutputResponse:
        return self._terminal(terminal_id).output()

    async def wait_for_terminal_exit(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> schema.WaitForTerminalExitResponse:
        return await self._terminal(terminal_id).wait()

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: Any) -> None:
        await self._terminal(terminal_id).kill()

    async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> None:
        await self._terminal(terminal_id).kill()

    def _terminal(self, number: str) -> Terminal:
        if number not in self.terminals:
            raise RequestError.resource_not_found(number)
        return self.terminals[number]

    async def close(self) -> None:
        for terminal in self.terminals.values():
            await terminal.kill()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        pass


def _argv(command: str, args: list[str]) -> list[str]:
    """Build the argument list; some agents send a whole shell command line as the program."""
    return [command, *args] if args or shutil.which(command) else ["sh", "-c", command]


class Terminal:
    """A command run for the agent, in the agent's sandbox."""

    def __init__(
        self, argv: list[str], cwd: Path, env: dict[str, str], log: Path, timeout_s: float, limit: int | None
    ) -> None:
        self.log, self.limit = log, limit
        self.task = asyncio.ensure_future(_run(argv, cwd, env, log, timeout_s))

    def output(self) -> schema.TerminalOutputResponse:
        output = self.log.read_bytes() if self.log.exists() else b""
        kept = output[-self.limit :] if self.limit else output
        status = None
        if self.task.done() and not self.task.cancelled():
            status = schema.TerminalExitStatus(**_status(self.task.result()))
        text = kept.decode("utf-8", errors="replace")
        return schema.TerminalOutputResponse(output=text, truncated=len(kept) < len(output), exit_status=status)

    async def wait(self) -> schema.WaitForTerminalExitResponse:
        await asyncio.wait({self.task})
        ended = _status(self.task.result()) if not self.task.cancelled() else {"signal": "SIGKILL"}
        return schema.WaitForTerminalExitResponse(**ended)

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


async def _run(argv: list[str], cwd: Path, env: dict[str, str], log: Path, timeout_s: float) -> Ended:
    try:
        return await supervise(argv, cwd=cwd, env=env, output=log, timeout_s=timeout_s)
    except ProgramMissing as error:
        log.write_text(f"{error}\n")
        return Ended(exit_code=127, duration_s=0.0)


def _status(ended: Ended) -> dict[str, Any]:
    return {"exit_code": ended.exit_code} if ended.exit_code >= 0 else {"signal": str(ended.signal)}
