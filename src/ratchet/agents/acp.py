"""`acp:PROGRAM ARGS…`: any agent that speaks the Agent Client Protocol over its stdin and stdout.

The process is ours: the protocol's library is only handed the pipes, so that it ends as every other child does.
"""

from __future__ import annotations

import asyncio
import shutil
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from ratchet.agents import Ask, Failed, Noticed, Outcome, Said, Tell
from ratchet.agents.command import words_of
from ratchet.agents.faults import complaint, dated
from ratchet.agents.hearing import Hearing
from ratchet.agents.native import Program, Setting, make_homes, make_place, present, split_handle
from ratchet.agents.undertone import Undertone, errors_of, tail
from ratchet.errors import UsageError
from ratchet.process import contained
from ratchet.supervision import conversing

# Whose login, variables and folders a bridge uses.
_KIN = {"claude-agent-acp": "claude", "claude-code-acp": "claude", "codex-acp": "codex"}
_GRACE_S = 2.0  # its turn is over, and some do not listen to a polite signal
_NATIVE = ("claude", "codex", "gemini", "opencode", "goose")


class AcpAgent:
    def __init__(self, command: str) -> None:
        if find_spec("acp") is None:
            raise UsageError(
                "the library for ACP is not installed", hint="pip install 'ratchet-factory[acp]', or use another agent"
            )
        self.argv = words_of(command)
        program = Path(self.argv[0]).name
        self.name = f"acp:{program}"
        self.argv[0] = str(Path(shutil.which(self.argv[0]) or self.argv[0]).absolute())
        self.kin = _kin_of(program)

    async def ask(self, ask: Ask, tell: Tell) -> Outcome:
        session, before = split_handle(ask.session)
        ears = Undertone(ask, logs=self.kin.logs, turn_logs=self.kin.turn_logs) if self.kin else Undertone(ask)

        def hear(said: Said) -> None:
            ears.heard(said)
            tell(said)

        hearing = Hearing(ask, hear, model=ask.model, before=before)
        place = make_place(ask)
        make_homes(self.kin)
        try:
            async with (
                asyncio.timeout(ask.timeout_s),
                conversing(
                    self.argv,
                    cwd=ask.folder,
                    env=ask.env_for(self.argv[0]) | self._environment(ask, place),
                    errors=errors_of(ask),
                    grace_s=_GRACE_S,
                    writable=[place],
                ) as (reader, writer),
            ):
                outcome = await self._talk(ask, hearing, (reader, writer), session=session, place=place)
        except TimeoutError:
            return ears.timed_out()
        except asyncio.CancelledError:
            if limited := ears.complaint():
                tell(Noticed(limited.detail))
            raise
        except ConnectionError:
            outcome = None
        outcome = outcome or hearing.close(ended="the connection was lost", stderr=tail(errors_of(ask)))
        return dated(outcome, now=datetime.now().astimezone()) if isinstance(outcome, Failed) else outcome

    async def _talk(
        self,
        ask: Ask,
        hearing: Hearing,
        pipes: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        *,
        session: str,
        place: Path,
    ) -> Outcome | None:
        # Here and not above: the library takes a while to load, and is there only for who wants it.
        from ratchet.agents.acp_client import Conversation, RequestError  # noqa: PLC0415

        # Gemini does not understand our `no such file`, and so cannot make one: it works on files itself.
        serves_files = not (self.kin and self.kin.name == "gemini")
        conversation = Conversation(ask, hearing, place, serves_files=serves_files)
        try:
            await conversation.open(*pipes, session=session)
            return await conversation.turn()
        except RequestError as error:
            return complaint(f"{error} {getattr(error, 'data', '') or ''}")
        except asyncio.CancelledError:
            await conversation.cancel()
            raise
        finally:
            await conversation.close()

    def _environment(self, ask: Ask, place: Path) -> dict[str, str]:
        """What the same program gets when it is run natively; but it asks us where no sandbox holds it."""
        if not self.kin:
            return {}
        free = contained()
        env = self.kin.launch(ask, Setting(place=place, free=free)).env
        asking = {} if free else {"GOOSE_MODE": "approve"}
        return present(self.kin.variables) | env | asking


def _kin_of(program: str) -> Program | None:
    name = _KIN.get(program, program)
    return import_module(f"ratchet.agents.{name}").PROGRAM if name in _NATIVE else None
