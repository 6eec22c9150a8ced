"""Spans and measurements folded from ledgers."""

from __future__ import annotations

import random

import msgspec
import pytest

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.gates import GateStatus
from ratchet.core.item import ParkReason
from ratchet.core.telemetry import (
    AGENT_DURATION,
    CHANGES,
    COST,
    INSTRUMENTS,
    TOKEN_USAGE,
    WORKFLOW_DURATION,
    RunTrace,
    TraceSpan,
    provider_of,
)
from tests.core.playing import REPORT, started
from tests.core.random_runs import ledger


def at(second: int) -> str:
    return f"2026-11-19T01:00:{second:02}.000000Z"


def step(number: int, action: str, role: str = "") -> ev.StepStarted:
    return ev.StepStarted(step=number, action=action, role=role, key="k", tree="t", snapshot="s")


CALL = ev.UsageMetered(
    step=1, role="auditor", agent="claude", model="claude-opus-4-5", tokens_in=900, tokens_out=80, tokens_cached=700,
    cost_usd=0.5, seconds=3.0,
)  # fmt: skip
RUN: list[ev.Event] = [
    started(),
    ev.RunClaimed(worker="w1"),
    step(1, "audit", "auditor"),
    ev.RunClaimed(worker="w2"),
    ev.StepResumed(step=1),
    CALL,
    ev.TestWritten(step=1, paths=["t.py"], tree="t", summary="s"),
    step(2, "verify_red"),
    ev.RedConfirmed(step=2, tests=["t"], fingerprint="f", report=REPORT),
    ev.RunCompleted(commits=1, head="h"),
]


def traced(events: list[ev.Event]) -> RunTrace:
    trace = RunTrace("run-1")
    for number, event in enumerate(events, 1):
        trace.add(number, at(number), event)
    return trace


def test_a_run_is_a_tree_of_workflow_steps_calls_and_tools() -> None:
    spans, _ = traced(RUN).take()
    by_name = {span.name: span for span in spans}
    root, audit = by_name["invoke_workflow tdd"], by_name["step audit"]
    call, tests = by_name["invoke_agent claude"], by_name["execute_tool verify_red"]
    assert {span.trace for span in spans} == {root.trace}
    assert (root.parent, audit.parent, call.parent, tests.parent) == ("", root.id, audit.id, root.id)
    assert (root.began, root.ended) == (at(1), at(10))
    assert (audit.began, audit.ended) == (at(3), at(7)), "an interrupted step began when it was announced"
    assert (call.began, call.ended) == (at(3), at(6))
    assert call.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.workflow.name": "tdd",
        "gen_ai.conversation.id": "run-1",
        "gen_ai.agent.name": "claude",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-opus-4-5",
        "gen_ai.usage.input_tokens": 900,
        "gen_ai.usage.output_tokens": 80,
        "gen_ai.usage.cache_read.input_tokens": 700,
        "ratchet.role": "auditor",
        "ratchet.cost_usd": 0.5,
    }
    assert tests.attributes["gen_ai.tool.name"] == "verify_red"
    assert [name for _, name in audit.marks] == ["interrupted; resumed"]
    assert [name for _, name in root.marks] == ["claimed by w1", "claimed by w2"]


def test_calls_and_runs_are_measured() -> None:
    _, measured = traced(RUN).take()
    values = [(one.instrument, one.value, one.attributes.get("gen_ai.token.type")) for one in measured]
    assert values == [
        (AGENT_DURATION, 3.0, None),
        (TOKEN_USAGE, 900, "input"),
        (TOKEN_USAGE, 80, "output"),
        (COST, 0.5, None),
        (WORKFLOW_DURATION, 9.0, None),
    ]


def test_a_failed_run_is_an_error_with_its_reason() -> None:
    spans, _ = traced([started(), ev.RunFailed(reason=Reason.NO_PROGRESS, detail="three tries")]).take()
    assert (spans[0].error, spans[0].attributes["error.type"]) == ("no_progress", "no_progress")


@pytest.mark.parametrize("seed", range(50))
def test_a_trace_is_the_same_wherever_its_ledger_was_cut(seed: int) -> None:
    chance = random.Random(seed)
    found = ledger(chance)
    whole, cut = RunTrace("run-1"), chance.randrange(len(found))
    for number, (when, event) in enumerate(found, 1):
        whole.add(number, when, event)
    first, second = RunTrace("run-1"), RunTrace("run-1")
    for number, (when, event) in enumerate(found, 1):
        if number <= cut:
            first.add(number, when, event)
    for number, (when, event) in enumerate(found, 1):
        second.add(number, when, event)
        if number == cut:
            second.take()  # the successor folds the past without sending it
    spans, measured = whole.take()
    before, after = first.take(), second.take()
    assert (before[0] + after[0], before[1] + after[1]) == (spans, measured)
    assert all(span.began <= span.ended for span in spans)
    assert len({span.id for span in spans if span.name.startswith("invoke_agent")}) == len(
        [span for span in spans if span.name.startswith("invoke_agent")]
    )
    assert {one.instrument for one in measured} <= set(INSTRUMENTS)


@pytest.mark.parametrize(
    ("agent", "model", "provider"),
    [
        ("claude", "", "anthropic"),
        ("codex:gpt-5", "gpt-5", "openai"),
        ("goose", "gemini-2.5-pro", "gcp.gemini"),
        ("aider", "openrouter/some-model", "openrouter"),
        ("command:./agent.sh", "", "command"),
    ],
)
def test_the_provider_is_known_by_model_or_agent(agent: str, model: str, provider: str) -> None:
    assert provider_of(agent, model) == provider


