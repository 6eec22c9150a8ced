"""Learnings in whole runs: written from the ledger, delivered beside the failure, and obeyed by the next run."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.app.runs import RunService
from ratchet.core import events as ev
from ratchet.core.learning import Learning, LearningKind, Matched, TrialArm, learning_id
from ratchet.core.state import RunState, RunStatus
from ratchet.engine.learning_library import LearningLibrary
from ratchet.errors import EnvironmentCannot
from tests.support import (
    GOOD_SCRIPT,
    IMPLEMENT,
    WRONG,
    carry,
    git,
    open_factory,
    small_project,
)

LEXICAL = "learnings.embedder=off"
SHARES = ("learnings.held_out=0", "learnings.placebo=0", "learnings.prompt=0", LEXICAL, "sandbox.mode=off")
TOKEN = "ghp_0123456789abcdefABCDEF0123456789abcd"
GUESS = {"say": "Guess the order", "append": {"calc.py": WRONG}}
TWICE = GOOD_SCRIPT | {"implement": [GUESS, IMPLEMENT]}


def events_of(factory: RunService, state: RunState) -> list[ev.Event]:
    return [event for event in factory.history(state.run).events if isinstance(event, ev.Event)]


def prompt_of(factory: RunService, state: RunState, role: str) -> str:
    steps = [e.step for e in events_of(factory, state) if isinstance(e, ev.StepStarted) and e.action == role]
    return (factory.directory(state.run).path / "prompts" / f"step-{steps[0]}.md").read_text()


def test_a_run_teaches_what_failed_and_what_worked_and_writes_it_once(tmp_path: Path) -> None:
    place = small_project(tmp_path, TWICE)
    with open_factory(place, *SHARES) as factory:
        state = carry(factory, place / "SPEC.md")
        (one,) = factory.store.learnings(str(place))
        assert "what worked is “Subtract” in calc.py" in one.content and "“Guess the order”" in one.content
        assert (one.run, one.commit) == (state.run, state.head) and len(one.fingerprints) >= 2
        assert factory.store.unlearnt_runs() == []


def test_a_worker_that_was_killed_before_it_wrote_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = small_project(tmp_path, TWICE)
    with open_factory(place, *SHARES) as factory:

        def killed(*_: object) -> None:
            raise EnvironmentCannot("the power is gone")

        with monkeypatch.context() as broken:
            broken.setattr(type(factory.store), "learn_run", killed)
            state = carry(factory, place / "SPEC.md")
        assert factory.store.learnings() == [] and factory.store.unlearnt_runs() == [state.run]
        library = LearningLibrary(factory.store, factory.config.learnings, factory.redactor)
        assert (library.learn_from_runs(), library.learn_from_runs()) == (1, 0)
        (one,) = factory.store.learnings(str(place))
        factory.store.learn_run(state.run, [one], [])
        assert factory.store.learning(one.id).seen == 1


# Obeys what its packet says about the failure; else it guesses first, and corrects itself when that was reverted.
OBEDIENT = """#!/bin/sh
prompt=$(cat)
case $RATCHET_ACTION in
audit) [ -e tests/test_sub.py ] && echo REQUIREMENTS_COMPLETE && exit
mkdir -p tests; cat >tests/test_sub.py <<'END'
from calc import sub


def test_sub():
    assert sub(3, 2) == 1
