"""What the agent tests share: an ask, an ear, and the recorded transcripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ratchet.agents.adapters import load_program
from ratchet.agents.drivers.cli_stream import CliProgram
from ratchet.agents.protocol import AgentRequest, TurnEvent, TurnOutcome
from ratchet.agents.turn_result import TurnRecorder
from ratchet.core.roles import Role

TRANSCRIPTS = Path(__file__).parent / "transcripts"
CONVERSATIONS = Path(__file__).parent / "conversations"
PLACE = "/sandbox/work"  # the workspace of what was recorded
RECORDED = sorted(path.name for path in TRANSCRIPTS.iterdir())


def program(name: str) -> CliProgram:
    return load_program(name)


def make_ask(folder: Path, **more: Any) -> AgentRequest:
    words: dict[str, Any] = {
        "run": "run-1", "item": "item-1", "role": Role.IMPLEMENTER, "action": "implement", "turn": 1, "key": "ik:1",
        "snapshot": "snap-1", "prompt": "Do it.", "inputs": {}, "folder": folder, "log": folder.parent / "turn.log",
        "env": {}, "timeout_s": 60.0,
    }  # fmt: skip
    return AgentRequest(**words | more)


def lines_of(name: str, case: str) -> list[bytes]:
    return next(TRANSCRIPTS.glob(f"{name}/{case}.*")).read_bytes().splitlines()


def replay(name: str, lines: list[bytes], **ask: Any) -> tuple[list[TurnEvent], TurnOutcome]:
    """Return the events of a program's recorded lines, and their outcome."""
    reported: list[TurnEvent] = []
    of = program(name)
    hearing = TurnRecorder(make_ask(Path("/w"), **ask), reported.append, model="m", must_speak=of.must_speak)
    # Of those that write files for it, the recording is those files, one after the other.
    files = b"\n".join(lines).split(b"\f\n") if name in ("aider", "mini") else []
    for received in [*(received for line in lines for received in of.read(line)), *of.read_results(files)]:
        hearing.add(received)
    return reported, hearing.close(ended="exit 0")