def test_a_step_of_a_tool_and_a_step_of_an_agent_have_their_own_attributes() -> None:
    by_name = {span.name: span for span in traced(RUN).take()[0]}
    named = {"gen_ai.workflow.name": "tdd", "gen_ai.conversation.id": "run-1"}
    assert by_name["step audit"].attributes == {
        "ratchet.step": 1, "ratchet.action": "audit", "ratchet.outcome": "test_written", "ratchet.role": "auditor",
    }  # fmt: skip
    assert by_name["execute_tool verify_red"].attributes == named | {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "verify_red", "gen_ai.tool.type": "function",
        "ratchet.step": 2, "ratchet.action": "verify_red", "ratchet.outcome": "red_confirmed",
    }  # fmt: skip
    assert by_name["invoke_workflow tdd"].attributes == named | {
        "gen_ai.operation.name": "invoke_workflow", "ratchet.status": "completed", "ratchet.item": "item-1",
        "ratchet.repo": "/r", "ratchet.branch": "ratchet/t",
    }  # fmt: skip
    assert {(span.error, span.detail) for span in by_name.values()} == {("", "")}


def test_measurements_name_the_call_and_the_workflow() -> None:
    measured = {one.instrument: one.attributes for one in traced(RUN).take()[1]}
    call = {
        "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "claude", "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-opus-4-5",
    }  # fmt: skip
    assert measured[AGENT_DURATION] == call
    assert measured[TOKEN_USAGE] == call | {"gen_ai.token.type": "output"}
    assert measured[COST] == call | {"gen_ai.workflow.name": "tdd"}
    assert measured[WORKFLOW_DURATION] == {"gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": "tdd"}


def test_a_step_that_failed_for_a_reason_is_an_error_and_a_reverted_one_is_none() -> None:
    failed = ev.AttemptFailed(step=1, reason=Reason.NO_PROGRESS, why="wrote nothing")
    undone = ev.StepReverted(step=2, why="still red", paths=[], tree="t")
    spans, measured = traced([started(), step(1, "implement", "implementer"), failed, step(2, "judge"), undone]).take()
    assert [(span.error, span.detail) for span in spans] == [("attempt_failed", "wrote nothing"), ("", "still red")]
    assert spans[0].attributes["error.type"] == "attempt_failed" and "error.type" not in spans[1].attributes
    assert [(one.instrument, one.value, one.attributes) for one in measured] == [
        (CHANGES, 1, {"ratchet.outcome": "reverted", "gen_ai.workflow.name": "tdd"})
    ]


def test_changes_are_counted_as_kept_reverted_or_overfitted() -> None:
    kept = ev.StepCommitted(step=1, commit="c", parent="p", subject="s", tests=[], report=REPORT, tree="t")
    caught = ev.RevisionReverted(step=2, why="overfitted: it knows the answer", paths=[], tree="t")
    _, measured = traced([started(), kept, caught]).take()
    assert [one.attributes["ratchet.outcome"] for one in measured] == ["kept", "overfitted"]


def test_a_gate_is_a_tool_of_its_step_and_only_a_failed_one_is_an_error() -> None:
    def gate(status: GateStatus) -> TraceSpan:
        ran = ev.GateRan(step=1, gate="lint", status=status, detail="two findings", seconds=1.0)
        events = [started(), step(1, "verify"), step(1, "verify"), ran]
        return traced(events).take()[0][0]

    failed = gate(GateStatus.FAILED)
    assert (failed.name, failed.error, failed.detail) == ("execute_tool gate lint", "gate_failed", "two findings")
    assert (failed.began, failed.ended) == (at(3), at(4))
    assert failed.attributes["gen_ai.tool.name"] == "gate lint" and failed.attributes["ratchet.status"] == "failed"
    assert {gate(status).error for status in GateStatus if status is not GateStatus.FAILED} == {""}


def test_a_call_without_a_known_price_has_no_cost_and_one_without_a_duration_none() -> None:
    free = msgspec.structs.replace(CALL, priced=False, seconds=-5.0)
    spans, measured = traced([started(), step(1, "audit", "auditor"), free]).take()
    assert "ratchet.cost_usd" not in spans[0].attributes and COST not in {one.instrument for one in measured}
    assert spans[0].began == spans[0].ended == at(3)


def test_a_run_that_was_aborted_is_an_error_and_its_marks_tell_what_happened() -> None:
    events = [
        started(),
        ev.RunParked(reason=ParkReason.QUOTA, detail="d"),
        ev.RunReturned(reason=Reason.WORKER_LOST, detail="d"),
        step(1, "audit", "auditor"),
        ev.AgentNudged(step=1, role="auditor", agent="a", why="silent", tree="t"),
        ev.RunAborted(by="ann"),
    ]
    spans, measured = traced(events).take()
    [root] = spans
    assert (root.error, root.attributes["error.type"], root.attributes["ratchet.status"]) == ("aborted",) * 3
    assert root.marks == [(at(2), "parked: quota"), (at(3), "returned to the queue: worker_lost")]
    assert measured[0].attributes["error.type"] == "aborted" and measured[0].value == 5.0


def test_ids_follow_from_the_run_and_the_number_of_the_event() -> None:
    first, again = (traced(RUN).take()[0] for _ in range(2))
    assert [span.id for span in first] == [span.id for span in again] and len({span.id for span in first}) == len(first)
    assert {(len(span.trace), len(span.id)) for span in first} == {(32, 16)}
    other = RunTrace("run-2")
    assert other.trace != first[0].trace and other.root not in {span.id for span in first}
