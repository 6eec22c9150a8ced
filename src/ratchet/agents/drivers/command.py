"""`command:PROGRAM ARGS…`: drives any program that reads a prompt on stdin, edits files and exits."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from ratchet.agents.protocol import AgentRequest, OnEvent, Text, TurnFailed, TurnFinished, TurnOutcome, UsageReported
from ratchet.core.failure import Reason
from ratchet.core.receipt import Usage
from ratchet.errors import UsageError
from ratchet.process.supervise import supervise

_ANSWER_BYTES = 64_000


def split_command(command: str) -> list[str]:
    """Split a command line and check that its program exists."""
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"cannot parse the agent command: {error}", hint="check the quotes") from error
    if not argv or shutil.which(argv[0]) is None:
        raise UsageError(
            f"agent command not found: {argv[0] if argv else '(empty)'}",
            hint="install it, or use --agent 'command:/path/to/program ARGS'",
        )
    return argv


class CommandAgent:
    def __init__(self, command: str) -> None:
        self.argv = split_command(command)
        self.name = f"command:{Path(self.argv[0]).name}"
        # Absolute, since the program is started in the workspace.
        self.argv[0] = str(Path(shutil.which(self.argv[0]) or self.argv[0]).absolute())

    async def ask(self, request: AgentRequest, on_event: OnEvent) -> TurnOutcome:
        ended = await supervise(
            self.argv,
            cwd=request.folder,
            env=request.env_for(self.argv[0]) | {"RATCHET_ROLE": request.role, "RATCHET_ACTION": request.action},
            output=request.log,
            stdin=request.prompt.encode(),
            timeout_s=request.timeout_s,
            on_line=lambda _line: False,  # enables the size limit on its output
        )
        answer = request.log.read_bytes()[-_ANSWER_BYTES:].decode(errors="replace")
        on_event(Text(answer))
        on_event(UsageReported(Usage(), priced=False))  # any program: what it costs is not known
        if ended.timed_out:
            return TurnFailed(reason=Reason.AGENT_TIMED_OUT, detail=f"no end after {request.timeout_s:.0f} s")
        if ended.exit_code != 0:
            return TurnFailed(reason=Reason.AGENT_CRASHED, detail=f"exit {ended.exit_code}: {answer[-300:].strip()}")
        return TurnFinished(text=answer)
