"""A run's state: the fold of its ledger. A fresh start is a resume from an empty ledger."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import singledispatch

import msgspec
from msgspec.structs import replace

from ratchet.core import events as ev
from ratchet.core.failure import Reason, counts_as_attempt
from ratchet.core.item import ItemStatus
from ratchet.core.policy import Policy
from ratchet.core.receipt import Artifact, Usage
from ratchet.core.roles import Scope
from ratchet.core.tasks import Task


class RunStatus(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"


# Where a run stands. A workflow names its own phases; every one starts and ends in these.
Phase = str
BASELINE, DONE = "baseline", "done"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A commit that still stands."""

    step: int
    commit: str
    subject: str
    tests: list[str]
    parent: str
    tree: str
    reference: Artifact


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    status: RunStatus = RunStatus.RUNNING
    phase: Phase = BASELINE
    started: ev.RunStarted | None = None
    policy: Policy = Policy()
    worker: str = ""
    parked: ev.RunParked | None = None
    failure: Reason | None = None
    detail: str = ""

    step: int = 0
    in_doubt: ev.StepStarted | None = None
    resumes: int = 0
    session: ev.SessionOpened | None = None  # where the agent of the step in doubt was asked

    tree: str = ""  # what the workspace holds between steps
    base_tree: str = ""  # what it held before anything was done
    green_tree: str = ""  # what it held at the last kept commit
    red_tree: str = ""  # the same with the accepted test in it
    before: str = ""  # what it held before the change that is judged
    reference: Artifact | None = None  # the last green report, what the next one is compared with
    baseline: Artifact | None = None  # the report on the untouched base
    tools: dict[str, str] = {}  # what it was run with, as digests
    proved: dict[str, Artifact] = {}  # gates that failed on it, with what they said
    red_report: Artifact | None = None
    red: list[str] = []
    given_back: list[str] = []  # rightly red, given up by the implementer, and nothing was made green since
    fingerprint: str = ""
    packet: Artifact | None = None  # the red ones as the fixer is told of them
    proposal: ev.ChangeProposed | None = None
    proposer: str = ""  # the role whose change it is
    agent: str = ""  # who was asked last
    proposed_by: str = ""  # the agent whose change it is
    head: str = ""
    commits: list[Kept] = []

    iteration: int = 1
    audit_tries: int = 0
    attempts: int = 0
    greens: int = 0
    greens_since_refactor: int = 0
    reverts: int = 0
    refusals: int = 0
    review_rounds: int = 0
    review_tries: int = 0
    idle: int = 0  # iterations since a task was finished
    escalated: str = ""  # the role whose stronger agent is asked now

    task: str = ""
    task_tree: str = ""  # what the workspace held when the task began
    finished: list[str] = []  # tasks

    feedback: list[str] = []  # to the role that is asked next: why its last tries did not count
    findings: list[str] = []
    usage: Usage = Usage()
    step_usage: Usage = Usage()
    uncommitted_usage: Usage = Usage()  # spent since the last kept commit: what the next one costs
    unknown: int = 0

    @property
    def final(self) -> bool:
        return self.status is not RunStatus.RUNNING

    @property
    def scope(self) -> Scope:
        assert self.started
        return Scope(
            tests=tuple(self.started.tests), protected=tuple(self.started.protected), spec=self.started.spec_path
        )

    @property
    def tasks(self) -> list[Task]:
        return [msgspec.json.decode(text, type=Task) for text in self.started.tasks] if self.started else []

    @property
    def pending(self) -> list[Task]:
        return [task for task in self.tasks if task.id not in self.finished and not task.done]


# Where an event leads from each phase. No `if` in it: what is decided is decided in policy and becomes another event.
Table = dict[tuple[Phase, type[ev.Event]], Phase]


def fold(run: str, table: Table, events: Iterable[ev.Event | ev.UnknownEvent]) -> RunState:
    state = RunState(run=run)
    for event in events:
        state = advance(state, table, event)
    return state


