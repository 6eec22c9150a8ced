"""Reads of the web pages in SQL: one query for each page, whatever the number of items."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ratchet.core import events as ev
from ratchet.core.board import BoardColumn, BoardRow, Snooze
from ratchet.core.card import decode_card
from ratchet.core.item import OPEN, RANK, Item, ItemStatus, ParkReason, Priority
from ratchet.core.lease import Holder, Lease
from ratchet.core.queue import ItemRow, queue_position
from ratchet.core.signal import Topic
from ratchet.core.timestamps import format_timestamp
from ratchet.errors import Conflict, UsageError
from ratchet.store.database import Row, Transaction, reads, writes
from ratchet.store.ledger import append_events
from ratchet.store.queue import SqlQueue, item_of_row, lock_item, priority_of, run_epoch

BOARD_MAX = 500


class _Head(msgspec.Struct, frozen=True):
    """The fields of an item that the board shows. The spec, which may be long, is skipped."""

    title: str
    workflow: str = "tdd"
    needs: list[str] = []
    require_labels: list[str] = []


_decode_head = msgspec.json.Decoder(_Head).decode


class SqlPages(SqlQueue):
    @reads
    def board(
        self,
        db: Transaction,
        columns: Sequence[BoardColumn] = tuple(BoardColumn),
        *,
        repo: str = "",
        priority: Priority | None = None,
        limit: int = 50,
    ) -> list[BoardRow]:
        """Return up to `limit` items of each column in one query: open ones next first, ended ones newest first."""
        limit = max(1, min(limit, BOARD_MAX))
        given = {"repo": repo or None, "rank": RANK[priority] if priority else None}
        wanted = {name: value for name, value in given.items() if value is not None}
        where = "".join(f" AND items.{name} = ?" for name in wanted)
        parts = [_PART.format(column=column, rule=_RULES[column].format(where=where)) for column in columns]
        rows = db.fetch_all(" UNION ALL ".join(parts), *[*wanted.values(), limit] * len(parts))
        return [_board_row(row) for row in rows]

    @writes
    def prioritise(self, db: Transaction, item: str, priority: Priority) -> ItemRow:
        """Change the priority of an open item; its place in the queue follows. Raises NotFound, Conflict."""
        row = lock_item(db, item)
        if row["status"] in ("completed", "failed", "cancelled"):
            raise Conflict(f"item {item} is {row['status']}: its priority has no effect", item=item)
        body = msgspec.structs.replace(msgspec.json.decode(row["body"], type=Item), priority=priority)
        turn = queue_position(self._clock().timestamp(), priority, aging_s=self._aging_s)
        db.execute(_PRIORITISE, RANK[priority], turn, msgspec.json.encode(body), item)
        db.notify(Topic.WORK)
        return item_of_row(lock_item(db, item))

    @writes
    def answer(self, db: Transaction, item: str, answer: str, *, by: str) -> ItemRow:
        """Answer the question an item is parked for and queue it again. Raises NotFound, Conflict."""
        row = lock_item(db, item)
        if db.maybe_committed and row["status"] == ItemStatus.QUEUED:
            return item_of_row(row)
        if row["status"] != ItemStatus.PARKED or row["park_reason"] != ParkReason.QUESTION or not row["run"]:
            raise Conflict(f"item {item} is {row['status']} and has asked nothing", item=item)
        epoch, at = run_epoch(db, row["run"]), format_timestamp(self._clock())
        _append_as_person(db, row, ev.QuestionAnswered(by=by, answer=answer), epoch=epoch, at=at)
        db.execute(_BACK, item)
        db.notify(Topic.WORK)
        return item_of_row(lock_item(db, item))

    @writes
    def nudge(self, db: Transaction, item: str, message: str, *, by: str) -> ItemRow:
        """Send a message to the agents of an open run: the next prompt has it. Raises NotFound, Conflict."""
        row = lock_item(db, item)
        if row["status"] not in OPEN or not row["run"]:
            raise Conflict(f"item {item} has no open run", hint="nudge it once a worker has begun", item=item)
        found = db.fetch_one("SELECT epoch FROM runs WHERE id = ?", row["run"])
        assert found
        nudged = ev.RunNudged(by=by, message=message)
        _append_as_person(db, row, nudged, epoch=found["epoch"], at=db.began_at)  # its worker keeps its lease
        return item_of_row(row)

    # --- the inbox -------------------------------------------------------------------------------------------

    @writes
    def snooze(self, db: Transaction, entry: str, *, by: str, until: str = "") -> None:
        """Hide an inbox entry until a time, or for good. The last call decides."""
        if not entry or len(entry) > 200:
            raise UsageError("an inbox entry has a name of 1 to 200 characters")
        db.execute(_SNOOZE, entry, until, by, format_timestamp(self._clock()))

    @writes
    def wake(self, db: Transaction, entry: str) -> None:
        """Show an inbox entry again."""
        db.execute("DELETE FROM snoozes WHERE entry = ?", entry)

    @reads
    def snoozes(self, db: Transaction) -> list[Snooze]:
        """List the entries that are hidden now, the last hidden first."""
        rows = db.fetch_all(
            "SELECT * FROM snoozes WHERE until = '' OR until > ? ORDER BY at DESC LIMIT 1000",
            format_timestamp(self._clock()),
        )
        return [Snooze(**{name: row[name] for name in Snooze.__struct_fields__}) for row in rows]


def _append_as_person(db: Transaction, item: Row, event: ev.Event, *, epoch: int, at: str) -> None:
    nobody = Holder(worker="", machine="", pid=0, born="")
    append_events(db, Lease(run=item["run"], item=item["id"], epoch=epoch, holder=nobody), [event], at=at)


def _board_row(row: Row) -> BoardRow:
    head = _decode_head(row["body"])
    return BoardRow(
        column=BoardColumn(row["place"]),
        id=row["id"],
        title=head.title,
        repo=row["repo"],
        workflow=head.workflow,
        status=ItemStatus(row["status"]),
        priority=priority_of(row["rank"]),
        run=row["run"] or "",
        created_at=row["created_at"],
        attempts=row["attempts"],
        not_before=row["not_before"],
        park_reason=ParkReason(row["park_reason"]) if row["park_reason"] else None,
        detail=row["detail"],
        card=decode_card(row["card"] or ""),
        needs=head.needs,
        require_labels=head.require_labels,
    )


_PART = """
SELECT * FROM (
  SELECT '{column}' AS place, items.id, items.repo, items.status, items.rank, items.run, items.created_at,
         items.attempts, items.not_before, items.park_reason, items.detail, items.body, runs.card
  FROM items LEFT JOIN runs ON runs.id = items.run {rule} LIMIT ?
) AS {column}_rows
"""
# The list is that of the partial index `items_ended`, which SQLite uses only if a query repeats it.
_ENDED = (
    "WHERE items.status IN ('completed', 'failed', 'cancelled') AND items.status = '{}'{{where}}"
    " ORDER BY items.status DESC, items.id DESC"
)
_RULES = {
    BoardColumn.QUEUED: "WHERE items.status = 'queued'{where} ORDER BY items.turn, items.id",
    BoardColumn.IN_PROGRESS: (
        "WHERE items.id IN (SELECT item FROM workers WHERE ended_at = '')"
        " AND items.status IN ('assigned', 'in_progress', 'generating'){where} ORDER BY items.turn, items.id"
    ),
    BoardColumn.PARKED: "WHERE items.status = 'parked'{where} ORDER BY items.not_before, items.id",
    BoardColumn.FAILED: _ENDED.format("failed"),
    BoardColumn.COMPLETED: _ENDED.format("completed"),
    BoardColumn.CANCELLED: _ENDED.format("cancelled"),
    BoardColumn.TO_REVIEW: (
        "WHERE items.status = 'completed' AND items.park_reason = 'review'{where} ORDER BY items.id DESC"
    ),
}
_BACK = "UPDATE items SET status = 'queued', park_reason = '', not_before = '', detail = '' WHERE id = ?"
_PRIORITISE = "UPDATE items SET rank = ?, turn = ?, body = ? WHERE id = ?"
_SNOOZE = """
INSERT INTO snoozes (entry, until, by, at) VALUES (?, ?, ?, ?)
ON CONFLICT (entry) DO UPDATE SET until = excluded.until, by = excluded.by, at = excluded.at
"""
