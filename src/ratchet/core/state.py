"""The state of a run, folded from its ledger. A fresh start is a resume from an empty ledger."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import singledispatch

import msgspec
from msgspec.structs import replace

from ratchet.core import events as ev
from ratchet.core.failure import Reason, RevertOutcome, counts_as_attempt
from ratchet.core.item import ItemStatus
from ratchet.core.policy import Policy
from ratchet.core.receipt import Artifact, Usage
from ratchet.core.roles import PathRules
from ratchet.core.tasks import Task


class RunStatus(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"


# The phase of a run. Workflows define their own phases; all start and end with these.
Phase = str
BASELINE, DONE = "baseline", "done"


MESSAGES_MAX = 5


class KeptCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit of the run that was not reverted."""

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
    session: ev.SessionOpened | None = None  # the session of the agent in the step in doubt

    tree: str = ""  # content of the workspace between steps
    base_tree: str = ""  # before the first step
    green_tree: str = ""  # at the last kept commit
    red_tree: str = ""  # the same with the accepted test in it
    before: str = ""  # before the change that is judged
    reference: Artifact | None = None  # the last green report, with which the next one is compared
    baseline: Artifact | None = None  # the report on the untouched base
    tools: dict[str, str] = {}  # digests of the test tools of the baseline
    proved: dict[str, Artifact] = {}  # gates that failed on the base, with their output
    red_report: Artifact | None = None
    red: list[str] = []
    given_back: list[str] = []  # failed for the right reason and were given up; cleared by the next green step
    refused: str = ""  # why the last test was refused, unless it already passes; cleared by an accepted test
    fingerprint: str = ""
    failures: list[str] = []  # fingerprints of the failing tests
    reverted_failures: list[str] = []  # of the last reverted attempt
    packet: Artifact | None = None  # describes the failing tests to the fixer
    sealed: Artifact | None = None  # the sealed tests of the test in progress, encrypted
    sealed_report: Artifact | None = None
    requirement: str = ""  # the requirement of the test in progress
    sealed_laid: ev.SealedLaid | None = None  # sealed tests of people
    disclosures: int = 0  # how many of their verdicts agents have seen
    contested: bool = False
    reverted_as: RevertOutcome | None = None  # how the last attempt ended
    doubts: int = 0
    proposal: ev.ChangeProposed | None = None
    proposer: str = ""  # the role that made the change
    agent: str = ""  # the agent called last
    proposed_by: str = ""  # the agent that made the change
    head: str = ""
    commits: list[KeptCommit] = []
    objects: str = ""  # the artifact with its trees and commits

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

    messages: list[str] = []  # of people, since the last kept commit
    feedback: list[str] = []  # to the role that is asked next: why its last tries did not count
    findings: list[str] = []
    usage: Usage = Usage()
    step_usage: Usage = Usage()
    uncommitted_usage: Usage = Usage()  # spent since the last kept commit: what the next one costs
    priced: bool = True  # false once the cost of a call is unknown
    uncommitted_priced: bool = True
    unknown: int = 0

    @property
    def trees(self) -> frozenset[str]:
        """All trees that later steps may need."""
        task = {self.task_tree, self.before, self.red_tree, self.green_tree, self.base_tree, self.tree}
        return frozenset(task - {""})

    @property
    def final(self) -> bool:
        return self.status is not RunStatus.RUNNING

    @property
    def unmet(self) -> str:
        """Why the claim that the requirements are met is not accepted, or an empty string."""
        if self.given_back:
            return (
                f"{', '.join(self.given_back)} failed for the right reason but was given up, and no step has been "
                "committed since: write another test for it"
            )
        if self.refused and not self.commits:
            return (
                f"nothing has been kept, and the last test was refused ({self.refused}): write a test that can be "
                "accepted, or, if the requirements are met already, one that passes and shows it"
            )
        return ""

    @property
    def scope(self) -> PathRules:
        assert self.started
        return PathRules(
            tests=tuple(self.started.tests), protected=tuple(self.started.protected), spec=self.started.spec_path
        )

    @property
    def tasks(self) -> list[Task]:
        return [msgspec.json.decode(text, type=Task) for text in self.started.tasks] if self.started else []

    @property
    def pending(self) -> list[Task]:
        return [task for task in self.tasks if task.id not in self.finished and not task.done]