def advance(state: RunState, table: Table, event: ev.Event | ev.UnknownEvent) -> RunState:
    """One event further: the table moves the phase, `_apply` keeps the counts."""
    if isinstance(event, ev.UnknownEvent):
        return replace(state, unknown=state.unknown + 1)
    if state.final:
        raise ValueError(f"{state.run} is {state.status}: {ev.kind_of(event)} cannot follow")
    if type(event) in MOVING and (state.phase, type(event)) not in table:
        raise ValueError(f"{ev.kind_of(event)} cannot happen in {state.phase}")
    moved = _apply(event, state)
    phase = table.get((state.phase, type(event)), state.phase)
    done = type(event) in OUTCOMES
    escalated = moved.escalated if _tries(moved) else ""  # what it was for is done
    return replace(moved, phase=phase, in_doubt=None if done else moved.in_doubt, escalated=escalated)


def _tries(state: RunState) -> int:
    return state.attempts + state.audit_tries + state.review_tries


# What an event does to the rows of its run and item, written in the same transaction as the event.
ROWS: dict[type[ev.Event], tuple[RunStatus, ItemStatus]] = {
    ev.RunClaimed: (RunStatus.RUNNING, ItemStatus.IN_PROGRESS),
    ev.RunParked: (RunStatus.RUNNING, ItemStatus.PARKED),
    ev.RunReturned: (RunStatus.RUNNING, ItemStatus.QUEUED),
    ev.RunCompleted: (RunStatus.COMPLETED, ItemStatus.COMPLETED),
    ev.RunFailed: (RunStatus.FAILED, ItemStatus.FAILED),
    ev.RunAborted: (RunStatus.ABORTED, ItemStatus.CANCELLED),
}

# Outcomes end the announced step; decisions follow from the state alone. Both move the table.
OUTCOMES: frozenset[type[ev.Event]] = frozenset(
    {
        ev.BaselineTaken,
        ev.TestWritten,
        ev.RequirementsMet,
        ev.AuditFailed,
        ev.RedConfirmed,
        ev.RedRefused,
        ev.ChangeProposed,
        ev.AttemptFailed,
        ev.StepCommitted,
        ev.StepReverted,
        ev.StepVerified,
        ev.RevisionVerified,
        ev.RefactorFailed,
        ev.RefactorReverted,
        ev.ReviewApproved,
        ev.ChangesRequested,
        ev.ReviewFailed,
        ev.RevisionReverted,
        ev.NothingChanged,
        ev.FailuresAnalysed,
        ev.TreeFoundGreen,
        ev.SpecUnchanged,
        ev.SpecRefused,
        ev.TaskFinished,
        ev.TaskUnfinished,
        ev.FinalVerified,
        ev.FinalRefused,
        ev.Landed,
    }
)
DECISIONS: frozenset[type[ev.Event]] = frozenset(
    {ev.TestAbandoned, ev.RefactorFellDue, ev.SpecLeft, ev.TaskBegun, ev.TasksDone}
)
MOVING = OUTCOMES | DECISIONS


@singledispatch
def _apply(event: ev.Event, state: RunState) -> RunState:
    return state


@_apply.register
def _(event: ev.RunStarted, state: RunState) -> RunState:
    policy = msgspec.convert(event.policy, Policy)
    return replace(state, started=event, policy=policy, head=event.base_commit)


@_apply.register
def _(event: ev.RunClaimed, state: RunState) -> RunState:
    return replace(state, worker=event.worker, parked=None)


@_apply.register
def _(event: ev.RunParked, state: RunState) -> RunState:
    # The step it happened in stays in doubt: whoever claims the run next makes it whole. Waiting is not being lost.
    return replace(state, parked=event, resumes=-1)


@_apply.register
def _(event: ev.RunReturned, state: RunState) -> RunState:
    """A failure that counted is tried again with every try unused; what is kept stays, so it starts at the last green.
    One that was nobody's fault (a lost worker) goes on as if nothing had been."""
    if not counts_as_attempt(event.reason):
        return state
    return replace(
        state, resumes=-1, attempts=0, audit_tries=0, review_tries=0, review_rounds=0, feedback=[event.detail]
    )


@_apply.register
def _(event: ev.RunCompleted, state: RunState) -> RunState:
    return replace(state, status=RunStatus.COMPLETED)


@_apply.register
def _(event: ev.RunFailed, state: RunState) -> RunState:
    return replace(state, status=RunStatus.FAILED, failure=event.reason, detail=event.detail)


