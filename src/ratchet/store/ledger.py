"""Leases and ledgers: who may write to a run, and what was written. The guard sits in every write."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from ratchet.core import events as ev
from ratchet.core.events import Event, encode, kind_of
from ratchet.core.item import OPEN, Item, ItemStatus
from ratchet.core.lease import Holder, Late, Lease, WorkerStatus
from ratchet.core.ledger import GENESIS, MESSAGE_MAX_BYTES, Entry, first_break, seal
from ratchet.core.locks import Blocked, overlap
from ratchet.core.receipt import Receipt
from ratchet.core.signal import Topic
from ratchet.core.state import ROWS, RunStatus
from ratchet.errors import LeaseHeld, LeaseLost, LedgerBroken, NotFound, UsageError
from ratchet.store import RunRow
from ratchet.store.database import Database, Row, Single, Transaction, name_in, reads, stamp, writes

DETAIL_MAX_CHARS = 2_000


class Ledger(Database):
    # --- leases ----------------------------------------------------------------------------------------------

    @writes
    def claim(self, db: Transaction, item: str, *, run: str, holder: Holder, ttl_s: float) -> Lease:
        now = self._clock()
        if db.doubt and (held := claimed(db, holder, db.key)):
            return held
        row = db.one(_CLAIM_ITEM, item)
        if row is None:
            raise no_item(item)
        if row["status"] not in OPEN:
            raise UsageError(f"item {item} is {row['status']}: nothing is left to do", item=item)
        if row["run"]:
            self._free(db, row["run"], now)
        if blocked := blocks(db, row["repo"], row["run"] or run, footprint_of(row), at=stamp(now)):
            raise _footprint_held(item, blocked)
        return take(db, row, run=run, holder=holder, now=now, ttl_s=ttl_s)

    def _free(self, db: Transaction, run: str, now: datetime) -> None:
        """Drop a lease that has expired or whose holder is dead; refuse when it is alive."""
        row = db.one(_LEASE, run)
        if row is None:
            return
        held_by = holder_of(row)
        if row["expires_at"] > stamp(now) and not self._gone(held_by):
            raise LeaseHeld(
                f"{run} is being worked on by {held_by.worker} (process {held_by.pid})",
                hint=f"wait for it, or stop it with `ratchet abort {run}`",
                run=run,
                holder=held_by.worker,
            )
        close_lease(db, run, row["epoch"], WorkerStatus.FAILED, detail="lost", at=stamp(now))

    @writes
    def renew(self, db: Transaction, lease: Lease, *, ttl_s: float, iteration: int | None = None) -> str:
        now = self._clock()
        row = db.one(_RENEW, stamp(now), stamp(now + timedelta(seconds=ttl_s)), iteration, lease.run, lease.epoch)
        if row is None:
            return _renew_finished(db, lease)
        return str(row["abort_by"]) or _over(db, lease, row["iteration"])

    @writes
    def release(self, db: Transaction, lease: Lease) -> None:
        at = stamp(self._clock())
        db.hold(LOCK_ITEM, lease.item)
        if asked := db.one(_ABORT_ASKED, lease.run, lease.epoch):  # nobody holds it who could hear so
            write(db, lease, [ev.RunAborted(by=asked["abort_by"])], at=at)
        elif close_lease(db, lease.run, lease.epoch, WorkerStatus.RELEASED, detail="", at=at):
            db.run(_BACK_IN_QUEUE, lease.item)
            db.run(FENCE, lease.run, lease.epoch)
            db.tell(Topic.WORK)

    @reads
    def lease_of(self, db: Transaction, token: str) -> Lease:
        """The lease a token proves. Raises LeaseLost."""
        row = db.one(_PROVEN, worker_of(token), hash_of(token))
        if row is None:
            raise LeaseLost("this token is of no lease that is held", hint="claim again")
        return Lease(
            run=row["run"], item=row["item"], epoch=row["epoch"], holder=holder_of(row), worker=row["id"], token=token
        )

    # --- the ledger ------------------------------------------------------------------------------------------

    def append(self, lease: Lease, events: Sequence[Event], receipt: Receipt | None = None) -> list[Entry]:
        try:
            return self._append(lease, events, receipt)
        except LeaseLost:
            for event in events:
                if isinstance(event, ev.RunCompleted | ev.StepCommitted):
                    head = event.head if isinstance(event, ev.RunCompleted) else event.commit
                    self._note_late(lease, kind_of(event), head=head, detail="")
            raise

    @writes
    def _append(
        self, db: Transaction, lease: Lease, events: Sequence[Event], receipt: Receipt | None = None
    ) -> list[Entry]:
        if db.doubt and (there := _appended(db, lease, events)):
            return there
        return write(db, lease, events, at=db.began_at, receipt=receipt)

    @writes
    def _note_late(self, db: Transaction, lease: Lease, kind: str, *, head: str, detail: str) -> None:
        """Refused is not thrown away: what was done may be good. Said twice, it is noted once."""
        row = (f"late-{name_in(db.key)}", lease.run, lease.item, lease.epoch, lease.holder.worker, db.began_at)
        db.run(_NOTE_LATE, *row, kind, head, detail[:DETAIL_MAX_CHARS], lease.run)

    @reads
    def late(self, db: Transaction, run: str = "") -> list[Late]:
        rows = db.all("SELECT * FROM late WHERE checked_at = '' AND (run = ? OR ? = '') ORDER BY at, id", run, run)
        return [Late(**{**dict(row), "kept": bool(row["kept"])}) for row in rows]

    @writes
    def check_late(self, db: Transaction, late: str, *, kept: bool) -> None:
        if db.run("UPDATE late SET checked_at = ?, kept = ? WHERE id = ?", db.began_at, int(kept), late) != 1:
            raise NotFound(f"there is no late result {late}", late=late)

    @reads
    def entries(self, db: Transaction, run: str) -> list[Entry]:
        row = _run(db, run)
        rows = db.all("SELECT * FROM events WHERE run = ? AND seq <= ? ORDER BY seq", run, row.length)
        entries = [entry_of(found) for found in rows]
        if broken := first_break(entries, run=run, length=row.length, head=row.head):
            raise LedgerBroken(
                f"row {broken.seq} of the ledger of {run} does not hold: {broken.why}",
                hint="restore the database from a backup; the commits on the branch are not affected",
                run=run,
                seq=broken.seq,
            )
        return entries

    @reads
    def receipts(self, db: Transaction, run: str) -> list[Receipt]:
        rows = db.all("SELECT body FROM receipts WHERE run = ? ORDER BY step", run)
        try:
            return [msgspec.json.decode(row["body"], type=Receipt) for row in rows]
        except msgspec.MsgspecError as error:
            raise LedgerBroken(f"a receipt of {run} cannot be read: {error}", run=run) from error

    # --- looking ---------------------------------------------------------------------------------------------

    @reads
    def runs(self, db: Transaction) -> list[RunRow]:
        return [run_row(row) for row in db.all(f"{_RUNS} ORDER BY runs.created_at DESC, runs.id DESC")]

    @reads
    def run(self, db: Transaction, run: str) -> RunRow:
        return _run(db, run)

    @writes
    def ask_abort(self, db: Transaction, run: str, *, by: str) -> None:
        db.run("UPDATE runs SET abort_by = ? WHERE id = ? AND status = 'running'", by, run)
        db.tell(Topic.STOP)


# --- what the other verbs build on ---------------------------------------------------------------------------------


def take(db: Transaction, row: Row, *, run: str, holder: Holder, now: datetime, ttl_s: float) -> Lease:
    """Give the lease on an item whose row is locked and whose run nobody holds."""
    at, item = stamp(now), row["id"]
    if row["run"]:
        run = row["run"]
        started = db.one(_NEXT_EPOCH, run)
        assert started, f"{item} is open and its run is not"
        epoch = int(started["epoch"])
    else:
        epoch = 1
        db.run(_START_RUN, run, item, at, GENESIS, epoch)
    worker, token = names(db.key)
    who = (holder.worker, holder.machine, holder.pid, holder.born)
    db.run(_TAKE, worker, *who, hash_of(token), item, run, epoch, at, at, stamp(now + timedelta(seconds=ttl_s)))
    db.run("UPDATE items SET status = 'assigned', run = ?, park_reason = '', not_before = '' WHERE id = ?", run, item)
    if paths := footprint_of(row):
        db.many(LOCK, [(row["repo"], path, run) for path in paths])
    return Lease(run=run, item=item, epoch=epoch, holder=holder, worker=worker, token=token)


def names(key: str) -> tuple[str, str]:
    """A worker's id and its token, from the key of the claim: done again, the claim finds its lease by them."""
    return worker_of(key), key


