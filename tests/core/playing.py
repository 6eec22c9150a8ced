"""A run of any workflow as the engine would drive it, with agents and tests doing whatever a list of choices says."""

from __future__ import annotations

import msgspec

from ratchet.core import events as ev
from ratchet.core.failure import Reason, RevertOutcome
from ratchet.core.policy import Policy
from ratchet.core.receipt import Artifact
from ratchet.core.state import OUTCOMES, RunState, advance, fold
from ratchet.core.tasks import Task
from ratchet.core.workflows.workflow import Workflow

REPORT = Artifact(path="reports/step-1.json", sha256="0" * 64, size=1)
TASKS = [Task(id=f"T00{n}", title=f"task {n}", verify="true" if n % 2 else "", done=n == 2) for n in range(1, 5)]


def started(workflow: str = "tdd", escalate: dict[str, int] | None = None, **policy: int) -> ev.RunStarted:
    return ev.RunStarted(
        item="item-1",
        title="t",
        workflow=workflow,
        repo="/r",
        base_commit="c0",
        branch="ratchet/t",
        slug="t",
        policy=msgspec.to_builtins(Policy(**policy)),
        tests=["tests/**"],
        protected=[],
        test_command=["pytest"],
        tasks=[msgspec.json.encode(task).decode() for task in TASKS],
        spec_path="SPEC.md",
        escalate=escalate or {},
    )


def outcome(kind: type[ev.Event], state: RunState) -> ev.Event:
    """An event of this kind as the engine would record it in this state."""
    committed = bool(state.proposal and state.commits and state.commits[-1].step > state.proposal.step)
    undone = "Reverted" in kind.__name__ and committed
    values = {
        "step": state.step,
        "report": REPORT,
        "reports": [REPORT, REPORT],
        "packet": REPORT,
        "tests": 1 if kind is ev.BaselineTaken else ["t::a"],
        "clusters": 1,
        "failing": 1 if kind is ev.FinalVerified else [],
        "unchecked": 0,
        "unloaded": [],
        "skipped": 0,
        "tools": {"pytest": "d1"},
        "canaries": 1,
        "without": [],
        "tree": _tree(kind, state),
        "paths": ["a.py"],
        "summary": "did it",
        "why": "because",
        "reason": Reason.NO_PROGRESS,
        "fingerprint": "f",
        "failures": ["f1"],
        "commit": f"c{state.step}" if kind is ev.StepCommitted else state.head if undone else "",
        "parent": state.head,
        "subject": "s",
        "gates": [],
        "warnings": [],
        "findings": ["{}"],
        "outcome": RevertOutcome.OVERFITTED if state.sealed and not undone else RevertOutcome.GATE,
        "disclosed": 0,
        "met": False,
        "sealed": 1 if kind is ev.RedConfirmed else REPORT,
        "unsealed": "",
        "sealed_report": REPORT if state.sealed else None,
        "completion": _completion(state),
        "task": state.task,
        "how": "branch",
        "branch": "b",
        "head": state.head,
    }
    return kind(**{name: values[name] for name in kind.__struct_fields__})


def _completion(state: RunState) -> ev.Completion | None:
    if state.sealed_report is None:
        return None
    return ev.Completion(commit=f"d{state.step}", tree=f"sealed-{state.step}", report=REPORT, sealed=2, doubts=["d"])


def _tree(kind: type[ev.Event], state: RunState) -> str:
    """Where the engine has put the workspace when it records an event of this kind."""
    if "Reverted" in kind.__name__:
        return state.before
    back = {ev.RedRefused: state.green_tree, ev.StepCommitted: state.tree}
    return back.get(kind, f"tree-{state.step}")


def possible(workflow: Workflow, state: RunState) -> list[type[ev.Event]]:
    return [event for phase, event in workflow.table if phase == state.phase and event in OUTCOMES]


def announced(workflow: Workflow, state: RunState) -> ev.StepStarted:
    planned = workflow.plan(state)
    return ev.StepStarted(
        step=state.step + 1,
        action=planned.action,
        role=planned.role,
        key=f"ik:{state.step}",
        tree=state.tree,
        snapshot="s",
    )


def play(
    workflow: Workflow, choices: list[int], policy: dict[str, int], escalate: dict[str, int] | None = None
) -> list[ev.Event]:
    history: list[ev.Event] = [started(workflow.name, escalate, **policy), ev.RunClaimed(worker="w")]
    state = fold("run-1", workflow.table, history)

    def happens(event: ev.Event) -> None:
        nonlocal state
        history.append(event)
        state = advance(state, workflow.table, event)

    for choice in choices:
        if state.final:
            break
        if decision := workflow.decide(state):
            happens(decision)
            continue
        happens(announced(workflow, state))
        if workflow.plan(state).role:
            happens(ev.UsageMetered(step=state.step, role="r", agent="a", cost_usd=0.01, seconds=1.0))
        kinds = possible(workflow, state)
        happens(outcome(kinds[choice % len(kinds)], state))
    return history
