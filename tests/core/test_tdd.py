"""The workflow's table, its bounds, and the fold."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.core import events as ev
from ratchet.core.failure import FAULT, Fault, Reason, counts_as_attempt
from ratchet.core.policy import Policy
from ratchet.core.receipt import Artifact
from ratchet.core.state import MOVING, OUTCOMES, Phase, RunState, RunStatus, advance, fold
from ratchet.core.tdd import NEXT, TDD, decide

REPORT = Artifact(path="reports/step-1.json", sha256="0" * 64, size=1)


def started(**policy: int) -> ev.RunStarted:
    return ev.RunStarted(
        item="item-1",
        title="t",
        workflow="tdd",
        repo="/r",
        base_commit="c0",
        branch="ratchet/t",
        slug="t",
        policy=msgspec.to_builtins(Policy(**policy)),
        tests=["tests/**"],
        protected=[],
        test_command=["pytest"],
    )


def outcome(kind: type[ev.Event], state: RunState) -> ev.Event:
    """An event of this kind as the engine would record it in this state."""
    values = {
        "step": state.step,
        "report": REPORT,
        "tests": 1 if kind is ev.BaselineTaken else ["t::a"],
        "failing": [],
        "tree": _tree(kind, state),
        "paths": ["a.py"],
        "summary": "did it",
        "why": "because",
        "reason": Reason.NO_PROGRESS,
        "fingerprint": "f",
        "commit": f"c{state.step}" if kind is ev.StepCommitted else "",
        "parent": state.head,
        "subject": "s",
        "gates": [],
        "warnings": [],
        "findings": ["{}"],
        "how": "branch",
        "branch": "b",
        "head": state.head,
    }
    return kind(**{name: values[name] for name in kind.__struct_fields__})


def _tree(kind: type[ev.Event], state: RunState) -> str:
    """Where the engine has put the workspace when it records an event of this kind."""
    undone = state.commits[-1].tree if state.phase in (Phase.VERIFY, Phase.VERIFY_REVISION) else state.green_tree
    back = {
        ev.RedRefused: state.green_tree,
        ev.StepReverted: state.red_tree,
        ev.RefactorReverted: undone,
        ev.RevisionReverted: undone,
        ev.StepCommitted: state.tree,
    }
    return back.get(kind, f"tree-{state.step}")


def possible(state: RunState) -> list[type[ev.Event]]:
    return [event for phase, event in NEXT if phase is state.phase and event in OUTCOMES]


def step_event(state: RunState) -> ev.StepStarted:
    planned = TDD.plan(state)
    return ev.StepStarted(
        step=state.step + 1, action=planned.action, role="", key=f"ik:{state.step}", tree=state.tree, snapshot="s"
    )


def play(choices: list[int], policy: dict[str, int]) -> list[ev.Event]:
    """A run as the engine would drive it, with agents and tests doing whatever `choices` says."""
    history: list[ev.Event] = [started(**policy), ev.RunClaimed(worker="w")]
    state = fold("run-1", NEXT, history)
    for choice in choices:
        if state.final:
            break
        decision = decide(state)
        if decision is None:
            history.append(announced := step_event(state))
            state = advance(state, NEXT, announced)
            kinds = possible(state)
            if state.phase is Phase.VERIFY:  # a refactoring is reverted as one, a step as a step
                wrong = ev.RefactorReverted if state.red else ev.StepReverted
                kinds = [kind for kind in kinds if kind is not wrong]
            decision = outcome(kinds[choice % len(kinds)], state)
            if state.phase in (Phase.VERIFY, Phase.VERIFY_REVISION) and hasattr(decision, "commit"):
                decision = msgspec.structs.replace(decision, commit=state.head)
        history.append(decision)
        state = advance(state, NEXT, decision)
    return history


choices = st.lists(st.integers(0, 5), max_size=400)
small = st.fixed_dictionaries({}, optional={"iterations": st.integers(1, 4), "attempts": st.integers(1, 3)})


@given(choices, small)
@settings(max_examples=150)
def test_a_fold_equals_its_resumed_fold(made: list[int], policy: dict[str, int]) -> None:
    history = play(made, policy)
    whole = fold("run-1", NEXT, history)
    state = fold("run-1", NEXT, history[: len(history) // 2])
    for event in history[len(history) // 2 :]:
        state = advance(state, NEXT, event)
    assert state == whole


@given(small)
def test_whatever_agents_do_every_run_ends(policy: dict[str, int]) -> None:
    for habit in range(6):
        last = play([habit] * 3000, policy)[-1]
        assert isinstance(last, ev.RunCompleted | ev.RunFailed)


@given(choices, small)
@settings(max_examples=150)
def test_no_history_leaves_a_final_state(made: list[int], policy: dict[str, int]) -> None:
    history = play(made, policy)
    state = fold("run-1", NEXT, history)
    if state.final:
        with pytest.raises(ValueError, match="cannot follow"):
            advance(state, NEXT, ev.RunClaimed(worker="late"))


@given(choices, small)
@settings(max_examples=100)
def test_every_event_round_trips(made: list[int], policy: dict[str, int]) -> None:
    for event in play(made, policy):
        assert ev.decode(ev.kind_of(event), ev.encode(event)) == event


@given(choices, small)
@settings(max_examples=150)
def test_no_two_steps_of_a_run_have_the_same_inputs_in_the_same_phase(made: list[int], policy: dict[str, int]) -> None:
    state = RunState(run="run-1")
    seen: set[tuple[str, bytes]] = set()
    for event in play(made, policy):
        if isinstance(event, ev.StepStarted):
            work = (str(state.phase), msgspec.json.encode(TDD.plan(state).inputs, order="sorted"))
            assert work not in seen
            seen.add(work)
        state = advance(state, NEXT, event)


@given(choices, small)
@settings(max_examples=100)
def test_the_tree_between_steps_is_the_green_one_or_the_red_one_built_on_it(
    made: list[int], policy: dict[str, int]
) -> None:
    state = RunState(run="run-1")
    for event in play(made, policy):
        state = advance(state, NEXT, event)
        if state.phase in (Phase.AUDIT, Phase.REVIEW, Phase.REFACTOR, Phase.LAND):
            assert state.tree == state.green_tree
        if state.phase is Phase.IMPLEMENT:
            assert state.tree == state.red_tree


def test_an_event_that_does_not_belong_in_a_phase_is_refused() -> None:
    state = fold("run-1", NEXT, [started()])
    with pytest.raises(ValueError, match="cannot happen in baseline"):
        advance(state, NEXT, ev.Landed(step=1, how="branch", branch="b", head="h"))


def test_a_kind_from_the_future_is_counted_and_skipped() -> None:
    unknown = ev.decode("telepathy_started", b'{"kind":"telepathy_started","by":"us"}')
    assert isinstance(unknown, ev.UnknownEvent)
    assert fold("run-1", NEXT, [started(), unknown]).unknown == 1


def test_the_third_failed_attempt_gives_the_test_back_to_the_auditor_with_what_was_tried() -> None:
    state = fold("run-1", NEXT, [started()])
    state = msgspec.structs.replace(
        state, phase=Phase.IMPLEMENT, red=["t::a"], attempts=3, feedback=["x", "y", "z"], green_tree="g"
    )
    abandoned = decide(state)
    assert isinstance(abandoned, ev.TestAbandoned) and "attempt 2: y" in abandoned.why
    after = advance(state, NEXT, abandoned)
    assert (after.phase, after.tree, after.iteration, after.red) == (Phase.AUDIT, "g", 2, [])


def test_a_step_that_keeps_losing_its_worker_ends_the_run() -> None:
    state = msgspec.structs.replace(fold("run-1", NEXT, [started(resumes=2)]), resumes=3)
    failed = decide(state)
    assert isinstance(failed, ev.RunFailed) and failed.reason is Reason.WORKER_LOST


def test_every_reason_has_a_fault_and_only_the_agents_and_the_items_count() -> None:
    assert set(FAULT) == set(Reason)
    counted = {FAULT[reason] for reason in Reason if counts_as_attempt(reason)}
    assert counted == {Fault.AGENT, Fault.ITEM}


def test_every_phase_can_be_left_and_every_moving_event_is_in_the_table() -> None:
    assert {phase for phase, _ in NEXT} == set(Phase) - {Phase.DONE}
    assert {event for _, event in NEXT} == MOVING


def test_completed_is_reached_only_through_a_review_and_a_landing() -> None:
    into_done = [(phase, event) for (phase, event), after in NEXT.items() if after is Phase.DONE]
    into_land = [(phase, event) for (phase, event), after in NEXT.items() if after is Phase.LAND]
    assert into_done == [(Phase.LAND, ev.Landed)] and into_land == [(Phase.REVIEW, ev.ReviewApproved)]
    assert fold("run-1", NEXT, [started()]).status is RunStatus.RUNNING
