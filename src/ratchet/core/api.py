"""What crosses the HTTP border: every request and every answer. One definition for server, client and OpenAPI."""

from __future__ import annotations

import re
from typing import Annotated, Any, Protocol

import msgspec

from ratchet.core.budget import Amount
from ratchet.core.failure import Reason
from ratchet.core.item import SPEC_MAX_CHARS, Item, ItemStatus, Priority
from ratchet.core.learning import CONTENT_MAX_CHARS, Learning
from ratchet.core.lease import Named, WorkerRow
from ratchet.core.queue import Count, ItemRow, Page
from ratchet.core.repo import check_branch, repo_kind
from ratchet.core.retry import Retry
from ratchet.core.state import RunState, RunStatus

DESCRIPTION_MAX_CHARS = 50_000
PAGE_MAX = 500

# PostgreSQL keeps no NUL in a text: refused here, in words, rather than there.
_NO_NUL = r"^[^\u0000]*$"
_KEY = re.compile(r"[!-~]{1,200}")
Name = Annotated[str, msgspec.Meta(max_length=200, pattern=_NO_NUL)]
Text = Annotated[str, msgspec.Meta(max_length=10_000, pattern=_NO_NUL)]
Path = Annotated[str, msgspec.Meta(min_length=1, max_length=1_000, pattern=_NO_NUL)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Ask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What somebody sends: a key we do not know is a mistake we can name."""


# --- work ---------------------------------------------------------------------------------------------------------


class Work(Ask, frozen=True, kw_only=True):
    """Something to do in a repository: an absolute path, a git URL or `owner/name`. Exactly one of `spec` and
    `description` says what. `branch` is where it starts from and lands, the repository's own when empty."""

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
    metadata: Annotated[dict[Name, Text], msgspec.Meta(max_length=50)] = {}

    def __post_init__(self) -> None:
        if bool(self.spec) == bool(self.description):
            raise ValueError("give exactly one of `spec` and `description`")
        repo_kind(self.repo)
        if self.branch:
            check_branch(self.branch)


def check_key(key: str) -> str:
    """What may be a request's key, wherever it is sent. Raises ValueError."""
    if key and not _KEY.fullmatch(key):
        raise ValueError(f"the key {key!r} is not 1 to 200 printable characters without spaces")
    return key


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """`created` is false when the same request, or the same open source, had made the item before."""

    row: ItemRow
    created: bool


class QueueAsk(Ask, frozen=True, kw_only=True):
    status: ItemStatus | None = None
    priority: Priority | None = None
    repo: Annotated[str, msgspec.Meta(max_length=1_000, pattern=_NO_NUL)] = ""
    after: Name = ""
    limit: Limit = 50


class By(Ask, frozen=True, kw_only=True):
    """Who asks, for the ledger."""

    by: Annotated[str, msgspec.Meta(max_length=100, pattern=_NO_NUL)] = "http"


class CancelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`done`; `asked`: its worker was told and stops within seconds; `over`: it had ended before."""

    item: str
    cancelled: str


# --- workers ------------------------------------------------------------------------------------------------------


class Register(Ask, frozen=True, kw_only=True):
    """Ask for work. `holder` says who will hold the lease."""

    holder: Named


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """A lease on a run. `token` opens this worker's own routes and nothing else; it is shown only here."""

    worker: str
    run: str
    epoch: int
    token: str
    lease_s: float
    item: Item


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """An assignment, or why there is none; `until` when time alone will change that."""

    assignment: Assignment | None = None
    why: str = ""
    until: str = ""


class Heartbeat(Ask, frozen=True, kw_only=True):
    iteration: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] | None = None


class Beaten(msgspec.Struct, frozen=True, kw_only=True):
    """`stop` names who asked for the run to be stopped; empty: go on."""

    stop: str = ""


class LockAsk(Ask, frozen=True, kw_only=True):
    paths: Annotated[list[Path], msgspec.Meta(min_length=1, max_length=1_000)]


class UnlockAsk(Ask, frozen=True, kw_only=True):
    """These, or all."""

    paths: Annotated[list[Path], msgspec.Meta(max_length=1_000)] | None = None


class Held(msgspec.Struct, frozen=True, kw_only=True):
    paths: list[str]


class Complete(Ask, frozen=True, kw_only=True):
    commits: Whole
    head: Name


class Fail(Ask, frozen=True, kw_only=True):
    reason: Reason
    detail: Text = ""


class Stuck(Ask, frozen=True, kw_only=True):
    detail: Text = ""


