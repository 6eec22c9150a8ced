"""Ledger events: flat, frozen facts in the past tense. Never change a released event; add fields with defaults."""

from typing import Any, ClassVar, get_args

import msgspec

from ratchet.core.failure import Reason, RevertOutcome
from ratchet.core.gates import GateStatus
from ratchet.core.item import ParkReason
from ratchet.core.learning import Matched, TrialArm
from ratchet.core.receipt import Artifact


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=_snake):
    """Base of all events. Sequence number, time and epoch are in the envelope (`core.ledger.Entry`)."""


def kind_of(event: Event | type[Event]) -> str:
    return str(event.__struct_config__.tag)


# --- the run -------------------------------------------------------------------------------------------------


class RunStarted(Event, frozen=True, kw_only=True):
    """Everything that later decisions depend on, recorded once so that a resumed run is independent of changes."""

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
    sealed: bool = False  # the auditor also writes sealed tests


class RunClaimed(Event, frozen=True, kw_only=True):
    """A worker claimed the run and continues at the end of the ledger."""

    worker: str


class RunParked(Event, frozen=True, kw_only=True):
    reason: ParkReason
    detail: str
    until: str = ""


class QuestionAnswered(Event, frozen=True, kw_only=True):
    """A person answered the question for which the run is parked; the asking step is repeated with the answer."""

    by: str
    answer: str


class RunNudged(Event, frozen=True, kw_only=True):
    """A person sent a message: it is in every prompt of the run until the next kept commit."""

    by: str
    message: str


class RunReturned(Event, frozen=True, kw_only=True):
    """The worker gave up or was lost: the run is queued again, not before `until`."""

    reason: Reason
    detail: str
    until: str = ""
    attempts: int = 0


class RunCompleted(Event, frozen=True, kw_only=True):
    """`doubts` counts findings that no judge decided: the item is marked for review."""

    commits: int
    head: str
    doubts: int = 0


class RunFailed(Event, frozen=True, kw_only=True):
    reason: Reason
    detail: str


class RunAborted(Event, frozen=True, kw_only=True):
    by: str


# --- steps ---------------------------------------------------------------------------------------------------


class StepStarted(Event, frozen=True, kw_only=True):
    """Recorded before the step is executed. `tree` is the exact content of the workspace at that moment.

    `workspace_s` is how long it took to create the workspace, in the first step in it.
    """

    step: int
    action: str
    role: str
    key: str
    tree: str
    snapshot: str
    workspace_s: float | None = None


class StepResumed(Event, frozen=True, kw_only=True):
    """A worker found the step started but not finished, and repeats it from its snapshot."""

    step: int
    workspace_s: float | None = None


class ReceiptFiled(Event, frozen=True, kw_only=True):
    """The digest of a finished step's receipt: the ledger so protects the receipt, which is stored outside of it.

    `objects` is the digest of the artifact that has the run's trees and commits, in a store that hosts share.
    """

    step: int
    sha256: str
    objects: str = ""


class WritesUndone(Event, frozen=True, kw_only=True):
    """The role wrote to forbidden paths, which were restored."""

    step: int
    role: str
    paths: list[str]


class FilesLeftOut(Event, frozen=True, kw_only=True):
    """New files that no source, test or manifest refers to were removed: they are not part of the change."""

    step: int
    role: str
    paths: list[str]


class Escalated(Event, frozen=True, kw_only=True):
    """The role failed `tries` times at one task: its escalation agent takes over until that is done."""

    role: str
    tries: int


class ForkEnded(Event, frozen=True, kw_only=True):
    """One attempt of a swarm ended: `how` is won, refused, failed or cancelled. Its usage is recorded separately."""

    step: int
    attempt: int
    agent: str
    how: str
    why: str
    paths: list[str] = []
    tree: str = ""


class SessionOpened(Event, frozen=True, kw_only=True):
    """The agent's session, recorded while it works, so that an interrupted step continues in the same session."""

    step: int
    role: str
    agent: str
    session: str


class AgentNudged(Event, frozen=True, kw_only=True):
    """The agent was stuck (`why`) or asked a question: it was stopped and called again. `tree` is its work so far."""

    step: int
    role: str
    agent: str
    why: str
    tree: str