END
;;
implement) case $prompt in
*"subtract the second from the first"*|*"still red"*) printf '\\n\\ndef sub(a, b):\\n    return a - b\\n' >>calc.py ;;
*) printf '\\n\\ndef sub(a, b):\\n    return b - a\\n' >>calc.py ;;
esac ;;
review|gate.judge) echo '{"verdict": "approved", "summary": "fine"}' ; exit ;;
esac
echo Subtract
"""


def obedient(tmp_path: Path) -> str:
    agent = tmp_path / "agent"
    agent.write_text(OBEDIENT)
    agent.chmod(0o755)
    return f"command:{agent}"


def test_an_agent_that_obeys_the_learning_in_its_packet_is_green_one_attempt_sooner(tmp_path: Path) -> None:
    place, agent = small_project(tmp_path), obedient(tmp_path)
    with open_factory(place, *SHARES, agent=agent) as factory:
        before = carry(factory, place / "SPEC.md")
        (learnt,) = factory.store.learnings(str(place))
        advice = "In calc, subtract the second from the first."
        reported = Learning(
            id=learning_id(str(place), advice), repo=str(place), content=advice, created_at="2026",
            fingerprints=learnt.fingerprints,
        )  # fmt: skip
        factory.store.add_learning(reported)
        (place / "AGAIN.md").write_text("# Subtract again\n\n`calc.sub(a, b)` subtracts.\n")
        after = carry(factory, place / "AGAIN.md")
        events, prompt = events_of(factory, after), prompt_of(factory, after, "implement")
        sums = {(one.learning, one.arm): one for one in factory.store.trial_sums(str(place))}
    assert before.status is after.status is RunStatus.COMPLETED
    assert (before.reverts, after.reverts) == (1, 0)
    delivered = [event for event in events if isinstance(event, ev.LearningDelivered)]
    delivered = [event for event in delivered if event.matched is not Matched.TITLE]
    assert {one.learning for one in delivered} == {reported.id, learnt.id}
    assert {(one.arm, one.matched) for one in delivered} == {(TrialArm.PACKET, Matched.FINGERPRINT)}
    failing = prompt.partition("# Failing tests")[2]
    assert "Known about this failure" in failing and advice in failing and "# Learnings from" not in prompt
    trial = sums[reported.id, TrialArm.PACKET]
    assert (trial.trials, trial.green, trial.sums["attempts"]) == (1, 1, 1.0)


@pytest.mark.parametrize(
    ("shares", "arm"),
    [
        (("learnings.held_out=1",), TrialArm.HELD_OUT),
        (("learnings.held_out=0", "learnings.placebo=1"), TrialArm.PLACEBO),
        (("learnings.held_out=0", "learnings.placebo=0", "learnings.prompt=1"), TrialArm.PROMPT),
    ],
)
def test_what_is_held_out_replaced_or_put_elsewhere_is_not_beside_the_failure(
    tmp_path: Path, shares: tuple[str, ...], arm: TrialArm
) -> None:
    place = small_project(tmp_path)
    advice = "AttributeError ImportError cannot import name sub: put functions into calc"
    with open_factory(place, LEXICAL, *shares) as factory:
        one = Learning(id="l1", repo=str(place), content=advice, created_at="2026")
        factory.store.add_learning(one)
        state = carry(factory, place / "SPEC.md")
        prompt = prompt_of(factory, state, "implement")
        found = [e for e in events_of(factory, state) if isinstance(e, ev.LearningDelivered)]
        (sums,) = factory.store.trial_sums()
    assert [(e.arm, e.matched) for e in found if e.step > 2] == [(arm, Matched.SEARCH)]
    assert advice not in prompt.partition("# Failing tests")[2].partition("\n# ")[0]
    assert (advice in prompt) is (arm is TrialArm.PROMPT) and ("take the time" in prompt) is (arm is TrialArm.PLACEBO)
    assert (sums.arm, sums.trials, sums.green) == (arm, 1, 1)


def test_nothing_is_delivered_when_that_is_off_and_an_agents_section_is_kept_as_a_candidate(tmp_path: Path) -> None:
    noting = IMPLEMENT | {"say": f"Subtract\n\n# Learning\nRun make before the tests: {TOKEN}\n"}
    place = small_project(tmp_path, GOOD_SCRIPT | {"implement": [noting]})
    with open_factory(place, "learnings.on=false", LEXICAL) as factory:
        factory.store.add_learning(Learning(id="l1", repo=str(place), content="Subtract calc sub", created_at="2026"))
        state = carry(factory, place / "SPEC.md")
        assert not [e for e in events_of(factory, state) if isinstance(e, ev.LearningDelivered)]
        (noted,) = [one for one in factory.store.learnings(str(place)) if one.kind is LearningKind.CANDIDATE]
        assert noted.content.startswith("Run make") and TOKEN not in noted.content
        assert len(state.commits) == 1 and git("log", "-1", "--format=%s", state.head, cwd=place) == "Subtract"
