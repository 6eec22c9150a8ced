"""The queue: what waits, whose turn it is, and how a run that was given up comes back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.item import OPEN, RANK, Item, ItemStatus, ParkReason, Priority
from ratchet.core.lease import Holder, Lease, WorkerStatus
from ratchet.core.locks import normalised
from ratchet.core.queue import Count, ItemRow, Limits, NoWork, Page, Why, cycle, turn
from ratchet.core.retry import DELAYS_S, After, Retry, retry
from ratchet.core.signal import Topic
from ratchet.errors import Conflict, NotFound, UsageError
from ratchet.store import Cancelled
from ratchet.store.database import Row, Transaction, local_midnight, reads, stamp, writes
from ratchet.store.ledger import (
    FENCE,
    Ledger,
    block_dependants,
    blocks,
    claimed,
    close_lease,
    footprint_of,
    holder_of,
    no_item,
    take,
    write,
)

SWEEP_MAX = 100
LOOKED_AT_MAX = 200
PAGE_MAX = 500
_PRIORITY = {rank: priority for priority, rank in RANK.items()}


class Queue(Ledger):
    _listed = "turn, id"  # as the index of lists has it

    # --- adding ----------------------------------------------------------------------------------------------

    def add(self, item: Item) -> Item:
        return self.add_all([item])[0]

    def add_all(self, items: Sequence[Item]) -> list[Item]:
        """All or none. They may wait for each other, but not in a ring."""
        return self._add_all([_checked(item) for item in items])

    @writes
    def _add_all(self, db: Transaction, items: Sequence[Item]) -> list[Item]:
        db.tell(Topic.WORK)
        return [self._add(db, item) for item in items] if len(items) == 1 else self._add_many(db, items)

    def _add_many(self, db: Transaction, items: Sequence[Item]) -> list[Item]:
        if ring := cycle({item.id: item.needs for item in items}):
            raise _ring(ring)
        bare = [self._insert(db, item) for item in items]
        for asked, added in zip(items, bare, strict=True):
            if asked.id == added.id:
                _wait_for(db, asked)
        return bare

    def _add(self, db: Transaction, item: Item) -> Item:
        if item.id in item.needs:
            raise _ring([item.id, item.id])
        added = self._insert(db, item)
        if added.id == item.id and item.needs:
            _wait_for(db, item)
        return added

    def _insert(self, db: Transaction, item: Item) -> Item:
        """The item, or the one that is there already for the same request or the same open source."""
        if same := _same(db, item):
            return same
        if db.run(ADD_ITEM, *self._row(item)) == 1:
            return item
        if same := _same(db, item):  # somebody else was quicker
            return same
        there = db.one("SELECT body FROM items WHERE id = ?", item.id)
        if there and there["body"] == msgspec.json.encode(item):
            return item  # said twice is said once
        raise Conflict(f"there is an item {item.id} already", item=item.id)

    def _row(self, item: Item) -> tuple[object, ...]:
        """The values of `ADD_ITEM`."""
        place = turn(self._clock().timestamp(), item.priority, aging_s=self._aging_s)
        named = (item.id, item.repo, item.source, item.source_ref, item.request_key)
        return *named, RANK[item.priority], place, item.created_at, msgspec.json.encode(item), "\n".join(item.footprint)

    # --- claiming --------------------------------------------------------------------------------------------

    @writes
    def claim_next(
        self, db: Transaction, holder: Holder, *, run: str, ttl_s: float, limits: Limits | None = None
    ) -> Lease | NoWork:
        limits, now = limits or Limits(), self._clock()
        if db.doubt and (held := claimed(db, holder, db.key)):
            return held
        db.alone("claim")  # what is counted and looked through must still be true when the lease is written
        at = stamp(now)
        if _due(db, at):
            self._sweep(db, now)
        if refused := self._refused(db, limits, now):
            return refused
        row = _next(db, limits, at)
        return row if isinstance(row, NoWork) else take(db, row, run=run, holder=holder, now=now, ttl_s=ttl_s)

    def _refused(self, db: Transaction, limits: Limits, now: datetime) -> NoWork | None:
        if limits.workers is not None and _count(db, _WORKING, stamp(now)) >= limits.workers:
            return NoWork(why=Why.WORKERS)
        if limits.awaiting_review is not None and _count(db, _AWAITING_REVIEW) >= limits.awaiting_review:
            return NoWork(why=Why.AWAITING_REVIEW)
        if limits.daily_iterations is not None and _count(db, _ITERATIONS, self._today()) >= limits.daily_iterations:
            return NoWork(why=Why.DAILY_ITERATIONS, until=stamp(local_midnight(now, days=1)))
        if limits.cooldown_s:
            row = db.one("SELECT max(started_at) AS last FROM workers")
            last = row["last"] if row else None
            if last and last > stamp(now - timedelta(seconds=limits.cooldown_s)):
                until = datetime.fromisoformat(last) + timedelta(seconds=limits.cooldown_s)
                return NoWork(why=Why.COOLDOWN, until=stamp(until))
        return None

    # --- coming back -----------------------------------------------------------------------------------------

    @writes
    def expire(self, db: Transaction) -> list[str]:
        """Return to the queue what its worker lost and what was parked until now; names the runs that came back.

        Every `claim_next` does the same for leases whose time is up; this one also asks who is known to be dead.
        """
        now = self._clock()
        dead = [row for row in db.all(_ALL_LEASES) if row["expires_at"] > stamp(now) and self._gone(holder_of(row))]
        return self._sweep(db, now, dead)

    def _sweep(self, db: Transaction, now: datetime, dead: Sequence[Row] = ()) -> list[str]:
        db.run(_WAKE, stamp(now))
        lost = [*db.all(_EXPIRED, stamp(now), SWEEP_MAX), *dead]
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
    ) -> Retry | None:
        """Take the lease `row` away and send its run back, to a person, or to its end. None: it was gone already."""
        item = db.one(_RETURN_WAITING if wait else _RETURN, row["item"])
        lease = db.one(_STILL_HELD, row["run"], row["epoch"], row["expires_at"]) if item else None
        if item is None or lease is None:
            return None
        # Whoever finished a step was not kept from it by the item: only returns in a row look as if it kills workers.
        returns = 0 if db.one(_PROGRESSED, row["run"], row["epoch"]) else item["returns"]
        after = retry(reason, attempts=item["attempts"], returns=returns, delays_s=delays_s)
        event = _ended(after, reason, detail, until=stamp(now + timedelta(seconds=after.delay_s)), by=lease["abort_by"])
        held = Lease(run=row["run"], item=row["item"], epoch=row["epoch"], holder=holder_of(lease))
        self._end(db, held, event, status=status, detail=detail, at=stamp(now))
        db.run("UPDATE items SET attempts = ?, returns = ? WHERE id = ?", after.attempts, after.returns, row["item"])
        return after

    def _end(
        self, db: Transaction, lease: Lease, event: ev.Event, *, status: WorkerStatus, detail: str, at: str
    ) -> None:
        close_lease(db, lease.run, lease.epoch, status, detail=detail, at=at)
        write(db, lease, [event], at=at)
        db.run(FENCE, lease.run, lease.epoch)

    # --- moving by hand --------------------------------------------------------------------------------------

    @writes
    def cancel(self, db: Transaction, item: str, *, by: str) -> Cancelled:
        now = self._clock()
        row = _locked(db, item)
        if row["status"] not in OPEN:
            return Cancelled.OVER
        if row["run"] is None:
            db.run("UPDATE items SET status = 'cancelled', park_reason = '', not_before = '' WHERE id = ?", item)
            block_dependants(db, item)
            return Cancelled.DONE
        lease = db.one("SELECT * FROM leases WHERE run = ? FOR UPDATE", row["run"])
        if lease and lease["expires_at"] > stamp(now) and not self._gone(holder_of(lease)):
            db.run("UPDATE runs SET abort_by = ? WHERE id = ? AND status = 'running'", by, row["run"])
            db.tell(Topic.STOP)
            return Cancelled.ASKED
        nobody = Holder(worker="", machine="", pid=0, born="")
        epoch = lease["epoch"] if lease else _epoch(db, row["run"])
        held = Lease(run=row["run"], item=item, epoch=epoch, holder=nobody)
        self._end(db, held, ev.RunAborted(by=by), status=WorkerStatus.FAILED, detail="lost", at=stamp(now))
        return Cancelled.DONE

    @writes
    def requeue(self, db: Transaction, item: str) -> ItemRow:
        """Queue again what failed, was cancelled or is parked: no retries used, the same branch. Raises UsageError."""
        row = _locked(db, item)
        if row["status"] not in ("failed", "cancelled", "parked", "queued"):
            raise Conflict(f"item {item} is {row['status']}: it cannot be queued again", item=item)
        _refuse_blocked(db, item)
        wanted = msgspec.json.decode(row["body"], type=Item)
        same = _same_source(db, wanted)
        if same and same.id != item:
            raise Conflict(f"{same.id} is open for the same source", hint=f"ratchet cancel {same.id}", item=item)
        db.run(_REQUEUE, item)
        _unblock_dependants(db, item)
        db.tell(Topic.WORK)
        return _item_row(_locked(db, item))

    @writes
    def park(self, db: Transaction, item: str, reason: ParkReason, *, until: str = "", detail: str = "") -> ItemRow:
        """Set aside an item that nobody works on; with `until` it comes back by itself."""
        row = _locked(db, item)
        if db.run(_PARK, reason, until, detail, item) != 1:
            raise Conflict(f"item {item} is {row['status']}: only what waits can be parked", item=item)
        return _item_row(_locked(db, item))

    @writes
    def unpark(self, db: Transaction, item: str) -> ItemRow:
        row = _locked(db, item)
        _refuse_blocked(db, item)
        if db.run(_UNPARK, item) != 1:
            raise Conflict(f"item {item} is {row['status']}, not parked", item=item)
        db.tell(Topic.WORK)
        return _item_row(_locked(db, item))

    # --- looking ---------------------------------------------------------------------------------------------

    def item(self, item: str) -> Item:
        return self.get(item).item

    @reads
    def get(self, db: Transaction, item: str) -> ItemRow:
        row = db.one("SELECT * FROM items WHERE id = ?", item)
        if row is None:
            raise no_item(item)
        return _item_row(row)

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
    ) -> Page:
        """In the order of their turn."""
        limit = max(1, min(limit, PAGE_MAX))
        asked = {"status": status, "rank": RANK[priority] if priority else None, "repo": repo or None}
        given = {name: value for name, value in asked.items() if value is not None}
        where = "".join(f" AND {name} = ?" for name in given)
        place, name = _cursor(after)
        sql = f"SELECT * FROM items WHERE ({self._listed}) > (?, ?){where} ORDER BY {self._listed} LIMIT ?"  # noqa: S608 — names above
        rows = db.all(sql, place, name, *given.values(), limit + 1)
        page, more = rows[:limit], len(rows) > limit
        return Page(rows=[_item_row(row) for row in page], after=f"{page[-1]['turn']}:{page[-1]['id']}" if more else "")

    @reads
    def drained(self, db: Transaction) -> bool:
        row = db.one(_BUSY)
        return not (row and row["busy"])

    @reads
    def stats(self, db: Transaction) -> list[Count]:
        rows = db.all("SELECT status, rank, count(*) AS n FROM items GROUP BY status, rank ORDER BY status, rank")
        return [Count(status=ItemStatus(r["status"]), priority=_PRIORITY[r["rank"]], items=r["n"]) for r in rows]


# --- adding ---------------------------------------------------------------------------------------------------------


def _checked(item: Item) -> Item:
    """Whoever made it: an item in the queue is one that the types allow."""
    try:
        item = msgspec.convert(msgspec.to_builtins(item), Item)
        return msgspec.structs.replace(item, footprint=normalised(item.footprint), needs=sorted(set(item.needs)))
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"item {item.id}: {error}", hint="correct it and add it again", item=item.id) from error


def _same(db: Transaction, item: Item) -> Item | None:
    row = db.one("SELECT body FROM items WHERE request_key = ?", item.request_key) if item.request_key else None
    if row is None:
        return _same_source(db, item)
    before: Item = msgspec.json.decode(row["body"], type=Item)
    if (before.repo, before.spec) != (item.repo, item.spec):
        raise Conflict(
            f"the request key {item.request_key} was used for another item, {before.id}",
            hint="a new request needs a new key",
            item=before.id,
        )
    return before


def _same_source(db: Transaction, item: Item) -> Item | None:
    row = db.one(_OPEN_ITEM, item.repo, item.source, item.source_ref) if item.source_ref else None
    return msgspec.json.decode(row["body"], type=Item) if row else None


def _wait_for(db: Transaction, item: Item) -> None:
    """Write down what the item needs. Those rows are held: none of them can fail unseen while we do."""
    over = {}
    for need in item.needs:
        row = db.one(_NEEDED, need)
        if row is None:
            raise NotFound(f"{item.id} needs {need}, which is not there", hint="add that one first", item=need)
        over[need] = row["over"]
    db.many("INSERT INTO needs VALUES (?, ?)", [(item.id, need) for need in item.needs])
    if bad := [need for need, is_over in over.items() if is_over]:
        db.run(_PARK, "blocked", "", f"{bad[0]} will not be completed", item.id)
        block_dependants(db, item.id)  # of those that were added together one may wait for this one already


def _ring(ring: Sequence[str]) -> UsageError:
    return UsageError(f"these items wait for each other: {' → '.join(ring)}", hint="take one of the needs away")


# --- claiming -------------------------------------------------------------------------------------------------------


def _due(db: Transaction, at: str) -> bool:
    row = db.one(DUE, at, at)
    return bool(row and row["due"])


def _next(db: Transaction, limits: Limits, at: str) -> Row | NoWork:
    """The item whose turn it is, of those that touch nothing that others hold."""
    place, name = -1, ""
    for _ in range(LOOKED_AT_MAX):
        row = _after(db, place, name, limits, at)
        if row is None:
            return NoWork(why=Why.LOCKED if name else _why_none(db, limits, at))
        if blocks(db, row["repo"], row["run"] or "", footprint_of(row), at=at) is None:
            return row
        place, name = row["turn"], row["id"]
    return NoWork(why=Why.LOCKED)


def _after(db: Transaction, place: int, name: str, limits: Limits, at: str) -> Row | None:
    if limits.per_repo is None:
        return db.one(_NEXT, at, place, name)
    return db.one(_NEXT_WITH_ROOM, at, place, name, at, limits.per_repo)


def _why_none(db: Transaction, limits: Limits, at: str) -> Why:
    return Why.PER_REPO if limits.per_repo is not None and db.one(_NEXT, at, -1, "") else Why.EMPTY


def _count(db: Transaction, sql: str, *values: object) -> int:
    row = db.one(sql, *values)
    return int(row["n"]) if row else 0


def _ended(after: Retry, reason: Reason, detail: str, *, until: str, by: str) -> ev.Event:
    if by:  # a cancel that its worker did not live to hear
        return ev.RunAborted(by=by)
    if after.after is After.FAIL:
        return ev.RunFailed(reason=reason, detail=detail)
    if after.after is After.PARK:
        return ev.RunParked(reason=ParkReason.QUESTION, detail=f"came back {after.returns} times: {detail}")
    return ev.RunReturned(reason=reason, detail=detail, until=until if after.delay_s else "", attempts=after.attempts)


def _epoch(db: Transaction, run: str) -> int:
    row = db.one("UPDATE runs SET epoch = epoch + 1 WHERE id = ? RETURNING epoch", run)
    assert row
    return int(row["epoch"])


# --- rows -----------------------------------------------------------------------------------------------------------


def _locked(db: Transaction, item: str) -> Row:
    row = db.one("SELECT * FROM items WHERE id = ? FOR UPDATE", item)
    if row is None:
        raise no_item(item)
    return row


def _refuse_blocked(db: Transaction, item: str) -> None:
    if row := db.one(_BLOCKED_BY, item):
        raise Conflict(
            f"{item} needs {row['id']}, which is {row['status']}", hint=f"ratchet requeue {row['id']}", item=item
        )


def _unblock_dependants(db: Transaction, item: str) -> None:
    back = [item]
    while back:
        back += [row["id"] for row in db.all(_UNBLOCK, back.pop())]


def _item_row(row: Row) -> ItemRow:
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


def _cursor(after: str) -> tuple[int, str]:
    if not after:
        return -1, ""
    place, _, name = after.partition(":")
    if not place.isdecimal() or int(place) >= 2**63:
        raise UsageError(f"{after!r} is no page", hint="take `after` from the page before")
    return int(place), name


_OPEN_ITEM = """
SELECT body FROM items WHERE repo = ? AND source = ? AND source_ref = ?
AND status IN ('generating', 'queued', 'assigned', 'in_progress', 'parked')
"""
ADD_ITEM = """
INSERT INTO items (id, repo, source, source_ref, request_key, status, rank, turn, created_at, body, footprint)
VALUES (?, ?, ?, ?, ?, 'queued', ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
NEXT = """
SELECT id, run, repo, turn, footprint FROM items
WHERE status = 'queued' AND not_before <= ? AND (turn, id) > (?, ?)
  AND NOT EXISTS (SELECT 1 FROM needs WHERE needs.item = items.id AND 'completed' <>
                  (SELECT first.status FROM items AS first WHERE first.id = needs.need) LIMIT 1 OFFSET 0){more}
ORDER BY turn, id LIMIT {most} FOR UPDATE OF items SKIP LOCKED
"""
_BUSY = """
SELECT EXISTS (SELECT 1 FROM items WHERE status IN ('assigned', 'in_progress'))
    OR EXISTS (SELECT 1 FROM items WHERE status = 'queued' AND NOT EXISTS (
         SELECT 1 FROM needs WHERE needs.item = items.id AND 'completed' <>
           (SELECT first.status FROM items AS first WHERE first.id = needs.need) LIMIT 1 OFFSET 0)) AS busy
"""
_REPO_HAS_ROOM = """
  AND (SELECT count(*) FROM leases JOIN items AS busy ON busy.id = leases.item
       WHERE busy.repo = items.repo AND leases.expires_at > ?) < ?"""
_NEXT, _NEXT_WITH_ROOM = NEXT.format(more="", most=1), NEXT.format(more=_REPO_HAS_ROOM, most=1)
_WORKING = "SELECT count(*) AS n FROM leases WHERE expires_at > ?"
_AWAITING_REVIEW = "SELECT count(*) AS n FROM items WHERE status = 'parked' AND park_reason = 'review'"
# Word for word the condition of its index: SQLite takes a partial index for nothing else.
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
# What will not be completed unless a person does something. An item that waits for a lock is blocked until a time.
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