class AgentReplaced(Event, frozen=True, kw_only=True):
    """The agent was unavailable: the next one of the role's `fallback` is called instead."""

    step: int
    role: str
    agent: str
    by: str
    why: str


class UsageMetered(Event, frozen=True, kw_only=True):
    """What an agent call used. Without `priced` the cost is unknown: `cost_usd` holds only what is known of it.

    `tokens_cached` are those of `tokens_in` that the provider had in its cache.
    """

    step: int
    role: str
    agent: str
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0
    priced: bool = True
    model: str = ""
    tokens_cached: int = 0


class LearningDelivered(Event, frozen=True, kw_only=True):
    """A learning matched the failure `fingerprint` in a step; `arm` is how it was delivered."""

    step: int
    learning: str
    arm: TrialArm
    matched: Matched
    fingerprint: str = ""


class LearningNoted(Event, frozen=True, kw_only=True):
    """The agent's answer has a section with a learning."""

    step: int
    role: str
    content: str


class FlakyTestsFound(Event, frozen=True, kw_only=True):
    """Tests failed and passed on the same tree, in one test run or in the one after it."""

    step: int
    tests: list[str]


# --- step outcomes, which move the workflow table --------------------------------------------------------------


class BaselineTaken(Event, frozen=True, kw_only=True):
    """`unloaded` are files whose tests are missing because they do not load; `skipped` of the tests did not run."""

    step: int
    report: Artifact
    tests: int
    failing: list[str]
    tree: str
    tools: dict[str, str] = {}  # digests of the tools that ran the tests
    unloaded: list[str] = []
    skipped: int = 0


class TestWritten(Event, frozen=True, kw_only=True):
    """`sealed` are the encrypted sealed test files; `unsealed` says why there are none."""

    step: int
    paths: list[str]
    tree: str
    summary: str
    sealed: Artifact | None = None
    unsealed: str = ""


class RequirementsMet(Event, frozen=True, kw_only=True):
    step: int
    summary: str


class AuditFailed(Event, frozen=True, kw_only=True):
    step: int
    reason: Reason
    why: str


class RedConfirmed(Event, frozen=True, kw_only=True):
    """`sealed` counts the sealed tests, or files that cannot be loaded yet, that fail for the right reason too."""

    step: int
    tests: list[str]
    fingerprint: str
    report: Artifact
    sealed: int = 0
    failures: list[str] = []  # fingerprints, comparable between runs


class RedRefused(Event, frozen=True, kw_only=True):
    """The new test was not accepted; `met` if it already passes, so what it asks for is there."""

    step: int
    why: str
    tree: str
    met: bool = False


class ChangeProposed(Event, frozen=True, kw_only=True):
    """Implementer, architect or fixer changed the tree; the change is judged next."""

    step: int
    paths: list[str]
    tree: str
    summary: str


class AttemptFailed(Event, frozen=True, kw_only=True):
    step: int
    reason: Reason
    why: str


class StepCommitted(Event, frozen=True, kw_only=True):
    """`sealed_report` is the encrypted report that includes the sealed tests: the commit has none of them yet."""

    step: int
    commit: str
    parent: str
    subject: str
    tests: list[str]
    report: Artifact
    tree: str
    sealed_report: Artifact | None = None


class StepReverted(Event, frozen=True, kw_only=True):
    """The attempt failed and the tree was restored. `commit` is set when a gate undid a commit; `outcome` says why.

    `disclosed` counts the verdicts of people's sealed tests that the reason reveals; `failures` are fingerprints.
    """

    step: int
    why: str
    paths: list[str]
    tree: str
    commit: str = ""
    outcome: RevertOutcome | None = None
    disclosed: int = 0
    failures: list[str] = []


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """The commit that replaces the verified one: with the sealed tests, and the doubts that no judge decided."""

    commit: str
    tree: str
    report: Artifact | None = None
    sealed: int = 0  # sealed examples that passed
    doubts: list[str] = []


class StepVerified(Event, frozen=True, kw_only=True):
    step: int
    gates: list[str]
    warnings: list[str]
    completion: Completion | None = None


