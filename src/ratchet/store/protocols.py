"""Protocols of the store: a few verbs each, so that a consumer names only what it uses. `Store` combines them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Protocol, Self

import msgspec

from ratchet.core.board import BoardColumn, BoardRow, Snooze
from ratchet.core.budget import Amount, BudgetScope, Caps, OverBudget, Reservation, Spending
from ratchet.core.events import Event
from ratchet.core.failure import Reason
from ratchet.core.item import Item, ItemStatus, ParkReason, Priority
from ratchet.core.learning import Learning, LearningTrial, LearningVector, TrialSums
from ratchet.core.lease import FencedWrite, Holder, Lease, LeaseRenewal, WorkerPool, WorkerRow
from ratchet.core.ledger import Entry, FeedEntry
from ratchet.core.locks import Blocked, HeldLock, Locked
from ratchet.core.metrics import FactoryMetrics, FiguresQuery, TallyGroup
from ratchet.core.queue import AGING_S, CLAIMABLE_MAX, Claimable, ClaimLimits, ItemPage, ItemRow, NoWork, QueueCount
from ratchet.core.rate_limit import ProviderUse
from ratchet.core.receipt import Receipt
from ratchet.core.retry import DELAYS_S, RetryDecision
from ratchet.core.signal import Topic
from ratchet.core.state import RunStatus
from ratchet.errors import EnvironmentCannot

ARTIFACT_MAX_BYTES = 11_000_000  # as base64 in JSON it fits into a request to the server


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row in a list of runs; reading it does not fold the ledger."""

    run: str
    item: str
    repo: str
    title: str
    status: RunStatus
    item_status: ItemStatus
    created_at: str
    length: int
    head: str
    epoch: int
    holder: Holder | None
    expires_at: str
    abort_by: str


class LedgerCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run after entry `seq`, as JSON; `version` names the code that folded it."""

    run: str
    seq: int
    sum: str
    version: str
    state: bytes


class LedgerTail(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint, if there is one, and the entries after it."""

    checkpoint: LedgerCheckpoint | None
    entries: list[Entry]


class CancelOutcome(StrEnum):
    DONE = "done"
    ASKED = "asked"  # in progress: its worker learns of it at its next heartbeat
    OVER = "over"  # the item had already finished


