"""Requests and responses of the HTTP API: one definition for server, client and OpenAPI."""

from __future__ import annotations

import re
from typing import Annotated, Any, Protocol

import msgspec

from ratchet.core.budget import Amount, Cap
from ratchet.core.failure import Reason
from ratchet.core.inbox import InboxEntry
from ratchet.core.item import LABELS_MAX, SPEC_MAX_CHARS, Item, ItemStatus, Label, Priority
from ratchet.core.learning import CONTENT_MAX_CHARS, Learning, LearningKind
from ratchet.core.learning_lift import LiftReport
from ratchet.core.lease import NamedHolder, WorkerRow
from ratchet.core.locks import HeldLock
from ratchet.core.metrics import Figures
from ratchet.core.queue import ClaimLimits, ItemPage, ItemRow, QueueCount
from ratchet.core.repo import check_branch, repo_kind
from ratchet.core.retry import RetryDecision
from ratchet.core.state import RunState, RunStatus

DESCRIPTION_MAX_CHARS = 50_000
PAGE_MAX = 500
METADATA_MAX_BYTES = 100_000
NUDGE_MAX_CHARS = 2_000

# PostgreSQL cannot store NUL in text: reject it here with a clear message.
_NO_NUL = r"^[^\u0000]*$"
_KEY = re.compile(r"[!-~]{1,200}")
Name = Annotated[str, msgspec.Meta(max_length=200, pattern=_NO_NUL)]
Text = Annotated[str, msgspec.Meta(max_length=10_000, pattern=_NO_NUL)]
RequestKey = Annotated[str, msgspec.Meta(pattern=r"^[!-~]{0,200}$")]
SecretKey = Annotated[str, msgspec.Meta(pattern=r"^([!-~]{32,200})?$")]
Path = Annotated[str, msgspec.Meta(min_length=1, max_length=1_000, pattern=_NO_NUL)]
Labels = Annotated[list[Label], msgspec.Meta(max_length=LABELS_MAX)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of requests; unknown keys are rejected."""


# --- work ---------------------------------------------------------------------------------------------------------


class NewItem(Request, frozen=True, kw_only=True):
    """Work to queue for a repository: an absolute path, a git URL or `owner/name`. Give exactly one of `spec` and
    `description`. `branch` is its start and target; the repository's default if empty. Only workers that have all of
    `require_labels` take it."""

    repo: Annotated[str, msgspec.Meta(min_length=1, max_length=1_000, pattern=_NO_NUL)]
    spec: Annotated[str, msgspec.Meta(max_length=SPEC_MAX_CHARS, pattern=r"\S")] = ""
    description: Annotated[str, msgspec.Meta(max_length=DESCRIPTION_MAX_CHARS, pattern=r"\S")] = ""
    title: Annotated[str, msgspec.Meta(max_length=120, pattern=_NO_NUL)] = ""
    priority: Priority = Priority.MEDIUM
    branch: Name = ""
    workflow: Name = "tdd"
    max_iterations: Annotated[int, msgspec.Meta(ge=1, le=200)] | None = None
    needs: Annotated[list[Name], msgspec.Meta(max_length=100)] = []
    footprint: Annotated[list[Path], msgspec.Meta(max_length=1_000)] = []
    source: Name = ""
    source_ref: Name = ""
    settings: Annotated[list[Text], msgspec.Meta(max_length=100)] = []
    metadata: Annotated[dict[Name, Any], msgspec.Meta(max_length=50)] = {}
    require_labels: Labels = []

    def __post_init__(self) -> None:
        if bool(self.spec) == bool(self.description):
            raise ValueError("give exactly one of `spec` and `description`")
        repo_kind(self.repo)
        written = msgspec.json.encode(self.metadata)
        if len(written) > METADATA_MAX_BYTES or b"\\u0000" in written:
            raise ValueError(
                f"`metadata` has {len(written)} bytes, the limit is {METADATA_MAX_BYTES}, or a NUL character"
            )
        if self.branch:
            check_branch(self.branch)


def check_key(key: str) -> str:
    """Check an idempotency key. Raises ValueError."""
    if key and not _KEY.fullmatch(key):
        raise ValueError(f"the key {key!r} is not 1 to 200 printable characters without spaces")
    return key


class AddResponse(msgspec.Struct, frozen=True, kw_only=True):
    """`created` is false if an item with the same key or open source already existed."""

    row: ItemRow
    created: bool


class QueueQuery(Request, frozen=True, kw_only=True):
    status: ItemStatus | None = None
    priority: Priority | None = None
    repo: Annotated[str, msgspec.Meta(max_length=1_000, pattern=_NO_NUL)] = ""
    after: Name = ""
    limit: Limit = 50


class Requester(Request, frozen=True, kw_only=True):
    """Who makes the request, for the ledger."""

    by: Annotated[str, msgspec.Meta(max_length=100, pattern=_NO_NUL)] = "http"


class Nudge(Requester, frozen=True, kw_only=True):
    """A message to the agents of a run: the next prompt has it."""

    message: Annotated[str, msgspec.Meta(min_length=1, max_length=NUDGE_MAX_CHARS, pattern=_NO_NUL)]


class CancelResponse(msgspec.Struct, frozen=True, kw_only=True):
    """`done`; `asked`: its worker stops within seconds; `over`: it has already finished."""

    item: str
    cancelled: str


# --- workers ------------------------------------------------------------------------------------------------------


class RegisterRequest(Request, frozen=True, kw_only=True):
    """Request work. `holder` identifies the process that will hold the lease.

    `item` names the item to take, else it is the next one. `key` is a secret of the caller, new for each
    registration: the same request, sent again, gets the same lease. `labels` are the worker's: the next item is one
    that requires no others.
    """

    holder: NamedHolder
    key: SecretKey = ""
    item: Name = ""
    labels: Labels = []


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """A lease on a run. `token` authenticates this worker on its own routes; it is returned only here."""

    worker: str
    run: str
    epoch: int
    token: str
    lease_s: float
    item: Item


class RegisterResponse(msgspec.Struct, frozen=True, kw_only=True):
    """An assignment, or why there is none; `until` is when to ask again, if known."""

    assignment: Assignment | None = None
    why: str = ""
    until: str = ""


class HeartbeatRequest(Request, frozen=True, kw_only=True):
    iteration: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] | None = None


class HeartbeatResponse(msgspec.Struct, frozen=True, kw_only=True):
    """`stop` names who requested an abort; empty to continue."""

    stop: str = ""


class LockRequest(Request, frozen=True, kw_only=True):
    paths: Annotated[list[Path], msgspec.Meta(min_length=1, max_length=1_000)]


class UnlockRequest(Request, frozen=True, kw_only=True):
    """Unlock these paths, or all if null."""

    paths: Annotated[list[Path], msgspec.Meta(max_length=1_000)] | None = None


class LocksResponse(msgspec.Struct, frozen=True, kw_only=True):
    paths: list[str]


class LocksQuery(Request, frozen=True, kw_only=True):
    """Locks of one repository, of one worker, or that overlap a path."""

    repo: Annotated[str, msgspec.Meta(max_length=1_000, pattern=_NO_NUL)] = ""
    worker: Name = ""
    path: Annotated[str, msgspec.Meta(max_length=1_000, pattern=_NO_NUL)] = ""


class LockList(msgspec.Struct, frozen=True, kw_only=True):
    locks: list[HeldLock]


class CompleteRequest(Request, frozen=True, kw_only=True):
    commits: Whole
    head: Name


class FailRequest(Request, frozen=True, kw_only=True):
    reason: Reason
    detail: Text = ""


class StuckRequest(Request, frozen=True, kw_only=True):
    """A report with the `key` of the last one is the same report, sent again."""

    detail: Text = ""
    key: RequestKey = ""


class RetryResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to the run; null after the first `stuck`: nudge the agent and continue."""

    retry: RetryDecision | None = None


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """The request is fulfilled; `changed` says whether it was this one that changed something."""

    changed: bool = True


class AppendRequest(Request, frozen=True, kw_only=True):
    """Events for the run's ledger, each with its `kind`. `after` is the ledger's length: repeats are harmless."""

    after: Whole
    events: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1, max_length=100)]


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    seq: int
    at: str
    epoch: int
    kind: str
    data: dict[str, Any]
    prev: str
    sum: str


