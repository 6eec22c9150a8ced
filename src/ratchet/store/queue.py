"""The queue in SQL: adding, claiming, requeueing and listing items."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.item import OPEN, RANK, Item, ItemStatus, ParkReason, Priority
from ratchet.core.lease import Holder, Lease, WorkerStatus
from ratchet.core.locks import normalise_all
from ratchet.core.queue import (
    ClaimLimits,
    ItemPage,
    ItemRow,
    NoWork,
    NoWorkReason,
    QueueCount,
    find_cycle,
    queue_position,
)
from ratchet.core.retry import DELAYS_S, RetryAction, RetryDecision, decide_retry
from ratchet.core.signal import Topic
from ratchet.core.timestamps import format_timestamp
from ratchet.errors import Conflict, NotFound, UsageError
from ratchet.store.database import Row, Transaction, local_midnight, reads, writes
from ratchet.store.labels import labels_text, suits, suits_values
from ratchet.store.ledger import (
    FENCE,
    SqlLedger,
    append_events,
    block_dependants,
    close_lease,
    find_blocking_lock,
    find_claimed_lease,
    footprint,
    grant_lease,
    item_not_found,
    to_holder,
)
from ratchet.store.protocols import CancelOutcome

EXPIRED_MAX = 100
PAGE_MAX = 500
_PRIORITY = {rank: priority for priority, rank in RANK.items()}


def priority_of(rank: int) -> Priority:
    return _PRIORITY[rank]


class SqlQueue(SqlLedger):
    _listed = "turn, id"  # the columns of the list index

    # --- adding ----------------------------------------------------------------------------------------------

    def add(self, item: Item) -> Item:
        return self.add_all([item])[0]

    def add_all(self, items: Sequence[Item]) -> list[Item]:
        """Add all items or none. They may need each other, but not in a cycle."""
        return self._add_all([_checked(item) for item in items])

    @writes
    def _add_all(self, db: Transaction, items: Sequence[Item]) -> list[Item]:
        db.notify(Topic.WORK)
        return [self._add(db, item) for item in items] if len(items) == 1 else self._add_many(db, items)

    def _add_many(self, db: Transaction, items: Sequence[Item]) -> list[Item]:
        if ring := find_cycle({item.id: item.needs for item in items}):
            raise _cycle_error(ring)
        added = [self._insert(db, item) for item in items]
        for item, (_, is_new) in zip(items, added, strict=True):
            if is_new:
                _add_needs(db, item)
        return [item for item, _ in added]

    def _add(self, db: Transaction, item: Item) -> Item:
        if item.id in item.needs:
            raise _cycle_error([item.id, item.id])
        added, is_new = self._insert(db, item)
        if is_new:
            _add_needs(db, item)
        return added

    def _insert(self, db: Transaction, item: Item) -> tuple[Item, bool]:
        """Insert the item, or return the existing one with the same request key or open source, and False."""
        if same := _find_duplicate(db, item):
            return same, False
        if db.execute(ADD_ITEM, *self._row(item)) == 1:
            return item, True
        if same := _find_duplicate(db, item):  # another transaction was faster
            return same, False
        there = db.fetch_one("SELECT body FROM items WHERE id = ?", item.id)
        if there and there["body"] == msgspec.json.encode(item):
            return item, False  # the same item, added twice
        raise Conflict(f"item {item.id} already exists", item=item.id)

    def _row(self, item: Item) -> tuple[object, ...]:
        """Return the values for `ADD_ITEM`."""
        place = queue_position(self._clock().timestamp(), item.priority, aging_s=self._aging_s)
        named = (item.id, item.repo, item.source, item.source_ref, item.request_key)
        content = msgspec.json.encode(item), "\n".join(item.footprint), item.slug, labels_text(item.require_labels)
        return *named, RANK[item.priority], place, item.created_at, *content

    # --- claiming --------------------------------------------------------------------------------------------

    def add_claimed(self, item: Item, *, run: str, holder: Holder, ttl_s: float, key: str = "") -> Lease:
        return self._add_claimed(_checked(item), run=run, holder=holder, ttl_s=ttl_s, key=key)

    @writes
    def _add_claimed(
        self, db: Transaction, item: Item, *, run: str, holder: Holder, ttl_s: float, key: str = ""
    ) -> Lease:
        return self._claim(db, self._add(db, item).id, run=run, holder=holder, ttl_s=ttl_s, key=key)

    @writes
    def claim_next(
        self,
        db: Transaction,
        holder: Holder,
        *,
        run: str,
        ttl_s: float,
        limits: ClaimLimits | None = None,
        key: str = "",
        labels: Sequence[str] = (),
        item: str = "",
    ) -> Lease | NoWork:
        limits, now = limits or ClaimLimits(), self._clock()
        db.advisory_lock("claim")  # counts and candidates must not change before the lease is written
        if (key or db.maybe_committed) and (held := find_claimed_lease(db, holder, key or db.key)):
            return held
        at = format_timestamp(now)
        if _sweep_due(db, at):
            self._sweep(db, now)
        if refused := self._limit_reached(db, limits, now):
            return refused
        row = _next(db, limits, labels, item, at)
        if isinstance(row, NoWork):
            return row
        return grant_lease(db, row, run=run, holder=holder, now=now, ttl_s=ttl_s, key=key, labels=labels)

    def _limit_reached(self, db: Transaction, limits: ClaimLimits, now: datetime) -> NoWork | None:
        if limits.workers is not None and _count(db, WORKING, format_timestamp(now)) >= limits.workers:
            return NoWork(why=NoWorkReason.WORKERS)
        if limits.awaiting_review is not None and _count(db, _AWAITING_REVIEW) >= limits.awaiting_review:
            return NoWork(why=NoWorkReason.AWAITING_REVIEW)
        if limits.daily_iterations is not None and _count(db, _ITERATIONS, self._today()) >= limits.daily_iterations:
            return NoWork(why=NoWorkReason.DAILY_ITERATIONS, until=format_timestamp(local_midnight(now, days=1)))
        if limits.cooldown_s and (until := _cooldown_until(db, limits.cooldown_s, now)):
            return NoWork(why=NoWorkReason.COOLDOWN, until=until)
        return None

    @reads
    def cooldown_until(self, db: Transaction, cooldown_s: float) -> str:
        """Return when the next claim is possible after a cooldown; empty for now."""
        return _cooldown_until(db, cooldown_s, self._clock())

    # --- coming back -----------------------------------------------------------------------------------------

    @writes
    def expire(self, db: Transaction) -> list[str]:
        """Requeue runs with expired leases or dead holders, and items whose park is over. Return the requeued runs.

        `claim_next` also handles expired leases; only this verb checks for dead holders.
        """
        now = self._clock()
        dead = [
            row
            for row in db.fetch_all(_ALL_LEASES)
            if row["expires_at"] > format_timestamp(now) and self._is_dead(to_holder(row))
        ]
        return self._sweep(db, now, dead)

    def _sweep(self, db: Transaction, now: datetime, dead: Sequence[Row] = ()) -> list[str]:
        db.execute(_WAKE, format_timestamp(now))
        lost = [*db.fetch_all(_EXPIRED, format_timestamp(now), EXPIRED_MAX), *dead]
        return [row["run"] for row in lost if self._return(db, row, Reason.WORKER_LOST, "lost", now=now, wait=False)]

    def _return(
        self,
        db: Transaction,
        row: Row,
        reason: Reason,
        detail: str,
        *,
        now: datetime,
        wait: bool = True,
        status: WorkerStatus = WorkerStatus.FAILED,
        delays_s: Sequence[float] = DELAYS_S,
    ) -> RetryDecision | None:
        """End the lease `row` and retry, park or fail its run. None: the lease had already ended."""
        item = db.fetch_one(_RETURN_WAITING if wait else _RETURN, row["item"])
        lease = db.fetch_one(_STILL_HELD, row["run"], row["epoch"], row["expires_at"]) if item else None
        if item is None or lease is None:
            return None
        # Only consecutive returns without progress suggest that the item kills its workers: a finished step resets.
        returns = 0 if db.fetch_one(_PROGRESSED, row["run"], row["epoch"]) else item["returns"]
        after = decide_retry(reason, attempts=item["attempts"], returns=returns, delays_s=delays_s)
        event = _end_event(
            after, reason, detail, until=format_timestamp(now + timedelta(seconds=after.delay_s)), by=lease["abort_by"]
        )
        held = Lease(run=row["run"], item=row["item"], epoch=row["epoch"], holder=to_holder(lease))
        self._end(db, held, event, status=status, detail=detail, at=format_timestamp(now))
        db.execute(
            "UPDATE items SET attempts = ?, returns = ? WHERE id = ?", after.attempts, after.returns, row["item"]
        )
        return after

    def _end(
        self, db: Transaction, lease: Lease, event: ev.Event, *, status: WorkerStatus, detail: str, at: str
    ) -> None:
        close_lease(db, lease.run, lease.epoch, status, detail=detail, at=at)
        append_events(db, lease, [event], at=at)
        db.execute(FENCE, lease.run, lease.epoch)

    # --- moving by hand --------------------------------------------------------------------------------------

    @writes
    def cancel(self, db: Transaction, item: str, *, by: str) -> CancelOutcome:
        now = self._clock()
        row = lock_item(db, item)
        if row["status"] not in OPEN:
            return CancelOutcome.OVER
        if row["run"] is None:
            db.execute("UPDATE items SET status = 'cancelled', park_reason = '', not_before = '' WHERE id = ?", item)
            block_dependants(db, item)
            return CancelOutcome.DONE
        lease = db.fetch_one("SELECT * FROM leases WHERE run = ? FOR UPDATE", row["run"])
        if lease and lease["expires_at"] > format_timestamp(now) and not self._is_dead(to_holder(lease)):
            db.execute("UPDATE runs SET abort_by = ? WHERE id = ? AND status = 'running'", by, row["run"])
            db.notify(Topic.STOP)
            return CancelOutcome.ASKED
        nobody = Holder(worker="", machine="", pid=0, born="")
        epoch = lease["epoch"] if lease else run_epoch(db, row["run"])
        held = Lease(run=row["run"], item=item, epoch=epoch, holder=nobody)
        self._end(db, held, ev.RunAborted(by=by), status=WorkerStatus.FAILED, detail="lost", at=format_timestamp(now))
        return CancelOutcome.DONE

    @writes
    def requeue(self, db: Transaction, item: str) -> ItemRow:
        """Queue a finished or parked item again with all retries, on the same branch. Raises Conflict."""
        row = lock_item(db, item)
        if row["status"] not in ("failed", "cancelled", "parked", "queued", "completed"):
            raise Conflict(f"item {item} is {row['status']} and cannot be requeued", item=item)
        _reject_blocked(db, item)
        wanted = msgspec.json.decode(row["body"], type=Item)
        same = _find_same_source(db, wanted)
        if same and same.id != item:
            raise Conflict(
                f"{same.id} is already open for the same source", hint=f"ratchet cancel {same.id}", item=item
            )
        db.execute(_REQUEUE, item)
        _unblock_dependants(db, item)
        db.notify(Topic.WORK)
        return item_of_row(lock_item(db, item))

    @writes
    def park(self, db: Transaction, item: str, reason: ParkReason, *, until: str = "", detail: str = "") -> ItemRow:
        """Park an item that is not in progress; with `until` it is queued again at that time. Raises Conflict."""
        row = lock_item(db, item)
        if until:
            _reject_blocked(db, item)  # it would be queued at that time, and never claimed
        if db.execute(_PARK, reason, until, detail, item) != 1:
            raise Conflict(f"item {item} is {row['status']}: only queued items can be parked", item=item)
        return item_of_row(lock_item(db, item))

    @writes
    def unpark(self, db: Transaction, item: str) -> ItemRow:
        row = lock_item(db, item)
        if db.maybe_committed and row["status"] == ItemStatus.QUEUED:
            return item_of_row(row)
        _reject_blocked(db, item)
        if db.execute(_UNPARK, item) != 1:
            raise Conflict(f"item {item} is {row['status']}, not parked", item=item)
        db.notify(Topic.WORK)
        return item_of_row(lock_item(db, item))

    # --- looking ---------------------------------------------------------------------------------------------

    def item(self, item: str) -> Item:
        return self.item_row(item).item

    @reads
    def item_row(self, db: Transaction, item: str) -> ItemRow:
        row = db.fetch_one("SELECT * FROM items WHERE id = ?", item)
        if row is None:
            raise item_not_found(item)
        return item_of_row(row)

    @reads
    def items(
        self,
        db: Transaction,
        *,
        status: ItemStatus | None = None,
        priority: Priority | None = None,
        repo: str = "",
        after: str = "",
        limit: int = 50,
    ) -> ItemPage:
        """List items in queue order."""
        limit = max(1, min(limit, PAGE_MAX))
        asked = {"status": status, "rank": RANK[priority] if priority else None, "repo": repo or None}
        given = {name: value for name, value in asked.items() if value is not None}
        where = "".join(f" AND {name} = ?" for name in given)
        place, name = _parse_cursor(after)
        sql = f"SELECT * FROM items WHERE ({self._listed}) > (?, ?){where} ORDER BY {self._listed} LIMIT ?"  # noqa: S608 — names above
        rows = db.fetch_all(sql, place, name, *given.values(), limit + 1)
        page, more = rows[:limit], len(rows) > limit
        return ItemPage(
            rows=[item_of_row(row) for row in page], after=f"{page[-1]['turn']}:{page[-1]['id']}" if more else ""
        )

    @reads
    def completed_slugs(self, db: Transaction, slugs: Sequence[str]) -> list[str]:
        """Return those slugs whose item is completed."""
        return [slug for slug in slugs if db.fetch_one(_COMPLETED_SLUG, slug)]

    @reads
    def is_drained(self, db: Transaction, labels: Sequence[str] | None = None) -> bool:
        busy = _BUSY if labels is None else _BUSY.replace("status = 'queued'", f"status = 'queued'{suits(labels)}", 1)
        row = db.fetch_one(busy, *suits_values(labels or ()))
        return not (row and row["busy"])

    @reads
    def stats(self, db: Transaction) -> list[QueueCount]:
        rows = db.fetch_all("SELECT status, rank, count(*) AS n FROM items GROUP BY status, rank ORDER BY status, rank")
        return [QueueCount(status=ItemStatus(r["status"]), priority=_PRIORITY[r["rank"]], items=r["n"]) for r in rows]


# --- adding ---------------------------------------------------------------------------------------------------------


def _checked(item: Item) -> Item:
    """Validate the item's fields, and normalise footprint and needs. Raises UsageError."""
    try:
        item = msgspec.convert(msgspec.to_builtins(item), Item)
        return msgspec.structs.replace(
            item,
            footprint=normalise_all(item.footprint),
            needs=sorted(set(item.needs)),
            require_labels=sorted(set(item.require_labels)),
        )
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"item {item.id}: {error}", hint="correct it and add it again", item=item.id) from error


