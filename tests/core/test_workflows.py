"""What holds in every workflow, whatever agents and tests do: totality, bounds, and the fold."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.roles import Role, Writes
from ratchet.core.state import BASELINE, DECISIONS, DONE, MOVING, OUTCOMES, RunState, Table, advance, fold
from ratchet.core.workflows.workflow import PhaseAction, Workflow, default_inputs
from ratchet.engine.steps import open_step
from ratchet.engine.workflow_registry import open_workflow
from tests.core.playing import announced, outcome, play, possible, started

NAMES = ("tdd", "build", "fix", "swarm", "loop")
WORKFLOWS = {name: open_workflow(name) for name in NAMES}
every_workflow = pytest.mark.parametrize("workflow", WORKFLOWS.values(), ids=NAMES)
choices = st.lists(st.integers(0, 5), max_size=200)
small = st.fixed_dictionaries({}, optional={"iterations": st.integers(1, 4), "attempts": st.integers(1, 3)})


@every_workflow
@given(choices, small)
@settings(max_examples=60)
def test_a_fold_equals_its_resumed_fold(workflow: Workflow, made: list[int], policy: dict[str, int]) -> None:
    history = play(workflow, made, policy)
    state = fold("run-1", workflow.table, history[: len(history) // 2])
    for event in history[len(history) // 2 :]:
        state = advance(state, workflow.table, event)
    assert state == fold("run-1", workflow.table, history)


@every_workflow
@given(st.lists(st.integers(0, 5), min_size=1, max_size=7), small)
@settings(max_examples=60)
def test_whatever_agents_do_every_run_ends(workflow: Workflow, habit: list[int], policy: dict[str, int]) -> None:
    last = play(workflow, (habit * 3000)[:3000], policy)[-1]
    assert isinstance(last, ev.RunCompleted | ev.RunFailed)


@every_workflow
@given(choices, small)
@settings(max_examples=60)
def test_no_history_leaves_a_final_state(workflow: Workflow, made: list[int], policy: dict[str, int]) -> None:
    state = fold("run-1", workflow.table, play(workflow, made, policy))
    if state.final:
        with pytest.raises(ValueError, match="cannot follow"):
            advance(state, workflow.table, ev.RunClaimed(worker="late"))


@every_workflow
@given(choices, small)
@settings(max_examples=40)
def test_every_event_round_trips(workflow: Workflow, made: list[int], policy: dict[str, int]) -> None:
    for event in play(workflow, made, policy):
        assert ev.decode(ev.kind_of(event), ev.encode(event)) == event


@every_workflow
@given(choices, small)
@settings(max_examples=60)
def test_no_two_steps_of_a_run_have_the_same_inputs_in_the_same_phase(
    workflow: Workflow, made: list[int], policy: dict[str, int]
) -> None:
    state = RunState(run="run-1")
    seen: set[tuple[str, bytes]] = set()
    for event in play(workflow, made, policy):
        if isinstance(event, ev.StepStarted):
            work = (state.phase, msgspec.json.encode(workflow.plan(state).inputs, order="sorted"))
            assert work not in seen
            seen.add(work)
        state = advance(state, workflow.table, event)


@every_workflow
@given(choices, small)
@settings(max_examples=60)
def test_between_asks_the_tree_is_green_or_the_red_one_built_on_it(
    workflow: Workflow, made: list[int], policy: dict[str, int]
) -> None:
    state = RunState(run="run-1")
    for event in play(workflow, made, policy):
        state = advance(state, workflow.table, event)
        act = workflow.actions.get(state.phase)
        if act and act.role and not state.in_doubt:
            assert state.tree in (state.green_tree, state.red_tree)


@every_workflow
def test_the_table_is_total(workflow: Workflow) -> None:
    phases = {phase for phase, _ in workflow.table}
    assert phases | {DONE} == {BASELINE} | set(workflow.table.values())
    assert set(workflow.actions) <= phases and all(open_step(act.does) for act in workflow.actions.values())
    for phase in phases - set(workflow.actions):  # nothing is done there, so something must follow from the state
        state = msgspec.structs.replace(fold("r", workflow.table, [started(workflow.name)]), phase=phase)
        assert type(workflow.decide(state)) in DECISIONS | {ev.TaskFinished}


def test_every_moving_event_is_in_a_table_and_no_table_moves_on_another() -> None:
    assert {event for workflow in WORKFLOWS.values() for _, event in workflow.table} == MOVING == OUTCOMES | DECISIONS


@every_workflow
def test_a_run_is_completed_only_by_landing(workflow: Workflow) -> None:
    assert [key for key, after in workflow.table.items() if after == DONE] == [("land", ev.Landed)]


@every_workflow
def test_what_is_kept_was_tested_first(workflow: Workflow) -> None:
    keeping = {phase for phase, event in workflow.table if event is ev.StepCommitted}
    assert {workflow.actions[phase].does for phase in keeping} <= {"judge", "judge_fix"}


@every_workflow
def test_no_role_that_makes_tests_pass_may_change_existing_ones(workflow: Workflow) -> None:
    for act in workflow.actions.values():
        if act.role and act.role != Role.AUDITOR:
            assert act.writes in (None, Writes.ADDITIONS)


def furthest(workflow: Workflow, policy: dict[str, int]) -> RunState:
    """A state in which an agent is about to be asked."""
    state = fold("run-1", workflow.table, [started(workflow.name, None, **policy)])
    while workflow.decide(state) or not workflow.plan(state).role:
        decision = workflow.decide(state)
        if decision is None:
            state = advance(state, workflow.table, announced(workflow, state))
        state = advance(state, workflow.table, decision or outcome(possible(workflow, state)[0], state))
    return state


@every_workflow
@pytest.mark.parametrize(("spent", "why"), [({"cost_usd": 0.5}, "$0.50"), ({"seconds": 60.0}, "60 s")])
def test_before_an_agent_is_asked_money_and_time_must_be_left(
    workflow: Workflow, spent: dict[str, float], why: str
) -> None:
    state = furthest(workflow, {"cents": 50, "agent_s": 60})
    assert workflow.decide(state) is None
    metered = ev.UsageMetered(step=1, role="r", agent="a", **spent)  # type: ignore[arg-type] # one or the other
    failed = workflow.decide(advance(state, workflow.table, metered))
    assert isinstance(failed, ev.RunFailed) and failed.reason is Reason.BUDGET_SPENT
    assert why in failed.detail


def test_a_workflow_that_counts_nothing_itself_is_bounded_by_its_steps() -> None:
    table: Table = {(BASELINE, ev.BaselineTaken): "ask", ("ask", ev.AttemptFailed): "ask", ("ask", ev.Landed): DONE}
    acts = {BASELINE: PhaseAction(does="baseline"), "ask": PhaseAction(does="propose", role="anybody")}
    endless = Workflow(name="endless", table=table, actions=acts, bounds=lambda _state: None, inputs=default_inputs)
    last = play(endless, [0] * 400, {"steps": 50})[-1]
    assert isinstance(last, ev.RunFailed) and "50 steps are done" in last.detail


@every_workflow
def test_a_step_that_keeps_losing_its_worker_ends_the_run(workflow: Workflow) -> None:
    state = msgspec.structs.replace(fold("run-1", workflow.table, [started(workflow.name, resumes=2)]), resumes=3)
    failed = workflow.decide(state)
    assert isinstance(failed, ev.RunFailed) and failed.reason is Reason.WORKER_LOST


@pytest.mark.parametrize(("name", "role"), [("tdd", "implementer"), ("build", "implementer"), ("fix", "fixer")])
@given(st.integers(1, 2))
@settings(max_examples=5)
def test_after_so_many_tries_the_stronger_agent_is_asked_and_after_success_no_longer(
    name: str, role: str, after: int
) -> None:
    workflow = WORKFLOWS[name]
    history = play(workflow, [0] * 3 + [1] * 12, {"attempts": 3}, {role: after})
    state = RunState(run="run-1")
    tried = [0]
    for event in history:
        state = advance(state, workflow.table, event)
        if isinstance(event, ev.Escalated):
            assert (event.role, event.tries, state.escalated) == (role, after, role)
            tried.append(event.tries)
        assert not (state.escalated and state.attempts < after)
    assert len(tried) > 1
