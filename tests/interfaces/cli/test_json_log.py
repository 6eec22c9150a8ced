"""`RATCHET_LOG=json`: what workers and errors write to stderr."""

from __future__ import annotations

import json
from pathlib import Path

from ratchet.interfaces.cli.json_log import json_line
from tests.support import ratchet, small_project


def test_a_worker_logs_json_with_the_ids_of_item_run_and_step(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    agent = f"scripted:{tmp_path}/script.json"
    env = {"RATCHET_LOG": "json", "XDG_STATE_HOME": str(tmp_path / "state")}
    ratchet("add", "SPEC.md", "--agent", agent, "--set", "tdd.sealed=false", cwd=place, **env)
    done = ratchet("worker", "--once", cwd=place, **env)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    run = next(line["run"] for line in lines if "claimed" in line["message"])
    events = [line for line in lines if "event" in line]
    assert {line["run"] for line in events} == {run}
    assert all(line["item"].startswith("item-") for line in events)
    (committed,) = [line for line in events if line["event"] == "step_committed"]
    assert (committed["step"], committed["level"]) == (5, "info")
    assert lines[-1]["message"] == f"{run} completed"


def test_an_error_is_json_too(tmp_path: Path) -> None:
    failed = ratchet("show", "run-nope", cwd=small_project(tmp_path), RATCHET_LOG="json")
    lines = [json.loads(line) for line in failed.stderr.splitlines()]
    assert [line["level"] for line in lines] == ["error", "error"]
    assert "no such run" in lines[0]["message"]


def test_a_line_of_a_child_process_is_passed_on() -> None:
    line = json_line("worker 7 started")
    assert json_line(line) == line
