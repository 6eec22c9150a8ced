"""Leases and ledgers in SQL. Every write checks the epoch of its lease."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from ratchet.core import events as ev
from ratchet.core.card import advance, decode_card, encode_card
from ratchet.core.events import Event, encode, kind_of
from ratchet.core.item import OPEN, Item, ItemStatus, ParkReason
from ratchet.core.lease import FencedWrite, Holder, Lease, WorkerStatus
from ratchet.core.ledger import GENESIS, MESSAGE_MAX_BYTES, ChainBreak, Entry, find_break, seal
from ratchet.core.locks import Blocked, overlaps
from ratchet.core.receipt import Receipt
from ratchet.core.signal import Topic
from ratchet.core.state import ROWS, RunStatus
from ratchet.core.timestamps import format_timestamp
from ratchet.errors import Conflict, LeaseHeld, LeaseLost, LedgerBroken, NotFound, UsageError
from ratchet.store.database import Database, Row, SingleStatement, Transaction, public_part, reads, writes
from ratchet.store.labels import labels_text
from ratchet.store.protocols import LedgerCheckpoint, LedgerTail, RunRow

DETAIL_MAX_CHARS = 2_000


class SqlLedger(Database):
    # --- leases ----------------------------------------------------------------------------------------------

    @writes
    def claim(self, db: Transaction, item: str, *, run: str, holder: Holder, ttl_s: float, key: str = "") -> Lease:
        return self._claim(db, item, run=run, holder=holder, ttl_s=ttl_s, key=key)

    def _claim(self, db: Transaction, item: str, *, run: str, holder: Holder, ttl_s: float, key: str = "") -> Lease:
        now = self._clock()
        row = db.fetch_one(_CLAIM_ITEM, item)
        if row is None:
            raise item_not_found(item)
        if (key or db.maybe_committed) and (held := find_claimed_lease(db, holder, key or db.key)):
            return held
        if row["status"] not in OPEN:
            raise UsageError(f"item {item} is already {row['status']}", item=item)
        if row["run"]:
            self._drop_expired(db, row["run"], now)
        if blocked := find_blocking_lock(db, row["repo"], row["run"] or run, footprint(row), at=format_timestamp(now)):
            raise _footprint_held(item, blocked)
        return grant_lease(db, row, run=run, holder=holder, now=now, ttl_s=ttl_s, key=key)

    def _drop_expired(self, db: Transaction, run: str, now: datetime) -> None:
        """End a lease that has expired or whose holder is dead. Raises LeaseHeld if it is alive."""
        row = db.fetch_one(_LEASE, run)
        if row is None:
            return
        held_by = to_holder(row)
        if row["expires_at"] > format_timestamp(now) and not self._is_dead(held_by):
            raise LeaseHeld(
                f"{run} is in progress: held by {held_by.worker} (process {held_by.pid})",
                hint=f"follow it with `ratchet logs -f {run}`, or stop it with `ratchet abort {run}`",
                run=run,
                holder=held_by.worker,
            )
        close_lease(db, run, row["epoch"], WorkerStatus.FAILED, detail="lost", at=format_timestamp(now))

    @writes
    def renew(self, db: Transaction, lease: Lease, *, ttl_s: float, iteration: int | None = None) -> str:
        now = self._clock()
        row = db.fetch_one(
            _RENEW,
            format_timestamp(now),
            format_timestamp(now + timedelta(seconds=ttl_s)),
            iteration,
            lease.run,
            lease.epoch,
        )
        if row is None:
            return _renew_finished(db, lease)
        return str(row["abort_by"]) or over_iterations(db, lease.item, row["iteration"])

    @writes
    def release(self, db: Transaction, lease: Lease) -> None:
        at = format_timestamp(self._clock())
        db.lock_rows(LOCK_ITEM, lease.item)
        if asked := db.fetch_one(_ABORT_ASKED, lease.run, lease.epoch):  # no worker is left that could abort it
            append_events(db, lease, [ev.RunAborted(by=asked["abort_by"])], at=at)
        elif close_lease(db, lease.run, lease.epoch, WorkerStatus.RELEASED, detail="", at=at):
            db.execute(_BACK_IN_QUEUE, lease.item)
            db.execute(FENCE, lease.run, lease.epoch)
            db.notify(Topic.WORK)

    @reads
    def lease_by_token(self, db: Transaction, token: str) -> Lease:
        """Return the lease that the token authenticates. Raises LeaseLost."""
        row = db.fetch_one(_PROVEN, worker_id(token), token_hash(token))
        if row is None:
            raise LeaseLost("the token belongs to no active lease", hint="claim again")
        return Lease(
            run=row["run"], item=row["item"], epoch=row["epoch"], holder=to_holder(row), worker=row["id"], token=token
        )

    # --- the ledger ------------------------------------------------------------------------------------------

    def append(
        self, lease: Lease, events: Sequence[Event], receipt: Receipt | None = None, *, after: int | None = None
    ) -> list[Entry]:
        try:
            return self._append(lease, events, receipt, after=after)
        except LeaseLost:
            for event in events:
                if isinstance(event, ev.RunCompleted | ev.StepCommitted):
                    head = event.head if isinstance(event, ev.RunCompleted) else event.commit
                    self._record_fenced_write(lease, kind_of(event), head=head, detail="")
            raise

    @writes
    def _append(
        self,
        db: Transaction,
        lease: Lease,
        events: Sequence[Event],
        receipt: Receipt | None = None,
        *,
        after: int | None = None,
    ) -> list[Entry]:
        return append_events(db, lease, events, at=db.began_at, receipt=receipt, after=after)

    @writes
    def _record_fenced_write(self, db: Transaction, lease: Lease, kind: str, *, head: str, detail: str) -> None:
        """Record a rejected write, whose commits may be good. Recording it twice keeps one row."""
        row = (f"late-{public_part(db.key)}", lease.run, lease.item, lease.epoch, lease.holder.worker, db.began_at)
        db.execute(_NOTE_LATE, *row, kind, head, detail[:DETAIL_MAX_CHARS], lease.run)

    @reads
    def fenced_writes(self, db: Transaction, run: str = "") -> list[FencedWrite]:
        rows = db.fetch_all(
            "SELECT * FROM late WHERE checked_at = '' AND (run = ? OR ? = '') ORDER BY at, id", run, run
        )
        return [FencedWrite(**{**dict(row), "kept": bool(row["kept"])}) for row in rows]

    @writes
    def resolve_fenced_write(self, db: Transaction, late: str, *, kept: bool) -> None:
        if db.execute("UPDATE late SET checked_at = ?, kept = ? WHERE id = ?", db.began_at, int(kept), late) != 1:
            raise NotFound(f"no fenced write {late}", late=late)

    @reads
    def entries(self, db: Transaction, run: str) -> list[Entry]:
        row = _run(db, run)
        rows = db.fetch_all("SELECT * FROM events WHERE run = ? AND seq <= ? ORDER BY seq", run, row.length)
        entries = [to_entry(found) for found in rows]
        if broken := find_break(entries, run=run, length=row.length, head=row.head):
            raise _broken(run, broken)
        return entries

    def checkpoint_ledger(self, checkpoint: LedgerCheckpoint) -> None:
        """Keep a state folded from a ledger. Not durable: it is only faster than folding the whole ledger again."""
        row = msgspec.structs.astuple(checkpoint)
        self._write(lambda db: db.execute(_KEEP_CHECKPOINT, *row), durable=False)

    @reads
    def ledger_tail(self, db: Transaction, run: str, *, version: str) -> LedgerTail:
        """Return the last checkpoint of this version, if any, and the verified entries after it."""
        row = _run(db, run)
        found = db.fetch_one(_CHECKPOINT, run, version)
        kept = LedgerCheckpoint(**{**dict(found), "state": bytes(found["state"])}) if found else None
        after, prev = (kept.seq, kept.sum) if kept else (0, GENESIS)
        rows = db.fetch_all(
            "SELECT * FROM events WHERE run = ? AND seq > ? AND seq <= ? ORDER BY seq", run, after, row.length
        )
        entries = [to_entry(found) for found in rows]
        if broken := find_break(entries, run=run, length=row.length, head=row.head, after=after, prev=prev):
            raise _broken(run, broken)
        return LedgerTail(checkpoint=kept, entries=entries)

    @reads
    def receipts(self, db: Transaction, run: str) -> list[Receipt]:
        rows = db.fetch_all("SELECT body FROM receipts WHERE run = ? ORDER BY step", run)
        try:
            return [msgspec.json.decode(row["body"], type=Receipt) for row in rows]
        except msgspec.MsgspecError as error:
            raise LedgerBroken(f"cannot read a receipt of {run}: {error}", run=run) from error

    # --- looking ---------------------------------------------------------------------------------------------

    @reads
    def runs(self, db: Transaction, repo: str = "") -> list[RunRow]:
        where, values = (" WHERE items.repo = ?", (repo,)) if repo else ("", ())
        rows = db.fetch_all(f"{_RUNS}{where} ORDER BY runs.created_at DESC, runs.id DESC", *values)
        return [to_run_row(row) for row in rows]

    @reads
    def find_runs(self, db: Transaction, part: str, *, limit: int) -> list[RunRow]:
        """Return the run with this id, or else the newest runs whose id contains it."""
        if exact := db.fetch_one(f"{_RUNS} WHERE runs.id = ?", part):
            return [to_run_row(exact)]
        pattern = "".join(f"\\{char}" if char in "\\%_" else char for char in part)
        sql = f"{_RUNS} WHERE runs.id LIKE ? ESCAPE '\\' ORDER BY runs.id DESC LIMIT ?"
        return [to_run_row(row) for row in db.fetch_all(sql, f"%{pattern}%", limit)]

    @reads
    def run(self, db: Transaction, run: str) -> RunRow:
        return _run(db, run)

    @writes
    def request_abort(self, db: Transaction, run: str, *, by: str) -> None:
        db.execute("UPDATE runs SET abort_by = ? WHERE id = ? AND status = 'running'", by, run)
        db.notify(Topic.STOP)


# --- shared by the other verbs ---------------------------------------------------------------------------------


def grant_lease(
    db: Transaction,
    row: Row,
    *,
    run: str,
    holder: Holder,
    now: datetime,
    ttl_s: float,
    key: str = "",
    labels: Sequence[str] = (),
) -> Lease:
    """Create the lease for an item whose row is locked and whose run has no lease."""
    at, item = format_timestamp(now), row["id"]
    if row["run"]:
        run = row["run"]
        started = db.fetch_one(_NEXT_EPOCH, run)
        assert started, f"{item} is open, but its run is finished"
        epoch = int(started["epoch"])
    else:
        epoch = 1
        db.execute(_START_RUN, run, item, at, GENESIS, epoch)
    worker, token = worker_and_token(key or db.key)
    who = (holder.worker, holder.machine, holder.pid, holder.born)
    db.execute(
        _TAKE,
        worker,
        *who,
        token_hash(token),
        item,
        run,
        epoch,
        at,
        at,
        format_timestamp(now + timedelta(seconds=ttl_s)),
        labels_text(labels),
    )
    db.execute(
        "UPDATE items SET status = 'assigned', run = ?, park_reason = '', not_before = '' WHERE id = ?", run, item
    )
    if paths := footprint(row):
        db.execute_many(LOCK, [(row["repo"], path, run) for path in paths])
    return Lease(run=run, item=item, epoch=epoch, holder=holder, worker=worker, token=token)


def worker_and_token(key: str) -> tuple[str, str]:
    """Derive the worker id and token from the key of the claim, so that a repeated claim finds its own lease."""
    return worker_id(key), key


def worker_id(token: str) -> str:
    """Return the worker id that a token claims; the rest of the token authenticates it."""
    return f"worker-{public_part(token)}"


def find_claimed_lease(db: SingleStatement, holder: Holder, key: str) -> Lease | None:
    """Return the lease that an earlier attempt of this claim committed. Raises LeaseLost if it has ended."""
    worker, token = worker_and_token(key)
    row = db.fetch_one(_CLAIMED, worker, token_hash(token))
    if row is None:
        return None
    if row["ended_at"]:
        raise LeaseLost(f"the lease of this claim on {row['run']} has ended", hint="claim again", run=row["run"])
    return Lease(run=row["run"], item=row["item"], epoch=row["epoch"], holder=holder, worker=worker, token=token)


def append_events(
    db: Transaction,
    lease: Lease,
    events: Sequence[Event],
    *,
    at: str,
    receipt: Receipt | None = None,
    after: int | None = None,
) -> list[Entry]:
    """Append events to a ledger; the last event that implies a status sets that of run and item. Raises LeaseLost.

    `after`: the expected length of the ledger. Events that already follow it are returned, not written again; raises
    Conflict if others do.
    """
    move = next((event for event in reversed(events) if type(event) in ROWS), None)
    if move:
        db.lock_rows(LOCK_ITEM, lease.item)  # every verb locks the item before its run, so that none deadlock
    row = db.fetch_one(
        "SELECT length, head, abort_by, epoch, status, card FROM runs WHERE id = ? FOR UPDATE", lease.run
    )
    if row is None:
        raise lease_lost(lease)
    # Only now: an earlier attempt that is still being committed holds the row until its events are visible.
    if db.maybe_committed and (there := _appended(db, lease, events, at=at)):
        return there
    if after is not None and row["length"] != after:
        return _found_after(db, lease, events, after=after, row=row)
    count = len(events)
    if isinstance(move, ev.RunParked) and row["abort_by"]:  # cancelled, and its worker does not know yet
        move = ev.RunAborted(by=row["abort_by"])
        events = [*events, move]
    entries = _chain(lease, events, at=at, length=row["length"], head=row["head"])
    status = ROWS[type(move)][0] if move else RunStatus.RUNNING
    card = _advanced_card(row["card"], at, events)
    if db.execute(_ADVANCE, entries[-1].seq, entries[-1].sum, status, card, lease.run, lease.epoch, row["length"]) != 1:
        raise lease_lost(lease)
    db.insert_events(entries)
    if move:
        _move(db, lease, move, at)
    db.notify(Topic.EVENTS)
    if receipt:
        body = msgspec.json.encode(receipt)
        db.execute("INSERT INTO receipts VALUES (?, ?, ?, ?)", lease.run, receipt.step, receipt.key, body)
    return entries[:count]


def _advanced_card(card: str, at: str, events: Sequence[Event]) -> str:
    """Bring what a board shows of the run up to date."""
    made = decode_card(card)
    for event in events:
        made = advance(made, at, event)
    return encode_card(made)


# --- locks on the footprint ------------------------------------------------------------------------------------------


def footprint(row: Row) -> list[str]:
    return row["footprint"].split("\n") if row["footprint"] else []


def find_blocking_lock(db: Transaction, repo: str, run: str, paths: Sequence[str], *, at: str) -> Blocked | None:
    """Return the first lock of another run that overlaps the paths. The answer is valid until the transaction ends."""
    if not paths:
        return None
    db.advisory_lock(f"locks {repo}")
    for row in db.fetch_all(_LOCKS_OF_OTHERS, repo, run, at):
        for path in paths:
            if overlaps(path, row["path"]):
                return Blocked(asked=path, held=row["path"], run=row["run"], worker=row["worker"])
    return None


def _footprint_held(item: str, blocked: Blocked) -> LeaseHeld:
    return LeaseHeld(
        f"{item} would change {blocked.asked}: {blocked.worker} has locked {blocked.held} for {blocked.run}",
        hint=f"wait, or stop it with `ratchet abort {blocked.run}`",
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
    """Set the item's status from the event; an event that ends the work also ends the lease."""
    _, status = ROWS[type(event)]
    reason, until, detail = "", "", ""
    if isinstance(event, ev.RunParked):
        reason, until, detail = event.reason, event.until, event.detail
    elif isinstance(event, ev.RunReturned):
        until, detail = event.until, event.detail
    elif isinstance(event, ev.RunFailed):
        detail = event.detail
    elif isinstance(event, ev.RunCompleted) and event.doubts:
        reason, detail = ParkReason.REVIEW, f"doubtful findings that no judge decided: {event.doubts}"
    db.execute(_MOVE_ITEM, status, reason, until, detail, lease.item, lease.run)
    if type(event) in _ENDS:
        close_lease(db, lease.run, lease.epoch, _ENDS[type(event)], detail=detail, at=at)
    if isinstance(event, ev.RunParked):  # the run continues, with another worker
        db.execute(FENCE, lease.run, lease.epoch)
    if status in (ItemStatus.FAILED, ItemStatus.CANCELLED):
        block_dependants(db, lease.item)
    if status is ItemStatus.QUEUED or (status is ItemStatus.COMPLETED and db.fetch_one(_IS_NEEDED, lease.item)):
        db.notify(Topic.WORK)