@_apply.register
def _(event: ev.RunAborted, state: RunState) -> RunState:
    return replace(state, status=RunStatus.ABORTED, detail=f"aborted by {event.by}")


@_apply.register
def _(event: ev.StepStarted, state: RunState) -> RunState:
    return replace(
        state,
        step=event.step,
        in_doubt=event,
        resumes=0,
        session=None,
        step_usage=Usage(),
        tree=event.tree or state.tree,
    )


@_apply.register
def _(event: ev.StepResumed, state: RunState) -> RunState:
    return replace(state, resumes=state.resumes + 1)


@_apply.register
def _(event: ev.SessionOpened, state: RunState) -> RunState:
    return replace(state, session=event)


@_apply.register
def _(event: ev.UsageMetered, state: RunState) -> RunState:
    spent = Usage(
        tokens_in=event.tokens_in,
        tokens_out=event.tokens_out,
        cost_usd=event.cost_usd,
        seconds=event.seconds,
    )
    return replace(
        state,
        agent=event.agent,
        usage=state.usage + spent,
        step_usage=state.step_usage + spent,
        uncommitted_usage=state.uncommitted_usage + spent,
    )


@_apply.register
def _(event: ev.BaselineTaken, state: RunState) -> RunState:
    report, tree = event.report, event.tree
    return replace(
        state, reference=report, baseline=report, tree=tree, green_tree=tree, base_tree=tree, tools=event.tools
    )


@_apply.register
def _(event: ev.GateProved, state: RunState) -> RunState:
    return replace(state, proved={**state.proved, event.gate: event.output}) if event.output else state


@_apply.register
def _(event: ev.FinalRefused, state: RunState) -> RunState:
    """To the implementer it is one more round of changes asked for."""
    rounds = state.review_rounds + 1
    return replace(state, findings=[event.why], review_rounds=rounds, review_tries=0, attempts=0, feedback=[])


@_apply.register
def _(event: ev.TestWritten, state: RunState) -> RunState:
    return replace(state, tree=event.tree, red_tree=event.tree)


@_apply.register
def _(event: ev.AuditFailed, state: RunState) -> RunState:
    return replace(
        state,
        tree=state.green_tree,
        audit_tries=state.audit_tries + 1,
        feedback=[*state.feedback, event.why],
    )


@_apply.register
def _(event: ev.RedConfirmed, state: RunState) -> RunState:
    return replace(
        state,
        red=event.tests,
        fingerprint=event.fingerprint,
        red_report=event.report,
        audit_tries=0,
        attempts=0,
        feedback=[],
    )


@_apply.register
def _(event: ev.RedRefused, state: RunState) -> RunState:
    return replace(
        state,
        tree=event.tree,
        audit_tries=state.audit_tries + 1,
        refusals=state.refusals + 1,
        feedback=[*state.feedback, event.why],
    )


@_apply.register
def _(event: ev.RequirementsMet, state: RunState) -> RunState:
    return replace(state, audit_tries=0, attempts=0, feedback=[])


@_apply.register
def _(event: ev.ChangeProposed, state: RunState) -> RunState:
    proposer = state.in_doubt.role if state.in_doubt else ""
    return replace(
        state, tree=event.tree, before=state.tree, proposal=event, proposer=proposer, proposed_by=state.agent
    )


@_apply.register
def _(event: ev.AttemptFailed, state: RunState) -> RunState:
    return replace(state, attempts=state.attempts + 1, feedback=[*state.feedback, event.why])


@_apply.register
def _(event: ev.StepCommitted, state: RunState) -> RunState:
    assert state.reference
    kept = Kept(
        step=event.step,
        commit=event.commit,
        subject=event.subject,
        tests=event.tests,
        parent=event.parent,
        tree=state.green_tree,
        reference=state.reference,
    )
    return replace(
        state,
        head=event.commit,
        tree=event.tree,
        green_tree=event.tree,
        reference=event.report,
        uncommitted_usage=Usage(),
        commits=[*state.commits, kept],
    )


def _reverted(state: RunState, event: ev.StepReverted | ev.RevisionReverted | ev.RefactorReverted) -> RunState:
    """Back to before the attempt; a commit that a gate undid is taken off the list."""
    state = replace(state, tree=event.tree, reverts=state.reverts + 1)
    if not event.commit:
        return state
    undone = state.commits[-1]
    return replace(
        state,
        head=undone.parent,
        green_tree=undone.tree,
        reference=undone.reference,
        commits=state.commits[:-1],
    )


