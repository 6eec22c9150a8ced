"""Replays: a recorded run under other policies, with the recorded answers only."""

from __future__ import annotations

import msgspec
import pytest

from ratchet.core import events as ev
from ratchet.core.gates import Gate, GateStatus, OnFail
from ratchet.core.receipt import Price
from ratchet.core.replay import Alternative, GateChange, Replayed, Routing, replay
from ratchet.core.state import RunState, RunStatus, advance
from ratchet.core.workflows.build import BUILD
from ratchet.core.workflows.tdd import TDD
from ratchet.core.workflows.workflow import Workflow
from tests.core.playing import outcome, started

GATES = ["lint", "judge"]
Facts = list[ev.Event]


def record(workflow: Workflow, *answers: type[ev.Event] | tuple[type[ev.Event], Facts], **policy: int) -> Facts:
    """The ledger of a run whose steps end as given, each with its facts; every asked step costs 10 and 5 tokens."""
    first = msgspec.structs.replace(
        started(workflow.name, None, **policy), gates=[msgspec.json.encode(Gate(name=name)).decode() for name in GATES]
    )
    events: Facts = []
    state = RunState(run="run-1")

    def add(*new: ev.Event) -> None:
        nonlocal state
        for event in new:
            state = advance(state, workflow.table, event)
            events.append(event)

    add(first, ev.RunClaimed(worker="w"))
    for answer in answers:
        kind, facts = answer if isinstance(answer, tuple) else (answer, [])
        while decision := workflow.decide(state):
            if isinstance(decision, ev.RunFailed):  # more follows: the run was retried
                add(ev.RunReturned(reason=decision.reason, detail=decision.detail), ev.RunClaimed(worker="w"))
            else:
                add(decision)
        plan = workflow.plan(state)
        number = state.step + 1
        add(
            ev.StepStarted(
                step=number, action=plan.action, role=plan.role, key=f"k{number}", tree=state.tree, snapshot=""
            )
        )
        if plan.role:
            add(
                ev.UsageMetered(
                    step=number, role=plan.role, agent="a", tokens_in=10, tokens_out=5, cost_usd=0.5, seconds=2
                )
            )
        add(*facts, outcome(kind, state), ev.ReceiptFiled(step=number, sha256=""))
    while not state.final and (decision := workflow.decide(state)):
        add(decision)
    return events


ITERATION = (ev.TestWritten, ev.RedConfirmed, ev.ChangeProposed, ev.StepCommitted, ev.StepVerified)
END = (ev.RequirementsMet, ev.ReviewApproved, ev.FinalVerified, ev.Landed)
TWO_ITERATIONS = (ev.BaselineTaken, *ITERATION, *ITERATION, *END)


def replay_one(workflow: Workflow, events: Facts, **other: object) -> tuple[Replayed, Replayed]:
    alternative = msgspec.convert({"name": "other", **other}, Alternative)
    recorded, (replayed,) = replay("run-1", workflow, events, [alternative])
    return recorded, replayed


@pytest.mark.parametrize(
    ("workflow", "answers"),
    [
        (TDD, TWO_ITERATIONS),
        (TDD, (ev.BaselineTaken, ev.AuditFailed, ev.TestWritten, ev.RedRefused, *ITERATION, *END)),
        (TDD, (ev.BaselineTaken, ev.TestWritten, ev.RedConfirmed, *[ev.AttemptFailed] * 3, *ITERATION, *END)),
        (BUILD, (ev.BaselineTaken, *[ev.AttemptFailed] * 3)),
        (BUILD, (ev.BaselineTaken, *[ev.AttemptFailed] * 6)),
    ],
)
def test_the_recorded_policy_replays_to_the_recorded_end(
    workflow: Workflow, answers: tuple[type[ev.Event], ...]
) -> None:
    recorded, replayed = replay_one(workflow, record(workflow, *answers))
    assert recorded.status is not RunStatus.RUNNING
    assert replayed.difference is None
    assert not replayed.unknown
    assert msgspec.structs.replace(replayed, name="recorded") == recorded


def test_a_run_that_goes_on_replays_as_far_as_it_is_recorded() -> None:
    recorded, replayed = replay_one(BUILD, record(BUILD, ev.BaselineTaken, ev.AttemptFailed))
    assert recorded.status is RunStatus.RUNNING
    assert replayed.difference is None
    assert "step 3 (implement): the recording has no answer" in replayed.unknown


def test_fewer_iterations_end_the_run_earlier_and_cost_less() -> None:
    recorded, replayed = replay_one(TDD, record(TDD, *TWO_ITERATIONS), bounds={"iterations": 1})
    assert (recorded.status, replayed.status) == (RunStatus.COMPLETED, RunStatus.FAILED)
    assert replayed.difference
    assert replayed.difference.recorded.startswith("verify_red → red_confirmed")
    assert replayed.difference.replayed == "run_failed (budget_spent)"
    assert not replayed.unknown
    assert replayed.usage.cost_usd < recorded.usage.cost_usd
    assert (replayed.commits, recorded.commits) == (1, 2)


