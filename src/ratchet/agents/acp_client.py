"""Our side of an ACP conversation: what the agent tells, and what it asks of us, answered by the role's policy.

Files are read and written by us, outside of any sandbox: so by name only inside the workspace, and through no link.
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

from ratchet.agents import (
    Ask,
    Cancelled,
    Failed,
    FileChange,
    Finished,
    Noticed,
    Outcome,
    Question,
    SessionOpened,
    Text,
    Thought,
    ToolCall,
    ToolEnded,
)
from ratchet.agents.faults import complaint
from ratchet.agents.hearing import Heard, Hearing, Metered
from ratchet.agents.native import handle
from ratchet.agents.workfiles import Inside, LeadsOutside
from ratchet.core.failure import Reason
from ratchet.process import Finished as Ended
from ratchet.process import ProgramMissing, contained
from ratchet.supervision import supervise

__all__ = ["Conversation", "RequestError"]

_CHANGING = ("edit", "delete", "move")
# At the beginning of what was said; goose's own form also after what it had begun to say.
_COMPLAINTS = re.compile(
    r"\A\s*(ran into this error|\[?api error|error:)|Ran into this error[^:\n]*: .*Please (retry|try again)",
    re.IGNORECASE | re.DOTALL,
)
_CANCEL_S = 1.0
_FREE_MODE = "agent-full-access"  # Codex's
_ENDINGS = {
    "max_tokens": Reason.CONTEXT_OVERFLOW,
    "max_turn_requests": Reason.NO_PROGRESS,
    "refusal": Reason.AGENT_REFUSED,
}


class Conversation:
    """One turn over one connection."""

    def __init__(self, ask: Ask, hearing: Hearing, place: Path, *, serves_files: bool) -> None:
        self.ask, self.hearing, self.serves_files = ask, hearing, serves_files
        self.desk = Desk(ask, hearing, place)
        self.session = ""
        self.connection: Any = None

    async def open(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, session: str) -> None:
        self.connection = acp.connect_to_agent(cast(acp.Client, self.desk), writer, reader)
        files = schema.FileSystemCapabilities(read_text_file=self.serves_files, write_text_file=self.serves_files)
        able = await self.connection.initialize(
            protocol_version=acp.PROTOCOL_VERSION,
            client_capabilities=schema.ClientCapabilities(fs=files, terminal=contained()),
            client_info=schema.Implementation(name="ratchet", version="1"),
        )
        resumes = bool(able.agent_capabilities and able.agent_capabilities.load_session)
        self.session = (session and resumes and await self._load(session)) or await self._begin()
        self.hearing.take(SessionOpened(self.session))

    async def _load(self, session: str) -> str:
        """Go on where it was; what it tells of the past on the way is not news."""
        self.desk.deaf = True
        try:
            loaded = await self.connection.load_session(cwd=self.desk.inside.shown, session_id=session, mcp_servers=[])
            await self._free(session, loaded.modes if loaded else None)
        except RequestError as error:
            self.hearing.take(Noticed(f"the session {session} cannot be resumed: {error}"))
            return ""
        finally:
            self.desk.deaf = False
        return session

    async def _begin(self) -> str:
        made = await self.connection.new_session(cwd=self.desk.inside.shown, mcp_servers=[])
        await self._free(made.session_id, made.modes)
        options = [option.id for option in made.config_options or []]
        if self.ask.model and "model" in options:
            await self.connection.set_config_option(config_id="model", session_id=made.session_id, value=self.ask.model)
        return str(made.session_id)

    async def _free(self, session: str, modes: schema.SessionModeState | None) -> None:
        """In our sandbox an agent needs none of its own, which would not start in there."""
        known = {mode.id for mode in modes.available_modes} if modes else set()
        if self.desk.free and _FREE_MODE in known:
            await self.connection.set_session_mode(session_id=session, mode_id=_FREE_MODE)

    async def turn(self) -> Outcome | None:
        asked = asyncio.ensure_future(
            self.connection.prompt(session_id=self.session, prompt=[acp.text_block(self.ask.prompt)])
        )
        overspent = asyncio.ensure_future(self.desk.overspent.wait())
        try:
            await asyncio.wait({asked, overspent}, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                for heard in ending(asked.result(), self.hearing, self.desk.cost_usd, broken=self.desk.broken):
                    self.hearing.take(heard)
        finally:
            for each in (asked, overspent):
                each.cancel()
        self.hearing.take(SessionOpened(handle(self.session, self.hearing.meter.before + self.hearing.meter.total)))
        return self.hearing.close(ended="it was stopped")

    async def cancel(self) -> None:
        """It may still write down where it was; it is ended in any case."""
        if self.session:
            with suppress(Exception):
                await asyncio.wait_for(self.connection.cancel(session_id=self.session), _CANCEL_S)

    async def close(self) -> None:
        await self.desk.close()
        if self.connection:
            with suppress(Exception):
                await self.connection.close()


def ending(
    response: schema.PromptResponse, hearing: Hearing, cost_usd: float | None, *, broken: bool = False
) -> Iterator[Heard]:
    """What the end of a turn means. Pure. `end_turn` is also said after an error that was only told as text: by some
    with a sign that they are `broken`."""
    if usage := response.usage:
        taken_in = usage.input_tokens + (usage.cached_read_tokens or 0) + (usage.cached_write_tokens or 0)
        yield Metered(whole=True, tokens_in=taken_in, tokens_out=usage.output_tokens, cost_usd=cost_usd)
    elif cost_usd is not None:
        yield Metered(whole=True, cost_usd=cost_usd)
    said = "".join(hearing.texts)
    if response.stop_reason == "cancelled":
        yield Cancelled(detail="it was told to stop")
    elif response.stop_reason != "end_turn":
        yield Failed(reason=_ENDINGS.get(response.stop_reason, Reason.AGENT_CRASHED), detail=response.stop_reason)
    elif broken or _COMPLAINTS.search(said) or (not usage and not hearing.acted and _is_known(said)):
        yield complaint(said)
    else:
        yield Finished(text="")


def _is_known(said: str) -> bool:
    return len(said) < 1_000 and complaint(said).reason is not Reason.AGENT_CRASHED


def told(update: Any, calls: set[str]) -> Iterator[Heard]:
    """What a session update means; unknown ones mean nothing. `calls` are those told already: some programs tell of
    a call only when it is over."""
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
                yield ToolEnded(str(update.raw_output or update.content)[:2_000])
        case schema.SessionInfoUpdate() if error := _of_codex(update, "error"):
            yield Noticed(f"{error.get('message', '')}: {error.get('additionalDetails') or ''}")  # it tries again


def _is_broken(update: Any, before: bool) -> bool:
    """Codex says with its thread's status that what it says next is an error; with another one that it got over it."""
    status = _of_codex(update, "threadStatus")
    return status.get("type") == "systemError" if status else before