def _find_duplicate(db: Transaction, item: Item) -> Item | None:
    row = db.fetch_one("SELECT body FROM items WHERE request_key = ?", item.request_key) if item.request_key else None
    if row is None:
        return _find_same_source(db, item)
    before: Item = msgspec.json.decode(row["body"], type=Item)
    if (before.repo, before.spec) != (item.repo, item.spec):
        raise Conflict(
            f"the request key {item.request_key} was used for another item, {before.id}",
            hint="a new request needs a new key",
            item=before.id,
        )
    return before


def _find_same_source(db: Transaction, item: Item) -> Item | None:
    row = db.fetch_one(_OPEN_ITEM, item.repo, item.source, item.source_ref) if item.source_ref else None
    return msgspec.json.decode(row["body"], type=Item) if row else None


def _add_needs(db: Transaction, item: Item) -> None:
    """Record the item's needs. Locks their rows, so that none can fail unnoticed meanwhile."""
    over = {}
    for need in item.needs:
        row = db.fetch_one(_NEEDED, need)
        if row is None:
            raise NotFound(f"{item.id} needs {need}, which does not exist", hint="add that item first", item=need)
        over[need] = row["over"]
    db.execute_many("INSERT INTO needs VALUES (?, ?)", [(item.id, need) for need in item.needs])
    if bad := [need for need, is_over in over.items() if is_over]:
        db.execute(_PARK, "blocked", "", f"{bad[0]} will not be completed", item.id)
        block_dependants(db, item.id)  # items added in the same batch may already depend on this one