def worker_of(token: str) -> str:
    """The worker that a token is of, if it is of any: what proves it is the rest of the token."""
    return f"worker-{name_in(token)}"


def claimed(db: Single, holder: Holder, key: str) -> Lease | None:
    """The lease that an earlier try of this very claim has taken, if it was committed before the connection broke."""
    worker, token = names(key)
    row = db.one(_PROVEN, worker, hash_of(token))
    if row is None:
        return None
    return Lease(run=row["run"], item=row["item"], epoch=row["epoch"], holder=holder, worker=worker, token=token)


def write(
    db: Transaction, lease: Lease, events: Sequence[Event], *, at: str, receipt: Receipt | None = None
) -> list[Entry]:
    """Add events to a ledger and move the rows as the last of them says that speaks of any. Raises LeaseLost."""
    move = next((event for event in reversed(events) if type(event) in ROWS), None)
    if move:
        db.hold(LOCK_ITEM, lease.item)  # every verb locks the item before its run: the order that cannot deadlock
    row = db.one("SELECT length, head, abort_by FROM runs WHERE id = ? FOR UPDATE", lease.run)
    if row is None:
        raise lost(lease)
    said = len(events)
    if isinstance(move, ev.RunParked) and row["abort_by"]:  # cancelled, and its worker has not heard so
        move = ev.RunAborted(by=row["abort_by"])
        events = [*events, move]
    entries = _chain(lease, events, at=at, length=row["length"], head=row["head"])
    status = ROWS[type(move)][0] if move else RunStatus.RUNNING
    after = (entries[-1].seq, entries[-1].sum, status, lease.run, lease.epoch, row["length"])
    if db.run(_ADVANCE, *after) != 1:
        raise lost(lease)
    db.add(entries)
    if move:
        _move(db, lease, move, at)
    db.tell(Topic.EVENTS)
    if receipt:
        body = msgspec.json.encode(receipt)
        db.run("INSERT INTO receipts VALUES (?, ?, ?, ?)", lease.run, receipt.step, receipt.key, body)
    return entries[:said]


