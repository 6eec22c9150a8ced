"""The inbox lists what needs a person, once, in a fixed order."""

from __future__ import annotations

from typing import Any

import msgspec

from ratchet.core.board import BoardColumn, BoardRow
from ratchet.core.card import RunCard
from ratchet.core.inbox import InboxAction, InboxKind, inbox_entries, visible
from ratchet.core.item import ItemStatus, ParkReason, Priority
from ratchet.core.lease import WorkerRow, WorkerStatus


def row(name: str, **fields: Any) -> BoardRow:
    made = BoardRow(
        column=BoardColumn.PARKED,
        id=name,
        title=f"Title of {name}",
        repo="/r",
        workflow="tdd",
        status=ItemStatus.PARKED,
        priority=Priority.MEDIUM,
        run=f"run-{name}",
        created_at="2026-01-01T00:00:00Z",
        attempts=0,
        not_before="",
        park_reason=ParkReason.QUESTION,
        detail="question: may it be empty?",
        card=RunCard(since="2026-01-02T00:00:00Z"),
    )
    return msgspec.structs.replace(made, **fields)


def failed(name: str, reason: str, detail: str = "", **fields: Any) -> BoardRow:
    card = RunCard(since="2026-01-02T00:00:00Z", reason=reason)
    return row(
        name,
        column=BoardColumn.FAILED,
        status=ItemStatus.FAILED,
        park_reason=None,
        detail=detail,
        card=card,
        **fields,
    )


def test_questions_come_first_and_the_order_is_fixed() -> None:
    rows = [failed("f", "no_progress"), row("a", park_reason=ParkReason.REVIEW), failed("c", "conflict"), row("q")]
    kinds = [entry.kind for entry in inbox_entries(rows)]
    assert kinds == [InboxKind.QUESTION, InboxKind.APPROVAL, InboxKind.CONFLICT, InboxKind.FAILED]


def test_a_question_is_asked_in_the_agents_words_and_answered_in_place() -> None:
    entry = inbox_entries([row("q")])[0]
    assert (entry.title, entry.action) == ("May it be empty?", InboxAction.ANSWER)


def test_items_that_wait_for_the_same_sign_in_are_one_entry() -> None:
    rows = [row(name, detail="auth: claude is signed out") for name in ("a", "b", "c")]
    entries = inbox_entries(rows)
    assert [(entry.kind, entry.items) for entry in entries] == [(InboxKind.SIGN_IN, ["a", "b", "c"])]


def test_the_reason_of_a_sign_in_is_not_part_of_its_title() -> None:
    waits = row("a", park_reason=ParkReason.LOGIN, detail="auth: not signed in; log in with: codex login")
    entry = inbox_entries([waits])[0]
    assert (entry.kind, entry.title) == (InboxKind.SIGN_IN, "Not signed in; log in with: codex login")


def test_a_completed_item_with_doubts_is_to_be_reviewed() -> None:
    detail = "doubtful findings that no judge decided: 2"
    done = row("a", column=BoardColumn.TO_REVIEW, status=ItemStatus.COMPLETED, detail=detail)
    entry = inbox_entries([done, row("q")])[-1]
    assert (entry.kind, entry.context) == (InboxKind.DOUBT, [detail])


def test_a_rate_limit_needs_no_person() -> None:
    assert inbox_entries([row("a", park_reason=ParkReason.QUOTA), row("b", park_reason=ParkReason.BLOCKED)]) == []


def test_a_wrong_configuration_is_not_called_a_failure() -> None:
    entry = inbox_entries([failed("a", "no_test_command", "no test command found")])[0]
    assert (entry.kind, entry.title) == (InboxKind.MISCONFIGURED, "No test command found")


def test_what_happens_again_after_it_was_acknowledged_is_a_new_entry() -> None:
    first = inbox_entries([row("q")])
    assert visible(first, [first[0].key]) == []
    again = inbox_entries([row("q", card=RunCard(since="2026-01-03T00:00:00Z"))])
    assert visible(again, [first[0].key]) == again


def test_a_stuck_worker_is_listed() -> None:
    worker = WorkerRow(
        id="worker-1",
        name="build-2",
        item="i",
        run="r",
        epoch=1,
        status=WorkerStatus.STUCK,
        started_at="",
        beat_at="",
        ended_at="",
        iteration=1,
        nudges=1,
        detail="silent",
    )
    assert [entry.kind for entry in inbox_entries([], workers=[worker])] == [InboxKind.WORKER]