class Back(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of the run; null after a first `stuck`: nudge the agent and go on."""

    retry: Retry | None = None


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """It is so now, whether by this request or before."""

    changed: bool = True


class Append(Ask, frozen=True, kw_only=True):
    """Events for the run's ledger, `kind` in each. `after` is how long the ledger was: sent twice, they count once."""

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


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    entries: list[LedgerEntry]


class WorkersAsk(Ask, frozen=True, kw_only=True):
    live: bool = False
    limit: Limit = 100


class WorkerList(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first."""

    workers: list[WorkerRow]


class LogFile(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one log of a step, where the server can see the run's folder."""

    name: str
    size: int
    tail: str


class Logs(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker wrote into the ledger, and its steps' logs."""

    worker: WorkerRow
    entries: list[LedgerEntry]
    files: list[LogFile]


# --- looking ------------------------------------------------------------------------------------------------------


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    item: str
    title: str
    status: RunStatus
    item_status: ItemStatus
    created_at: str
    length: int
    epoch: int
    worker: str
    expires_at: str
    abort_by: str


class RunsAsk(Ask, frozen=True, kw_only=True):
    status: RunStatus | None = None
    item: Name = ""
    after: Name = ""
    limit: Limit = 50


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first. `after` asks for the next page; empty when this is the last."""

    runs: list[RunSummary]
    after: str


class RunAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A run's row, and what its ledger folds to."""

    row: RunSummary
    state: RunState


class LedgerAsk(Ask, frozen=True, kw_only=True):
    after: Whole = 0
    limit: Limit = 100


class LedgerPage(msgspec.Struct, frozen=True, kw_only=True):
    """`length` is how many rows there are; the next page is after the last `seq` here."""

    entries: list[LedgerEntry]
    length: int


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """What a run changed, as git shows it; `cut` when there was more than can be sent."""

    run: str
    base_commit: str
    head: str
    diff: str
    cut: bool = False


class EventsAsk(Ask, frozen=True, kw_only=True):
    """From after the event `after` (the header `Last-Event-ID` wins); `start` is the first there is. Without either,
    from now on."""

    after: Name = ""
    run: Name = ""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    at: str
    uptime_s: float
    queue: list[Count]
    oldest_queued_at: str
    workers: int
    stuck: int


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """Counted from rows when asked; `today` begins at the server's midnight. Null is nothing to divide by yet."""

    at: str
    queue: list[Count]
    workers: dict[str, int]
    completed_today: int
    failed_today: int
    iterations_today: int
    commits_today: int
    reverts_today: int
    recoveries_today: int
    spent_today: Amount
    reserved_today: Amount
    average_completion_s: float | None
    success_rate: float | None
    cost_per_commit_usd: float | None
    reverts_per_commit: float | None


class Learn(Ask, frozen=True, kw_only=True):
    """A lesson, with the ledger row it was drawn from."""

    repo: Annotated[str, msgspec.Meta(max_length=1_000, pattern=_NO_NUL)]
    content: Annotated[str, msgspec.Meta(min_length=1, max_length=CONTENT_MAX_CHARS, pattern=_NO_NUL)]
    spec: Name = ""
    tags: Annotated[list[Name], msgspec.Meta(max_length=50)] = []
    run: Name = ""
    seq: Whole = 0


class LearningsAsk(Ask, frozen=True, kw_only=True):
    """Those that share words with `query`, best first; without one the newest first."""

    repo: Annotated[str, msgspec.Meta(max_length=1_000, pattern=_NO_NUL)] = ""
    query: Annotated[str, msgspec.Meta(max_length=1_000, pattern=_NO_NUL)] = ""
    limit: Limit = 50


class LearningList(msgspec.Struct, frozen=True, kw_only=True):
    learnings: list[Learning]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    version: str
    store: bool


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Every answer that is not a yes: what, a fixed word for programs, the ids concerned, and what to do next."""

    error: str
    code: str
    details: dict[str, str] = {}
    hint: str = ""


class Desk(Protocol):
    """What people ask of the factory. `ratchet.desk` answers from the store, `ratchet.client` asks a server."""

    def add(self, work: Work, *, key: str = "") -> Added: ...

    def get(self, item: str) -> ItemRow: ...

    def queue(self, ask: QueueAsk) -> Page: ...

    def cancel(self, item: str, by: By) -> CancelAnswer: ...

    def requeue(self, item: str) -> ItemRow: ...

    def workers(self, ask: WorkersAsk) -> WorkerList: ...

    def kill(self, worker: str, by: By) -> Done: ...

    def logs(self, worker: str) -> Logs: ...

    def runs(self, ask: RunsAsk) -> RunPage: ...

    def run(self, run: str) -> RunAnswer: ...

    def ledger(self, run: str, ask: LedgerAsk) -> LedgerPage: ...

    def diff(self, run: str) -> Diff: ...

    def status(self) -> Status: ...

    def metrics(self) -> Metrics: ...

    def close(self) -> None: ...
