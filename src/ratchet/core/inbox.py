"""The inbox: everything that needs a person, in a fixed order, with its reason and one action each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from ratchet.core.board import BoardColumn, BoardRow
from ratchet.core.failure import Reason
from ratchet.core.lease import WorkerRow, WorkerStatus
from ratchet.core.lines import split_lines


class InboxKind(StrEnum):
    """In the order in which they are listed."""

    QUESTION = "question"
    SIGN_IN = "sign-in"
    APPROVAL = "approval"
    CONFLICT = "conflict"
    FAILED = "failed"
    BUDGET = "budget"
    MISCONFIGURED = "misconfigured"
    WORKER = "worker"
    DOUBT = "doubt"


class InboxAction(StrEnum):
    ANSWER = "answer"
    REQUEUE = "requeue"
    OPEN = "open"
    KILL = "kill"
    NONE = "none"


class InboxEntry(msgspec.Struct, frozen=True, kw_only=True):
    """`key` names the occurrence: what happens again after it was acknowledged is a new entry."""

    kind: InboxKind
    key: str
    title: str
    context: list[str] = []
    since: str = ""
    action: InboxAction = InboxAction.OPEN
    item: str = ""
    run: str = ""
    repo: str = ""
    worker: str = ""
    items: list[str] = []
    question: str = ""


class SpentBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A daily budget that is used up; `repo` is empty for that of all repositories."""

    repo: str
    day: str
    spent_usd: float
    cap_usd: float


