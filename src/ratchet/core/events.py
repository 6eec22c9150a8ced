"""Ledger events: facts in the past tense, flat, frozen. A shipped event is never edited: add a field with a default."""

from __future__ import annotations

from typing import Any, ClassVar, get_args

import msgspec

from ratchet.core.failure import Reason
from ratchet.core.gates import GateStatus
from ratchet.core.item import ParkReason
from ratchet.core.receipt import Artifact


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=_snake):
    """Sequence number, time and epoch belong to the envelope (`core.ledger.Entry`)."""


def kind_of(event: Event | type[Event]) -> str:
    return str(event.__struct_config__.tag)


# --- the run -------------------------------------------------------------------------------------------------


class RunStarted(Event, frozen=True, kw_only=True):
    """Everything later decisions depend on, fixed here, so that a resumed run cannot drift with its surroundings."""

    item: str
    title: str
    workflow: str
    repo: str
    base_commit: str
    branch: str
    slug: str
    policy: dict[str, int]
    tests: list[str]
    protected: list[str]
    test_command: list[str]
    gates: list[str] = []
    targets: list[str] = []
    tasks: list[str] = []
    spec_path: str = ""
    escalate: dict[str, int] = {}


class RunClaimed(Event, frozen=True, kw_only=True):
    """A worker took the lease; it continues where the ledger ends."""

    worker: str


class RunParked(Event, frozen=True, kw_only=True):
    reason: ParkReason
    detail: str
    until: str = ""


class RunReturned(Event, frozen=True, kw_only=True):
    """Its worker gave it up or was lost: it is in the queue again, not before `until`."""

    reason: Reason
    detail: str
    until: str = ""
    attempts: int = 0


class RunCompleted(Event, frozen=True, kw_only=True):
    commits: int
    head: str


class RunFailed(Event, frozen=True, kw_only=True):
    reason: Reason
    detail: str


class RunAborted(Event, frozen=True, kw_only=True):
    by: str


# --- steps ---------------------------------------------------------------------------------------------------


class StepStarted(Event, frozen=True, kw_only=True):
    """Announced before it is done. `tree` is the workspace's exact content at this moment."""

    step: int
    action: str
    role: str
    key: str
    tree: str
    snapshot: str


class StepResumed(Event, frozen=True, kw_only=True):
    """A worker found the step started and not finished, and made it whole."""

    step: int


class ReceiptFiled(Event, frozen=True, kw_only=True):
    """The receipt of a finished step, by its content: what is in the ledger protects what is beside it."""

    step: int
    sha256: str


class WritesUndone(Event, frozen=True, kw_only=True):
    """The role wrote where it may not; those paths are again as they were."""

    step: int
    role: str
    paths: list[str]


class Escalated(Event, frozen=True, kw_only=True):
    """The role failed this often at one thing: from now on, and until that is done, its stronger agent is asked."""

    role: str
    tries: int


class ForkEnded(Event, frozen=True, kw_only=True):
    """One attempt of a swarm: `how` is won, refused, failed or cancelled. What it spent is metered beside it."""

    step: int
    attempt: int
    agent: str
    how: str
    why: str
    paths: list[str] = []
    tree: str = ""


class SessionOpened(Event, frozen=True, kw_only=True):
    """Recorded while the agent works: whoever continues a step that was cut off asks in the same session."""

    step: int
    role: str
    agent: str
    session: str


class AgentNudged(Event, frozen=True, kw_only=True):
    """It was stuck (`why`) or asked something: stopped, and asked again with a message. `tree` is what it had made."""

    step: int
    role: str
    agent: str
    why: str
    tree: str


class AgentReplaced(Event, frozen=True, kw_only=True):
    """The agent could not be reached: the next one of the role's `fallback` was asked instead."""

    step: int
    role: str
    agent: str
    by: str
    why: str


class UsageMetered(Event, frozen=True, kw_only=True):
    step: int
    role: str
    agent: str
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0


# --- what a step's outcome was: these move the table -----------------------------------------------------------


class BaselineTaken(Event, frozen=True, kw_only=True):
    step: int
    report: Artifact
    tests: int
    failing: list[str]
    tree: str
    tools: dict[str, str] = {}  # digests of what the tests were run with


class TestWritten(Event, frozen=True, kw_only=True):
    step: int
    paths: list[str]
    tree: str
    summary: str


class RequirementsMet(Event, frozen=True, kw_only=True):
    step: int
    summary: str


class AuditFailed(Event, frozen=True, kw_only=True):
    step: int
    reason: Reason
    why: str


class RedConfirmed(Event, frozen=True, kw_only=True):
    step: int
    tests: list[str]
    fingerprint: str
    report: Artifact


class RedRefused(Event, frozen=True, kw_only=True):
    step: int
    why: str
    tree: str


class ChangeProposed(Event, frozen=True, kw_only=True):
    """Implementer, architect or fixer changed the tree: now it is judged."""

    step: int
    paths: list[str]
    tree: str
    summary: str


class AttemptFailed(Event, frozen=True, kw_only=True):
    step: int
    reason: Reason
    why: str


class StepCommitted(Event, frozen=True, kw_only=True):
    step: int
    commit: str
    parent: str
    subject: str
    tests: list[str]
    report: Artifact
    tree: str


class StepReverted(Event, frozen=True, kw_only=True):
    """Red: the tree is again what it was before the attempt. `commit` is set when a gate undid a commit."""

    step: int
    why: str
    paths: list[str]
    tree: str
    commit: str = ""