def close_lease(db: Transaction, run: str, epoch: int, status: WorkerStatus, *, detail: str, at: str) -> bool:
    """End a lease: release its locks, end its worker row, settle its reservations. False if it had already ended."""
    row = db.fetch_one(_END_WORKER, status, at, detail, run, epoch)
    if row is None:
        return False
    if row["locked"]:
        db.execute("DELETE FROM locks WHERE run = ?", run)
    if row["reserved"]:
        db.execute(_SETTLE_ALL, run, epoch)
    return True


def block_dependants(db: Transaction, item: str) -> None:
    """Park all items that depend on this one, directly or indirectly, until a person acts."""
    ends = [item]
    while ends:
        ends += [row["id"] for row in db.fetch_all(_BLOCK, f"{item} will not be completed", ends.pop())]


def item_not_found(item: str) -> NotFound:
    return NotFound(f"no item {item}", hint="`ratchet queue --all` lists all items", item=item)


def lease_lost(lease: Lease) -> LeaseLost:
    return LeaseLost(
        f"the lease on {lease.run} was lost (epoch {lease.epoch}): nothing was written",
        hint=f"`ratchet show {lease.run}` shows which worker continues it",
        run=lease.run,
        epoch=lease.epoch,
    )


def require_lease(db: Transaction, lease: Lease) -> None:
    """Lock the lease until the transaction ends. Raises LeaseLost."""
    if db.fetch_one(_HOLD, lease.run, lease.epoch) is None:
        raise lease_lost(lease)


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def to_holder(row: Row) -> Holder:
    return Holder(worker=row["worker"], machine=row["machine"], pid=row["pid"], born=row["born"])