def _cycle_error(ring: Sequence[str]) -> UsageError:
    return UsageError(f"items need each other in a cycle: {' → '.join(ring)}", hint="remove one of the needs")


# --- claiming -------------------------------------------------------------------------------------------------------


def _sweep_due(db: Transaction, at: str) -> bool:
    row = db.fetch_one(DUE, at, at)
    return bool(row and row["due"])


def _next(db: Transaction, limits: ClaimLimits, labels: Sequence[str], item: str, at: str) -> Row | NoWork:
    """Return the next item, or the given one, that suits the worker and overlaps no lock of another run."""
    more, values = suits(labels) + _room(limits), [*suits_values(labels), *_room_values(limits, at)]
    if item:
        more, values = f"{more} AND items.id = ?", [*values, item]
    row = db.fetch_one(NEXT.format(more=more, most=1), at, -1, "", *values)
    if row is None:
        return NoWork(why=_why_none(db, limits, labels, at))
    if find_blocking_lock(db, row["repo"], row["run"] or "", footprint(row), at=at) is None:
        return row
    return _next_unlocked(db, more, values, at) or NoWork(why=NoWorkReason.LOCKED)


def _next_unlocked(db: Transaction, more: str, values: Sequence[object], at: str) -> Row | None:
    """Search the queue page by page. Many items may wait for the same lock: each footprint is compared once."""
    sql = NEXT.format(more=more, most=PAGE_MAX).replace("FOR UPDATE OF items SKIP LOCKED", "")
    blocked: dict[tuple[str, str, str], bool] = {}
    place, name = -1, ""
    while rows := db.fetch_all(sql, at, place, name, *values):
        for row in rows:
            key = row["repo"], row["run"] or "", row["footprint"]
            if key not in blocked:
                blocked[key] = find_blocking_lock(db, key[0], key[1], footprint(row), at=at) is not None
            if not blocked[key] and (locked := db.fetch_one(_LOCK_QUEUED, row["id"])):
                return locked
        place, name = rows[-1]["turn"], rows[-1]["id"]
    return None


