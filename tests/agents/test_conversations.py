"""The ACP client understands recorded conversations of the real programs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from ratchet.agents.drivers.acp import AcpAgent
from ratchet.agents.protocol import (
    SessionStarted,
    Text,
    ToolCall,
    ToolResult,
    TurnEvent,
    TurnFailed,
    TurnFinished,
    TurnOutcome,
)
from ratchet.core.failure import Reason
from ratchet.process.spawn import confined
from tests.agents.real import ACP
from tests.agents.support import CONVERSATIONS, make_ask
from tests.agents.test_acp import Free

NAMES = sorted(path.name for path in CONVERSATIONS.iterdir())
# What only a version to come says: in between, in known messages, and as a notice of another kind.
FUTURE = [
    {"sessionUpdate": "from_the_future", "content": [1]},
    {"sessionUpdate": "agent_message_chunk", "content": {"type": "hologram", "rays": 7}},
    {"sessionUpdate": 7},
]


def replay(tmp_path: Path, lines: list[str], *dies: str) -> tuple[list[TurnEvent], TurnOutcome]:
    (tmp_path / "work").mkdir()
    (recording := tmp_path / "recording").write_text("".join(f"{line}\n" for line in lines))
    reported: list[TurnEvent] = []
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2])}
    ask = make_ask(tmp_path / "work", env=env, timeout_s=30.0)
    with confined(Free()):
        program = AcpAgent(f"{sys.executable} -m tests.agents.acp_replay {recording} {' '.join(dies)}")
        return reported, asyncio.run(program.ask(ask, reported.append))


def lines_of(name: str, case: str) -> list[str]:
    return (CONVERSATIONS / name / f"{case}.jsonl").read_text().splitlines()


def test_every_program_we_converse_with_is_recorded() -> None:
    assert sorted(name.replace(" ", "-") for name in ACP) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_finished_turn_has_its_last_text_as_the_answer(tmp_path: Path, name: str) -> None:
    reported, outcome = replay(tmp_path, lines_of(name, "success"))
    assert isinstance(outcome, TurnFinished) and outcome.text == "All done."
    assert len({output.session.partition("#")[0] for output in reported if isinstance(output, SessionStarted)}) == 1
    calls = [output for output in reported if isinstance(output, ToolCall)]
    ended = [output for output in reported if isinstance(output, ToolResult)]
    assert len(calls) == len(ended) == 2, reported


@pytest.mark.parametrize(("case", "reason"), [("auth", Reason.AUTH), ("rate_limit", Reason.RATE_LIMITED)])
@pytest.mark.parametrize("name", NAMES)
def test_a_failure_has_the_reason_the_provider_gave(tmp_path: Path, name: str, case: str, reason: Reason) -> None:
    _, outcome = replay(tmp_path, lines_of(name, case))
    assert isinstance(outcome, TurnFailed)
    assert (outcome.reason, bool(outcome.detail)) == (reason, True)


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_kind_of_update_is_passed_over(tmp_path: Path, name: str) -> None:
    lines = lines_of(name, "success")
    params = next(json.loads(line)["params"] for line in lines if '"session/update"' in line)
    new = [
        json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params | {"update": each}})
        for each in FUTURE
    ]
    new.append(json.dumps({"jsonrpc": "2.0", "method": "_future/notice", "params": {}}))
    reported, outcome = replay(tmp_path, [each for line in lines for each in (line, *new)])
    assert isinstance(outcome, TurnFinished) and outcome.text == "All done."
    assert [output.text for output in reported if isinstance(output, Text)]


@pytest.mark.parametrize("name", NAMES)
def test_a_conversation_that_was_cut_off_is_a_failure(tmp_path: Path, name: str) -> None:
    lines = lines_of(name, "success")
    ends = next(number for number, line in enumerate(lines) if "stopReason" in line)
    _, outcome = replay(tmp_path, lines[:ends], "dies")
    assert isinstance(outcome, TurnFailed)