class LowDisk(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    free_bytes: int
    wanted_bytes: int


def inbox_entries(
    rows: Iterable[BoardRow],
    *,
    workers: Sequence[WorkerRow] = (),
    budgets: Sequence[SpentBudget] = (),
    disks: Sequence[LowDisk] = (),
) -> list[InboxEntry]:
    """Return the entries in order: by kind, then the oldest first. Items that wait for the same thing are one entry."""
    found = [entry for row in rows if (entry := _of_row(row))]
    found += [_of_worker(worker) for worker in workers if worker.status is WorkerStatus.STUCK]
    found += [_of_budget(one) for one in budgets]
    found += [_of_disk(one) for one in disks]
    order = {kind: place for place, kind in enumerate(InboxKind)}
    return sorted(_folded(found), key=lambda entry: (order[entry.kind], entry.since, entry.key))


def visible(entries: Iterable[InboxEntry], hidden: Iterable[str]) -> list[InboxEntry]:
    away = set(hidden)
    return [entry for entry in entries if entry.key not in away]


_PARKED = {
    "question": InboxKind.QUESTION,
    "login": InboxKind.SIGN_IN,
    "review": InboxKind.APPROVAL,
    "approval": InboxKind.APPROVAL,
    "conflict": InboxKind.CONFLICT,
}
_FAILED: dict[str, InboxKind] = {
    Reason.CONFLICT: InboxKind.CONFLICT,
    Reason.BUDGET_SPENT: InboxKind.BUDGET,
    Reason.MISCONFIGURED: InboxKind.MISCONFIGURED,
    Reason.NO_TEST_COMMAND: InboxKind.MISCONFIGURED,
    Reason.AUTH: InboxKind.SIGN_IN,
}


def _of_row(row: BoardRow) -> InboxEntry | None:
    if row.column is BoardColumn.PARKED:
        kind = _PARKED.get(str(row.park_reason or ""))
        return _parked(row, kind) if kind else None
    if row.column is BoardColumn.TO_REVIEW:
        return _entry(row, InboxKind.DOUBT, f"“{row.title}” is completed with doubts", first_line(row.detail))
    return _failed(row) if row.column is BoardColumn.FAILED else None


def _parked(row: BoardRow, kind: InboxKind) -> InboxEntry:
    if kind is InboxKind.QUESTION:
        reason, mark, asked = row.detail.partition(": ")
        if mark and reason == "auth":  # an agent that is signed out parks its run as a question
            kind = InboxKind.SIGN_IN
        title = asked if mark and reason in ("question", "auth") else row.detail
        action = InboxAction.REQUEUE if kind is InboxKind.SIGN_IN else InboxAction.ANSWER
        title = title.strip()
        question = title if first_line(title) != title else ""
        return _entry(row, kind, capitalised(first_line(title)) or row.title, action=action, question=question)
    if kind is InboxKind.SIGN_IN:
        detail = first_line(row.detail).removeprefix("auth: ")
        return _entry(row, kind, capitalised(detail) or "An agent is signed out", action=InboxAction.REQUEUE)
    if kind is InboxKind.CONFLICT:
        return _entry(row, kind, f"“{row.title}” conflicts with its target", first_line(row.detail))
    return _entry(row, kind, f"“{row.title}” waits for approval", first_line(row.detail))


def _failed(row: BoardRow) -> InboxEntry:
    kind = _FAILED.get(row.card.reason, InboxKind.FAILED)
    if kind is InboxKind.MISCONFIGURED:
        return _entry(row, kind, capitalised(first_line(row.detail)), f"“{row.title}”", action=InboxAction.REQUEUE)
    if kind is InboxKind.SIGN_IN:
        detail = first_line(row.detail).removeprefix("auth: ")
        return _entry(row, kind, capitalised(detail), action=InboxAction.REQUEUE)
    tries = max(1, row.attempts)
    end = "conflicts with its target" if kind is InboxKind.CONFLICT else "failed"
    if kind is InboxKind.BUDGET:
        end = "has spent its budget"
    elif kind is InboxKind.FAILED and tries > 1:
        end = f"failed after {tries} tries"
    return _entry(row, kind, f"“{row.title}” {end}", first_line(row.detail))


def _entry(
    row: BoardRow,
    kind: InboxKind,
    title: str,
    *context: str,
    action: InboxAction = InboxAction.OPEN,
    question: str = "",
) -> InboxEntry:
    spent = [f"${row.card.cost_usd:,.2f} spent"] if kind is InboxKind.FAILED and row.card.cost_usd else []
    about = [f"“{row.title}”"] if kind in (InboxKind.QUESTION, InboxKind.SIGN_IN) else []
    asked = [f"asked by {row.card.role}"] if kind is InboxKind.QUESTION and row.card.role else []
    return InboxEntry(
        kind=kind,
        key=_key(kind, row.id, row.card.since or row.created_at),
        title=title,
        context=[one for one in [*about, *context, *asked, *spent] if one],
        since=row.card.since or row.created_at,
        action=action,
        item=row.id,
        run=row.run,
        repo=row.repo,
        items=[row.id],
        question=question,
    )


def _of_worker(worker: WorkerRow) -> InboxEntry:
    return InboxEntry(
        kind=InboxKind.WORKER,
        key=_key(InboxKind.WORKER, worker.id, str(worker.nudges)),
        title=f"{worker.name} makes no progress",
        context=[
            one
            for one in (
                first_line(worker.detail),
                "nudged once" if worker.nudges == 1 else f"nudged {worker.nudges} times",
            )
            if one
        ],
        since=worker.beat_at,
        action=InboxAction.KILL,
        item=worker.item,
        run=worker.run,
        worker=worker.id,
    )


def _of_budget(one: SpentBudget) -> InboxEntry:
    return InboxEntry(
        kind=InboxKind.BUDGET,
        key=_key(InboxKind.BUDGET, one.repo, one.day),
        title=f"Today's budget of ${one.cap_usd:,.2f} is spent",
        context=[
            "items wait until midnight",
            f"`budget.{'repo' if one.repo else 'day'}.cost_usd` in the configuration raises it",
        ],
        repo=one.repo,
        action=InboxAction.NONE,
    )


def _of_disk(one: LowDisk) -> InboxEntry:
    return InboxEntry(
        kind=InboxKind.WORKER,
        key=_key(InboxKind.WORKER, one.path, "disk"),
        title=f"{one.path} has {one.free_bytes / 1e9:.1f} GB of disk left",
        context=[
            f"no new workspace below {one.wanted_bytes / 1e9:.1f} GB",
            "`ratchet workspace gc` removes unused workspaces",
        ],
        action=InboxAction.NONE,
    )


_FOLDED = frozenset({InboxKind.SIGN_IN, InboxKind.MISCONFIGURED})


def _folded(entries: Sequence[InboxEntry]) -> list[InboxEntry]:
    """Make one entry of those that the same act resolves."""
    groups: dict[object, list[InboxEntry]] = {}
    for entry in entries:
        same = (entry.kind, entry.title) if entry.kind in _FOLDED else entry.key
        groups.setdefault(same, []).append(entry)
    return [group[0] if len(group) == 1 else _fold(group) for group in groups.values()]


def _fold(group: Sequence[InboxEntry]) -> InboxEntry:
    oldest = min(group, key=lambda entry: entry.since)
    items = [entry.item for entry in group]
    return msgspec.structs.replace(
        oldest,
        key=_key(oldest.kind, *sorted(entry.key for entry in group)),
        context=[f"{len(items)} items wait for it"],
        items=items,
    )


def _key(kind: InboxKind, *parts: str) -> str:
    return f"{kind}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:20]}"


def capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def first_line(text: str) -> str:
    return next((line.strip() for line in split_lines(text) if line.strip()), "")[:300]