# --- locks on the footprint ------------------------------------------------------------------------------------------


def footprint_of(row: Row) -> list[str]:
    return row["footprint"].split("\n") if row["footprint"] else []


def blocks(db: Transaction, repo: str, run: str, paths: Sequence[str], *, at: str) -> Blocked | None:
    """The first lock of another run that these paths touch. What it says holds until the transaction ends."""
    if not paths:
        return None
    db.alone(f"locks {repo}")
    for row in db.all(_LOCKS_OF_OTHERS, repo, run, at):
        for path in paths:
            if overlap(path, row["path"]):
                return Blocked(asked=path, held=row["path"], run=row["run"], worker=row["worker"])
    return None


def _footprint_held(item: str, blocked: Blocked) -> LeaseHeld:
    return LeaseHeld(
        f"{item} would change {blocked.asked}: {blocked.worker} holds {blocked.held} for {blocked.run}",
        hint=f"wait for it, or stop it with `ratchet abort {blocked.run}`",
        run=blocked.run,
        holder=blocked.worker,
    )


_ENDS: dict[type[Event], WorkerStatus] = {
    ev.RunCompleted: WorkerStatus.COMPLETED,
    ev.RunFailed: WorkerStatus.FAILED,
    ev.RunAborted: WorkerStatus.KILLED,
    ev.RunReturned: WorkerStatus.FAILED,
    ev.RunParked: WorkerStatus.RELEASED,
}


def _move(db: Transaction, lease: Lease, event: Event, at: str) -> None:
    """Move the item as the event says; an event that ends the work also ends the lease and all that hangs on it."""
    _, status = ROWS[type(event)]
    reason, until, detail = "", "", ""
    if isinstance(event, ev.RunParked):
        reason, until, detail = event.reason, event.until, event.detail
    elif isinstance(event, ev.RunReturned):
        until, detail = event.until, event.detail
    elif isinstance(event, ev.RunFailed):
        detail = event.detail
    db.run(_MOVE_ITEM, status, reason, until, detail, lease.item, lease.run)
    if type(event) in _ENDS:
        close_lease(db, lease.run, lease.epoch, _ENDS[type(event)], detail=detail, at=at)
    if isinstance(event, ev.RunParked):  # the run goes on, but not by this worker
        db.run(FENCE, lease.run, lease.epoch)
    if status in (ItemStatus.FAILED, ItemStatus.CANCELLED):
        block_dependants(db, lease.item)
    if status is ItemStatus.QUEUED or (status is ItemStatus.COMPLETED and db.one(_IS_NEEDED, lease.item)):
        db.tell(Topic.WORK)


