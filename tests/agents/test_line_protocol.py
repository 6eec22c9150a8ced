"""The line protocol from both sides: the adapter, the scripted agent that speaks it, and the checks for any other."""

from __future__ import annotations

import asyncio
import shlex
import sys
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ratchet.agents import conformance
from ratchet.agents.conformance import CHECKS, ConformanceCheck, ConformanceTarget, check
from ratchet.agents.drivers.line import LineAgent
from ratchet.agents.protocol import (
    FileChange,
    Notice,
    Question,
    SessionStarted,
    ToolCall,
    ToolResult,
    TurnEvent,
    TurnFailed,
    TurnFinished,
    TurnOutcome,
    UsageReported,
)
from ratchet.core import line_protocol
from ratchet.core.failure import Reason
from tests.agents.support import make_ask
from tests.support import ratchet

KEY = "ik:" + "a" * 64


def scripted(tmp_path: Path, *turns: dict[str, Any]) -> str:
    script = tmp_path / "script.json"
    script.write_bytes(msgspec.json.encode({"implement": list(turns)}))
    return shlex.join([sys.executable, "-m", "ratchet", "agent", "scripted", "--script", str(script)])


def program(tmp_path: Path, body: str, *args: str) -> str:
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(body))
    return shlex.join([sys.executable, str(path), *args])


def ask(tmp_path: Path, command: str, **more: Any) -> tuple[TurnOutcome, list[TurnEvent]]:
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    reported: list[TurnEvent] = []
    words = make_ask(folder, **{"key": KEY, "timeout_s": 20.0, **more})
    return asyncio.run(LineAgent(command).ask(words, reported.append)), reported


def test_every_event_of_a_turn_comes_through(tmp_path: Path) -> None:
    turn = {
        "say": "made it", "write": {"a.txt": "a"}, "session": "s-7", "usage": {"tokens_in": 3, "cost_usd": 0.1},
        "calls": [{"name": "grep", "detail": "x", "result": "y"}],
        "patch": "--- /dev/null\n+++ b/b.txt\n@@ -0,0 +1 @@\n+b\n",
    }  # fmt: skip
    outcome, reported = ask(tmp_path, scripted(tmp_path, turn))
    assert outcome == TurnFinished(text="made it")
    assert [type(output) for output in reported] == [
        SessionStarted,
        ToolCall,
        ToolResult,
        UsageReported,
        FileChange,
        FileChange,
    ]
    assert (tmp_path / "work" / "a.txt").read_text() == "a" and (tmp_path / "work" / "b.txt").read_text() == "b\n"


@pytest.mark.parametrize(
    ("turn", "reason", "detail"),
    [
        ({"fail": "crash"}, Reason.AGENT_CRASHED, "exited without an answer"),
        ({"fail": "wrong_version"}, Reason.AGENT_CRASHED, "for snap-000000000000"),
        ({"fail": "rate_limit", "say": "429, try again in 20 minutes"}, Reason.RATE_LIMITED, "429"),
        ({"fail": "overloaded"}, Reason.OVERLOADED, "overloaded"),
        ({"fail": "auth"}, Reason.AUTH, "auth"),
    ],
)
def test_each_kind_of_failure_is_distinguished(
    tmp_path: Path, turn: dict[str, Any], reason: Reason, detail: str
) -> None:
    outcome, _ = ask(tmp_path, scripted(tmp_path, turn))
    assert isinstance(outcome, TurnFailed) and outcome.reason is reason and detail in outcome.detail
    assert bool(outcome.until) == (reason is Reason.RATE_LIMITED)


def test_one_that_hangs_is_ended_at_its_deadline(tmp_path: Path) -> None:
    outcome, _ = ask(tmp_path, scripted(tmp_path, {"fail": "hang"}), timeout_s=1.5)
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.AGENT_TIMED_OUT


@pytest.mark.parametrize("fault", ["garbage", "oversize"])
def test_lines_that_are_too_long_are_reported_and_skipped(tmp_path: Path, fault: str) -> None:
    outcome, reported = ask(tmp_path, scripted(tmp_path, {"fail": fault, "say": "still here"}))
    assert outcome == TurnFinished(text="still here") and any(isinstance(output, Notice) for output in reported)


def test_a_question_is_reported(tmp_path: Path) -> None:
    _, reported = ask(tmp_path, scripted(tmp_path, {"ask": "which?"}))
    assert Question("which?") in reported


