"""Records what the real programs say over ACP, for the tests of our side: `python -m tests.agents.record [NAME…]`.

What is kept is the program's half of the conversation. Paths and addresses are those of no machine, and long lists of
models and commands are empty.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from ratchet.agents.drivers.acp import AcpAgent
from ratchet.agents.protocol import TurnOutcome
from ratchet.process.spawn import confined
from tests.agents.real import ACP, BIN, HERE, needed_by, pointed_at
from tests.agents.support import CONVERSATIONS, PLACE, make_ask
from tests.agents.test_acp import Free
from tests.model_server import Fault, ModelServer, Turn

TASK = Turn(run=["echo hello > greet.txt", "cat greet.txt"], say="All done.")
CASES = {"success": None, "auth": Fault(kind="auth"), "rate_limit": Fault(kind="rate_limit", after_s=1)}
_LISTS = ("availableCommands", "configOptions", "availableModels")
# A line is kept before it is passed on: the reader of the last one ends this process.
_KEEP = """import sys
for line in sys.stdin:
    print(line, end="", file=open(sys.argv[1], "a"))
    print(line, end="", flush=True)
"""
_PATIENCE_S = 400.0


def record(name: str, case: str, scratch: Path) -> TurnOutcome:
    work, raw = scratch / "work", scratch / "raw"
    work.mkdir()
    with ModelServer({"anyone": [TASK]}, lasting=CASES[case]) as server:
        os.environ |= pointed_at(server.address, scratch / "home")
        os.environ["PATH"] = f"{_listening(scratch, needed_by(name), raw)}:{os.environ['PATH']}"
        names = ("PATH", "HOME")
        ask = make_ask(
            work,
            prompt="# Your task\nWrite greet.txt",
            env={name: os.environ[name] for name in names},
            timeout_s=_PATIENCE_S,
        )
        with confined(Free()):
            outcome = asyncio.run(AcpAgent(ACP[name].removeprefix("acp:")).ask(ask, lambda _text: None))
        places = {
            str(work): PLACE,
            str(scratch): "/sandbox",
            str(HERE): "/sandbox",
            server.address: "http://127.0.0.1:1",
        }
    kept = CONVERSATIONS / name.replace(" ", "-") / f"{case}.jsonl"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text("".join(f"{line}\n" for line in _kept(raw.read_text(), places)))
    return outcome


def _listening(scratch: Path, program: str, raw: Path) -> Path:
    """A folder with a program of that name, which passes on what the real one says and keeps it."""
    folder = scratch / "bin"
    folder.mkdir()
    shim = folder / program
    keep = shlex.join([sys.executable, "-c", _KEEP, str(raw)])
    shim.write_text(f'#!/bin/sh\n{shlex.quote(str(BIN / program))} "$@" | {keep}\n')
    shim.chmod(0o755)
    return folder


def _kept(text: str, places: dict[str, str]) -> list[str]:
    for real, ours in places.items():
        text = text.replace(real, ours)
    return [json.dumps(_short(json.loads(line))) for line in text.splitlines() if line.startswith("{")]


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: [] if key in _LISTS else _short(each) for key, each in value.items()}
    return [_short(each) for each in value] if isinstance(value, list) else value


def main(names: list[str]) -> None:
    for name in names or ACP:
        for case in CASES:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
                print(name, case, record(name, case, Path(scratch)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