class Listener(Protocol):
    """Receives the signals of one topic from its creation on. Create it, check the store, then wait."""

    def wait(self, timeout_s: float) -> bool:
        """Block until a signal arrives (or arrived since the last wait) or the timeout expires.

        False does not mean that nothing changed: check the store in either case.
        """
        ...

    def wake(self) -> None:
        """End the current wait, or the next one, from another thread of this process."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Signals(Protocol):
    """Wakes waiting processes. The loop of a worker:

        with store.listen(Topic.WORK) as work:
            while not stopping:
                lease = store.claim_next(...)
                if isinstance(lease, NoWork):
                    work.wait(POLL_S)

    A supervisor listens to `Topic.STOP` and renews its lease on each signal: the response to a renewal carries a
    cancel or a kill, which so reaches the worker in milliseconds instead of at the next heartbeat.
    """

    def listen(self, topic: Topic) -> Listener:
        """Listen for changes on a topic, made by any process or machine.

        Signals are hints: the sender may die before it sends one, and changes that only time brings (the end of a
        park or a lease) and freed capacity send none. Poll at least every `POLL_S`.
        """
        ...


class Queue(Protocol):
    """Items and their order."""

    def add(self, item: Item) -> Item:
        """Queue an item, or return the existing one with the same request key or the same source while that is open.

        All items in `needs` must exist; if one of them failed, the new item is parked. Raises UsageError, NotFound.
        """
        ...

    def add_all(self, items: Sequence[Item]) -> list[Item]:
        """Add all items or none. They may need each other, but not in a cycle."""
        ...

    def item(self, item: str) -> Item:
        """Raises NotFound."""
        ...

    def item_row(self, item: str) -> ItemRow:
        """Raises NotFound."""
        ...

    def items(
        self,
        *,
        status: ItemStatus | None = None,
        priority: Priority | None = None,
        repo: str = "",
        after: str = "",
        limit: int = 50,
    ) -> ItemPage:
        """List items in queue order."""
        ...

    def stats(self) -> list[QueueCount]: ...

    def completed_slugs(self, slugs: Sequence[str]) -> list[str]:
        """Return those slugs whose item is completed."""
        ...

    def claimable(self, *, limits: ClaimLimits | None = None, limit: int = CLAIMABLE_MAX) -> list[Claimable]:
        """Return items that claims could take now, next first: as many as the limits have room for.

        Items in progress do not count. Items whose lease has expired or whose park is over do: a claim takes them.
        """
        ...

    def is_drained(self, labels: Sequence[str] | None = None) -> bool:
        """Whether no item is in progress or can become claimable without a person; retries that are due later count.

        With `labels`, items that a worker with these may not claim do not count.
        """
        ...

    def cancel(self, item: str, *, by: str) -> CancelOutcome: ...

    def requeue(self, item: str) -> ItemRow:
        """Queue a finished or parked item again with all retries, on the same branch. Raises Conflict."""
        ...

    def park(self, item: str, reason: ParkReason, *, until: str = "", detail: str = "") -> ItemRow:
        """Park an item that is not in progress; with `until` it is queued again at that time. Raises Conflict."""
        ...

    def unpark(self, item: str) -> ItemRow: ...


class Leases(Protocol):
    """The right to write to a run, and the ways a claim ends."""

    def claim_next(
        self,
        holder: Holder,
        *,
        run: str,
        ttl_s: float,
        limits: ClaimLimits | None = None,
        key: str = "",
        labels: Sequence[str] = (),
        item: str = "",
    ) -> Lease | NoWork:
        """Lease the next item whose required labels are all among `labels`, starting `run` if it has none; with `item`,
        that item, if it is one of these. Requeues expired leases first.

        Also locks the item's footprint; skips an item whose footprint overlaps paths locked by other runs. A claim
        with the `key` of an earlier one (`database.claim_key`) returns its lease again. Raises LeaseLost if that ended.
        """
        ...

    def claim(self, item: str, *, run: str, holder: Holder, ttl_s: float, key: str = "") -> Lease:
        """Lease a given item, whatever labels it requires, starting `run` if it has none. A claim with the `key` of an
        earlier one returns its lease again. Raises LeaseHeld, LeaseLost if that lease ended."""
        ...

    def add_claimed(self, item: Item, *, run: str, holder: Holder, ttl_s: float, key: str = "") -> Lease:
        """Add an item as `add` does and lease it as `claim` does, or neither: no waiting worker can take it first.
        Raises UsageError, LeaseHeld."""
        ...

    def cooldown_until(self, cooldown_s: float) -> str:
        """Return when the next claim is possible after a cooldown; empty for now."""
        ...

    def renew(self, lease: Lease, *, ttl_s: float, iteration: int | None = None) -> str:
        """Extend the lease; return who requested an abort of the run, or ''. Raises LeaseLost."""
        ...

    def release(self, lease: Lease) -> None:
        """Release the lease and requeue the run. Releasing a lost lease does nothing."""
        ...

    def expire(self) -> list[str]:
        """Requeue runs with expired leases or dead holders, and items whose park is over. Return the requeued runs."""
        ...

    def complete(self, lease: Lease, *, commits: int, head: str) -> None:
        """Complete the run. Idempotent. Raises LeaseLost."""
        ...

    def fail(self, lease: Lease, reason: Reason, detail: str, *, delays_s: Sequence[float] = DELAYS_S) -> RetryDecision:
        """Give up the run; `core.retry` decides between retry, park and failure. Idempotent. Raises LeaseLost."""
        ...

    def report_stuck(
        self, lease: Lease, detail: str, *, key: str = "", delays_s: Sequence[float] = DELAYS_S
    ) -> RetryDecision | None:
        """Report no progress. The first time returns None: nudge the agent. The second time gives up the run.

        A report with the key of the last one is the same report, sent again.
        """
        ...


class RemoteLeases(Protocol):
    """Leases of workers that authenticate with a token, as over HTTP."""

    def lease_by_token(self, token: str) -> Lease:
        """Return the lease that the token authenticates. Raises LeaseLost."""
        ...

    def worker_by_token(self, token: str) -> WorkerRow | None:
        """Return the worker that the token authenticates, even after its lease ended."""
        ...

    def renew_all(self, renewals: Sequence[LeaseRenewal], *, ttl_s: float) -> list[str | None]:
        """Renew many leases in one transaction. Per lease: who requested an abort, '' if nobody, None if it is lost."""
        ...


class Workers(Protocol):
    """One row per claim of a run."""

    def kill(self, worker: str, *, by: str) -> bool:
        """Stop a worker and requeue its run; the worker learns of it at its next heartbeat. False: already finished."""
        ...

    def workers(self, *, live: bool = False, limit: int = 500) -> list[WorkerRow]:
        """List workers, newest first; `live` ones hold a lease and are not known to be dead."""
        ...

    def worker(self, worker: str) -> WorkerRow:
        """Raises NotFound."""
        ...

    def announce(self, pool: WorkerPool) -> None:
        """Record that a pool of workers waits for items; repeated every `POOL_ANNOUNCE_S`."""
        ...

    def pools(self) -> list[WorkerPool]:
        """List the pools that are live."""
        ...


class FencedWrites(Protocol):
    """Writes rejected because their lease was lost: `complete`, `fail`, and `append` with commits."""

    def fenced_writes(self, run: str = "") -> list[FencedWrite]:
        """List unresolved fenced writes of one run or of all runs, oldest first."""
        ...

    def resolve_fenced_write(self, late: str, *, kept: bool) -> None:
        """Record whether the commit of a fenced write was kept. Raises NotFound."""
        ...


class PathLocks(Protocol):
    """Locks on paths of a repository, held under a lease."""

    def lock(self, lease: Lease, paths: Iterable[str]) -> Locked | Blocked:
        """Lock all paths or none. Raises LeaseLost, UsageError."""
        ...

    def unlock(self, lease: Lease, paths: Iterable[str] | None = None) -> list[str]:
        """Unlock these paths, or all; return the paths still locked. Raises LeaseLost."""
        ...

    def locks(self, repo: str) -> dict[str, list[str]]:
        """Return locked paths by run."""
        ...

    def held_locks(self) -> list[HeldLock]:
        """List all locked paths with their holders."""
        ...


class Budgets(Protocol):
    """Spending: reserved before an agent runs, recorded while it runs, settled after."""

    def reserve(self, lease: Lease, asked: Amount, *, caps: Caps, key: str = "") -> Reservation | OverBudget:
        """Reserve an amount if it fits all caps. A call with the key of an earlier one returns its reservation again.
        Raises LeaseLost."""
        ...

    def record_spending(self, reservation: Reservation, spent: Amount) -> str:
        """Record the total spent so far; return the first kind that exceeds the reservation, or ''."""
        ...

    def settle(self, reservation: Reservation, spent: Amount) -> None:
        """Record the final amount and free the rest of the reservation. Idempotent."""
        ...

    def spent(self, scope: BudgetScope, name: str = "") -> Amount:
        """Return what was spent, without open reservations."""
        ...

    def used(self, scope: BudgetScope, name: str = "") -> Amount:
        """Return what was spent or is reserved: the amount that caps are checked against."""
        ...

    def spending(self, items: Sequence[str] = ()) -> list[Spending]:
        """Return what each repository spent today and each of the items in total, in one query."""
        ...


class ProviderSlots(Protocol):
    """How many agents of one provider work at once, over all hosts of the store."""

    def take_slot(self, lease: Lease, provider: str, slot: str, *, limit: int, quiet_s: float) -> bool:
        """Take the slot with this id, unless the provider's are all held: `limit`, or fewer after refusals.

        A slot is held while its lease is live. Idempotent. Raises LeaseLost.
        """
        ...

    def free_slot(self, provider: str, slot: str, *, refused: bool) -> None:
        """Free the slot; `refused` halves the provider's limit, which grows by one every `quiet_s`. Idempotent."""
        ...

    def provider_uses(self) -> list[ProviderUse]:
        """List the providers in use, with their current limits."""
        ...