def _room(limits: ClaimLimits) -> str:
    return "" if limits.per_repo is None else _REPO_HAS_ROOM


def _room_values(limits: ClaimLimits, at: str) -> list[object]:
    return [] if limits.per_repo is None else [at, limits.per_repo]


def _cooldown_until(db: Transaction, cooldown_s: float, now: datetime) -> str:
    row = db.fetch_one("SELECT max(started_at) AS last FROM workers")
    last = datetime.fromisoformat(row["last"]) if row and row["last"] else None
    until = last + timedelta(seconds=cooldown_s) if last else now
    return format_timestamp(until) if until > now else ""


def _why_none(db: Transaction, limits: ClaimLimits, labels: Sequence[str], at: str) -> NoWorkReason:
    suiting = NEXT.format(more=suits(labels), most=1)
    if limits.per_repo is not None and db.fetch_one(suiting, at, -1, "", *suits_values(labels)):
        return NoWorkReason.PER_REPO
    plain = NEXT.format(more=" AND items.labels <> ''", most=1)
    return NoWorkReason.LABELS if db.fetch_one(plain, at, -1, "") else NoWorkReason.EMPTY


def _count(db: Transaction, sql: str, *values: object) -> int:
    row = db.fetch_one(sql, *values)
    return int(row["n"]) if row else 0


