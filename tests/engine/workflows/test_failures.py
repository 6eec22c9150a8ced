"""A failure at each step of each workflow is undone and recorded, and the run continues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.state import RunStatus
from tests.engine.workflows import scenes
from tests.engine.workflows.scenes import FIX_ADD, FIX_BOTH, FIX_NEG, MUL, SCENES, SUB, Script, play
from tests.support import GOOD_SCRIPT, IMPLEMENT, WRONG, carry_script, git

CRASH = {"fail": "crash", "say": "segmentation fault", "write": {"calc.py": "half a chan"}}


def of(events: list[ev.Event], kind: type[ev.Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def before_each(turn: dict[str, Any], script: Script) -> Script:
    return {action: [one for asked in turns for one in (turn, asked)] for action, turns in script.items()}


def with_gate(place: Path) -> None:
    (place / "ratchet.toml").write_text('[[gates]]\nname = "no-bad"\ncommand = "sh -c \'! grep -q BAD calc.py\'"\n')
    git("add", "-A", cwd=place)
    git("commit", "-q", "-m", "a gate", cwd=place)


@pytest.mark.parametrize("name", ["build", "fix", "loop"])
def test_every_agent_crashes_once_at_everything_and_the_end_is_the_same(tmp_path: Path, name: str) -> None:
    state, events, place = play(
        tmp_path, name, before_each(CRASH, SCENES[name].script), f"{name}.attempts=4", f"{name}.idle=4"
    )
    assert state.status is RunStatus.COMPLETED, state.detail
    assert [kept.subject for kept in state.commits] == SCENES[name].commits
    assert "half a chan" not in git("show", f"{state.head}:calc.py", cwd=place)
    reported = [event.why for event in events if hasattr(event, "why")]
    assert any("segmentation fault" in why for why in reported)


def test_attempts_of_a_swarm_that_crash_do_not_stop_the_others(tmp_path: Path) -> None:
    state, events, _ = play(tmp_path, "swarm", {"fix": [CRASH, CRASH, FIX_BOTH]})
    assert state.status is RunStatus.COMPLETED
    assert [event.how for event in of(events, ev.ForkEnded)] == ["failed", "failed", "won"]


@pytest.mark.parametrize(
    ("name", "good"),
    [("build", [SUB, MUL]), ("loop", [SUB, MUL]), ("fix", [FIX_ADD, FIX_NEG]), ("swarm", [FIX_BOTH, CRASH])],
)
def test_what_a_gate_refuses_is_not_kept_though_its_tests_are_green(
    tmp_path: Path, name: str, good: list[dict[str, Any]]
) -> None:
    action = "fix" if name in ("fix", "swarm") else "implement"
    bad = good[0] | {"say": "BAD", "append": {"calc.py": (good[0].get("append") or {"calc.py": ""})["calc.py"] + "\n# BAD\n"}}  # fmt: skip # noqa: E501
    scene = SCENES[name]
    place = scenes.lay_out(tmp_path, scene, scene.script | {action: [bad, *good]})
    with_gate(place)
    # One at a time: in a race the good attempt may win before the bad one is refused.
    state, events = scenes.carry(place, scene, "swarm.parallel=1")
    assert state.status is RunStatus.COMPLETED, state.detail
    refused = [event.why for event in events if isinstance(event, ev.StepReverted | ev.ForkEnded)]
    assert any("gate no-bad failed" in why for why in refused)
    assert "BAD" not in git("show", f"{state.head}:calc.py", cwd=place)


@pytest.mark.parametrize("name", SCENES)
def test_a_base_whose_tests_cannot_be_run_stops_the_run_before_anything_is_spent(tmp_path: Path, name: str) -> None:
    state, events, _ = play(tmp_path, name, None, "test.command=no-such-program --at-all")
    assert (state.status, state.failure) == (RunStatus.FAILED, Reason.MISCONFIGURED)
    assert of(events, ev.UsageMetered) == []


def strong(tmp_path: Path, script: Script) -> str:
    path = tmp_path / "strong.json"
    path.write_text(json.dumps(script))
    return f"scripted:{path}"


def test_after_two_reverts_a_fix_goes_to_the_stronger_agent(tmp_path: Path) -> None:
    worse = {"say": "worse", "append": {"calc.py": "\nX = 1\n"}}
    agent = strong(tmp_path, {"fix": [worse, worse, FIX_BOTH]})
    state, events, place = play(tmp_path, "fix", {"fix": [worse] * 3}, f"roles.fixer.escalate={agent}")
    assert state.status is RunStatus.COMPLETED and of(events, ev.Escalated) == [ev.Escalated(role="fixer", tries=2)]
    fixers = [event.agent for event in of(events, ev.UsageMetered) if event.role == "fixer"]
    assert fixers == ["scripted:script.json"] * 2 + ["scripted:strong.json"]
    assert "Ratchet-Agent: scripted:strong.json" in git("show", "-s", "--format=%B", state.head, cwd=place)


def test_in_tdd_the_stronger_agent_takes_over_one_test_only(tmp_path: Path) -> None:
    wrong = {"say": "guess", "append": {"calc.py": WRONG}}
    agent = strong(tmp_path, {"implement": [wrong, IMPLEMENT]})
    settings = [f"roles.implementer.escalate={agent}", "roles.implementer.escalate_after=1"]
    state, events, _ = carry_script(tmp_path, GOOD_SCRIPT | {"implement": [wrong]}, *settings)
    assert state.status is RunStatus.COMPLETED and state.escalated == ""
    assert [(event.role, event.tries) for event in of(events, ev.Escalated)] == [("implementer", 1)]