class StepVerified(Event, frozen=True, kw_only=True):
    step: int
    gates: list[str]
    warnings: list[str]


class RevisionVerified(Event, frozen=True, kw_only=True):
    step: int
    gates: list[str]
    warnings: list[str]


class NothingChanged(Event, frozen=True, kw_only=True):
    """The role says it is done and changed nothing: whether it is, the factory finds out."""

    step: int
    summary: str


class FailuresAnalysed(Event, frozen=True, kw_only=True):
    """What is red now and to be made green; `packet` is how it is told to the fixer."""

    step: int
    tests: list[str]
    clusters: int
    fingerprint: str
    report: Artifact
    packet: Artifact


class TreeFoundGreen(Event, frozen=True, kw_only=True):
    step: int


class SpecUnchanged(Event, frozen=True, kw_only=True):
    step: int
    summary: str


class SpecRefused(Event, frozen=True, kw_only=True):
    """The scribe changed what is not its to change, or failed: the spec is again as it was."""

    step: int
    why: str


class SpecLeft(Event, frozen=True, kw_only=True):
    """Out of tries: the spec stays as it is, and the work goes on."""

    why: str


class TaskBegun(Event, frozen=True, kw_only=True):
    task: str
    title: str


class TaskFinished(Event, frozen=True, kw_only=True):
    """`how` it is known: never by an agent's word."""

    task: str
    how: str
    step: int = 0


class TaskUnfinished(Event, frozen=True, kw_only=True):
    step: int
    task: str
    why: str


class TasksDone(Event, frozen=True, kw_only=True):
    count: int


class GateProved(Event, frozen=True, kw_only=True):
    """A gate on the untouched base; what it said when it failed there is known from then on."""

    step: int
    gate: str
    status: GateStatus
    detail: str = ""
    output: Artifact | None = None


class GateRan(Event, frozen=True, kw_only=True):
    step: int
    gate: str
    status: GateStatus
    detail: str = ""
    report: Artifact | None = None
    seconds: float = 0.0


class FinalVerified(Event, frozen=True, kw_only=True):
    """Green with the base's own tests over the new source, and with the accepted tests, in a fresh workspace."""

    step: int
    reports: list[Artifact]
    canaries: int = 0  # tests that cannot pass, and did not
    without: list[str] = []  # files of tests that none could be added to


class FinalRefused(Event, frozen=True, kw_only=True):
    step: int
    why: str
    reports: list[Artifact]


class TestAbandoned(Event, frozen=True, kw_only=True):
    """Out of attempts: the auditor hears what was tried and may replace the test."""

    why: str


class RefactorFellDue(Event, frozen=True, kw_only=True):
    greens: int


class RefactorFailed(Event, frozen=True, kw_only=True):
    step: int
    reason: Reason
    why: str


class RefactorReverted(Event, frozen=True, kw_only=True):
    step: int
    why: str
    paths: list[str]
    tree: str
    commit: str = ""


class ReviewApproved(Event, frozen=True, kw_only=True):
    step: int
    summary: str


class ChangesRequested(Event, frozen=True, kw_only=True):
    """`findings` are the reviewer's, one JSON object each: file, line, severity, issue, suggestion."""

    step: int
    summary: str
    findings: list[str]


class ReviewFailed(Event, frozen=True, kw_only=True):
    step: int
    reason: Reason
    why: str


class RevisionReverted(Event, frozen=True, kw_only=True):
    step: int
    why: str
    paths: list[str]
    tree: str
    commit: str = ""


class Landed(Event, frozen=True, kw_only=True):
    step: int
    how: str
    branch: str
    head: str


AnyEvent = (
    RunStarted
    | RunClaimed
    | RunParked
    | RunReturned
    | RunCompleted
    | RunFailed
    | RunAborted
    | StepStarted
    | StepResumed
    | ReceiptFiled
    | WritesUndone
    | Escalated
    | ForkEnded
    | SessionOpened
    | AgentNudged
    | AgentReplaced
    | UsageMetered
    | BaselineTaken
    | TestWritten
    | RequirementsMet
    | AuditFailed
    | RedConfirmed
    | RedRefused
    | ChangeProposed
    | AttemptFailed
    | StepCommitted
    | StepReverted
    | StepVerified
    | RevisionVerified
    | GateProved
    | GateRan
    | FinalVerified
    | FinalRefused
    | NothingChanged
    | FailuresAnalysed
    | TreeFoundGreen
    | SpecUnchanged
    | SpecRefused
    | SpecLeft
    | TaskBegun
    | TaskFinished
    | TaskUnfinished
    | TasksDone
    | TestAbandoned
    | RefactorFellDue
    | RefactorFailed
    | RefactorReverted
    | ReviewApproved
    | ChangesRequested
    | ReviewFailed
    | RevisionReverted
    | Landed
)
EVENTS: tuple[type[Event], ...] = get_args(AnyEvent)
KINDS: dict[str, type[Event]] = {kind_of(event): event for event in EVENTS}


class UnknownEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A row a newer Ratchet wrote: kept, counted, skipped."""

    kind: ClassVar[str] = "unknown"
    name: str
    data: dict[str, Any]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyEvent)


def encode(event: Event) -> bytes:
    return _encoder.encode(event)


def decode(kind: str, data: bytes) -> AnyEvent | UnknownEvent:
    if kind not in KINDS:
        return UnknownEvent(name=kind, data=msgspec.json.decode(data))
    event: AnyEvent = _decoder.decode(data)
    return event