def close_lease(db: Transaction, run: str, epoch: int, status: WorkerStatus, *, detail: str, at: str) -> bool:
    """End a lease: its locks go with it, its worker is over, what it reserved and did not spend is free again."""
    row = db.one(_END_WORKER, status, at, detail, run, epoch)
    if row is None:
        return False
    if row["locked"]:
        db.run("DELETE FROM locks WHERE run = ?", run)
    if row["reserved"]:
        db.run(_SETTLE_ALL, run, epoch)
    return True


def block_dependants(db: Transaction, item: str) -> None:
    """What waits for it waits for a person now, and so does what waits for that."""
    ends = [item]
    while ends:
        ends += [row["id"] for row in db.all(_BLOCK, f"{item} will not be completed", ends.pop())]


def no_item(item: str) -> NotFound:
    return NotFound(f"there is no item {item}", hint="`ratchet queue --all` lists what there is", item=item)


def lost(lease: Lease) -> LeaseLost:
    return LeaseLost(
        f"{lease.run} is no longer ours (epoch {lease.epoch}): nothing was written",
        hint=f"`ratchet show {lease.run}` tells who continues it",
        run=lease.run,
        epoch=lease.epoch,
    )


def hold(db: Transaction, lease: Lease) -> None:
    """Be sure that the lease is ours until this transaction ends. Raises LeaseLost."""
    if db.one(_HOLD, lease.run, lease.epoch) is None:
        raise lost(lease)


def hash_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def holder_of(row: Row) -> Holder:
    return Holder(worker=row["worker"], machine=row["machine"], pid=row["pid"], born=row["born"])


def _renew_finished(db: Transaction, lease: Lease) -> str:
    """A heartbeat that crosses the end of its own run is in order: there is nothing left to lose."""
    if db.one("SELECT 1 AS ok FROM runs WHERE id = ? AND epoch = ? AND status <> 'running'", lease.run, lease.epoch):
        return ""
    raise lost(lease)


def _over(db: Transaction, lease: Lease, iteration: int) -> str:
    if not iteration:
        return ""
    row = db.one("SELECT body FROM items WHERE id = ?", lease.item)
    most = msgspec.json.decode(row["body"], type=Item).max_iterations if row else None
    return f"ratchet: {iteration} iterations, at most {most} are allowed" if most and iteration > most else ""


def _chain(lease: Lease, events: Sequence[Event], *, at: str, length: int, head: str) -> list[Entry]:
    entries: list[Entry] = []
    for seq, event in enumerate(events, start=length + 1):
        data = encode(event)
        if len(data) > MESSAGE_MAX_BYTES:
            raise ValueError(f"{kind_of(event)} has {len(data)} bytes: what is larger than a message is an artifact")
        head = entries[-1].sum if entries else head
        entry = seal(run=lease.run, seq=seq, at=at, epoch=lease.epoch, kind=kind_of(event), data=data, prev=head)
        entries.append(entry)
    return entries


def _appended(db: Transaction, lease: Lease, events: Sequence[Event]) -> list[Entry]:
    """What an earlier try of this very append has written, if it was committed before the connection broke."""
    rows = db.all(_LAST, lease.run, lease.epoch, len(events))[::-1]
    wanted = [(db.began_at, kind_of(event), encode(event)) for event in events]
    same = [(row["at"], row["kind"], bytes(row["data"])) for row in rows] == wanted
    return [entry_of(row) for row in rows] if same else []


def entry_of(row: Row) -> Entry:
    return Entry(**{name: row[name] for name in Entry.__struct_fields__})


def _run(db: Transaction, run: str) -> RunRow:
    row = db.one(f"{_RUNS} WHERE runs.id = ?", run)
    if row is None:
        raise NotFound(f"there is no run {run}", hint="`ratchet runs` lists what there is", run=run)
    return run_row(row)


def run_row(row: Row) -> RunRow:
    fields: dict[str, Any] = {
        name: row[name] for name in ("run", "item", "created_at", "length", "head", "epoch", "abort_by")
    }
    return RunRow(
        **fields,
        title=msgspec.json.decode(row["body"], type=Item).title,
        status=RunStatus(row["status"]),
        item_status=ItemStatus(row["item_status"]),
        holder=holder_of(row) if row["worker"] else None,
        expires_at=row["expires_at"] or "",
    )