class Ledger(Protocol):
    """The hash-chained events of each run, and the receipts of its steps."""

    def append(
        self, lease: Lease, events: Sequence[Event], receipt: Receipt | None = None, *, after: int | None = None
    ) -> list[Entry]:
        """Durably append events; the receipt and the status of run and item change in the same transaction.

        With `after`, the expected length of the ledger, the call may be repeated: events that are already there are
        returned, not written again. Raises LeaseLost, Conflict.
        """
        ...

    def entries(self, run: str) -> list[Entry]:
        """Return the ledger of a run after verifying its chain. Raises LedgerBroken."""
        ...

    def checkpoint_ledger(self, checkpoint: LedgerCheckpoint) -> None:
        """Keep a folded state. It is derived: losing it costs only the time to fold the ledger again."""
        ...

    def ledger_tail(self, run: str, *, version: str) -> LedgerTail:
        """Return the last checkpoint of this version, if any, and the verified entries after it.

        Raises LedgerBroken."""
        ...

    def entries_after(self, run: str, *, after: int, limit: int) -> list[Entry]:
        """Return a page of a ledger without verifying its chain."""
        ...

    def receipts(self, run: str) -> list[Receipt]: ...


class Artifacts(Protocol):
    """Content that is too large for events: prompts, answers, reports. Named by its SHA-256 within a run."""

    is_shared: bool  # other hosts use this store too: what they need to continue a run is kept in it

    def put_artifact(self, run: str, content: bytes) -> str:
        """Store content durably and return its SHA-256. Raises ValueError above `ARTIFACT_MAX_BYTES`."""
        ...

    def artifact(self, run: str, sha256: str) -> bytes | None:
        """Return the content, or None if it was never stored or has been removed."""
        ...

    def forget_artifacts(self, run: str, digests: list[str]) -> int:
        """Remove these artifacts of a run; return how many there were."""
        ...


