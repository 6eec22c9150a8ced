"""Each bound of a workflow holds at its limit, and not one step before."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ratchet.core import events as ev
from ratchet.core.failure import Reason, RevertOutcome
from ratchet.core.receipt import Artifact, Usage
from ratchet.core.roles import Role, Writes
from ratchet.core.state import RunState, fold
from ratchet.core.workflows.build import BUILD, BuildPhase
from ratchet.core.workflows.fix import FIX, FixPhase
from ratchet.core.workflows.loop import LOOP, LoopPhase
from ratchet.core.workflows.swarm import SWARM, SwarmPhase
from ratchet.core.workflows.tdd import TDD, TddPhase
from ratchet.core.workflows.workflow import (
    PhaseAction,
    PlannedStep,
    Workflow,
    attempts_summary,
    feedback_by_attempt,
    last_feedback,
    tries,
)
from tests.core.playing import started

WHY = {"feedback": ["first", "again", "first"], "red": ["t::a"], "findings": ["old", "new"]}


def state(workflow: Workflow, phase: str, *, policy: dict[str, int] | None = None, **fields: Any) -> RunState:
    begun = fold("run-1", workflow.table, [started(workflow.name, None, **policy or {})])
    return msgspec.structs.replace(begun, phase=phase, **WHY | fields)


@pytest.mark.parametrize(
    ("workflow", "phase", "counter", "policy", "limit", "reason", "detail"),
    [
        (BUILD, BuildPhase.IMPLEMENT, "attempts", "attempts", 4, "no_progress", "T009 was not built: 4 attempts"),
        (BUILD, BuildPhase.REVISE, "attempts", "attempts", 4, "no_progress", "findings were not met: first"),
        (BUILD, BuildPhase.REVISE, "review_rounds", "review_rounds", 5, "no_progress", "still refused in the end: new"),
        (BUILD, BuildPhase.REVIEW, "review_rounds", "review_rounds", 4, "no_progress", "requested after 4 reviews"),
        (BUILD, BuildPhase.REVIEW, "review_tries", "review_tries", 4, "no_progress", "no verdict in 4 tries: first"),
        (FIX, FixPhase.FIX, "attempts", "attempts", 4, "no_progress", "still red: t::a: 4 attempts in vain"),
        (FIX, FixPhase.FIX, "iteration", "iterations", 5, "budget_spent", "still red: t::a: 4 iterations"),
        (SWARM, SwarmPhase.SWARM, "attempts", "attempts", 4, "no_progress", "still red: t::a: 4 attempts in vain"),
        (SWARM, SwarmPhase.SWARM, "iteration", "iterations", 5, "budget_spent", "still red: t::a after 4 swarms"),
        (LOOP, LoopPhase.TASK, "idle", "idle", 4, "no_progress", "stuck: 4 iterations"),
        (TDD, TddPhase.REVISE, "review_rounds", "review_rounds", 5, "no_progress", "still refused in the end: new"),
        (TDD, TddPhase.AUDIT, "audit_tries", "audit_tries", 4, "no_progress", "no acceptable test in 4 tries: first"),
    ],
)  # fmt: skip
def test_a_run_fails_at_the_limit_with_what_was_tried(
    workflow: Workflow, phase: str, counter: str, policy: str, limit: int, reason: str, detail: str
) -> None:
    def decided(count: int) -> ev.Event | None:
        limits = {"attempts": 9, "iterations": 9, "review_rounds": 9, policy: 4}
        return workflow.bounds(state(workflow, phase, policy=limits, task="T009", **{counter: count}))

    assert not isinstance(decided(limit - 1), ev.RunFailed)
    failed = decided(limit)
    assert isinstance(failed, ev.RunFailed) and failed.reason == reason and detail in failed.detail


@pytest.mark.parametrize("workflow", [BUILD, FIX, SWARM, LOOP, TDD], ids=lambda one: one.name)
def test_what_is_counted_elsewhere_ends_no_other_phase(workflow: Workflow) -> None:
    counted = {"attempts", "iteration", "review_rounds", "review_tries", "audit_tries", "greens_since_refactor", "idle"}
    mechanical = {phase for phase, act in workflow.actions.items() if not act.role} - {TddPhase.VERIFY_RED}
    for phase in mechanical:
        reached = msgspec.structs.replace(state(workflow, phase), **dict.fromkeys(counted, 500))
        assert workflow.bounds(reached) is None


def test_a_loop_begins_the_next_task_until_its_iterations_are_spent() -> None:
    def decided(**fields: Any) -> ev.Event | None:
        return LOOP.bounds(state(LOOP, LoopPhase.TASK, policy={"iterations": 4, "idle": 9}, **fields))

    assert decided() == ev.TaskBegun(task="T001", title="task 1")
    assert decided(finished=["T001"], iteration=3) == ev.TaskBegun(task="T003", title="task 3"), "T002 is done already"
    assert decided(iteration=4) == ev.TaskBegun(task="T001", title="task 1"), "nothing was begun yet"
    for begun in ({"idle": 1}, {"finished": ["T001"]}):
        failed = decided(iteration=4, **begun)
        assert isinstance(failed, ev.RunFailed) and failed.reason is Reason.BUDGET_SPENT
        assert f"{4 - 1 - len(begun.get('finished', []))} tasks are left after 4" in failed.detail  # type: ignore[arg-type]
    assert decided(finished=["T001", "T003", "T004"], iteration=9, idle=9) == ev.TasksDone(count=3)


def test_a_build_finishes_the_task_at_hand_then_begins_the_next_one() -> None:
    assert BUILD.bounds(state(BUILD, BuildPhase.TASK)) == ev.TaskBegun(task="T001", title="task 1")
    finished = BUILD.bounds(state(BUILD, BuildPhase.TASK, task="T001"))
    assert isinstance(finished, ev.TaskFinished) and finished.task == "T001"
    done = state(BUILD, BuildPhase.TASK, finished=["T001", "T003", "T004"])
    assert BUILD.bounds(done) == ev.TasksDone(count=3)


def test_a_spec_that_nobody_can_update_is_left_as_it_is() -> None:
    assert BUILD.bounds(state(BUILD, BuildPhase.UPDATE_SPEC, attempts=1)) is None
    left = BUILD.bounds(state(BUILD, BuildPhase.UPDATE_SPEC, attempts=2))
    assert isinstance(left, ev.SpecLeft) and "2 tries: first" in left.why


def test_a_sealed_test_is_contested_once_and_only_if_it_refused_the_last_attempt() -> None:
    sealed: dict[str, Any] = {"attempts": 3, "sealed": Artifact(path="s", sha256="0", size=1), "requirement": "adds"}
    decided = TDD.bounds(state(TDD, TddPhase.IMPLEMENT, **sealed, reverted_as=RevertOutcome.OVERFITTED))
    assert decided == ev.SealedContested(why="adds: first")
    for other in ({"contested": True}, {"reverted_as": RevertOutcome.GATE}, {"sealed": None}):
        fields = sealed | {"reverted_as": RevertOutcome.OVERFITTED} | other
        assert isinstance(TDD.bounds(state(TDD, TddPhase.IMPLEMENT, **fields)), ev.TestAbandoned)


@pytest.mark.parametrize(
    ("fields", "reason", "detail"),
    [
        ({"step": 7}, Reason.BUDGET_SPENT, "7 steps are done, 2 attempts"),
        ({"usage": Usage(cost_usd=0.5)}, Reason.BUDGET_SPENT, "$0.50 are spent, 2 attempts"),
        ({"usage": Usage(seconds=60.0)}, Reason.BUDGET_SPENT, "agents took 60 s, 2 attempts"),
        ({"disclosures": 4}, Reason.NO_PROGRESS, "disclosed 4 times"),
    ],
)  # fmt: skip
def test_an_agent_is_asked_only_while_steps_money_time_and_disclosures_are_left(
    fields: dict[str, Any], reason: Reason, detail: str
) -> None:
    limits = {"steps": 7, "cents": 50, "agent_s": 60, "disclosures": 4, "attempts": 3}
    spent = state(TDD, TddPhase.IMPLEMENT, policy=limits, attempts=2, **fields)
    failed = TDD.decide(spent)
    assert isinstance(failed, ev.RunFailed) and failed.reason is reason and detail in failed.detail
    nearly: dict[str, Any] = {
        "step": 6, "usage": Usage(cost_usd=0.49, seconds=59.9), "disclosures": 3,
    }  # fmt: skip
    assert TDD.decide(state(TDD, TddPhase.IMPLEMENT, policy=limits, attempts=2, **nearly)) is None
    assert TDD.decide(msgspec.structs.replace(spent, phase=TddPhase.LAND)) is None, "approved work may land"
    asked = ev.StepStarted(step=1, action="implement", role="implementer", key="k", tree="t", snapshot="s")
    assert TDD.decide(msgspec.structs.replace(spent, in_doubt=asked)) is None, "a step that began is finished"


def test_a_step_may_lose_its_worker_as_often_as_the_policy_says() -> None:
    lost = state(TDD, TddPhase.JUDGE, policy={"resumes": 2}, step=5, resumes=2)
    assert TDD.decide(lost) is None
    failed = TDD.decide(msgspec.structs.replace(lost, resumes=3))
    assert isinstance(failed, ev.RunFailed) and (failed.reason, failed.detail) == (
        Reason.WORKER_LOST, "step 5 lost its worker 3 times",
    )  # fmt: skip


def test_a_run_that_has_landed_is_completed_with_its_commits_and_doubts() -> None:
    landed = state(TDD, "done", head="h", doubts=2)
    assert TDD.decide(landed) == ev.RunCompleted(commits=0, head="h", doubts=2)


def test_the_stronger_agent_of_a_role_is_asked_from_the_given_number_of_tries_on() -> None:
    begun = fold("run-1", TDD.table, [started("tdd", {"implementer": 2, "reviewer": 1})])

    def decided(phase: str, **fields: Any) -> ev.Event | None:
        return TDD.decide(msgspec.structs.replace(begun, phase=phase, **WHY | fields))

    assert decided(TddPhase.IMPLEMENT, attempts=1) is None
    assert decided(TddPhase.IMPLEMENT, attempts=2) == ev.Escalated(role="implementer", tries=2)
    assert decided(TddPhase.IMPLEMENT, attempts=2, escalated="implementer") is None
    assert decided(TddPhase.REVIEW, review_tries=1) == ev.Escalated(role="reviewer", tries=1)
    assert decided(TddPhase.AUDIT, audit_tries=2) is None, "the auditor has no stronger agent"


def test_tries_are_counted_by_role() -> None:
    counted = state(TDD, TddPhase.AUDIT, audit_tries=1, review_tries=2, attempts=3)
    assert [tries(counted, role) for role in (Role.AUDITOR, Role.REVIEWER, Role.IMPLEMENTER, "mine")] == [1, 2, 3, 3]


def test_attempts_with_one_reason_are_told_once() -> None:
    tried = state(TDD, TddPhase.IMPLEMENT, attempts=3)
    assert feedback_by_attempt(tried) == "attempt 1, 3: first; attempt 2: again"
    assert attempts_summary(tried) == "3 attempts in vain. attempt 1, 3: first; attempt 2: again"
    untried = state(TDD, TddPhase.IMPLEMENT, feedback=[])
    assert (attempts_summary(untried), last_feedback(untried)) == ("nothing was refused", "no reason was given")


def test_a_planned_step_knows_its_action_what_it_may_write_and_which_events_may_end_it() -> None:
    planned = TDD.plan(state(TDD, TddPhase.IMPLEMENT))
    assert (planned.action, planned.role, planned.writes) == ("implement", "implementer", Writes.SOURCE)
    assert planned.one_of(ev.StepCommitted, ev.AttemptFailed, ev.ChangeProposed) is ev.AttemptFailed
    assert LOOP.plan(state(LOOP, LoopPhase.WORK)).writes is Writes.ADDITIONS
    assert TDD.plan(state(TDD, TddPhase.CONTEST)).action == "audit.contest"
    assert PlannedStep(phase="p", act=PhaseAction(does="d"), inputs={}).writes is Writes.NOTHING
    assert FIX.roles == ["fixer"] and TDD.roles == ["auditor", "implementer", "architect", "reviewer"]