_CLAIM_ITEM = "SELECT id, status, run, repo, footprint FROM items WHERE id = ? FOR UPDATE"
LOCK_ITEM = "SELECT id FROM items WHERE id = ? FOR UPDATE"
_LEASE = "SELECT * FROM leases WHERE run = ? FOR UPDATE"
_HOLD = "SELECT run FROM leases WHERE run = ? AND epoch = ? FOR UPDATE"
_START_RUN = "INSERT INTO runs VALUES (?, ?, 'running', ?, 0, ?, ?, '')"
_NEXT_EPOCH = "UPDATE runs SET epoch = epoch + 1 WHERE id = ? AND status = 'running' RETURNING epoch"
FENCE = "UPDATE runs SET epoch = epoch + 1 WHERE id = ? AND epoch = ? AND status = 'running'"
_TAKE = """
INSERT INTO workers (id, name, machine, pid, born, token_sha256, item, run, epoch, status, started_at, beat_at,
                     expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'starting', ?, ?, ?)
"""
_RENEW = """
UPDATE workers SET beat_at = ?, expires_at = ?, iteration = COALESCE(CAST(? AS INTEGER), iteration),
       status = CASE status WHEN 'starting' THEN 'running' ELSE status END
WHERE run = ? AND epoch = ? AND ended_at = ''
RETURNING iteration, (SELECT abort_by FROM runs WHERE runs.id = workers.run) AS abort_by
"""
_BACK_IN_QUEUE = "UPDATE items SET status = 'queued' WHERE id = ? AND status IN ('assigned', 'in_progress')"
_PROVEN = """
SELECT id, run, item, epoch, name AS worker, machine, pid, born FROM workers
WHERE id = ? AND token_sha256 = ? AND ended_at = ''
"""
_ADVANCE = """
UPDATE runs SET length = ?, head = ?, status = ?
WHERE id = ? AND epoch = ? AND length = ? AND status = 'running'
"""
LOCK = "INSERT INTO locks VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_LOCKS_OF_OTHERS = """
SELECT locks.path, locks.run, leases.worker FROM locks JOIN leases ON leases.run = locks.run
WHERE locks.repo = ? AND locks.run <> ? AND leases.expires_at > ? ORDER BY locks.path
"""
_NOTE_LATE = """
INSERT INTO late (id, run, item, epoch, worker, at, kind, head, detail)
SELECT ?, ?, ?, CAST(? AS INTEGER), ?, ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM runs WHERE id = ?) ON CONFLICT DO NOTHING
"""
_ABORT_ASKED = """
SELECT runs.abort_by FROM leases JOIN runs ON runs.id = leases.run
WHERE leases.run = ? AND leases.epoch = ? AND runs.abort_by <> '' AND runs.status = 'running'
"""
_LAST = "SELECT * FROM events WHERE run = ? AND epoch = ? ORDER BY seq DESC LIMIT ?"
_MOVE_ITEM = "UPDATE items SET status = ?, park_reason = ?, not_before = ?, detail = ? WHERE id = ? AND run = ?"
_SETTLE_ALL = "UPDATE reservations SET status = 'settled' WHERE run = ? AND epoch = ? AND status = 'held'"
_END_WORKER = """
UPDATE workers SET status = ?, ended_at = ?, detail = ? WHERE run = ? AND epoch = ? AND ended_at = ''
RETURNING EXISTS (SELECT 1 FROM locks WHERE locks.run = workers.run) AS locked,
  EXISTS (SELECT 1 FROM reservations WHERE reservations.run = workers.run AND reservations.epoch = workers.epoch
          AND reservations.status = 'held') AS reserved
"""
_BLOCK = """
UPDATE items SET status = 'parked', park_reason = 'blocked', not_before = '', detail = ?
WHERE status = 'queued' AND id IN (SELECT item FROM needs WHERE need = ?) RETURNING id
"""
_IS_NEEDED = "SELECT 1 AS ok FROM needs WHERE need = ? LIMIT 1"
_RUNS = """
SELECT runs.id AS run, runs.item, runs.status, runs.created_at, runs.length, runs.head, runs.epoch, runs.abort_by,
       items.body, items.status AS item_status,
       leases.worker, leases.machine, leases.pid, leases.born, leases.expires_at
FROM runs JOIN items ON items.id = runs.item LEFT JOIN leases ON leases.run = runs.id
"""