def _renew_finished(db: Transaction, lease: Lease) -> str:
    """Accept a heartbeat that arrives after its own run finished. Raises LeaseLost otherwise."""
    if db.fetch_one(
        "SELECT 1 AS ok FROM runs WHERE id = ? AND epoch = ? AND status <> 'running'", lease.run, lease.epoch
    ):
        return ""
    raise lease_lost(lease)


def over_iterations(db: Transaction, item: str, iteration: int) -> str:
    """Return the request to stop a run that has had more iterations than its item allows, or ""."""
    if not iteration:
        return ""
    row = db.fetch_one("SELECT body FROM items WHERE id = ?", item)
    most = msgspec.json.decode(row["body"], type=Item).max_iterations if row else None
    return f"ratchet: {iteration} iterations, the limit is {most}" if most and iteration > most else ""


def _chain(lease: Lease, events: Sequence[Event], *, at: str, length: int, head: str) -> list[Entry]:
    entries: list[Entry] = []
    for seq, event in enumerate(events, start=length + 1):
        data = encode(event)
        if len(data) > MESSAGE_MAX_BYTES:
            raise ValueError(
                f"{kind_of(event)} has {len(data)} bytes, the limit is {MESSAGE_MAX_BYTES}: store it as an artifact"
            )
        head = entries[-1].sum if entries else head
        entry = seal(run=lease.run, seq=seq, at=at, epoch=lease.epoch, kind=kind_of(event), data=data, prev=head)
        entries.append(entry)
    return entries


