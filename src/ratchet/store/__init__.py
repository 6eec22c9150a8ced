"""Where items, runs, ledgers, receipts and leases are kept, behind verbs of the domain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Protocol, Self

import msgspec

from ratchet.core.budget import Amount, Caps, OverBudget, Reservation, Scope
from ratchet.core.events import Event
from ratchet.core.failure import Reason
from ratchet.core.figures import Figures
from ratchet.core.item import Item, ItemStatus, ParkReason, Priority
from ratchet.core.learning import Learning
from ratchet.core.lease import Beat, Holder, Late, Lease, WorkerRow
from ratchet.core.ledger import Entry, Told
from ratchet.core.locks import Blocked, Locked
from ratchet.core.queue import AGING_S, Count, ItemRow, Limits, NoWork, Page
from ratchet.core.receipt import Receipt
from ratchet.core.retry import DELAYS_S, Retry
from ratchet.core.signal import Topic
from ratchet.core.state import RunStatus
from ratchet.errors import EnvironmentCannot


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a list of runs shows, without folding each ledger."""

    run: str
    item: str
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


class Cancelled(StrEnum):
    DONE = "done"
    ASKED = "asked"  # a worker has it: it hears so at its next heartbeat
    OVER = "over"  # it had ended before


class Listener(Protocol):
    """Hears a topic from the moment it was made: listen first, then look, then wait, and nothing falls between."""

    def wait(self, timeout_s: float) -> bool:
        """Until something was told since the last wait, or the time is over. False says nothing: look all the same."""
        ...

    def ring(self) -> None:
        """End the wait that somebody is in, or else the next one: how its own process gets a waiter back."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Store(Protocol):
    """Every backend passes the one suite in `tests/contract`. Any thread may call any verb at any time.

    The loop of a worker, and the pattern for whoever waits for something:

        with store.listen(Topic.WORK) as work:
            while not stopping:
                lease = store.claim_next(...)
                if isinstance(lease, NoWork):
                    work.wait(POLL_S)

    A supervisor listens to `Topic.STOP` and renews its lease when it hears it: so a cancel or a kill, which are told in
    the answer to a renewal, reach their worker in milliseconds instead of at the next heartbeat.
    """

    def listen(self, topic: Topic) -> Listener:
        """Be woken when something on the topic may have changed: in milliseconds, from any process or machine.

        A hint, never a promise (its teller may die before telling): look again after `POLL_S` at the latest. What
        only time brings (a park's end, a lease's) and a place that a limit left free are not told.
        """
        ...

    # --- the queue -------------------------------------------------------------------------------------------

    def add(self, item: Item) -> Item:
        """Queue an item; while one from the same source is open, or for the same request key, return that one.

        What it needs must be there: a need that failed parks it at once. Raises UsageError, NotFound.
        """
        ...

    def add_all(self, items: Sequence[Item]) -> list[Item]:
        """All or none. They may wait for each other, but not in a ring."""
        ...

    def get(self, item: str) -> ItemRow:
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
    ) -> Page:
        """In the order of their turn."""
        ...

    def stats(self) -> list[Count]: ...

    def drained(self) -> bool:
        """Nobody works, and nothing waits but for people: not even for its time, which will come."""
        ...

    def claim_next(self, holder: Holder, *, run: str, ttl_s: float, limits: Limits | None = None) -> Lease | NoWork:
        """Take the lease on the item whose turn it is, starting `run` if it has none. What is lost comes back first.

        With the lease come locks on the item's footprint: one that would touch what others hold is passed over.
        """
        ...

    def cancel(self, item: str, *, by: str) -> Cancelled: ...

    def requeue(self, item: str) -> ItemRow:
        """Queue again what failed, was cancelled or is parked: no retries used, the same branch. Raises UsageError."""
        ...

    def park(self, item: str, reason: ParkReason, *, until: str = "", detail: str = "") -> ItemRow:
        """Set aside an item that nobody works on; with `until` it comes back by itself. Raises UsageError."""
        ...

    def unpark(self, item: str) -> ItemRow: ...

    def expire(self) -> list[str]:
        """Return to the queue what its worker lost and what was parked until now; names the runs that came back."""
        ...

    # --- workers ---------------------------------------------------------------------------------------------

    def complete(self, lease: Lease, *, commits: int, head: str) -> None:
        """Raises LeaseLost; saying it twice is saying it once."""
        ...

    def fail(self, lease: Lease, reason: Reason, detail: str, *, delays_s: Sequence[float] = DELAYS_S) -> Retry:
        """Give the run up: again later, to a person, or to its end, as `core.retry` decides.

        Raises LeaseLost; saying it twice is saying it once.
        """
        ...

    def stuck(self, lease: Lease, detail: str, *, delays_s: Sequence[float] = DELAYS_S) -> Retry | None:
        """No progress. The first time, None: nudge it. The second time the run goes back for a fresh context."""
        ...

    def kill(self, worker: str, *, by: str) -> bool:
        """Take its run away from a worker, which hears so at its next heartbeat. False: it was over before."""
        ...

    def workers(self, *, live: bool = False, limit: int = 500) -> list[WorkerRow]:
        """Newest first; the `live` are those that hold a lease and are not known to be dead."""
        ...

    def worker(self, worker: str) -> WorkerRow:
        """Raises NotFound."""
        ...

    def lease_of(self, token: str) -> Lease:
        """The lease a token proves. Raises LeaseLost."""
        ...

    def late(self, run: str = "") -> list[Late]:
        """What fenced workers said, of one run or of all, oldest first, as long as nobody has checked it.

        `complete`, `fail` and an `append` that holds commits are refused after the lease was lost, and noted here.
        """
        ...

    def check_late(self, late: str, *, kept: bool) -> None:
        """It was looked at: its commit holds and was kept, or not. Raises NotFound."""
        ...

    # --- locks and budgets -----------------------------------------------------------------------------------

    def lock(self, lease: Lease, paths: Iterable[str]) -> Locked | Blocked:
        """All of them or none. Raises LeaseLost, UsageError."""
        ...

    def unlock(self, lease: Lease, paths: Iterable[str] | None = None) -> list[str]:
        """Let go of these, or of all; returns what is still held. Raises LeaseLost."""
        ...

    def locks(self, repo: str) -> dict[str, list[str]]:
        """Paths by the run that holds them."""
        ...

    def reserve(self, lease: Lease, asked: Amount, *, caps: Caps) -> Reservation | OverBudget:
        """Raises LeaseLost."""
        ...

    def meter(self, reservation: Reservation, spent: Amount) -> str:
        """Write down what was spent so far; returns what there is too much of, or ''."""
        ...

    def settle(self, reservation: Reservation, spent: Amount) -> None: ...

    def spent(self, scope: Scope, name: str = "") -> Amount: ...

    def used(self, scope: Scope, name: str = "") -> Amount: ...

    # --- runs ------------------------------------------------------------------------------------------------

    def item(self, item: str) -> Item: ...

    def claim(self, item: str, *, run: str, holder: Holder, ttl_s: float) -> Lease:
        """Take the lease on an item's run, starting `run` if there is none. Raises LeaseHeld."""
        ...

    def renew(self, lease: Lease, *, ttl_s: float, iteration: int | None = None) -> str:
        """Keep the lease; returns who asked for the run to be aborted, or ''. Raises LeaseLost."""
        ...

    def release(self, lease: Lease) -> None:
        """Give the lease back, and the run to the queue. Releasing what is no longer held is success."""
        ...

    def append(self, lease: Lease, events: Sequence[Event], receipt: Receipt | None = None) -> list[Entry]:
        """Durably add events, in one transaction with the rows they move and the receipt. Raises LeaseLost."""
        ...

    def entries(self, run: str) -> list[Entry]:
        """The ledger, checked. Raises LedgerBroken."""
        ...

    def receipts(self, run: str) -> list[Receipt]: ...

    def runs(self) -> list[RunRow]:
        """Newest first."""
        ...

    def run(self, run: str) -> RunRow:
        """Raises NotFound."""
        ...

    def ask_abort(self, run: str, *, by: str) -> None:
        """Tell whoever holds the run to stop."""
        ...

    # --- following, learning, counting -----------------------------------------------------------------------

    def feed(self, after: str = "", *, run: str = "", limit: int = 500) -> list[Told]:
        """Rows of all ledgers (or one) after a place, in an order that never changes: none is lost, none told twice.

        Pages by the `place` of the last row; wait for more with `listen(Topic.EVENTS)`.
        """
        ...

    def feed_end(self) -> str:
        """The place from which a reader hears only what is new."""
        ...

    def learn(self, learning: Learning) -> Learning:
        """Keep it; with an id that is there already nothing changes. Raises UsageError."""
        ...

    def learnings(self, repo: str = "", *, query: str = "", limit: int = 50) -> list[Learning]:
        """Those that share words with the query, best first; without one, the newest first. Not the retired."""
        ...

    def retire(self, learning: str) -> Learning:
        """It is found no more. Raises NotFound."""
        ...

    def figures(self) -> Figures:
        """What the factory did today and does now."""
        ...

    # --- asked from outside ----------------------------------------------------------------------------------

    def proven(self, token: str) -> WorkerRow | None:
        """The worker a token proves, also when its lease is over."""
        ...

    def renew_all(self, beats: Sequence[Beat], *, ttl_s: float) -> list[str | None]:
        """Many heartbeats in one transaction: for each who asked to stop, or None when the lease is lost."""
        ...

    def runs_page(
        self, *, status: RunStatus | None = None, item: str = "", after: str = "", limit: int = 50
    ) -> tuple[list[RunRow], str]:
        """Newest first, and the `after` of the next page. Raises UsageError."""
        ...

    def entries_after(self, run: str, *, after: int, limit: int) -> list[Entry]:
        """A piece of a ledger, its chain not checked."""
        ...

    def close(self) -> None: ...


def open_store(
    where: str | Path, *, gone: Callable[[Holder], bool] = lambda _holder: False, aging_s: float = AGING_S
) -> Store:
    """A path is a SQLite file, `postgresql://…` a server."""
    if not str(where).startswith(("postgresql://", "postgres://")):
        from ratchet.store.sqlite import SqliteStore  # noqa: PLC0415 — it imports this module

        return SqliteStore(Path(where), gone=gone, aging_s=aging_s)
    try:
        from ratchet.store.postgres import PostgresStore  # noqa: PLC0415 — its library is optional
    except ImportError as error:
        raise EnvironmentCannot(
            f"a store on PostgreSQL needs psycopg: {error}", hint="pip install 'ratchet-factory[postgres]'"
        ) from error
    return PostgresStore(str(where), gone=gone, aging_s=aging_s)
