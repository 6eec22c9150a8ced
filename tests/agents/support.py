"""What the agent tests share: an ask, an ear, and the recorded transcripts."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from ratchet.agents import Ask, Outcome, Said
from ratchet.agents.hearing import Hearing
from ratchet.agents.native import Program
from ratchet.core.roles import Role

TRANSCRIPTS = Path(__file__).parent / "transcripts"
CONVERSATIONS = Path(__file__).parent / "conversations"
PLACE = "/sandbox/work"  # the workspace of what was recorded
RECORDED = sorted(path.name for path in TRANSCRIPTS.iterdir())


def program(name: str) -> Program:
    found: Program = import_module(f"ratchet.agents.{name}").PROGRAM
    return found


def make_ask(folder: Path, **more: Any) -> Ask:
    words: dict[str, Any] = {
        "run": "run-1", "item": "item-1", "role": Role.IMPLEMENTER, "action": "implement", "turn": 1, "key": "ik:1",
        "snapshot": "snap-1", "prompt": "Do it.", "inputs": {}, "folder": folder, "log": folder.parent / "turn.log",
        "env": {}, "timeout_s": 60.0,
    }  # fmt: skip
    return Ask(**words | more)


def lines_of(name: str, case: str) -> list[bytes]:
    return next(TRANSCRIPTS.glob(f"{name}/{case}.*")).read_bytes().splitlines()


def replay(name: str, lines: list[bytes], **ask: Any) -> tuple[list[Said], Outcome]:
    """What a program's recorded lines are told as, and what they come to."""
    told: list[Said] = []
    of = program(name)
    hearing = Hearing(make_ask(Path("/w"), **ask), told.append, model="m", must_speak=of.must_speak)
    # Of those that write files for it, the recording is those files, one after the other.
    files = b"\n".join(lines).split(b"\f\n") if name in ("aider", "mini") else []
    for heard in [*(heard for line in lines for heard in of.read(line)), *of.read_results(files)]:
        hearing.take(heard)
    return told, hearing.close(ended="exit 0")
