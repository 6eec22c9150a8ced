"""Agents at work in a run: continued where they were cut off, replaced, waited for, nudged, and kept from telling."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from ratchet import config
from ratchet.agents.protocol import Text, TurnEvent
from ratchet.app.runs import RunService
from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.item import ItemStatus, ParkReason
from ratchet.core.redact import MARK
from ratchet.core.state import RunStatus
from ratchet.interfaces.terminal.live_view import ignore_event
from tests.app.test_workers import until
from tests.crash.test_kill import children_of
from tests.support import (
    AUDIT,
    COMPLETE,
    GOOD_SCRIPT,
    IMPLEMENT,
    RATCHET,
    REVIEW,
    carry_script,
    open_factory,
    quick_environment,
    ratchet,
    small_project,
)

# Speaks the line protocol and has sessions: asked without one it opens it, begins, and never ends.
IN_SESSIONS = """
    import json, os, sys, time
    command = json.loads(sys.stdin.readline())
    inputs = command["inputs"]
    def put(event, **payload):
        print(json.dumps({"kind": "event", "message_id": "e", "correlation_id": command["correlation_id"],
              "item": command["item"], "from": {"agent_type": "x"}, "event": event, "occurred_at": "now",
              "payload": payload}), flush=True)
    with open(sys.argv[1], "a") as asked:
        asked.write(json.dumps([inputs["session"], inputs["prompt"][:16], os.path.exists("half.py")]) + "\\n")
    if not inputs["session"]:
        open("half.py", "w").write("x = 1")
        put("progress", session="s-1")
        time.sleep(600)
    open("calc.py", "a").write("\\n\\ndef sub(a, b):\\n    return a - b\\n")
    put("completed", text="Subtract")
