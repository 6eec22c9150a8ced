"""State shared by the handlers of the pages, and their responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ratchet.app.run_view import RunReader
from ratchet.core.board import BoardRow
from ratchet.core.ledger import FeedEntry
from ratchet.interfaces.http.app_state import AppState
from ratchet.interfaces.http.sse import encode_line
from ratchet.interfaces.web import render, words
from ratchet.interfaces.web.shell import Shell, Vitals
from ratchet.store.protocols import Store

PERSON = "a person (web)"
FILTERS_MAX = 200


class Form:
    """The fields of a form; a field may occur several times."""

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        self._fields = fields

    def get(self, name: str, default: str = "") -> str:
        return next((value for field, value in self._fields if field == name), default)

    def all(self, name: str) -> list[str]:
        return [value for field, value in self._fields if field == name]


class Site:
    def __init__(self, state: AppState) -> None:
        self.state, self.service = state, state.queue_service
        self.settings, self.folder = state.settings, state.folder
        self.reader = RunReader(self.store)
        self.sessions = state.sessions
        self.vitals = Vitals(self.service, self.settings, self.folder)
        self.repos: set[str] = set()
        self.agents: set[str] = set()

    @property
    def store(self) -> Store:
        return self.service.store

    def cookie_name(self, request: Request) -> str:
        """Cookies are shared between ports: each server has a name of its own."""
        return f"ratchet_{request.url.port or 80}"

    def shell(self, request: Request) -> Shell:
        # The place is read before the page's content: what happens in between is sent again, and nothing is missed.
        return self.vitals.shell(request.state.csrf, self.store.feed_end())

    def page(self, request: Request, template: str, name: str, **values: Any) -> Response:
        notice = NOTICES.get(request.query_params.get("done", ""), "")
        return render.page(template, shell=self.shell(request), page_name=name, notice=notice, **values)

    def remember_filters(self, rows: Sequence[BoardRow]) -> None:
        """Keep what the board can be filtered by: a filter leaves no row of the others."""
        if len(self.repos) < FILTERS_MAX:
            self.repos |= {row.repo for row in rows if row.repo}
        if len(self.agents) < FILTERS_MAX:
            self.agents |= {words.agent_name(row.card.agent) for row in rows if row.card.agent}

    def done(self, to: str, what: str = "") -> Response:
        """Answer a form: go back to a page, which says what was done."""
        self.vitals.forget()
        mark = "&" if "?" in to else "?"
        return RedirectResponse(f"{to}{mark}done={what}" if what else to, 303, render.HEADERS)

    @staticmethod
    def encode_event(found: FeedEntry) -> bytes:
        entry = found.entry
        return encode_line(f"{entry.run} {entry.seq} {entry.kind}".encode(), id=found.place, event="ledger")


NOTICES = {
    "added": "Added to the queue.",
    "there": "This item is already open; nothing was added.",
    "cancelled": "Cancelled.",
    "asked": "Asked to stop. It stops at its next heartbeat.",
    "over": "It had already finished.",
    "requeued": "Back in the queue.",
    "prioritised": "Priority changed.",
    "answered": "Answered. The run goes on.",
    "nudged": "Sent. The next prompt of this run has it.",
    "snoozed": "Snoozed for 4 hours.",
    "acknowledged": "Acknowledged.",
    "woken": "Back in the inbox.",
    "killed": "Stopped; its run is queued again.",
    "mixed": "Some of the items could not be changed.",
    "retired": "Retired. It is kept, and no agent gets it any more.",
    "nothing": "Nothing was selected.",
}