# The next phase for each phase and event. It has no conditions: decisions are made in policy and become events.
Table = dict[tuple[Phase, type[ev.Event]], Phase]


def fold(run: str, table: Table, events: Iterable[ev.Event | ev.UnknownEvent]) -> RunState:
    state = RunState(run=run)
    for event in events:
        state = advance(state, table, event)
    return state


def advance(state: RunState, table: Table, event: ev.Event | ev.UnknownEvent) -> RunState:
    """Apply one event: the table changes the phase, `_apply` updates the rest. Raises ValueError for invalid events."""
    if isinstance(event, ev.UnknownEvent):
        return replace(state, unknown=state.unknown + 1)
    if state.final:
        raise ValueError(f"{state.run} is {state.status}: {ev.kind_of(event)} cannot follow")
    if type(event) in MOVING and (state.phase, type(event)) not in table:
        raise ValueError(f"{ev.kind_of(event)} cannot happen in {state.phase}")
    moved = _apply(event, state)
    phase = table.get((state.phase, type(event)), state.phase)
    done = type(event) in OUTCOMES
    escalated = moved.escalated if _tries(moved) else ""  # the task it was for is done
    return replace(moved, phase=phase, in_doubt=None if done else moved.in_doubt, escalated=escalated)


def _tries(state: RunState) -> int:
    return state.attempts + state.audit_tries + state.review_tries


# The statuses of run and item that an event sets, in the same transaction as the event.
ROWS: dict[type[ev.Event], tuple[RunStatus, ItemStatus]] = {
    ev.RunClaimed: (RunStatus.RUNNING, ItemStatus.IN_PROGRESS),
    ev.RunParked: (RunStatus.RUNNING, ItemStatus.PARKED),
    ev.RunReturned: (RunStatus.RUNNING, ItemStatus.QUEUED),
    ev.RunCompleted: (RunStatus.COMPLETED, ItemStatus.COMPLETED),
    ev.RunFailed: (RunStatus.FAILED, ItemStatus.FAILED),
    ev.RunAborted: (RunStatus.ABORTED, ItemStatus.CANCELLED),
}