"""


def program(place: Path, body: str, *args: str | Path) -> str:
    path = place.parent / "bin" / "program.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(textwrap.dedent(body))
    return " ".join([sys.executable, str(path), *map(str, args)])


def of_kind(events: list[ev.Event], kind: type[ev.Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


# --- sessions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["topsecret-0123456789", f"line:{Path(sys.executable).name}"])
def test_killed_in_the_middle_of_a_turn_the_session_is_continued_from_the_recorded_tree(
    tmp_path: Path, key: str
) -> None:
    """Also when somebody's key is a word of the agent's name, which the ledger then does not hold."""
    place, asked = small_project(tmp_path), tmp_path / "asked"
    agent = f"line:{program(place, IN_SESSIONS, asked)}"
    settings = [f"workspace.root={tmp_path}/ws", f"roles.implementer.agent={agent}", "sandbox.mode=off"]
    flags = [word for setting in settings for word in ("--set", setting)]
    command = [*RATCHET, "run", "SPEC.md", "--agent", f"scripted:{tmp_path}/script.json", *flags]
    running = subprocess.Popen(
        command,
        cwd=place,
        env=quick_environment() | {"SOME_API_KEY": key},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    ledgers = place / ".ratchet" / "runs"
    until(lambda: any("session_opened" in path.read_text() for path in ledgers.glob("*/ledger.ndjson")))
    running.send_signal(signal.SIGKILL)
    running.wait()
    until(lambda: children_of(place) == [])
    done = ratchet("resume", "last", cwd=place, SOME_API_KEY=key)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads(line) for line in asked.read_text().splitlines())
    assert first == ["", "# Your task\nYou ", False] and second == ["s-1", "You were interru", False]


def test_a_step_that_comes_later_has_a_session_of_its_own(tmp_path: Path) -> None:
    script = GOOD_SCRIPT | {"audit": [AUDIT | {"session": "s-1"}, COMPLETE | {"session": "s-2"}]}
    state, events, _ = carry_script(tmp_path, script)
    assert state.status is RunStatus.COMPLETED and state.session is None
    assert [event.session for event in of_kind(events, ev.SessionOpened)] == ["s-1", "s-2"]


# --- who is asked -----------------------------------------------------------------------------------------------------


def test_when_an_agent_is_overloaded_the_next_of_its_fallbacks_is_asked(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"implement": [IMPLEMENT]}))
    script = GOOD_SCRIPT | {"implement": [{"fail": "overloaded", "write": {"junk.py": "x = 1\n"}}]}
    state, events, _ = carry_script(tmp_path, script, f'roles.implementer.fallback=["scripted:{other}"]')
    assert state.status is RunStatus.COMPLETED and not of_kind(events, ev.RunParked)
    (replaced,) = of_kind(events, ev.AgentReplaced)
    assert (replaced.agent, replaced.by) == ("scripted:script.json", "scripted:other.json")
    (proposed,) = of_kind(events, ev.ChangeProposed)
    assert proposed.paths == ["calc.py"] and "overloaded" in replaced.why


@pytest.mark.parametrize(
    ("flags", "reviewer"),
    [
        (["agent=claude"], "claude"),
        (["agent=claude", "roles.auditor.agent=codex"], "codex"),
        (["agent=claude", "roles.implementer.agent=codex"], "claude"),
        (["agent=claude", "roles.auditor.agent=codex", "roles.reviewer.agent=claude"], "claude"),
    ],
)
def test_with_two_agents_the_author_does_not_review_its_own_change(
    tmp_path: Path, flags: list[str], reviewer: str
) -> None:
    assert config.load(tmp_path, environ={}, flags=flags).config.agent_for("reviewer") == reviewer


def test_a_role_sees_its_own_variables_and_no_other_roles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONLY_MINE", "yes")
    place = small_project(tmp_path)
    says = "import os, sys; sys.stdin.read(); print(os.environ.get('ONLY_MINE'), os.environ.get('RATCHET_ROLE'))"
    agent = f"command:{program(place, says)}"
    received: list[str] = []
    with open_factory(place, "roles.auditor.env=ONLY_MINE", "tdd.audit_tries=1", agent=agent) as factory:
        _carried(factory, place, received)
    assert received[0].split() == ["yes", "auditor"]


# --- limits -----------------------------------------------------------------------------------------------------------

LIMITED = {"fail": "rate_limit", "say": "come back", "until": "2026-01-01T00:00:00Z", "session": "s-9"}


def test_a_limit_parks_the_run_which_a_worker_takes_up_by_itself_when_it_is_over(tmp_path: Path) -> None:
    state, _, place = carry_script(tmp_path, GOOD_SCRIPT | {"implement": [LIMITED]})
    assert state.parked and state.parked.reason is ParkReason.QUOTA and state.session
    (tmp_path / "script.json").write_text(json.dumps(GOOD_SCRIPT))
    agent = f"agent=scripted:{tmp_path}/script.json"
    done = ratchet("worker", "--once", "--set", f"workspace.root={tmp_path}/workspaces", "--set", agent, cwd=place)
    assert done.returncode == 0, done.stderr
    with open_factory(place) as factory:
        (row,) = factory.store.items().rows
    assert row.status is ItemStatus.COMPLETED and row.attempts == 0 and state.session.session == "s-9"


@pytest.mark.parametrize(("resume", "reason"), [("ask", ParkReason.QUESTION), ("never", ParkReason.QUOTA)])
def test_policy_can_forbid_to_come_back_by_itself(tmp_path: Path, resume: str, reason: ParkReason) -> None:
    state, _, place = carry_script(tmp_path, GOOD_SCRIPT | {"audit": [LIMITED]}, f"quota.resume={resume}")
    assert state.parked and state.parked.reason is reason and not state.parked.until
    with open_factory(place) as factory:
        (row,) = factory.store.items().rows
    assert row.status is ItemStatus.PARKED and not row.not_before


# --- stuck, and asking ------------------------------------------------------------------------------------------------


def test_an_agent_in_a_loop_is_nudged_with_its_work_recorded_and_then_has_failed_a_try(tmp_path: Path) -> None:
    circles = {"calls": [{"name": "ls", "result": "a", "times": 5}], "session": "s-1"}
    script = GOOD_SCRIPT | {"implement": [circles, IMPLEMENT]}
    state, events, _ = carry_script(tmp_path, script)
    assert state.status is RunStatus.COMPLETED
    (nudged,) = of_kind(events, ev.AgentNudged)
    (failed,) = of_kind(events, ev.AttemptFailed)
    assert "ls" in nudged.why and len(nudged.tree) == 40 and failed.reason is Reason.NO_PROGRESS


def test_a_question_parks_the_item_and_an_answer_by_policy_does_not(tmp_path: Path) -> None:
    script = GOOD_SCRIPT | {"audit": [{"ask": "which sign?"}]}
    state, _, _ = carry_script(tmp_path / "one", script)
    assert state.parked and state.parked.reason is ParkReason.QUESTION and "which sign?" in state.parked.detail
    _, events, _ = carry_script(tmp_path / "two", script, "roles.auditor.answer=minus")
    assert [nudged.why for nudged in of_kind(events, ev.AgentNudged)] == ["the agent asked: which sign?"] * 3


# --- secrets and mischief ---------------------------------------------------------------------------------------------

ROGUE = """
    import os, subprocess, sys
    sys.stdin.read()
    key = os.environ["FAKE_API_KEY"]
    print("my key is", key, "and", "sk-ant-" + "x" * 40)
    print("stderr too", key, file=sys.stderr)
    secret, outside = HIDDEN, OUTSIDE
    print("outside:", open(secret).read() if os.path.exists(secret) else "not to be seen")
    try:
        open(outside, "w").write("was here")
    except OSError as error:
        print("outside:", error)
    subprocess.Popen(["setsid", "sleep", "LINGERS"], start_new_session=True)
    open("ratchet.toml", "w").write("agent = 'mine'")
    open("tests/test_rogue.py", "w").write("from calc import sub\\n\\n\\ndef test_it():\\n    assert sub(3, 2) == 1\\n")