def _end_event(after: RetryDecision, reason: Reason, detail: str, *, until: str, by: str) -> ev.Event:
    if by:  # cancelled, and the worker died before it knew
        return ev.RunAborted(by=by)
    if after.after is RetryAction.FAIL:
        return ev.RunFailed(reason=reason, detail=detail)
    if after.after is RetryAction.PARK:
        if reason is Reason.AUTH:
            return ev.RunParked(reason=ParkReason.LOGIN, detail=detail)
        return ev.RunParked(reason=ParkReason.QUESTION, detail=f"returned {after.returns} times: {detail}")
    return ev.RunReturned(reason=reason, detail=detail, until=until if after.delay_s else "", attempts=after.attempts)


def run_epoch(db: Transaction, run: str) -> int:
    row = db.fetch_one("UPDATE runs SET epoch = epoch + 1 WHERE id = ? RETURNING epoch", run)
    assert row
    return int(row["epoch"])


# --- rows -----------------------------------------------------------------------------------------------------------


def lock_item(db: Transaction, item: str) -> Row:
    row = db.fetch_one("SELECT * FROM items WHERE id = ? FOR UPDATE", item)
    if row is None:
        raise item_not_found(item)
    return row


def _reject_blocked(db: Transaction, item: str) -> None:
    if row := db.fetch_one(_BLOCKED_BY, item):
        raise Conflict(
            f"{item} needs {row['id']}, which is {row['status']}", hint=f"ratchet requeue {row['id']}", item=item
        )