# Outcomes end the current step; decisions follow from the state alone. Both change the phase.
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
        ev.SealedUpheld,
        ev.SealedReplaced,
    }
)
DECISIONS: frozenset[type[ev.Event]] = frozenset(
    {ev.TestAbandoned, ev.SealedContested, ev.RefactorFellDue, ev.SpecLeft, ev.TaskBegun, ev.TasksDone}
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
    # The current step stays in doubt: the next worker repeats it. Parking does not count as a lost worker.
    return replace(state, parked=event, resumes=-1)


@_apply.register
def _(event: ev.QuestionAnswered, state: RunState) -> RunState:
    """Ask again with the answer, in a new session: the old one ended with its question."""
    asked = state.parked.detail if state.parked else "the question"
    return replace(state, session=None, feedback=[*state.feedback, f"{asked}. A person answered: {event.answer}"])


@_apply.register
def _(event: ev.RunNudged, state: RunState) -> RunState:
    return replace(state, messages=[*state.messages, event.message][-MESSAGES_MAX:])


@_apply.register
def _(event: ev.RunReturned, state: RunState) -> RunState:
    """A failure of agent or item resets all tries; kept commits stay, so the run restarts at the last green tree.
    After other causes, such as a lost worker, the run continues unchanged."""
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
def _(event: ev.ReceiptFiled, state: RunState) -> RunState:
    return replace(state, objects=event.objects or state.objects)


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
        priced=state.priced and event.priced,
        uncommitted_priced=state.uncommitted_priced and event.priced,
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
    """The refusal becomes one more review round for the implementer."""
    return replace(
        state,
        findings=[event.why],
        review_rounds=state.review_rounds + 1,
        review_tries=0,
        attempts=0,
        feedback=[],
        disclosures=state.disclosures + event.disclosed,
    )


@_apply.register
def _(event: ev.SealedLaid, state: RunState) -> RunState:
    return replace(state, sealed_laid=event)


@_apply.register
def _(event: ev.TestWritten, state: RunState) -> RunState:
    return replace(
        state,
        tree=event.tree,
        red_tree=event.tree,
        sealed=event.sealed,
        requirement=event.summary,
        contested=False,
    )


@_apply.register
def _(event: ev.AuditFailed, state: RunState) -> RunState:
    return replace(
        state,
        tree=state.green_tree,
        audit_tries=state.audit_tries + 1,
        feedback=[*state.feedback, event.why],
        sealed=None,
    )


@_apply.register
def _(event: ev.RedConfirmed, state: RunState) -> RunState:
    return replace(
        state,
        red=event.tests,
        fingerprint=event.fingerprint,
        failures=event.failures,
        refused="",
        reverted_failures=[],
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
        refused="" if event.met else event.why,
        sealed=None,
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
    return replace(state, attempts=state.attempts + 1, feedback=[*state.feedback, event.why], reverted_as=None)


@_apply.register
def _(event: ev.StepCommitted, state: RunState) -> RunState:
    assert state.reference
    kept = KeptCommit(
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
        uncommitted_priced=True,
        commits=[*state.commits, kept],
        messages=[],
        sealed_report=event.sealed_report,
    )


def _reverted(state: RunState, event: ev.StepReverted | ev.RevisionReverted | ev.RefactorReverted) -> RunState:
    """Restore the state before the attempt; remove a commit that a gate undid."""
    disclosures = state.disclosures + event.disclosed
    state = replace(
        state,
        tree=event.tree,
        reverts=state.reverts + 1,
        disclosures=disclosures,
        reverted_failures=event.failures,
    )
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
    return replace(state, attempts=state.attempts + 1, feedback=[*state.feedback, event.why], reverted_as=event.outcome)


def _completed(state: RunState, completion: ev.Completion | None) -> RunState:
    """Replace the last commit by the one with the sealed tests and the doubts."""
    state = replace(state, sealed=None, sealed_report=None)
    if completion is None:
        return state
    *others, last = state.commits
    return replace(
        state,
        head=completion.commit,
        tree=completion.tree,
        green_tree=completion.tree,
        reference=completion.report or state.reference,
        commits=[*others, replace(last, commit=completion.commit)],
        doubts=state.doubts + len(completion.doubts),
    )


@_apply.register
def _(event: ev.StepVerified, state: RunState) -> RunState:
    state = _completed(state, event.completion)
    if not state.red:  # the change turned no red test green, so it ends no iteration
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
def _(event: ev.SealedContested, state: RunState) -> RunState:
    return replace(state, contested=True, tree=state.red_tree)


@_apply.register
def _(event: ev.SealedReplaced, state: RunState) -> RunState:
    assert state.proposal
    return replace(state, sealed=event.sealed, tree=state.proposal.tree, before=state.red_tree)


@_apply.register(ev.SealedUpheld)
@_apply.register(ev.TestAbandoned)
def _(event: ev.TestAbandoned | ev.SealedUpheld, state: RunState) -> RunState:
    return replace(
        state,
        tree=state.green_tree,
        sealed=None,
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
    state = _completed(state, event.completion)
    return replace(state, attempts=0, review_tries=0, feedback=[], proposal=None)


@_apply.register
def _(event: ev.ReviewApproved, state: RunState) -> RunState:
    return replace(state, attempts=0, review_tries=0, feedback=[])


@_apply.register
def _(event: ev.Landed, state: RunState) -> RunState:
    return replace(state, head=event.head)


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
        failures=event.failures,
        reverted_failures=[],
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
    """A task that is repeated after a failed iteration keeps its feedback."""
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