"""


def test_an_agent_that_prints_its_key_spawns_daemons_and_writes_what_it_may_not_is_contained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "topsecret-0123456789"
    monkeypatch.setenv("FAKE_API_KEY", key)
    hidden = tmp_path / "hidden" / "id"
    hidden.parent.mkdir()
    hidden.write_text("PRIVATE")
    place = small_project(tmp_path, {"implement": [IMPLEMENT], "review": [REVIEW]})
    lingers = f"617.{os.getpid()}"  # others may run the same test on this machine
    names = {"HIDDEN": repr(str(hidden)), "OUTSIDE": repr(str(tmp_path / "outside")), "LINGERS": lingers}
    body = re.sub("HIDDEN|OUTSIDE|LINGERS", lambda name: names[name[0]], ROGUE)
    rogue = f"command:{program(place, body)}"
    received: list[str] = []
    settings = [f"roles.auditor.agent={rogue}", "roles.auditor.env=FAKE_API_KEY", "tdd.iterations=1",
                f"sandbox.hide=[\"{hidden.parent}\"]"]  # fmt: skip
    with open_factory(place, *settings) as factory:
        _carried(factory, place, received)
        (run,) = factory.store.runs()
        ledger = b"".join(entry.data for entry in factory.store.entries(run.run))
        events = [ev.decode(entry.kind, entry.data) for entry in factory.store.entries(run.run)]
    kept = [path for path in (place / ".ratchet" / "runs").rglob("*") if path.is_file()]
    assert not [path for path in kept if key.encode() in path.read_bytes() or b"sk-ant-x" in path.read_bytes()]
    assert key.encode() not in ledger and MARK in received[0] and key not in received[0]
    assert "not to be seen" in received[0] and "PRIVATE" not in received[0] and not (tmp_path / "outside").exists()
    undone = [event for event in events if isinstance(event, ev.WritesUndone)]
    assert undone and undone[0].paths == ["ratchet.toml"]
    assert not [line for line in _command_lines() if line == f"sleep\0{lingers}\0"]


def _command_lines() -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.append((process / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return found


def _carried(factory: RunService, place: Path, received: list[str]) -> None:
    def tell(output: TurnEvent) -> None:
        if isinstance(output, Text):
            received.append(output.text)

    lease = factory.claim(factory.add(place / "SPEC.md").id)
    asyncio.run(factory.work(lease, watch=ignore_event, on_agent_event=tell))