def _unblock_dependants(db: Transaction, item: str) -> None:
    back = [item]
    while back:
        back += [row["id"] for row in db.fetch_all(_UNBLOCK, back.pop())]


def item_of_row(row: Row) -> ItemRow:
    return ItemRow(
        item=msgspec.json.decode(row["body"], type=Item),
        status=ItemStatus(row["status"]),
        run=row["run"] or "",
        attempts=row["attempts"],
        returns=row["returns"],
        not_before=row["not_before"],
        park_reason=ParkReason(row["park_reason"]) if row["park_reason"] else None,
        detail=row["detail"],
    )


def _parse_cursor(after: str) -> tuple[int, str]:
    if not after:
        return -1, ""
    place, _, name = after.partition(":")
    if not place.isdecimal() or int(place) >= 2**63:
        raise UsageError(f"{after!r} is not a page cursor", hint="pass the `after` of the previous page")
    return int(place), name


_OPEN_ITEM = """
SELECT body FROM items WHERE repo = ? AND source = ? AND source_ref = ?
AND status IN ('generating', 'queued', 'assigned', 'in_progress', 'parked')
"""
ADD_ITEM = """
INSERT INTO items (id, repo, source, source_ref, request_key, status, rank, turn, created_at, body, footprint,
                   slug, labels)
VALUES (?, ?, ?, ?, ?, 'queued', ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
NEXT = """
SELECT id, run, repo, turn, footprint, labels FROM items
WHERE status = 'queued' AND not_before <= ? AND (turn, id) > (?, ?)
  AND NOT EXISTS (SELECT 1 FROM needs WHERE needs.item = items.id AND 'completed' <>
                  (SELECT first.status FROM items AS first WHERE first.id = needs.need) LIMIT 1 OFFSET 0){more}
ORDER BY turn, id LIMIT {most} FOR UPDATE OF items SKIP LOCKED
"""
_COMPLETED_SLUG = "SELECT 1 AS ok FROM items WHERE slug = ? AND status = 'completed' LIMIT 1"
# An item is in progress exactly while its run has a lease, and leases have an index.
_BUSY = """
SELECT EXISTS (SELECT 1 FROM leases)
    OR EXISTS (SELECT 1 FROM items WHERE status = 'queued' AND NOT EXISTS (
         SELECT 1 FROM needs WHERE needs.item = items.id AND 'completed' <>
           (SELECT first.status FROM items AS first WHERE first.id = needs.need) LIMIT 1 OFFSET 0)) AS busy