def test_a_refactoring_that_another_policy_asks_for_has_no_recorded_answer() -> None:
    _, replayed = replay_one(TDD, record(TDD, *TWO_ITERATIONS), bounds={"refactor_interval": 1})
    assert replayed.difference
    assert (replayed.difference.step, replayed.difference.replayed) == (6, "refactor_fell_due")
    assert "step 7 (refactor): the recording has no answer" in replayed.unknown
    assert replayed.status is RunStatus.RUNNING


def test_a_reverted_refactoring_can_be_left_out_because_the_tree_is_the_same() -> None:
    refactored = (ev.ChangeProposed, ev.RefactorReverted)
    events = record(TDD, ev.BaselineTaken, *ITERATION, *refactored, *END, refactor_interval=1)
    recorded, replayed = replay_one(TDD, events, bounds={"refactor_interval": 0})
    assert (recorded.reverts, replayed.reverts) == (1, 0)
    assert replayed.status is RunStatus.COMPLETED
    assert not replayed.unknown
    assert replayed.steps == recorded.steps - 2


def test_an_attempt_more_than_recorded_is_unknown() -> None:
    events = record(BUILD, ev.BaselineTaken, *[ev.AttemptFailed] * 3)
    recorded, replayed = replay_one(BUILD, events, bounds={"attempts": 4})
    assert recorded.status is RunStatus.FAILED
    assert "step 5 (implement): the recording has no answer" in replayed.unknown
    assert replayed.usage == recorded.usage


def refused(gate: str, status: GateStatus = GateStatus.FAILED) -> Facts:
    judged = ev.UsageMetered(step=5, role="reviewer", agent="j", tokens_in=10, cost_usd=0.25)
    return [judged, ev.GateRan(step=5, gate=gate, status=status)]


@pytest.mark.parametrize(
    ("ran", "change", "expected"),
    [
        (GateStatus.FAILED, GateChange(on=False), "refused the change, and is off here"),
        (GateStatus.FAILED, GateChange(on_fail=OnFail.WARN), "refused the change, and only warns here"),
        (GateStatus.WARNED, GateChange(on_fail=OnFail.REVERT), "only warned, and refuses the change here"),
        (GateStatus.PASSED, GateChange(other=["threshold"]), "ran with another threshold"),
    ],
)
def test_a_gate_that_would_have_decided_otherwise_is_found(ran: GateStatus, change: GateChange, expected: str) -> None:
    judged = (ev.StepReverted if ran is GateStatus.FAILED else ev.StepVerified, refused("lint", ran))
    events = record(TDD, ev.BaselineTaken, *ITERATION[:-1], judged)
    _, replayed = replay_one(TDD, events, gates={"lint": msgspec.to_builtins(change)})
    assert expected in replayed.unknown
    assert replayed.difference
    assert replayed.difference.step == 6


def test_a_judge_that_passed_and_is_off_saves_what_it_cost() -> None:
    passed = refused("judge", GateStatus.PASSED)
    events = record(TDD, ev.BaselineTaken, *ITERATION[:-1], (ev.StepVerified, passed), *END)
    recorded, replayed = replay_one(TDD, events, gates={"judge": {"on": False}})
    assert replayed.status is RunStatus.COMPLETED
    assert replayed.difference is None
    assert replayed.usage.cost_usd == recorded.usage.cost_usd - 0.25


def test_another_model_is_priced_with_the_recorded_tokens() -> None:
    events = record(TDD, *TWO_ITERATIONS)
    dear = Routing(agent="codex:x", price=Price(in_usd=1e6, out_usd=0))
    _, replayed = replay_one(TDD, events, agents={"auditor": msgspec.to_builtins(dear)})
    assert replayed.usage.cost_usd == 3 * 10 + 0.5 * 3  # three audits; two answers of the implementer and a review
    _, unknown = replay_one(TDD, events, agents={"": {"agent": "codex:secret"}})
    assert not unknown.priced


def test_an_earlier_escalation_asks_an_agent_that_was_never_asked() -> None:
    events = record(TDD, ev.BaselineTaken, *ITERATION[:2], ev.AttemptFailed, *ITERATION[2:], *END)
    _, replayed = replay_one(TDD, events, escalate_after={"implementer": 1})
    assert replayed.difference
    assert replayed.difference.replayed == "escalated"
    assert "step 5 (implement)" in replayed.unknown