def test_a_prompt_too_long_for_a_line_is_in_a_file(tmp_path: Path) -> None:
    reads = """
        import json, sys
        command = json.loads(sys.stdin.readline())
        size = len(open(command["inputs"]["prompt_path"]).read())
        print(json.dumps({"kind": "event", "message_id": "e", "correlation_id": command["correlation_id"],
              "item": command["item"], "from": {"agent_type": "x"}, "event": "completed", "occurred_at": "now",
              "payload": {"text": str(size)}}), flush=True)
    """
    outcome, _ = ask(tmp_path, program(tmp_path, reads), prompt="p" * 300_000)
    assert outcome == TurnFinished(text="300000")


# --- conformance --------------------------------------------------------------------------------------------------


def checked(tmp_path: Path, command: str) -> dict[str, ConformanceCheck]:
    async def all_of() -> list[ConformanceCheck]:
        trial = ConformanceTarget(
            argv=shlex.split(command), env={"PATH": "/usr/bin:/bin"}, folder=tmp_path / "checked",
            action=line_protocol.Action.IMPLEMENT, prompt="Do.", timeout_s=10.0, handshake_s=0.5,
        )  # fmt: skip
        return [finding async for finding in check(trial)]

    return {finding.check: finding for finding in asyncio.run(all_of())}


def test_the_scripted_agent_keeps_every_promise_also_from_the_command_line(tmp_path: Path) -> None:
    command = scripted(tmp_path, {"say": "done", "append": {"log.txt": "once\n"}, "delay_s": 0.1})
    done = ratchet("agent", "check", command, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok  ") == len(CHECKS)


def test_a_program_that_breaks_all_rules_fails_their_checks(tmp_path: Path) -> None:
    """It has no heartbeat, answers about something else, does the work again, and dies of what it cannot read."""
    careless = """
        import json, sys
        for line in sys.stdin:
            command = json.loads(line)
            print(json.dumps({"kind": "event", "message_id": "e", "correlation_id": "other", "item": "other",
                  "from": {"agent_type": "x"}, "event": "completed", "occurred_at": "now"}), flush=True)
    """
    found = checked(tmp_path, program(tmp_path, careless))
    assert "no output" in found["handshake"].detail
    assert "ids other" in found["answers"].detail
    assert not found["malformed"].ok and not found["version"].ok and not found["repeat"].ok
    assert not any(finding.ok for finding in found.values())


def test_a_program_that_says_nothing_is_not_waited_for_ten_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conformance, "SILENCE_S", 0.5)
    found = checked(tmp_path, "sleep 600")
    assert "no output" in found["answers"].detail and "skipped" in found["end"].detail


# Keeps every promise but the one that its argument names.
ALMOST = """
    import json, sys
    breaks, asked = sys.argv[1], 0
    def put(message):
        sys.stdout.write(json.dumps(message) + "\\n")
        sys.stdout.flush()
    def beat(status):
        put({"kind": "heartbeat", "agent": {"agent_type": "x"}, "seq": asked, "status": status,
             "pid": 1, "uptime_s": 0.0, "last_activity_at": "now"})
    beat("ready")
    for line in sys.stdin:
        try:
            command = json.loads(line)
        except ValueError:
            if breaks == "malformed":
                raise
            continue
        if command.get("kind") != "command":
            continue
        asked += 1
        beat("busy")
        version = {"snapshot_id": "snap-000000000000"} if breaks == "version" else command["version"]
        put({"kind": "event", "message_id": "e", "correlation_id": command["correlation_id"], "item": command["item"],
             "from": {"agent_type": "x"}, "event": "completed", "occurred_at": "now", "observed_version": version,
             "payload": {"asked": asked if breaks == "repeat" else 0}})
"""


@pytest.mark.parametrize(
    ("breaks", "broken"),
    [
        ("nothing", set()),
        ("repeat", {"repeat"}),
        ("version", {"version"}),
        ("malformed", {"malformed"}),
    ],
)
def test_a_program_that_breaks_one_rule_fails_only_its_check(tmp_path: Path, breaks: str, broken: set[str]) -> None:
    found = checked(tmp_path, program(tmp_path, ALMOST, breaks))
    assert {name for name, finding in found.items() if not finding.ok} == broken, found