class RevisionVerified(Event, frozen=True, kw_only=True):
    step: int
    gates: list[str]
    warnings: list[str]
    completion: Completion | None = None


class NothingChanged(Event, frozen=True, kw_only=True):
    """The role changed nothing and reports completion, which the factory verifies."""

    step: int
    summary: str


class FailuresAnalysed(Event, frozen=True, kw_only=True):
    """The failing tests to fix; `packet` is their description for the fixer."""

    step: int
    tests: list[str]
    clusters: int
    fingerprint: str
    report: Artifact
    packet: Artifact
    failures: list[str] = []


class TreeFoundGreen(Event, frozen=True, kw_only=True):
    step: int


class SpecUnchanged(Event, frozen=True, kw_only=True):
    step: int
    summary: str


class SpecRefused(Event, frozen=True, kw_only=True):
    """The scribe changed other sections than its own, or failed: the spec was restored."""

    step: int
    why: str


class SpecLeft(Event, frozen=True, kw_only=True):
    """No tries left: the spec stays unchanged and the run continues."""

    why: str


class TaskBegun(Event, frozen=True, kw_only=True):
    task: str
    title: str


class TaskFinished(Event, frozen=True, kw_only=True):
    """`how` the completion was verified; an agent's claim is not enough."""

    task: str
    how: str
    step: int = 0


class TaskUnfinished(Event, frozen=True, kw_only=True):
    step: int
    task: str
    why: str


class TasksDone(Event, frozen=True, kw_only=True):
    count: int


class SealedLaid(Event, frozen=True, kw_only=True):
    """The sealed tests of people, encrypted, and which of them pass on the base."""

    step: int
    files: Artifact
    passed: Artifact
    tests: int
    green: int


class GateProved(Event, frozen=True, kw_only=True):
    """A gate ran on the untouched base; findings of a failure there do not count against later steps."""

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
    """All tests pass in a fresh workspace: the base's own tests on the new source, and the accepted tests."""

    step: int
    reports: list[Artifact]
    canaries: int = 0  # tests that cannot pass, and did not
    without: list[str] = []  # test files to which no canary test could be added
    failing: int = 0  # accepted tests that failed, as they must, with a failing body
    unchecked: int = 0  # accepted tests whose body could not be replaced for certain, or that did not run with it


class FinalRefused(Event, frozen=True, kw_only=True):
    step: int
    why: str
    reports: list[Artifact]
    disclosed: int = 0


class TestAbandoned(Event, frozen=True, kw_only=True):
    """No attempts left: the auditor gets the failed attempts and may replace the test."""

    why: str


class SealedContested(Event, frozen=True, kw_only=True):
    """No attempts left, and the last change failed only a sealed test: the auditor decides between the two."""

    why: str


class SealedUpheld(Event, frozen=True, kw_only=True):
    """The sealed tests were found right, or no one decided: the open test is given up."""

    step: int
    why: str


class SealedReplaced(Event, frozen=True, kw_only=True):
    """A sealed test was wrong and was replaced: the last change is judged again."""

    step: int
    why: str
    sealed: Artifact


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
    outcome: RevertOutcome | None = None
    disclosed: int = 0
    failures: list[str] = []


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
    outcome: RevertOutcome | None = None
    disclosed: int = 0
    failures: list[str] = []


class Landed(Event, frozen=True, kw_only=True):
    step: int
    how: str
    branch: str
    head: str


AnyEvent = (
    RunStarted
    | RunClaimed
    | RunParked
    | QuestionAnswered
    | RunNudged
    | RunReturned
    | RunCompleted
    | RunFailed
    | RunAborted
    | StepStarted
    | StepResumed
    | ReceiptFiled
    | WritesUndone
    | FilesLeftOut
    | Escalated
    | ForkEnded
    | SessionOpened
    | AgentNudged
    | AgentReplaced
    | UsageMetered
    | LearningDelivered
    | LearningNoted
    | FlakyTestsFound
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
    | SealedLaid
    | SealedContested
    | SealedUpheld
    | SealedReplaced
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
    """An event of a newer Ratchet: kept, counted and skipped."""

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