def test_moves_name_the_steps_with_their_outcomes_and_the_decisions_between_them() -> None:
    answers: tuple[type[ev.Event], ...] = (ev.BaselineTaken, *ITERATION[:2], *[ev.AttemptFailed] * 3, *END)
    recorded, replayed = replay_one(TDD, record(TDD, *answers))
    found = [(move.step, move.phase, str(move)) for move in recorded.moves]
    assert found[:4] == [
        (1, "baseline", "baseline → baseline_taken"),
        (2, "audit", "audit → test_written"),
        (3, "verify_red", "verify_red → red_confirmed"),
        (4, "implement", "implement → attempt_failed (because)"),
    ]
    assert found[6][:2] == (6, "implement") and found[6][2] == "test_abandoned"
    assert found[-1] == (10, "done", "run_completed")
    assert replayed.moves == recorded.moves and (recorded.name, replayed.name) == ("recorded", "other")
    assert (recorded.steps, recorded.commits, recorded.reverts, recorded.detail) == (10, 0, 0, "")
    assert recorded.usage.cost_usd == 0.5 * 6 and recorded.priced


def test_a_run_that_failed_says_why_in_its_last_move() -> None:
    recorded, _ = replay_one(BUILD, record(BUILD, ev.BaselineTaken, *[ev.AttemptFailed] * 3))
    assert str(recorded.moves[-1]) == "run_failed (no_progress)" and "3 attempts in vain" in recorded.detail


def test_what_is_not_recorded_is_a_move_without_an_outcome() -> None:
    _, replayed = replay_one(TDD, record(TDD, *TWO_ITERATIONS), bounds={"refactor_interval": 1})
    assert [(move.step, move.phase, str(move)) for move in replayed.moves[-2:]] == [
        (6, "audit", "refactor_fell_due"),
        (7, "refactor", "refactor → ? (no recorded answer)"),
    ]


@pytest.mark.parametrize(
    ("ran", "change"),
    [
        (GateStatus.PASSED, GateChange(on=False)),
        (GateStatus.WARNED, GateChange(on=False, other=["threshold"])),
        (GateStatus.PASSED, GateChange(on_fail=OnFail.WARN)),
        (GateStatus.PASSED, GateChange(on_fail=OnFail.REVERT)),
        (GateStatus.WARNED, GateChange(on_fail=OnFail.WARN)),
        (GateStatus.PASSED, GateChange(on=True)),
    ],
)
def test_a_gate_that_would_have_decided_the_same_is_no_difference(ran: GateStatus, change: GateChange) -> None:
    judged = (ev.StepVerified, refused("lint", ran))
    events = record(TDD, ev.BaselineTaken, *ITERATION[:-1], judged, *END)
    _, replayed = replay_one(TDD, events, gates={"lint": msgspec.to_builtins(change)})
    assert (replayed.unknown, replayed.difference, replayed.status) == ("", None, RunStatus.COMPLETED)


def test_a_gate_that_never_ran_could_have_decided_otherwise() -> None:
    events = record(TDD, ev.BaselineTaken, *ITERATION[:-1], (ev.StepVerified, refused("lint", GateStatus.PASSED)), *END)
    _, replayed = replay_one(TDD, events, gates={"mutation": {"on": True}, "judge": {"on": False}})
    assert replayed.unknown == "step 6 (verify): gate mutation never ran in the recording"
    _, planned = replay_one(TDD, events, gates={"judge": {"on": True}})
    assert planned.status is RunStatus.COMPLETED, "it was planned, and nothing called for it"


def test_a_gate_that_is_off_leaves_out_its_own_judges_only() -> None:
    facts = [*refused("lint", GateStatus.PASSED), *refused("judge", GateStatus.PASSED)]
    events = record(TDD, ev.BaselineTaken, *ITERATION[:-1], (ev.StepVerified, facts), *END)
    recorded, replayed = replay_one(TDD, events, gates={"lint": {"on": False}})
    assert replayed.usage.cost_usd == recorded.usage.cost_usd - 0.25


def test_a_misconfigured_gate_that_is_off_would_not_have_stopped_the_run() -> None:
    judged = (ev.StepReverted, refused("lint", GateStatus.MISCONFIGURED))
    events = record(TDD, ev.BaselineTaken, *ITERATION[:-1], judged)
    _, replayed = replay_one(TDD, events, gates={"lint": {"on": False}})
    assert "gate lint refused the change, and is off here" in replayed.unknown


def test_a_role_is_priced_by_its_own_model_before_that_of_all_others() -> None:
    events = record(TDD, *TWO_ITERATIONS)
    routes = {
        "auditor": {"agent": "a", "price": {"in_usd": 1e6}}, "": {"agent": "b", "price": {"out_usd": 1e6}},
    }  # fmt: skip
    _, replayed = replay_one(TDD, events, agents=routes)
    assert replayed.usage.cost_usd == 3 * 10 + 3 * 5 and replayed.priced
    assert replayed.usage.tokens_in == 60 and replayed.usage.seconds == 12