"""
_REPO_HAS_ROOM = """
  AND (SELECT count(*) FROM leases JOIN items AS busy ON busy.id = leases.item
       WHERE busy.repo = items.repo AND leases.expires_at > ?) < ?"""
_LOCK_QUEUED = """
SELECT id, run, repo, turn, footprint FROM items WHERE id = ? AND status = 'queued' FOR UPDATE SKIP LOCKED
"""
WORKING = "SELECT count(*) AS n FROM leases WHERE expires_at > ?"
_AWAITING_REVIEW = "SELECT count(*) AS n FROM items WHERE status = 'parked' AND park_reason = 'review'"
# Must equal the condition of the partial index word for word, or SQLite does not use the index.
COUNTED = """kind IN ('run_completed', 'run_failed', 'run_returned',
  'red_confirmed', 'step_committed', 'step_reverted', 'refactor_reverted', 'revision_reverted', 'step_resumed')"""
_ITERATIONS = f"SELECT count(*) AS n FROM events WHERE {COUNTED} AND kind = 'red_confirmed' AND at >= ?"  # noqa: S608 — ours
DUE = """
SELECT EXISTS (SELECT 1 FROM leases WHERE expires_at <= ?)
    OR EXISTS (SELECT 1 FROM items WHERE status = 'parked' AND not_before > '' AND not_before <= ?) AS due
"""
_WAKE = """
UPDATE items SET status = 'queued', park_reason = '', not_before = '' WHERE id IN
  (SELECT id FROM items WHERE status = 'parked' AND not_before > '' AND not_before <= ? FOR UPDATE SKIP LOCKED)
"""
_ALL_LEASES = "SELECT * FROM leases"
_EXPIRED = f"{_ALL_LEASES} WHERE expires_at <= ? ORDER BY expires_at LIMIT ?"
_PROGRESSED = "SELECT 1 AS ok FROM events WHERE run = ? AND epoch = ? AND kind = 'receipt_filed' LIMIT 1"
_RETURN_WAITING = "SELECT attempts, returns FROM items WHERE id = ? FOR UPDATE"
_RETURN = f"{_RETURN_WAITING} SKIP LOCKED"
_STILL_HELD = """
SELECT leases.*, runs.abort_by FROM leases JOIN runs ON runs.id = leases.run
WHERE leases.run = ? AND leases.epoch = ? AND leases.expires_at <= ? FOR UPDATE OF leases
"""
_REQUEUE = """
UPDATE items SET status = 'queued', attempts = 0, returns = 0, not_before = '', park_reason = '', detail = '',
       run = (SELECT id FROM runs WHERE runs.id = items.run AND runs.status = 'running')
WHERE id = ?
"""
# Items that only a person can get completed. An item that waits for a lock is also `blocked`, but has a `not_before`.
_OVER = "({name}.status IN ('failed', 'cancelled') OR ({name}.park_reason = 'blocked' AND {name}.not_before = ''))"
_NEEDED = f"SELECT {_OVER.format(name='items')} AS over FROM items WHERE id = ? FOR SHARE"  # noqa: S608 — ours
_BLOCKED_BY = f"""
SELECT items.id, items.status FROM needs JOIN items ON items.id = needs.need
WHERE needs.item = ? AND {_OVER.format(name="items")} ORDER BY items.id LIMIT 1
"""  # noqa: S608 — ours
_UNBLOCK = f"""
UPDATE items SET status = 'queued', park_reason = '', detail = ''
WHERE status = 'parked' AND park_reason = 'blocked' AND id IN (SELECT item FROM needs WHERE need = ?)
  AND NOT EXISTS (SELECT 1 FROM needs JOIN items AS first ON first.id = needs.need
                  WHERE needs.item = items.id AND {_OVER.format(name="first")})
RETURNING id
"""  # noqa: S608 — ours
_PARK = """
UPDATE items SET status = 'parked', park_reason = ?, not_before = ?, detail = ?
WHERE id = ? AND status IN ('queued', 'parked')
"""
_UNPARK = """
UPDATE items SET status = 'queued', park_reason = '', not_before = '', detail = '' WHERE id = ? AND status = 'parked'
"""
