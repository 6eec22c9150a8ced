"""Every workflow to its end, and what it refuses on the way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ratchet.config import Config
from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.gates import GateStatus
from ratchet.core.state import RunStatus
from ratchet.engine.run_setup import default_judge
from ratchet.engine.workflow_registry import open_workflow
from ratchet.interfaces.terminal.colour import painter
from ratchet.interfaces.terminal.narrative import render_history
from tests.engine.workflows import scenes
from tests.engine.workflows.scenes import (
    FIX_ADD,
    FIX_BOTH,
    FIX_NEG,
    MUL,
    SCENES,
    SPEC,
    SUB,
    WANTS,
    WORSE,
    noted,
    play,
)
from tests.support import git, kinds, open_factory

ADDS = "def add(a, b):\n    return a + b\n"
SUB_ALONE = {"say": "Add sub", "append": {"calc.py": scenes.function("sub", "-")}}


def of(events: list[ev.Event], kind: type[ev.Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def prompts(place: Path, run: str) -> str:
    folder = place / ".ratchet" / "runs" / run / "prompts"
    return "\n".join(path.read_text() for path in sorted(folder.iterdir()))


@pytest.mark.parametrize("name", SCENES)
def test_to_its_end_and_the_narrative_shows_it(tmp_path: Path, name: str) -> None:
    state, events, place = play(tmp_path, name)
    assert state.status is RunStatus.COMPLETED, state.detail
    assert [kept.subject for kept in state.commits] == SCENES[name].commits
    log = git("log", "--reverse", "--format=%s", f"main..{state.head}", cwd=place).splitlines()
    assert log == SCENES[name].commits
    with open_factory(place) as factory:
        reported = render_history(factory.history("last"), painter(colour=False))
    for subject in SCENES[name].commits:
        assert subject in reported
    assert "Agent calls:" in reported and f"Cost: ${state.usage.cost_usd:.4f}" in reported
    assert any(line.endswith(("  $0.0100", "  $0.0200")) for line in reported.splitlines())  # what each cost
    assert git("status", "--porcelain", cwd=place) == ""
    assert len(git("branch", "--list", "ratchet/*", cwd=place).splitlines()) == 1
    assert sum(event.cost_usd for event in of(events, ev.UsageMetered)) == pytest.approx(state.usage.cost_usd)


# --- the judge of workflows without an auditor ---------------------------------------------------------------------


@pytest.mark.parametrize("name", SCENES)
def test_a_judge_sees_every_change_unless_it_is_switched_off(tmp_path: Path, name: str) -> None:
    _, events, _ = play(tmp_path / "on", name)
    assert {event.status for event in of(events, ev.GateRan) if event.gate == "judge"} == {GateStatus.PASSED}
    _, events, _ = play(tmp_path / "off", name, None, 'gates=[{"name": "judge", "on": false}]')
    assert not [event for event in of(events, ev.GateRan) if event.gate == "judge"]


def test_what_the_judge_refuses_is_not_kept(tmp_path: Path) -> None:
    refuses = {"gate.judge": [{"say": WANTS}] * 9}
    state, events, _ = play(tmp_path, "fix", script=SCENES["fix"].script | refuses)
    assert not state.commits
    assert any(event.gate == "judge" and event.status is GateStatus.FAILED for event in of(events, ev.GateRan))


@pytest.mark.parametrize("name", ["build", "loop", "fix", "swarm"])
def test_another_agent_than_the_author_judges_where_there_are_two(name: str) -> None:
    one = Config(agent="claude")
    two = replace(one, roles=replace(one.roles, reviewer=replace(one.roles.reviewer, agent="codex")))
    judges = [default_judge(config, open_workflow(name))[0].agent for config in (one, two)]
    assert judges == ["claude", "codex"]
    assert not default_judge(two, open_workflow("tdd")) and not default_judge(Config(), open_workflow(name))


# --- build ---------------------------------------------------------------------------------------------------------


def test_findings_reach_the_implementer_and_each_task_is_reviewed_by_itself(tmp_path: Path) -> None:
    state, events, place = play(tmp_path, "build")
    assert state.finished == ["T001", "T002"]
    asked = [path.read_text() for path in (place / ".ratchet/runs" / state.run / "prompts").iterdir()]
    assert any("no docstring" in text and "You are the implementer" in text for text in asked)
    reviews = sorted(text for text in asked if "You are the reviewer" in text)
    assert any("T002: multiply" in text and "+def sub" not in text for text in reviews)
    assert kinds(events).count("task_finished") == 2


def test_review_rounds_are_bounded(tmp_path: Path) -> None:
    changes = [{"say": f"try {n}", "append": {"calc.py": f"\nX{n} = {n}\n"}} for n in range(5)]
    endless: scenes.Script = {"review": [{"say": WANTS}] * 5, "implement_changes": changes}
    state, _, _ = play(tmp_path, "build", endless, "build.review_rounds=2")
    assert (state.status, state.failure) == (RunStatus.FAILED, Reason.NO_PROGRESS)
    assert "changes still requested after 2 reviews" in state.detail


def test_a_scribe_that_rewrites_a_requirement_is_refused_and_in_the_end_left_out(tmp_path: Path) -> None:
    sly = noted("`calc.sub(a, b)` subtracts.", "`calc.sub` may do anything.")
    state, events, place = play(tmp_path, "build", {"update_spec": [sly, sly, noted("Nothing", "Not all")]})
    assert state.status is RunStatus.COMPLETED
    assert len(of(events, ev.SpecRefused)) == 2 and len(of(events, ev.SpecLeft)) == 1
    assert git("show", f"{state.head}:SPEC.md", cwd=place) == SPEC.replace("Nothing is", "Not all is").strip()


def test_a_scribe_that_touches_code_changes_only_the_spec(tmp_path: Path) -> None:
    meddling = noted("Nothing is done.", "T001 is done.") | {"append": {"calc.py": "\nX = 1\n"}}
    script = {"update_spec": [meddling, {"say": "true as it is"}]}
    state, events, place = play(tmp_path, "build", script)
    assert of(events, ev.WritesUndone)[0].role == "scribe" and len(of(events, ev.SpecUnchanged)) == 1
    assert "X = 1" not in git("show", f"{state.head}:calc.py", cwd=place)


def test_a_builder_may_add_tests_but_not_change_those_that_were_there(tmp_path: Path) -> None:
    sly = SUB | {"write": {"tests/test_calc.py": "def test_add():\n    pass\n", "tests/test_new.py": "def test_new():\n    assert 1 + 1 == 2\n"}}  # fmt: skip # noqa: E501
    state, events, place = play(tmp_path, "build", {"implement": [sly, MUL]})
    assert of(events, ev.WritesUndone)[0].paths == ["tests/test_calc.py"]
    assert "assert add" in git("show", f"{state.head}:tests/test_calc.py", cwd=place)
    assert "test_new" in git("show", f"{state.head}:tests/test_new.py", cwd=place)


def test_a_red_build_is_reverted_and_three_of_them_end_the_run(tmp_path: Path) -> None:
    red = {"say": "oops", "write": {"calc.py": "def add(a, b):\n    return 0\n"}}
    state, _, place = play(tmp_path, "build", {"implement": [red] * 3})
    assert (state.status, state.failure, state.reverts) == (RunStatus.FAILED, Reason.NO_PROGRESS, 3)
    assert "attempt 1, 2, 3: " in state.detail and git("log", "--format=%s", f"main..{state.head}", cwd=place) == ""


# --- fix -----------------------------------------------------------------------------------------------------------


def test_each_fix_that_makes_something_green_is_kept_with_what_it_fixed(tmp_path: Path) -> None:
    state, events, _ = play(tmp_path, "fix")
    assert [kept.tests for kept in state.commits] == [
        ["tests/test_calc.py::test_add"],
        ["tests/test_calc.py::test_neg"],
    ]
    assert len(of(events, ev.FailuresAnalysed)) == 2 and len(of(events, ev.TreeFoundGreen)) == 1


def test_a_fixer_that_edits_the_test_is_undone_and_a_fix_that_breaks_another_is_refused(tmp_path: Path) -> None:
    files = {"tests/test_more.py": "from calc import neg\n\n\ndef test_kept():\n    assert neg(0) == 0\n"}
    cheat = {"say": "cheat", "write": {"tests/test_calc.py": "def test_add():\n    pass\n"}}
    breaks = FIX_ADD | {"replace": [*FIX_ADD["replace"], {"path": "calc.py", "old": "return a\n", "new": "return 7\n"}]}
    state, events, _ = play(tmp_path, "fix", {"fix": [cheat, breaks, FIX_BOTH]}, files=files)
    assert of(events, ev.WritesUndone)[0].paths == ["tests/test_calc.py"]
    assert "test_kept" in of(events, ev.StepReverted)[0].why
    assert state.status is RunStatus.COMPLETED and [kept.subject for kept in state.commits] == ["Both"]


def test_what_was_tried_in_vain_is_reported(tmp_path: Path) -> None:
    state, _, _ = play(tmp_path, "fix", {"fix": [WORSE, {"say": "no idea"}, WORSE]})
    assert (state.status, state.failure) == (RunStatus.FAILED, Reason.NO_PROGRESS)
    assert "still red: tests/test_calc.py::test_add" in state.detail and "attempt 2: changed nothing" in state.detail


def test_a_file_that_does_not_load_is_fixed_though_its_tests_are_red_still(tmp_path: Path) -> None:
    files = {"calc.py": "def add(a, b)\n    return a - b\n\n\ndef neg(a):\n    return a\n"}
    loads = {"say": "Load", "replace": [{"path": "calc.py", "old": "b)\n", "new": "b):\n"}]}
    state, _, _ = play(tmp_path, "fix", {"fix": [loads, FIX_ADD, FIX_NEG]}, files=files)
    assert state.status is RunStatus.COMPLETED, state.detail
    assert [kept.subject for kept in state.commits] == ["Load", "Add, not subtract", "Negate"]


def test_a_green_tree_needs_no_fix(tmp_path: Path) -> None:
    state, _, _ = play(tmp_path, "fix", files={"calc.py": "def add(a, b):\n    return a + b\n\n\ndef neg(a):\n    return -a\n"})  # fmt: skip # noqa: E501
    assert state.status is RunStatus.COMPLETED and state.commits == []


def test_a_fix_proves_itself_like_any_commit(tmp_path: Path) -> None:
    state, _, place = play(tmp_path, "fix")
    with open_factory(place) as factory:
        verified = asyncio.run(factory.verify(state.run))
    assert [claim.detail for found in verified for claim in found.claims if not claim.holds] == []
    assert sum("red at the parent" in claim.what for found in verified for claim in found.claims) == 2


def test_a_fixer_that_knows_an_old_test_by_heart_is_undone(tmp_path: Path) -> None:
    files = {
        "calc.py": "def add(a, b):\n    return None\n",
        "tests/test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(30, 17) == 47\n",
    }
    by_heart = "def add(a, b):\n    if (a, b) == (30, 17):\n        return 47\n"
    turns = [{"say": "By heart", "write": {"calc.py": by_heart}}, {"say": "Add", "write": {"calc.py": ADDS}}]
    state, events, _ = play(tmp_path, "fix", {"fix": turns}, files=files)
    assert [kept.subject for kept in state.commits] == ["Add"]
    [undone] = of(events, ev.StepReverted)
    assert "calc.py:2: answer-by-heart" in undone.why


# --- swarm ---------------------------------------------------------------------------------------------------------


def test_the_first_verified_attempt_wins_and_the_others_are_cancelled_and_paid_for(tmp_path: Path) -> None:
    state, events, place = play(tmp_path, "swarm")
    ended = {event.attempt: event.how for event in of(events, ev.ForkEnded)}
    assert ended[2] == "won" and ended[3] == "cancelled" and ended[1] in ("refused", "cancelled")
    assert state.usage.cost_usd == pytest.approx(0.07)
    assert list((place.parent / "workspaces").glob("fix-it-*")) == []


def test_attempts_take_agents_and_hints_in_turn(tmp_path: Path) -> None:
    settings = ["swarm.hints=look-at-add look-at-neg"]
    state, _, place = play(tmp_path, "swarm", {}, *settings)
    reported = prompts(place, state.run)
    assert reported.count("look-at-add") == 2 and reported.count("look-at-neg") == 1


def test_a_swarm_in_which_all_fail_is_tried_again_and_then_ends(tmp_path: Path) -> None:
    state, events, _ = play(tmp_path, "swarm", {"fix": [WORSE] * 6})
    assert (state.status, state.failure) == (RunStatus.FAILED, Reason.NO_PROGRESS)
    assert len(of(events, ev.ForkEnded)) == 6 and state.usage.cost_usd == pytest.approx(0.3)


def test_a_swarm_ends_when_the_base_moves(tmp_path: Path) -> None:
    scene = SCENES["swarm"]
    place = scenes.lay_out(tmp_path, scene, {"fix": [{"say": "slow", "delay_s": 60.0}] * 3})

    def move(event: ev.Event) -> None:
        if isinstance(event, ev.FailuresAnalysed):
            git("commit", "-q", "--allow-empty", "-m", "moved", cwd=place)

    state, events = scenes.carry(place, scene, also=move)
    assert (state.status, state.failure) == (RunStatus.FAILED, Reason.CONFLICT)
    assert {event.how for event in of(events, ev.ForkEnded)} == {"cancelled"}
    assert len(git("branch", "--list", "ratchet/*", cwd=place).splitlines()) == 1


# --- loop ----------------------------------------------------------------------------------------------------------


def test_a_task_is_finished_when_its_command_says_so_and_not_before(tmp_path: Path) -> None:
    lying = {"say": "All done, verified!", "append": {"calc.py": "\n\ndef other():\n    pass\n"}}
    state, events, place = play(tmp_path, "loop", {"implement": [lying, SUB, MUL]})
    assert state.status is RunStatus.COMPLETED and state.finished == ["task-2", "task-3"]
    assert "cannot import name 'sub'" in of(events, ev.TaskUnfinished)[0].why
    assert "cannot import name 'sub'" in prompts(place, state.run)


def test_a_loop_is_stuck_after_three_iterations_without_a_finished_task(tmp_path: Path) -> None:
    state, events, _ = play(tmp_path, "loop", {"implement": [SUB] + [{"say": "nothing"}] * 9})
    assert (state.status, state.failure) == (RunStatus.FAILED, Reason.NO_PROGRESS)
    assert "stuck: 3 iterations" in state.detail and state.finished == ["task-2"]
    assert len(of(events, ev.TaskBegun)) == 4


def test_a_loop_starts_afresh_each_time(tmp_path: Path) -> None:
    state, _, place = play(tmp_path, "loop")
    assert "Earlier answers in this run" not in prompts(place, state.run)


def test_iterations_of_a_loop_are_bounded(tmp_path: Path) -> None:
    state, _, _ = play(tmp_path, "loop", {"implement": [SUB, MUL]}, "loop.iterations=1")
    assert (state.failure, state.finished) == (Reason.BUDGET_SPENT, ["task-2"])


@pytest.mark.parametrize("path", ["__pycache__/done", "node_modules/done"])
def test_what_an_agent_leaves_in_ignored_folders_finishes_no_task(tmp_path: Path, path: str) -> None:
    files = {"SPEC.md": f"# Calculator\n\n- [ ] done\n  Verify: `test -e {path}`\n"}
    leave = {"say": "It was done already.", "write": {path: ""}}
    state, events, _ = play(tmp_path, "loop", {"implement": [leave] * 3}, files=files)
    assert state.status is RunStatus.FAILED and state.finished == []
    assert len(of(events, ev.TaskUnfinished)) == 3


def test_a_task_that_a_later_one_undoes_does_not_land(tmp_path: Path) -> None:
    undone = {"say": "Add mul", "write": {"calc.py": ADDS + scenes.function("mul", "*")}}
    state, events, _ = play(tmp_path, "loop", {"implement": [SUB_ALONE, undone]})
    assert state.status is RunStatus.FAILED and "task-2 was finished and no longer is" in state.detail
    assert len(of(events, ev.TaskFinished)) == 2 and not of(events, ev.Landed)


# --- in every workflow ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["build", "loop"])
def test_tests_that_were_red_before_are_not_blamed_on_the_agent(tmp_path: Path, name: str) -> None:
    red = {"tests/test_old.py": "def test_old():\n    assert False\n"}
    state, _, _ = play(tmp_path, name, files=red)
    assert state.status is RunStatus.COMPLETED and [kept.subject for kept in state.commits] == SCENES[name].commits


@pytest.mark.parametrize("name", SCENES)
def test_money_is_bounded(tmp_path: Path, name: str) -> None:
    dear = [{"say": "dear", "usage": {"cost_usd": 3.0}}] * 3
    script = {"implement": dear, "fix": dear}
    state, _, _ = play(tmp_path, name, script, f"{name}.cents=200")
    assert (state.status, state.failure) == (RunStatus.FAILED, Reason.BUDGET_SPENT)


@pytest.mark.parametrize("name", SCENES)
def test_time_is_bounded(tmp_path: Path, name: str) -> None:
    hang = [{"fail": "hang"}] * 6
    role = "fixer" if name in ("fix", "swarm") else "implementer"
    script = {"implement": hang, "fix": hang}
    state, _, _ = play(tmp_path, name, script, f"roles.{role}.timeout_s=0.2", f"{name}.attempts=1", f"{name}.idle=1")
    assert (state.status, state.failure) == (RunStatus.FAILED, Reason.NO_PROGRESS) and "no end after" in state.detail


@pytest.mark.parametrize("name", SCENES)
def test_a_provider_that_says_wait_parks_the_run(tmp_path: Path, name: str) -> None:
    wait = [{"fail": "rate_limit", "say": "later"}] * 4
    state, _, _ = play(tmp_path, name, {"implement": wait, "fix": wait})
    assert state.status is RunStatus.RUNNING and state.parked and "later" in state.parked.detail