class Runs(Protocol):
    """Rows of runs, for lists and lookups."""

    def runs(self, repo: str = "") -> list[RunRow]:
        """List all runs, or those of one repository, newest first."""
        ...

    def runs_page(
        self, *, status: RunStatus | None = None, item: str = "", repo: str = "", after: str = "", limit: int = 50
    ) -> tuple[list[RunRow], str]:
        """Return a page of runs, newest first, and the `after` of the next page. Raises UsageError."""
        ...

    def find_runs(self, part: str, *, limit: int) -> list[RunRow]:
        """Return the run with this id, or else the newest runs whose id contains it."""
        ...

    def run(self, run: str) -> RunRow:
        """Raises NotFound."""
        ...

    def request_abort(self, run: str, *, by: str) -> None:
        """Ask the worker that holds the run to stop."""
        ...


class Feed(Protocol):
    """All ledgers as one stream."""

    def feed(self, after: str = "", *, run: str = "", limit: int = 500) -> list[FeedEntry]:
        """Return entries of all ledgers (or of one run) after a place, in a fixed order: none is lost or repeated.

        Pass the `place` of the last entry to get the next page; wait for more with `listen(Topic.EVENTS)`.
        """
        ...

    def feed_end(self) -> str:
        """Return the place after which only new entries follow."""
        ...


class Learnings(Protocol):
    """Lessons, found by the failure they are about, by their words, and by vectors of an embedder."""

    def add_learning(self, learning: Learning) -> Learning:
        """Store a learning, and return it or the near-identical one that it was merged into; an existing id is left
        unchanged. Raises UsageError."""
        ...

    def add_learnings(self, learnings: Sequence[Learning]) -> list[Learning]:
        """Store all of them or none."""
        ...

    def learning(self, learning: str) -> Learning:
        """Raises NotFound."""
        ...

    def learnings(
        self,
        repo: str = "",
        *,
        query: str = "",
        spec: str = "",
        tag: str = "",
        retired: bool = False,
        vector: Sequence[float] = (),
        embedder: str = "",
        limit: int = 50,
    ) -> list[Learning]:
        """Search learnings by the words of the query and the vector of the embedder, best first; without both, list the
        newest. `spec` is a part of a learning's spec. Skips retired ones; `retired` lists only them. Raises UsageError.
        """
        ...

    def older_learnings(self, repo: str = "", *, than: str = "", limit: int = 500) -> list[Learning]:
        """Return a page of all learnings that are not retired, newest first: those after the one with this id."""
        ...

    def learnings_of_failures(self, repo: str, fingerprints: Sequence[str], *, limit: int = 50) -> list[Learning]:
        """Return the learnings about failures with these fingerprints, those with a proven effect first."""
        ...

    def retire_learning(self, learning: str, *, by: str = "", why: str = "") -> Learning:
        """Exclude a learning from searches; the first call is recorded. Raises NotFound."""
        ...

    def unlearnt_runs(self, *, limit: int = 100) -> list[str]:
        """Return finished runs whose ledger has not been read for learnings."""
        ...

    def learn_run(self, run: str, learnings: Sequence[Learning], trials: Sequence[LearningTrial]) -> list[Learning]:
        """Store what a run's ledger gives, all or nothing, and mark the run as read. Repeating it changes nothing."""
        ...

    def trial_sums(self, repo: str = "") -> list[TrialSums]:
        """Return the sums of all trials by learning and arm."""
        ...

    def rate_learnings(self, lifts: dict[str, float]) -> None:
        """Record the proven effect of learnings, by id."""
        ...

    def learnings_without_vector(self, embedder: str, *, limit: int = 100) -> list[Learning]:
        """Return learnings that this embedder has not embedded yet."""
        ...

    def add_learning_vectors(self, embedder: str, vectors: Sequence[LearningVector]) -> None:
        """Store vectors, all of the same dimensions. Raises UsageError, NotFound, EnvironmentCannot."""
        ...

    def vector_search_error(self) -> str:
        """Return why vectors cannot be searched here, or an empty string."""
        ...