@_apply.register(ev.StepReverted)
@_apply.register(ev.RevisionReverted)
def _(event: ev.StepReverted | ev.RevisionReverted, state: RunState) -> RunState:
    state = _reverted(state, event)
    return replace(state, attempts=state.attempts + 1, feedback=[*state.feedback, event.why])


@_apply.register
def _(event: ev.StepVerified, state: RunState) -> RunState:
    if not state.red:  # what was verified made no red test green: it ends no iteration
        return replace(state, proposal=None, attempts=0, feedback=[])
    return replace(
        state,
        greens=state.greens + 1,
        greens_since_refactor=state.greens_since_refactor + 1,
        iteration=state.iteration + 1,
        given_back=[],
        red=[],
        attempts=0,
        feedback=[],
        proposal=None,
    )


@_apply.register
def _(event: ev.TestAbandoned, state: RunState) -> RunState:
    return replace(
        state,
        tree=state.green_tree,
        given_back=state.red,
        red=[],
        attempts=0,
        audit_tries=0,
        iteration=state.iteration + 1,
        feedback=[event.why],
    )


@_apply.register
def _(event: ev.RefactorFellDue, state: RunState) -> RunState:
    return replace(state, greens_since_refactor=0, feedback=[])


@_apply.register
def _(event: ev.RefactorReverted, state: RunState) -> RunState:
    return replace(_reverted(state, event), feedback=[])


@_apply.register
def _(event: ev.ChangesRequested, state: RunState) -> RunState:
    return replace(
        state,
        findings=event.findings,
        review_rounds=state.review_rounds + 1,
        review_tries=0,
        attempts=0,
        feedback=[],
    )


@_apply.register
def _(event: ev.ReviewFailed, state: RunState) -> RunState:
    return replace(state, review_tries=state.review_tries + 1, feedback=[*state.feedback, event.why])


@_apply.register
def _(event: ev.RevisionVerified, state: RunState) -> RunState:
    return replace(state, attempts=0, review_tries=0, feedback=[], proposal=None)


@_apply.register
def _(event: ev.ReviewApproved, state: RunState) -> RunState:
    return replace(state, attempts=0, review_tries=0, feedback=[])


@_apply.register
def _(event: ev.Escalated, state: RunState) -> RunState:
    return replace(state, escalated=event.role)


# --- failures to fix ------------------------------------------------------------------------------------------------


@_apply.register
def _(event: ev.FailuresAnalysed, state: RunState) -> RunState:
    return replace(
        state,
        red=event.tests,
        fingerprint=event.fingerprint,
        red_report=event.report,
        red_tree=state.green_tree,
        packet=event.packet,
        attempts=0,
        feedback=[],
    )


@_apply.register
def _(event: ev.TreeFoundGreen, state: RunState) -> RunState:
    return replace(state, red=[], attempts=0, feedback=[])


# --- tasks and the spec ---------------------------------------------------------------------------------------------


@_apply.register
def _(event: ev.TaskBegun, state: RunState) -> RunState:
    """Begun again after an iteration in vain, a task keeps what was learnt of it."""
    same = event.task == state.task
    return replace(
        state,
        task=event.task,
        task_tree=state.task_tree if same else state.green_tree,
        iteration=state.iteration + (1 if state.idle or state.finished else 0),
        idle=state.idle + 1,
        attempts=0,
        review_rounds=0,
        review_tries=0,
        findings=[],
        feedback=state.feedback if same else [],
    )


@_apply.register
def _(event: ev.TaskFinished, state: RunState) -> RunState:
    return replace(state, finished=[*state.finished, event.task], task="", idle=0, attempts=0, feedback=[])


@_apply.register
def _(event: ev.TaskUnfinished, state: RunState) -> RunState:
    return replace(state, feedback=[*state.feedback, event.why])


@_apply.register
def _(event: ev.SpecRefused, state: RunState) -> RunState:
    return replace(state, attempts=state.attempts + 1, feedback=[*state.feedback, event.why])


@_apply.register
def _(event: ev.SpecLeft, state: RunState) -> RunState:
    return replace(state, attempts=0, feedback=[])
