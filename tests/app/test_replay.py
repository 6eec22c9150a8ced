"""`ratchet replay`: a real run, replayed from its ledger."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ratchet.app.replay import read_alternative, replay_run
from ratchet.core.receipt import Price
from ratchet.core.state import RunStatus
from ratchet.errors import UsageError
from ratchet.interfaces.cli import main
from tests.support import AUDIT, COMPLETE, IMPLEMENT, REVIEW, carry, open_factory, small_project

WRONG = {"say": "Multiply", "append": {"calc.py": "\n\ndef sub(a, b):\n    return a * b\n"}}


def test_the_planted_difference_is_found_in_a_real_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = {"audit": [AUDIT, COMPLETE], "implement": [WRONG, IMPLEMENT], "review": [REVIEW]}
    place = small_project(tmp_path, script)
    with open_factory(place) as factory:
        state = carry(factory, place / "SPEC.md")
        report = replay_run(factory, state.run, {"same": ["attempts=2"], "strict": ["tdd.attempts=1"]})
    same, strict = report.replayed
    assert report.recorded.status is RunStatus.COMPLETED
    assert same.difference is None
    assert (same.status, same.steps, same.usage) == (RunStatus.COMPLETED, report.recorded.steps, report.recorded.usage)
    assert strict.difference
    assert strict.difference.recorded.startswith("implement → change_proposed")
    assert strict.difference.replayed == "test_abandoned"
    assert "(audit): the recording has no answer" in strict.unknown

    assert main(["replay", state.run, "-C", str(place), "--policy", "same:attempts=2", "--set", "attempts=1"]) == 0
    shown = capsys.readouterr().out
    assert "same: no different step" in shown
    assert f"attempts=1: first different at step {strict.difference.step} (implement)" in shown
    assert "unknown from step" in shown


@pytest.mark.parametrize(
    "setting", ["attempts", "sandbox.mode=off", "fix.attempts=1", "attempts=many", "gates.lint.colour=red"]
)
def test_a_setting_that_a_replay_cannot_answer_is_refused(setting: str) -> None:
    with pytest.raises(UsageError):
        read_alternative("other", [setting], "tdd", {})


def test_settings_become_bounds_gates_and_routing() -> None:
    settings = ["tdd.attempts=1", "gates.lint.on_fail=warn", "agent=codex:gpt-5", "roles.reviewer.model=own"]
    other = msgspec.to_builtins(read_alternative("other", settings, "tdd", {"own": Price(in_usd=1.0)}))
    assert other["bounds"] == {"attempts": 1}
    assert other["gates"]["lint"]["on_fail"] == "warn"
    assert other["agents"][""] == {"agent": "codex:gpt-5", "price": {"in_usd": 1.25, "out_usd": 10.0}}
    assert other["agents"]["reviewer"] == {"agent": "own", "price": {"in_usd": 1.0, "out_usd": 0.0}}
