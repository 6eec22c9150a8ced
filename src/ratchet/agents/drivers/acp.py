"""`acp:PROGRAM ARGS…`: drives any agent that implements the Agent Client Protocol on stdio.

Ratchet starts the process and passes only the pipes to the ACP library, so that the process is supervised as usual.
"""

from __future__ import annotations

import asyncio
import shutil
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

from ratchet.agents.adapters import load_program
from ratchet.agents.drivers.cli_stream import (
    CliProgram,
    LaunchSettings,
    lent_by,
    make_home_dirs,
    make_scratch_dir,
    parse_session_handle,
    present_variables,
)
from ratchet.agents.drivers.command import split_command
from ratchet.agents.protocol import AgentRequest, Notice, OnEvent, TurnEvent, TurnFailed, TurnOutcome
from ratchet.agents.provider_errors import classify_error, with_retry_time
from ratchet.agents.stderr_monitor import StderrMonitor, stderr_log_of, tail
from ratchet.agents.turn_result import TurnRecorder
from ratchet.errors import UsageError
from ratchet.plugins import install_extra
from ratchet.process.spawn import is_sandboxed
from ratchet.process.supervise import interactive_process

# Bridges use the login, variables and folders of these agents.
_BRIDGED_AGENTS = {"claude-agent-acp": "claude", "claude-code-acp": "claude", "codex-acp": "codex"}
_GRACE_S = 2.0  # the turn is over, and some agents ignore SIGTERM
_NATIVE = ("claude", "codex", "gemini", "opencode", "goose")


class AcpAgent:
    def __init__(self, command: str) -> None:
        if find_spec("acp") is None:
            raise UsageError("ACP agents need the `acp` extra", hint=f"{install_extra('acp')}, or use another agent")
        self.argv = split_command(command)
        program = Path(self.argv[0]).name
        self.name = f"acp:{program}"
        self.argv[0] = str(Path(shutil.which(self.argv[0]) or self.argv[0]).absolute())
        self.native = _native_program(program)
        self.lent = lent_by(self.native)

    async def ask(self, request: AgentRequest, on_event: OnEvent) -> TurnOutcome:
        session, before = parse_session_handle(request.session)
        monitor = (
            StderrMonitor(request, logs=self.native.logs, turn_logs=self.native.turn_logs)
            if self.native
            else StderrMonitor(request)
        )

        def on_agent_event(event: TurnEvent) -> None:
            monitor.on_event(event)
            on_event(event)

        recorder = TurnRecorder(request, on_agent_event, model=request.model, before=before)
        scratch_dir = make_scratch_dir(request)
        make_home_dirs(self.native)
        try:
            async with (
                asyncio.timeout(request.timeout_s),
                interactive_process(
                    self.argv,
                    cwd=request.folder,
                    env=request.env_for(self.argv[0]) | self._environment(request, scratch_dir),
                    errors=stderr_log_of(request),
                    grace_s=_GRACE_S,
                    writable=[scratch_dir],
                ) as (reader, writer),
            ):
                outcome = await self._converse(
                    request, recorder, (reader, writer), session=session, scratch_dir=scratch_dir
                )
        except TimeoutError:
            return monitor.timed_out()
        except asyncio.CancelledError:
            if limited := monitor.provider_error():
                on_event(Notice(limited.detail))
            raise
        except ConnectionError:
            outcome = None
        outcome = outcome or recorder.close(ended="connection lost", stderr=tail(stderr_log_of(request)))
        return with_retry_time(outcome, now=datetime.now().astimezone()) if isinstance(outcome, TurnFailed) else outcome

    async def _converse(
        self,
        request: AgentRequest,
        recorder: TurnRecorder,
        pipes: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        *,
        session: str,
        scratch_dir: Path,
    ) -> TurnOutcome | None:
        # Imported here: the ACP library is slow to import and optional.
        from ratchet.agents.drivers.acp_client import Conversation, RequestError  # noqa: PLC0415

        # Gemini cannot handle our not-found error and so cannot create files: it accesses files itself.
        serves_files = not (self.native and self.native.name == "gemini")
        conversation = Conversation(request, recorder, scratch_dir, serves_files=serves_files)
        try:
            await conversation.open(*pipes, session=session)
            return await conversation.turn()
        except RequestError as error:
            return classify_error(f"{error} {getattr(error, 'data', '') or ''}")
        except asyncio.CancelledError:
            await conversation.cancel()
            raise
        finally:
            await conversation.close()

    def _environment(self, request: AgentRequest, scratch_dir: Path) -> dict[str, str]:
        """Return the variables of the native adapter; without a sandbox goose must ask for permission."""
        if not self.native:
            return {}
        free = is_sandboxed()
        env = self.native.launch(request, LaunchSettings(scratch_dir=scratch_dir, free=free)).env
        asking = {} if free else {"GOOSE_MODE": "approve"}
        return present_variables(self.native.variables) | env | asking


def _native_program(program: str) -> CliProgram | None:
    name = _BRIDGED_AGENTS.get(program, program)
    return load_program(name) if name in _NATIVE else None
