"""The inbox lists what needs a person, once, in a fixed order."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ratchet.core.board import BoardColumn, BoardRow
from ratchet.core.card import RunCard
from ratchet.core.inbox import InboxAction, InboxKind, LowDisk, SpentBudget, inbox_entries, visible
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


def stuck(**fields: Any) -> WorkerRow:
    usual: dict[str, Any] = {
        "id": "worker-1", "name": "build-2", "item": "i", "run": "r", "epoch": 1, "status": WorkerStatus.STUCK,
        "started_at": "", "beat_at": "2026-01-05", "ended_at": "", "iteration": 1, "nudges": 1, "detail": "silent",
    }  # fmt: skip
    return WorkerRow(**usual | fields)


def test_a_stuck_worker_is_listed() -> None:
    [entry] = inbox_entries([], workers=[stuck(), stuck(status=WorkerStatus.STARTING)])
    assert (entry.kind, entry.action, entry.title) == ("worker", InboxAction.KILL, "build-2 makes no progress")
    assert (entry.item, entry.run, entry.worker, entry.since) == ("i", "r", "worker-1", "2026-01-05")
    assert entry.context == ["silent", "nudged once"]


def test_a_worker_that_stays_stuck_after_a_nudge_is_a_new_entry() -> None:
    first, again = (inbox_entries([], workers=[stuck(nudges=count, detail="")])[0] for count in (1, 2))
    assert first.key != again.key and again.context == ["nudged 2 times"]


def test_a_budget_that_is_used_up_names_what_raises_it() -> None:
    day = SpentBudget(repo="", day="2026-01-01", spent_usd=51.0, cap_usd=1050.0)
    repo = SpentBudget(repo="/r", day="2026-01-01", spent_usd=5.0, cap_usd=5.0)
    all_of_it, one = sorted(inbox_entries([], budgets=[repo, day]), key=lambda entry: entry.repo)
    assert (one.kind, one.repo, one.action) == (InboxKind.BUDGET, "/r", InboxAction.NONE)
    assert "$1,050.00" in all_of_it.title and "$5.00" in one.title
    assert "`budget.day.cost_usd`" in all_of_it.context[1] and "`budget.repo.cost_usd`" in one.context[1]
    tomorrow = inbox_entries([], budgets=[msgspec.structs.replace(day, day="2026-01-02")])[0]
    assert len({all_of_it.key, one.key, tomorrow.key}) == 3


def test_a_disk_that_is_nearly_full_is_listed_with_what_is_free_and_what_is_wanted() -> None:
    disks = [LowDisk(path=path, free_bytes=1_540_000_000, wanted_bytes=5 * 10**9) for path in ("/a", "/b")]
    first, second = inbox_entries([], disks=disks)
    assert (first.kind, first.action) == (InboxKind.WORKER, InboxAction.NONE) and first.key != second.key
    assert {entry.title[:15] for entry in (first, second)} == {"/a has 1.5 GB o", "/b has 1.5 GB o"}
    assert "5.0 GB" in first.context[0]


@pytest.mark.parametrize(
    ("reason", "kind", "title", "action"),
    [
        ("no_progress", "failed", "“Title of f” failed after 3 tries", "open"),
        ("conflict", "conflict", "“Title of f” conflicts with its target", "open"),
        ("budget_spent", "budget", "“Title of f” has spent its budget", "open"),
        ("auth", "sign-in", "Log in again", "requeue"),
        ("misconfigured", "misconfigured", "Auth: log in again", "requeue"),
    ],
)
def test_a_failed_item_says_what_can_be_done(reason: str, kind: str, title: str, action: str) -> None:
    [entry] = inbox_entries([failed("f", reason, "auth: log in again\nmore", attempts=3)])
    assert (entry.kind, entry.title, entry.action) == (kind, title, action)
    assert (entry.item, entry.items, entry.run, entry.repo) == ("f", ["f"], "run-f", "/r")


def test_a_failed_item_says_what_it_cost_and_how_often_it_was_tried_only_if_more_than_once() -> None:
    once = failed("f", "no_progress", "\n stuck \nmore", attempts=1)
    [entry] = inbox_entries([once])
    assert (entry.title, entry.context) == ("“Title of f” failed", ["stuck"])
    dear = msgspec.structs.replace(once, card=msgspec.structs.replace(once.card, cost_usd=1234.5))
    assert inbox_entries([dear])[0].context == ["stuck", "$1,234.50 spent"]
    spent = msgspec.structs.replace(dear, card=msgspec.structs.replace(dear.card, reason="conflict"))
    assert inbox_entries([spent])[0].context == ["stuck"]


def test_a_long_question_has_its_first_line_as_title_and_is_shown_in_full() -> None:
    asked = row("q", detail="question: which one?\n1. a\n2. b", card=RunCard(since="", role="auditor"))
    [entry] = inbox_entries([asked])
    assert (entry.title, entry.question) == ("Which one?", "which one?\n1. a\n2. b")
    assert entry.context == ["“Title of q”", "asked by auditor"]
    assert entry.since == asked.created_at
    assert inbox_entries([row("q")])[0].question == ""
    assert inbox_entries([row("q", detail="Note: this one?")])[0].title == "Note: this one?"
    assert inbox_entries([row("q", detail="")])[0].title == "Title of q"


@pytest.mark.parametrize(
    ("reason", "kind", "title"),
    [
        (ParkReason.REVIEW, InboxKind.APPROVAL, "“Title of a” waits for approval"),
        ("conflict", InboxKind.CONFLICT, "“Title of a” conflicts with its target"),
    ],
)
def test_a_parked_item_says_what_it_waits_for(reason: ParkReason, kind: InboxKind, title: str) -> None:
    [entry] = inbox_entries([row("a", park_reason=reason, detail="the reason")])
    assert (entry.kind, entry.title, entry.context, entry.action) == (kind, title, ["the reason"], InboxAction.OPEN)


def test_what_is_older_comes_first_within_a_kind() -> None:
    def at(name: str, day: int) -> BoardRow:
        return row(name, card=RunCard(since=f"2026-01-{day:02}"))

    assert [entry.item for entry in inbox_entries([at("b", 3), at("a", 9), at("c", 1)])] == ["c", "b", "a"]


def test_items_that_wait_for_one_thing_are_folded_into_the_oldest_and_acknowledged_together() -> None:
    rows = [
        row(name, detail="auth: claude is signed out", card=RunCard(since=f"2026-01-0{day}"))
        for name, day in (("a", 2), ("b", 1))
    ]
    [entry] = inbox_entries(rows)
    assert (entry.since, entry.item, entry.context) == ("2026-01-01", "b", ["2 items wait for it"])
    assert entry.key == inbox_entries(rows[::-1])[0].key != inbox_entries(rows[:1])[0].key
    assert len(inbox_entries([failed("a", "conflict", "x"), failed("b", "conflict", "x")])) == 2
