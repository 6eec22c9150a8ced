"""The inbox: what needs a person, each with one action."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from ratchet.core.inbox import InboxEntry, InboxKind
from ratchet.core.item import ItemStatus
from ratchet.interfaces.web import words
from ratchet.interfaces.web.site import Site

ICONS = {
    InboxKind.QUESTION: ("question", "Question"),
    InboxKind.SIGN_IN: ("key", "Sign-in"),
    InboxKind.APPROVAL: ("approve", "Approval"),
    InboxKind.CONFLICT: ("conflict", "Conflict"),
    InboxKind.FAILED: ("failed", "Failed"),
    InboxKind.BUDGET: ("budget", "Budget"),
    InboxKind.MISCONFIGURED: ("wrench", "Misconfigured"),
    InboxKind.WORKER: ("disk", "Worker"),
    InboxKind.DOUBT: ("doubt", "Doubt"),
}


def inbox_values(site: Site, request: Request) -> dict[str, Any]:
    state = site.vitals.state()
    hidden = bool(request.query_params.get("hidden"))
    entries = state.hidden if hidden else state.entries
    waiting = len({item for entry in entries for item in entry.items})
    values: dict[str, Any] = {
        "entries": [_shown(entry) for entry in entries],
        "hidden": hidden,
        "snoozed": len(state.hidden),
        "lead": _lead(len(entries), waiting),
    }
    if not entries and not hidden:
        counts: dict[str, int] = {}
        for one in site.store.stats():
            counts[one.status] = counts.get(one.status, 0) + one.items
        busy = counts.get(ItemStatus.IN_PROGRESS, 0) + counts.get(ItemStatus.ASSIGNED, 0)
        values |= {"climbing": busy, "queued": counts.get(ItemStatus.QUEUED, 0)}
    return values


def _lead(entries: int, waiting: int) -> str:
    if not entries:
        return "Nothing waits."
    needs = "1 thing needs a person." if entries == 1 else f"{entries} things need a person."
    return (
        f"{needs} {words.count(waiting, 'item')} {'waits' if waiting == 1 else 'wait'} for them." if waiting else needs
    )


def _shown(entry: InboxEntry) -> dict[str, Any]:
    icon, name = ICONS[entry.kind]
    return {
        "entry": entry,
        "icon": icon,
        "name": name,
        "age": words.age(entry.since, words.utc_now()),
        "open": entry.action == "answer",
    }