def _of_codex(update: Any, name: str) -> dict[str, Any]:
    """What Codex tells beside the protocol."""
    meta = update.field_meta if isinstance(update, schema.SessionInfoUpdate) else None
    found = ((meta or {}).get("codex") or {}).get(name)
    return found if isinstance(found, dict) else {}


def _changes(content: Any) -> Iterator[Heard]:
    for part in content or []:
        if isinstance(part, schema.FileEditToolCallContent):
            yield FileChange(part.path)


class Desk:
    """What the agent can ask of us. Satisfies the library's Client; every call may carry more than we know of."""

    def __init__(self, ask: Ask, hearing: Hearing, place: Path) -> None:
        self.ask, self.hearing, self.place = ask, hearing, place
        self.inside = Inside(ask.folder)
        self.free = contained()
        self.deaf = False
        self.calls: set[str] = set()
        self.cost_usd: float | None = None
        self.broken = False
        self.overspent = asyncio.Event()
        self.terminals: dict[str, Terminal] = {}

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        if self.deaf:
            return
        with self.ask.log.open("ab") as log:
            log.write(update.model_dump_json(exclude_none=True).encode() + b"\n")
        if isinstance(update, schema.UsageUpdate) and update.cost:
            self.cost_usd = update.cost.amount
            self.hearing.take(
                Metered(of="cost", cost_usd=max(0.0, update.cost.amount - self.hearing.meter.before.cost_usd))
            )
        self.broken = _is_broken(update, self.broken)
        for heard in told(update, self.calls):
            self.hearing.take(heard)
        if self.hearing.overspent:
            self.overspent.set()

    # --- permissions -----------------------------------------------------------------------------------------

    async def request_permission(
        self, session_id: str, tool_call: schema.ToolCallUpdate, options: list[schema.PermissionOption], **_: Any
    ) -> schema.RequestPermissionResponse:
        why = self._forbids(tool_call)
        if why:
            self.hearing.take(Noticed(f"refused: {tool_call.title or tool_call.kind}: {why}"))
        wanted = ("reject_once", "reject_always") if why else ("allow_once", "allow_always")
        chosen = next((option for kind in wanted for option in options if option.kind == kind), None)
        if chosen is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        outcome = schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        return schema.RequestPermissionResponse(outcome=outcome)

    def _forbids(self, call: schema.ToolCallUpdate) -> str:
        """Why not; empty when it may. What kind of call it is, where it says; else a sandbox must hold it."""
        if call.kind in ("read", "search", "think"):
            return ""
        if call.kind in _CHANGING:
            diffs = [part.path for part in call.content or [] if isinstance(part, schema.FileEditToolCallContent)]
            paths = [*(place.path for place in call.locations or []), *diffs]
            return next((why for path in paths if (why := self._forbids_writing(path))), "")
        return "" if self.free else "there is no sandbox to run it in"

    def _forbids_writing(self, path: str) -> str:
        try:
            name = self.inside.name(path)
        except LeadsOutside as error:
            return str(error)
        scope, role = self.ask.scope, self.ask.role
        return "" if scope is None or scope.may_write(role, name) else f"the {role} may not write {name}"

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        self.hearing.take(Question(message))
        return schema.CancelElicitationResponse(action="cancel")

    async def complete_elicitation(self, elicitation_id: str, **_: Any) -> None:
        pass

    # --- files -----------------------------------------------------------------------------------------------

    async def read_text_file(
        self, session_id: str, path: str, line: int | None = None, limit: int | None = None, **_: Any
    ) -> schema.ReadTextFileResponse:
        try:
            text = self.inside.read(path).decode("utf-8", errors="replace")
        except (LeadsOutside, FileNotFoundError, NotADirectoryError) as error:
            raise RequestError.resource_not_found(path) from error
        except OSError as error:
            raise RequestError.invalid_params({"path": path, "why": str(error)}) from error
        if line is not None or limit is not None:
            first = max(0, (line or 1) - 1)
            text = "".join(text.splitlines(keepends=True)[first : None if limit is None else first + limit])
        return schema.ReadTextFileResponse(content=text)

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> None:
        if why := self._forbids_writing(path):
            self.hearing.take(Noticed(f"refused: {why}"))
            raise RequestError.invalid_params({"path": path, "why": why})
        try:
            self.inside.write(path, content.encode())
        except (LeadsOutside, OSError) as error:
            raise RequestError.invalid_params({"path": path, "why": str(error)}) from error
        self.hearing.take(FileChange(self.inside.name(path)))

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
            raise RequestError.invalid_request({"why": "there is no sandbox to run commands in"})
        try:
            folder = self.inside.folder / self.inside.name(cwd) if cwd else self.inside.folder
        except LeadsOutside as error:
            raise RequestError.invalid_params({"cwd": cwd, "why": str(error)}) from error
        number = f"terminal-{len(self.terminals) + 1}"
        environment = self.ask.env | {variable.name: variable.value for variable in env or []}
        self.terminals[number] = Terminal(
            _argv(command, args or []), folder, environment, self.place / f"{number}.log", self.ask.timeout_s,
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
    """Some agents send a whole line for the shell, though the protocol wants a program."""
    return [command, *args] if args or shutil.which(command) else ["sh", "-c", command]


class Terminal:
    """A command the agent has us run, confined as the agent is."""

    def __init__(
        self, argv: list[str], cwd: Path, env: dict[str, str], log: Path, timeout_s: float, limit: int | None
    ) -> None:
        self.log, self.limit = log, limit
        self.task = asyncio.ensure_future(_run(argv, cwd, env, log, timeout_s))

    def output(self) -> schema.TerminalOutputResponse:
        said = self.log.read_bytes() if self.log.exists() else b""
        kept = said[-self.limit :] if self.limit else said
        status = None
        if self.task.done() and not self.task.cancelled():
            status = schema.TerminalExitStatus(**_status(self.task.result()))
        text = kept.decode("utf-8", errors="replace")
        return schema.TerminalOutputResponse(output=text, truncated=len(kept) < len(said), exit_status=status)

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
