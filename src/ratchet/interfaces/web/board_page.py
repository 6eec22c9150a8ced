"""The board and the form that adds an item."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request

from ratchet.core.board import BoardColumn, BoardRow
from ratchet.core.item import ItemStatus, ParkReason, Priority, spec_title
from ratchet.core.repo import RepoKind, repo_kind
from ratchet.core.tasks import parse_tasks
from ratchet.engine.workflow_registry import open_workflow
from ratchet.errors import GitFailed, RatchetError
from ratchet.interfaces.web import words
from ratchet.interfaces.web.site import Form, Site
from ratchet.workspace.git import repository

COLUMNS = (
    BoardColumn.QUEUED,
    BoardColumn.IN_PROGRESS,
    BoardColumn.PARKED,
    BoardColumn.FAILED,
    BoardColumn.COMPLETED,
)
TITLES = {column: column.replace("_", " ").capitalize() for column in BoardColumn}
SHOWN, SHOWN_ALONE, AGENT_ROWS = 12, 200, 500
WORKFLOWS = ("tdd", "build", "fix", "swarm", "loop")


class Card(msgspec.Struct, frozen=True, kw_only=True):
    row: BoardRow
    place: str
    age: str
    tone: str
    icon: str
    state: str
    end: str


def board_values(site: Site, request: Request) -> dict[str, Any]:
    given = request.query_params
    repo, agent = given.get("repo", "")[:1_000], given.get("agent", "")[:100]
    priority = Priority(given["priority"]) if given.get("priority") in list(Priority) else None
    only = BoardColumn(given["state"]) if given.get("state") in list(BoardColumn) else None
    columns = (only,) if only else COLUMNS
    most = SHOWN_ALONE if only else SHOWN
    # The agent is in the card, which no index knows: the newest of each column are looked through.
    found = site.store.board(columns, repo=repo, priority=priority, limit=AGENT_ROWS if agent else most + 1)
    rows = [row for row in found if not agent or words.agent_name(row.card.agent) == agent]
    by_column: dict[BoardColumn, list[BoardRow]] = {column: [] for column in columns}
    for row in rows:
        if len(by_column[row.column]) <= most:
            by_column[row.column].append(row)
    site.remember_filters(found)
    chosen = {"repo": repo, "priority": str(priority or ""), "agent": agent, "state": str(only or "")}
    limit = site.settings.limits.workers
    return {
        "columns": [_column(column, shown, most, chosen, limit) for column, shown in by_column.items()],
        "chips": _chips(site, chosen),
        "filtered": any(chosen.values()),
        "address": _address(chosen),
        "priorities": list(Priority),
        "total": _amount(sum(len(found) for found in by_column.values()), by_column, most),
        "repos": len({row.repo for row in rows}),
    }


def _amount(total: int, by_column: dict[BoardColumn, list[BoardRow]], most: int) -> str:
    more = any(len(found) > most for found in by_column.values())
    return f"{total - sum(len(found) > most for found in by_column.values())}+" if more else str(total)


def _column(
    column: BoardColumn, rows: Sequence[BoardRow], most: int, chosen: dict[str, str], limit: int
) -> dict[str, Any]:
    now = words.utc_now()
    shown = rows[:most]
    count = f"{most}+" if len(rows) > most else str(len(rows))
    if column is BoardColumn.IN_PROGRESS and limit:
        count = f"{count} of {limit}"
    return {
        "id": f"col-{column}",
        "title": TITLES[column],
        "count": count,
        "cards": [_card(row, place, now) for place, row in enumerate(shown, 1)],
        "more": _address(chosen | {"state": str(column)}) if len(rows) > most and not chosen["state"] else "",
    }


def _card(row: BoardRow, place: int, now: Any) -> Card:
    tone, icon, state = _state(row, now)
    cost = words.money(row.card.cost_usd) if row.card.cost_usd else ""
    waits = "after another item" if row.needs else {1: "1st in the queue", 2: "2nd", 3: "3rd"}.get(place, f"{place}th")
    agent = words.agent_name(row.card.agent)
    return Card(
        row=row,
        place=waits + _for_labels(row) if row.column is BoardColumn.QUEUED else agent,
        age=words.age(row.card.since or row.created_at, now),
        tone=tone,
        icon=icon,
        state=state,
        end=cost,
    )


def _for_labels(row: BoardRow) -> str:
    return f" for a worker with {', '.join(row.require_labels)}" if row.require_labels else ""


def _state(row: BoardRow, now: Any) -> tuple[str, str, str]:
    """Return (tone, icon, text) of the line that says how an item stands."""
    card = row.card
    match row.status:
        case ItemStatus.IN_PROGRESS | ItemStatus.ASSIGNED:
            iteration = f" · iteration {card.iteration}" if card.iteration else ""
            attempt = f", attempt {card.attempts}" if card.attempts else ""
            return "blue", "now", f"{words.phase(card.phase) or 'starting'}{iteration}{attempt}"
        case ItemStatus.PARKED:
            return _parked(row, now)
        case ItemStatus.FAILED:
            reason = card.reason.replace("_", " ") or "failed"
            tries = f" after {row.attempts} tries" if row.attempts > 1 else ""
            icon = "wrench" if card.reason in ("misconfigured", "no_test_command") else "failed"
            return "red", icon, f"{reason}{tries}"
        case ItemStatus.COMPLETED if row.park_reason is ParkReason.REVIEW:
            return "brass", "doubt", f"completed, {words.count(card.kept, 'commit')}, doubts to review"
        case ItemStatus.COMPLETED:
            return "green", "kept", f"completed, {words.count(card.kept, 'commit')}"
        case ItemStatus.CANCELLED:
            return "muted", "skip", "cancelled"
        case ItemStatus.QUEUED if row.not_before:
            return "muted", "wait", f"tries again at {words.wakes(row.not_before, now)}"
    return "", "", ""


def _parked(row: BoardRow, now: Any) -> tuple[str, str, str]:
    until = f", wakes at {words.wakes(row.not_before, now)}" if row.not_before else ""
    match row.park_reason:
        case ParkReason.QUESTION:
            return "brass", "question", "waits for an answer"
        case ParkReason.REVIEW:
            return "brass", "approve", "waits for approval"
        case ParkReason.LOGIN:
            return "brass", "key", "the agent is signed out"
        case ParkReason.QUOTA:
            return "muted", "wait", f"rate limit{until}"
        case ParkReason.BLOCKED:
            return "muted", "wait", f"blocked{until}"
    return "brass", "key", f"waits: {row.park_reason}{until}"


# --- filters ----------------------------------------------------------------------------------------------------------


def _address(chosen: dict[str, str]) -> str:
    kept = {name: value for name, value in chosen.items() if value}
    return f"/board?{urlencode(kept)}" if kept else "/board"


def _chips(site: Site, chosen: dict[str, str]) -> list[dict[str, Any]]:
    """Return the filters as links; the one that is on leads back."""
    repos = sorted(site.repos | {chosen["repo"]} - {""}, key=words.repo_name)[:12]
    agents = sorted(site.agents | {chosen["agent"]} - {""})[:8]
    found = [("repo", repo, words.repo_name(repo)) for repo in repos]
    found += [("agent", agent, agent) for agent in agents]
    found += [("priority", str(priority), str(priority)) for priority in Priority]
    states = [str(BoardColumn.CANCELLED), str(BoardColumn.TO_REVIEW)]
    found += [("state", one, one.replace("_", " ")) for one in dict.fromkeys([*states, chosen["state"]]) if one]
    return [
        {
            "text": text,
            "on": chosen[name] == value,
            "to": _address(chosen | {name: "" if chosen[name] == value else value}),
        }
        for name, value, text in found
    ]


# --- adding an item ---------------------------------------------------------------------------------------------------


class Note(msgspec.Struct, frozen=True, kw_only=True):
    tone: str
    text: str


def add_values(site: Site, given: dict[str, str], *, error: str = "") -> dict[str, Any]:
    repos = sorted({row.repo for row in site.store.board(limit=50)})
    here = str(site.folder) if (site.folder / ".git").exists() else ""
    fields = {
        "repo": here or next(iter(repos), ""),
        "spec": "",
        "priority": "medium",
        "workflow": "tdd",
        "iterations": "",
    }
    fields |= {name: value for name, value in given.items() if name in fields}
    form = Form(list(fields.items()))
    notes = check_notes(form) if fields["spec"] or error else _empty_notes(form)
    return {
        "fields": fields,
        "notes": notes,
        "error": error,
        "repos": repos,
        "priorities": list(Priority),
        "workflows": WORKFLOWS,
    }


def _empty_notes(form: Form) -> dict[str, Note]:
    notes = check_notes(form)
    return notes | {"spec": Note(tone="muted", text="A heading and what must hold, one requirement a line.")}


def check_notes(form: Form) -> dict[str, Note]:
    """Check what was typed. A red note keeps the form from being sent."""
    return {
        "spec": _check_spec(form.get("spec")),
        "repo": _check_repo(form.get("repo").strip()),
        "workflow": _check_workflow(form.get("workflow", "tdd")),
        "iterations": _check_iterations(form.get("iterations").strip()),
    }


def _check_spec(spec: str) -> Note:
    if not spec.strip():
        return Note(tone="red", text="Write what is to be true when it is done.")
    if len(spec) > 100_000:
        return Note(tone="red", text="A spec has at most 100,000 characters. Split it.")
    found = len(parse_tasks(spec))
    named = f"{words.count(found, 'task')} found" if found > 1 else f"“{words.cut(spec_title(spec), 60)}”"
    return Note(tone="green", text=named)


def _check_repo(repo: str) -> Note:
    if not repo:
        return Note(tone="red", text="Name a folder on this machine, a git URL or owner/name.")
    try:
        if repo_kind(repo) is not RepoKind.PATH:
            return Note(tone="green", text="a remote repository; the newest commit is used")
        found = repository.find_repository(Path(repo))
    except (ValueError, RatchetError, GitFailed, OSError) as error:
        return Note(tone="red", text=words.cut(getattr(error, "message", str(error)), 160))
    return Note(tone="green", text=f"at {found.head[:7]}")


def _check_workflow(name: str) -> Note:
    try:
        open_workflow(name)
    except RatchetError as error:
        return Note(tone="red", text=error.message)
    return Note(tone="muted", text=_WORKFLOW_WORDS.get(name, ""))


_WORKFLOW_WORDS = {
    "tdd": "a test first, then the change",
    "build": "a builder and a reviewer",
    "fix": "until the tests are green",
    "swarm": "several attempts at once",
    "loop": "one task at a time",
}


def _check_iterations(text: str) -> Note:
    if not text:
        return Note(tone="muted", text="15 if empty")
    if not text.isdecimal() or not 1 <= int(text) <= 200:
        return Note(tone="red", text="A number from 1 to 200.")
    return Note(tone="muted", text="")
