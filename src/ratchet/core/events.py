"""Ledger events: facts in the past tense, flat, frozen. A shipped event is never edited: add a field with a default."""

from __future__ import annotations

from typing import Any, ClassVar, get_args

import msgspec

from ratchet.core.failure import Reason
from ratchet.core.item import ParkReason
from ratchet.core.receipt import Artifact


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=lambda name: _snake(name)):
    """Sequence number, time and epoch belong to the envelope (`core.ledger.Entry`)."""


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def kind_of(event: Event | type[Event]) -> str:
    return str(event.__struct_config__.tag)


# --- the run -------------------------------------------------------------------------------------------------


class RunStarted(Event):
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


class RunClaimed(Event):
    """A worker took the lease; it continues where the ledger ends."""

    worker: str


class RunParked(Event):
    reason: ParkReason
    detail: str
    until: str = ""


class RunCompleted(Event):
    commits: int
    head: str


class RunFailed(Event):
    reason: Reason
    detail: str


class RunAborted(Event):
    by: str


# --- steps ---------------------------------------------------------------------------------------------------


class StepStarted(Event):
    """Announced before it is done. `tree` is the workspace's exact content at this moment."""

    step: int
    action: str
    role: str
    key: str
    tree: str
    snapshot: str


class StepResumed(Event):
    """A worker found the step started and not finished, and made it whole."""

    step: int


class WritesUndone(Event):
    """The role wrote where it may not; those paths are again as they were."""

    step: int
    role: str
    paths: list[str]


class UsageMetered(Event):
    step: int
    role: str
    agent: str
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0


# --- what a step's outcome was: these move the table -----------------------------------------------------------


class BaselineTaken(Event):
    step: int
    report: Artifact
    tests: int
    failing: list[str]
    tree: str


class TestWritten(Event):
    step: int
    paths: list[str]
    tree: str
    summary: str


class RequirementsMet(Event):
    step: int
    summary: str


class AuditFailed(Event):
    step: int
    reason: Reason
    why: str


class RedConfirmed(Event):
    step: int
    tests: list[str]
    fingerprint: str
    report: Artifact


class RedRefused(Event):
    step: int
    why: str
    tree: str


class ChangeProposed(Event):
    """Implementer, architect or fixer changed the tree: now it is judged."""

    step: int
    paths: list[str]
    tree: str
    summary: str


class AttemptFailed(Event):
    step: int
    reason: Reason
    why: str


class StepCommitted(Event):
    step: int
    commit: str
    parent: str
    subject: str
    tests: list[str]
    report: Artifact
    tree: str


class StepReverted(Event):
    """Red: the tree is again what it was before the attempt. `commit` is set when a gate undid a commit."""

    step: int
    why: str
    paths: list[str]
    tree: str
    commit: str = ""


class StepVerified(Event):
    step: int
    gates: list[str]
    warnings: list[str]


class RevisionVerified(Event):
    step: int
    gates: list[str]
    warnings: list[str]


class TestAbandoned(Event):
    """Out of attempts: the auditor hears what was tried and may replace the test."""

    why: str


class RefactorFellDue(Event):
    greens: int


class RefactorFailed(Event):
    step: int
    reason: Reason
    why: str


class RefactorReverted(Event):
    step: int
    why: str
    paths: list[str]
    tree: str
    commit: str = ""


class ReviewApproved(Event):
    step: int
    summary: str


class ChangesRequested(Event):
    """`findings` are the reviewer's, one JSON object each: file, line, severity, issue, suggestion."""

    step: int
    summary: str
    findings: list[str]


class ReviewFailed(Event):
    step: int
    reason: Reason
    why: str


class RevisionReverted(Event):
    step: int
    why: str
    paths: list[str]
    tree: str
    commit: str = ""


class Landed(Event):
    step: int
    how: str
    branch: str
    head: str


AnyEvent = (
    RunStarted
    | RunClaimed
    | RunParked
    | RunCompleted
    | RunFailed
    | RunAborted
    | StepStarted
    | StepResumed
    | WritesUndone
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
    return _decoder.decode(data)