def _appended(db: Transaction, lease: Lease, events: Sequence[Event], *, at: str) -> list[Entry]:
    """Return the entries that an earlier attempt of this append committed before the connection broke."""
    rows = db.fetch_all(_APPENDED, lease.run, lease.epoch, at)
    wanted = [(kind_of(event), encode(event)) for event in events]
    same = [(row["kind"], bytes(row["data"])) for row in rows[: len(events)]] == wanted
    return [to_entry(row) for row in rows[: len(events)]] if same else []


def _found_after(db: Transaction, lease: Lease, events: Sequence[Event], *, after: int, row: Row) -> list[Entry]:
    """Return the entries of a repeated append. Raises LeaseLost, or Conflict if other events are there."""
    there = [to_entry(found) for found in db.fetch_all(_FOLLOWING, lease.run, after, len(events))]
    if [(entry.epoch, entry.kind, bytes(entry.data)) for entry in there] == [
        (lease.epoch, kind_of(event), encode(event)) for event in events
    ]:
        return there
    if row["epoch"] != lease.epoch or row["status"] != RunStatus.RUNNING:
        raise lease_lost(lease)
    raise Conflict(f"the ledger of {lease.run} has {row['length']} entries, not {after}", run=lease.run)


def _broken(run: str, broken: ChainBreak) -> LedgerBroken:
    return LedgerBroken(
        f"row {broken.seq} of the ledger of {run} is invalid: {broken.why}",
        hint="restore the database from a backup; the commits on the branch are not affected",
        run=run,
        seq=broken.seq,
    )