class AppendResponse(msgspec.Struct, frozen=True, kw_only=True):
    entries: list[LedgerEntry]


class WorkersQuery(Request, frozen=True, kw_only=True):
    live: bool = False
    limit: Limit = 100


class WorkerList(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first."""

    workers: list[WorkerRow]


class Inbox(msgspec.Struct, frozen=True, kw_only=True):
    """What needs a person, without what was snoozed or acknowledged."""

    entries: list[InboxEntry]


class LogFile(msgspec.Struct, frozen=True, kw_only=True):
    """The tail of a step's log, if the server can read the run's folder."""

    name: str
    size: int
    tail: str


class Logs(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's ledger entries and the logs of its steps."""

    worker: WorkerRow
    entries: list[LedgerEntry]
    files: list[LogFile]


# --- looking ------------------------------------------------------------------------------------------------------


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    item: str
    repo: str
    title: str
    status: RunStatus
    item_status: ItemStatus
    created_at: str
    length: int
    epoch: int
    worker: str
    expires_at: str
    abort_by: str


class RunsQuery(Request, frozen=True, kw_only=True):
    status: RunStatus | None = None
    item: Name = ""
    repo: Annotated[str, msgspec.Meta(max_length=1_000, pattern=_NO_NUL)] = ""
    after: Name = ""
    limit: Limit = 50


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """Runs, newest first. Pass `after` to get the next page; it is empty on the last one."""

    runs: list[RunSummary]
    after: str


class RunResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A run and the state folded from its ledger."""

    row: RunSummary
    state: RunState


class LedgerQuery(Request, frozen=True, kw_only=True):
    after: Whole = 0
    limit: Limit = 100


class LedgerPage(msgspec.Struct, frozen=True, kw_only=True):
    """`length` is the total number of rows; the next page starts after the last `seq`."""

    entries: list[LedgerEntry]
    length: int


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of a run as a git diff; `cut` if it was truncated."""

    run: str
    base_commit: str
    head: str
    diff: str
    cut: bool = False


class EventsQuery(Request, frozen=True, kw_only=True):
    """Events after the event `after`, or after the header `Last-Event-ID`, which takes precedence; `start` is the first
    event. The default is new events only."""

    after: Name = ""
    run: Name = ""


class Limits(ClaimLimits, frozen=True, kw_only=True):
    """The limits on claims, null for none. `cooldown_until` is when the next claim is possible, empty for now."""

    cooldown_until: str = ""


class DailyBudget(msgspec.Struct, frozen=True, kw_only=True):
    """The budget of this day: `cap` (null for no cap), what was spent, what is `reserved` with what was spent, and what
    is `left`. The cost of `unpriced_calls` is not known and not part of it."""

    cap: Cap
    spent: Amount
    reserved: Amount
    left: Cap
    unpriced_calls: int = 0


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """`serving` is the number of workers that wait for items; `today` begins at the server's midnight."""

    version: str
    at: str
    uptime_s: float
    queue: list[QueueCount]
    oldest_queued_at: str
    workers: int
    stuck: int
    serving: int
    limits: Limits
    today: DailyBudget


class MetricsQuery(Request, frozen=True, kw_only=True):
    """The window and grouping of figures.

    `since`: `7d`, `24h`, `90m`, `2w`, a date or a time; the default is the server's midnight. Days begin at midnight,
    other times at a quarter of an hour. `by`: up to four of day, hour, repo, workflow, role, agent, model, worker,
    action, iteration and run, separated by commas.
    """

    since: Name = ""
    until: Name = ""
    by: Name = ""
    repo: Annotated[str, msgspec.Meta(max_length=1_000, pattern=_NO_NUL)] = ""


class FiguresGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one group: the value of each grouping, empty for none."""

    group: dict[str, str]
    figures: Figures


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """The current load, today's counts, and the figures of a window, which are derived from the ledgers.

    `today` begins at the server's midnight. `spent_today` is what ledgers record; `today.spent` is what counts against
    the day's budget, calls in progress included. A ratio is null while its divisor is zero.

    `claimable` are items that any worker could start now, for schedulers that start workers; `claimable_by_labels`
    those that require labels, such as `"arm64,gpu"`; at most 1000 in all. Items in progress do not count, nor items
    that wait for others, for locks, or for a limit to have room.
    """

    at: str
    queue: list[QueueCount]
    claimable: int
    claimable_by_labels: dict[str, int]
    workers: dict[str, int]
    completed_today: int
    failed_today: int
    iterations_today: int
    commits_today: int
    reverts_today: int
    recoveries_today: int
    spent_today: Amount
    reserved_today: Amount
    limits: Limits
    today: DailyBudget
    average_completion_s: float | None
    success_rate: float | None
    cost_per_commit_usd: float | None
    reverts_per_commit: float | None
    since: str
    until: str
    figures: Figures
    groups: list[FiguresGroup]


class LearningRequest(Request, frozen=True, kw_only=True):
    """A learning to store, with the ledger row that it comes from. Without a repository it applies everywhere."""

    repo: Annotated[str, msgspec.Meta(max_length=1_000, pattern=_NO_NUL)]
    content: Annotated[str, msgspec.Meta(min_length=1, max_length=CONTENT_MAX_CHARS)]
    spec: Name = ""
    tags: Annotated[list[Name], msgspec.Meta(max_length=50)] = []
    run: Name = ""
    seq: Whole = 0
    kind: LearningKind = LearningKind.LESSON


class LearningsQuery(Request, frozen=True, kw_only=True):
    """Search learnings by the words and the meaning of `query` (or `text`), best first; without one, list the newest.
    `spec` is a part of a learning's spec."""

    repo: Annotated[str, msgspec.Meta(max_length=1_000, pattern=_NO_NUL)] = ""
    query: Annotated[str, msgspec.Meta(max_length=1_000, pattern=_NO_NUL)] = ""
    text: Annotated[str, msgspec.Meta(max_length=1_000, pattern=_NO_NUL)] = ""
    spec: Name = ""
    tag: Name = ""
    retired: bool = False
    limit: Limit = 50


class LearningList(msgspec.Struct, frozen=True, kw_only=True):
    """`lexical_only` says why only words were searched."""

    learnings: list[Learning]
    lexical_only: str = ""


class LiftQuery(Request, frozen=True, kw_only=True):
    """The effect of the learnings of a repository, or of all."""

    repo: Annotated[str, msgspec.Meta(max_length=1_000, pattern=_NO_NUL)] = ""


class RetireRequest(Request, frozen=True, kw_only=True):
    """Why a learning is no longer delivered, and who says so."""

    why: Annotated[str, msgspec.Meta(max_length=1_000)] = ""
    by: Name = "api"


class SignInLink(msgspec.Struct, frozen=True, kw_only=True):
    """The path of a link to the web pages that signs in once, within `valid_s`."""

    path: str
    valid_s: float


class Health(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    version: str
    store: bool


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An error response: message, stable code, ids and a hint."""

    error: str
    code: str
    details: dict[str, str] = {}
    hint: str = ""


class QueueService(Protocol):
    """The verbs people call: `app.queue` implements them on the store, `interfaces.http.client` over HTTP."""

    def add(self, work: NewItem, *, key: str = "") -> AddResponse: ...

    def get(self, item: str) -> ItemRow: ...

    def queue(self, ask: QueueQuery) -> ItemPage: ...

    def cancel(self, item: str, by: Requester) -> CancelResponse: ...

    def requeue(self, item: str) -> ItemRow: ...

    def nudge(self, item: str, request: Nudge) -> ItemRow: ...

    def inbox(self) -> Inbox: ...

    def workers(self, ask: WorkersQuery) -> WorkerList: ...

    def kill(self, worker: str, by: Requester) -> Acknowledgement: ...

    def logs(self, worker: str) -> Logs: ...

    def runs(self, ask: RunsQuery) -> RunPage: ...

    def run(self, run: str) -> RunResponse: ...

    def ledger(self, run: str, ask: LedgerQuery) -> LedgerPage: ...

    def diff(self, run: str) -> Diff: ...

    def status(self) -> Status: ...

    def metrics(self, ask: MetricsQuery = ..., /) -> Metrics: ...

    def learn(self, request: LearningRequest) -> Learning: ...

    def learnings(self, request: LearningsQuery) -> LearningList: ...

    def learning(self, learning: str) -> Learning: ...

    def learning_lift(self, request: LiftQuery) -> LiftReport: ...

    def retire_learning(self, learning: str, request: RetireRequest) -> Learning: ...

    def close(self) -> None: ...