class Pages(Protocol):
    """What the web pages read and write beside the queue: the board and the state of the inbox."""

    def board(
        self,
        columns: Sequence[BoardColumn] = tuple(BoardColumn),
        *,
        repo: str = "",
        priority: Priority | None = None,
        limit: int = 50,
    ) -> list[BoardRow]:
        """Return up to `limit` items of each column in one query: open ones next first, ended ones newest first."""
        ...

    def prioritise(self, item: str, priority: Priority) -> ItemRow:
        """Change the priority of an open item; its place in the queue follows. Raises NotFound, Conflict."""
        ...

    def answer(self, item: str, answer: str, *, by: str) -> ItemRow:
        """Answer the question an item is parked for and queue it again. Raises NotFound, Conflict."""
        ...

    def nudge(self, item: str, message: str, *, by: str) -> ItemRow:
        """Send a message to the agents of an open run: the next prompt has it. Raises NotFound, Conflict."""
        ...

    def snooze(self, entry: str, *, by: str, until: str = "") -> None:
        """Hide an inbox entry until a time, or for good. The last call decides."""
        ...

    def wake(self, entry: str) -> None:
        """Show an inbox entry again."""
        ...

    def snoozes(self) -> list[Snooze]:
        """List the entries that are hidden now, the last hidden first."""
        ...


class Retention(Protocol):
    """Removal of finished runs."""

    def finished_runs(self, repo: str, *, before: str) -> list[str]:
        """Return the runs of a repository that finished before a time, oldest first."""
        ...

    def forget_run(self, run: str) -> None:
        """Delete a finished run; its item stays. Raises Conflict if it has not finished, or has the newest event."""
        ...

    def vacuum(self) -> None:
        """Give the space of deleted rows back."""
        ...


class MetricsSource(Protocol):
    """Metrics: figures derived from the ledgers, and the current load."""

    def metrics(self) -> FactoryMetrics:
        """Return today's figures and the current load."""
        ...

    def figures(self, query: FiguresQuery) -> list[TallyGroup]:
        """Return the tally of each group in a window, sorted; without groupings one, of everything."""
        ...


class Store(
    Signals,
    Queue,
    Leases,
    RemoteLeases,
    Workers,
    FencedWrites,
    PathLocks,
    Budgets,
    ProviderSlots,
    Ledger,
    Artifacts,
    Runs,
    Feed,
    Learnings,
    Retention,
    MetricsSource,
    Pages,
    Protocol,
):
    """All verbs. Any thread may call any verb at any time. Every backend passes the test suite in `tests/contract`."""

    def close(self) -> None: ...


def open_store(
    where: str | Path,
    *,
    token: str = "",
    is_dead: Callable[[Holder], bool] = lambda _holder: False,
    aging_s: float = AGING_S,
    redis: str = "",
) -> Store:
    """Open the store at a path (SQLite), a `postgresql://` URL, or behind a Ratchet server at an `http` address.

    `is_dead` detects dead lease holders, `token` is the server's. `redis` is the address of a Redis that keeps load
    away from PostgreSQL.
    """
    if str(where).startswith(("http://", "https://")):
        from ratchet.store.remote.store import open_remote_store  # noqa: PLC0415 — it imports this module

        return open_remote_store(str(where), token=token)
    if not str(where).startswith(("postgresql://", "postgres://")):
        from ratchet.store.sqlite.store import SqliteStore  # noqa: PLC0415 — it imports this module

        return SqliteStore(Path(where), is_dead=is_dead, aging_s=aging_s)
    try:
        from ratchet.store.postgres.store import PostgresStore  # noqa: PLC0415 — its library is optional
    except ImportError as error:
        raise EnvironmentCannot(
            f"a PostgreSQL store needs psycopg: {error}", hint="pip install 'ratchet-factory[postgres]'"
        ) from error
    return PostgresStore(str(where), is_dead=is_dead, aging_s=aging_s, redis=redis)