def to_entry(row: Row) -> Entry:
    return Entry(**{name: row[name] for name in Entry.__struct_fields__})


def _run(db: Transaction, run: str) -> RunRow:
    row = db.fetch_one(f"{_RUNS} WHERE runs.id = ?", run)
    if row is None:
        raise NotFound(f"no run {run}", hint="`ratchet runs` lists all runs", run=run)
    return to_run_row(row)


def to_run_row(row: Row) -> RunRow:
    fields: dict[str, Any] = {
        name: row[name] for name in ("run", "item", "created_at", "length", "head", "epoch", "abort_by")
    }
    item = msgspec.json.decode(row["body"], type=Item)
    return RunRow(
        **fields,
        title=item.title,
        repo=item.repo,
        status=RunStatus(row["status"]),
        item_status=ItemStatus(row["item_status"]),
        holder=to_holder(row) if row["worker"] else None,
        expires_at=row["expires_at"] or "",
    )


_CLAIM_ITEM = "SELECT id, status, run, repo, footprint FROM items WHERE id = ? FOR UPDATE"
LOCK_ITEM = "SELECT id FROM items WHERE id = ? FOR UPDATE"
_LEASE = "SELECT * FROM leases WHERE run = ? FOR UPDATE"
_HOLD = "SELECT run FROM leases WHERE run = ? AND epoch = ? FOR UPDATE"
_START_RUN = """
INSERT INTO runs (id, item, status, created_at, length, head, epoch) VALUES (?, ?, 'running', ?, 0, ?, ?)
"""
_NEXT_EPOCH = "UPDATE runs SET epoch = epoch + 1 WHERE id = ? AND status = 'running' RETURNING epoch"
FENCE = "UPDATE runs SET epoch = epoch + 1 WHERE id = ? AND epoch = ? AND status = 'running'"
_TAKE = """
INSERT INTO workers (id, name, machine, pid, born, token_sha256, item, run, epoch, status, started_at, beat_at,
                     expires_at, labels) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'starting', ?, ?, ?, ?)
"""
_RENEW = """
UPDATE workers SET beat_at = ?, expires_at = ?, iteration = COALESCE(CAST(? AS INTEGER), iteration),
       status = CASE status WHEN 'starting' THEN 'running' ELSE status END
WHERE run = ? AND epoch = ? AND ended_at = ''
RETURNING iteration, (SELECT abort_by FROM runs WHERE runs.id = workers.run) AS abort_by
"""
_BACK_IN_QUEUE = "UPDATE items SET status = 'queued' WHERE id = ? AND status IN ('assigned', 'in_progress')"
_CLAIMED = "SELECT run, item, epoch, ended_at FROM workers WHERE id = ? AND token_sha256 = ?"
_PROVEN = """
SELECT id, run, item, epoch, name AS worker, machine, pid, born FROM workers
WHERE id = ? AND token_sha256 = ? AND ended_at = ''
"""
_ADVANCE = """
UPDATE runs SET length = ?, head = ?, status = ?, card = ?
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
_APPENDED = "SELECT * FROM events WHERE run = ? AND epoch = ? AND at = ? ORDER BY seq"
_KEEP_CHECKPOINT = """
INSERT INTO checkpoints (run, seq, sum, version, state) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (run) DO UPDATE
SET seq = excluded.seq, sum = excluded.sum, version = excluded.version, state = excluded.state
"""
_CHECKPOINT = "SELECT run, seq, sum, version, state FROM checkpoints WHERE run = ? AND version = ?"
_FOLLOWING = "SELECT * FROM events WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?"
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
WHERE (status = 'queued' OR (status = 'parked' AND not_before > '')) AND id IN (SELECT item FROM needs WHERE need = ?)
RETURNING id
"""
_IS_NEEDED = "SELECT 1 AS ok FROM needs WHERE need = ? LIMIT 1"
_RUNS = """
SELECT runs.id AS run, runs.item, runs.status, runs.created_at, runs.length, runs.head, runs.epoch, runs.abort_by,
       items.body, items.status AS item_status,
       leases.worker, leases.machine, leases.pid, leases.born, leases.expires_at
FROM runs JOIN items ON items.id = runs.item LEFT JOIN leases ON leases.run = runs.id
"""
