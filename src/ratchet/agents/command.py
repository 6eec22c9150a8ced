"""`command:PROGRAM ARGS…`: any program that reads a prompt on stdin, edits files and exits."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from ratchet.agents import Ask, Failed, Finished, Outcome, Tell, Text
from ratchet.core.failure import Reason
from ratchet.errors import UsageError
from ratchet.supervision import supervise

_ANSWER_BYTES = 64_000


def words_of(command: str) -> list[str]:
    """A command line as words, the first of which is a program that is here."""
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"the agent command cannot be read: {error}", hint="check its quotes") from error
    if not argv or shutil.which(argv[0]) is None:
        raise UsageError(
            f"agent command not found: {argv[0] if argv else '(empty)'}",
            hint="install it, or write --agent 'command:/path/to/program ARGS'",
        )
    return argv


class CommandAgent:
    def __init__(self, command: str) -> None:
        self.argv = words_of(command)
        self.name = f"command:{Path(self.argv[0]).name}"
        # It is started in the workspace, where a relative path would mean another program.
        self.argv[0] = str(Path(shutil.which(self.argv[0]) or self.argv[0]).absolute())

    async def ask(self, ask: Ask, tell: Tell) -> Outcome:
        ended = await supervise(
            self.argv,
            cwd=ask.folder,
            env=ask.env_for(self.argv[0]) | {"RATCHET_ROLE": ask.role, "RATCHET_ACTION": ask.action},
            output=ask.log,
            stdin=ask.prompt.encode(),
            timeout_s=ask.timeout_s,
            hear=lambda _line: False,  # so that what it prints has an end
        )
        answer = ask.log.read_bytes()[-_ANSWER_BYTES:].decode(errors="replace")
        tell(Text(answer))
        if ended.timed_out:
            return Failed(reason=Reason.AGENT_TIMED_OUT, detail=f"no end after {ask.timeout_s:.0f} s")
        if ended.exit_code != 0:
            return Failed(reason=Reason.AGENT_CRASHED, detail=f"exit {ended.exit_code}: {answer[-300:].strip()}")
        return Finished(text=answer)
