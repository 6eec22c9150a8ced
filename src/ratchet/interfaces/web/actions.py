"""What the forms of the pages do. Each goes back to the page it came from."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ratchet.core import api
from ratchet.core.item import Priority
from ratchet.core.timestamps import format_timestamp
from ratchet.errors import NotFound, RatchetError, UsageError
from ratchet.interfaces.http.errors import HttpError
from ratchet.interfaces.web import render
from ratchet.interfaces.web.board_page import add_values, check_notes
from ratchet.interfaces.web.site import PERSON, Form, Site
from ratchet.store.protocols import CancelOutcome

SNOOZE = timedelta(hours=4)
_WORDS: dict[str, str] = {CancelOutcome.DONE: "cancelled", CancelOutcome.ASKED: "asked", CancelOutcome.OVER: "over"}


def _back(request: Request, default: str) -> str:
    """Return the page a form came from, if it is one of ours."""
    came = urlsplit(request.headers.get("referer", ""))
    path = came.path if came.netloc == request.url.netloc and came.path.startswith("/") else default
    kept = "&".join(part for part in came.query.split("&") if part and not part.startswith("done="))
    return f"{path}?{kept}" if kept and path == came.path else path


# --- items ------------------------------------------------------------------------------------------------------------


def _cancel(site: Site, item: str, _form: Form) -> str:
    return _WORDS[site.service.cancel(item, api.Requester(by=PERSON)).cancelled]


def _requeue(site: Site, item: str, _form: Form) -> str:
    site.service.requeue(item)
    return "requeued"


def _prioritise(site: Site, item: str, form: Form) -> str:
    try:
        priority = Priority(form.get("priority"))
    except ValueError as error:
        raise UsageError("no such priority", hint=", ".join(Priority)) from error
    site.store.prioritise(item, priority)
    return "prioritised"


def _answer(site: Site, item: str, form: Form) -> str:
    text = form.get("answer").strip()
    if not text:
        raise UsageError("the answer is empty", hint="go back and write one")
    site.store.answer(item, text[:4_000], by=PERSON)
    return "answered"


def _nudge(site: Site, item: str, form: Form) -> str:
    message = form.get("message").strip()
    if not message:
        raise UsageError("the message is empty", hint="go back and write one")
    site.service.nudge(item, api.Nudge(by=PERSON, message=message[: api.NUDGE_MAX_CHARS]))
    return "nudged"


_VERBS: dict[str, Callable[[Site, str, Form], str]] = {
    "cancel": _cancel,
    "requeue": _requeue,
    "priority": _prioritise,
    "answer": _answer,
    "nudge": _nudge,
}


def item(site: Site, request: Request) -> Response:
    verb = _VERBS.get(request.path_params["verb"])
    if verb is None:
        raise HttpError(404, "not_found", "no such action")
    done = verb(site, request.path_params["item"], request.state.form)
    return site.done(_back(request, "/board"), done)


def bulk(site: Site, request: Request) -> Response:
    """Do the same to several items; one that cannot be changed does not keep the others back."""
    form: Form = request.state.form
    items, verb = form.all("item")[:500], _VERBS.get(form.get("verb"))
    if not items or verb is None:
        return site.done(_back(request, "/board"), "nothing")
    done = ""
    for one in items:
        try:
            what = verb(site, one, form)
        except RatchetError:
            what = "mixed"
        done = what if done in ("", what) else "mixed"
    return site.done(_back(request, "/board"), done)


def stop(site: Site, request: Request) -> Response:
    row = site.store.run(request.path_params["run"])
    answer = site.service.cancel(row.item, api.Requester(by=PERSON))
    return site.done(f"/runs/{row.run}", _WORDS[answer.cancelled])


# --- adding -----------------------------------------------------------------------------------------------------------


def check(_site: Site, request: Request) -> Response:
    """Return the notes below the fields for what was typed so far."""
    return render.page("notes.html", notes=check_notes(request.state.form))


def add(site: Site, request: Request) -> Response:
    form: Form = request.state.form
    notes = check_notes(form)
    if any(note.tone == "red" for note in notes.values()):
        return _again(site, request, form)
    iterations = form.get("iterations").strip()
    fields = {
        "repo": form.get("repo").strip(),
        "spec": form.get("spec"),
        "priority": form.get("priority", "medium"),
        "workflow": form.get("workflow", "tdd"),
    } | ({"max_iterations": int(iterations)} if iterations else {})
    try:
        work = msgspec.convert(fields, api.NewItem)
        added = site.service.add(work)
    except (RatchetError, msgspec.ValidationError) as error:
        return _again(site, request, form, str(error))
    return site.done("/board", "added" if added.created else "there")


def _again(site: Site, request: Request, form: Form, error: str = "") -> Response:
    given = {name: form.get(name) for name in ("repo", "spec", "priority", "workflow", "iterations")}
    return site.page(request, "add.html", "board", **add_values(site, given, error=error))


# --- the inbox and workers --------------------------------------------------------------------------------------------


def entry(site: Site, request: Request) -> Response:
    name, form = request.path_params["entry"], request.state.form
    match form.get("verb"):
        case "snooze":
            site.store.snooze(name, by=PERSON, until=format_timestamp(datetime.now(UTC) + SNOOZE))
            return site.done("/inbox", "snoozed")
        case "acknowledge":
            site.store.snooze(name, by=PERSON)
            return site.done("/inbox", "acknowledged")
        case "wake":
            site.store.wake(name)
            return site.done("/inbox?hidden=1", "woken")
        case "requeue":
            return _requeue_entry(site, name)
    raise HttpError(404, "not_found", "no such action")


def _requeue_entry(site: Site, name: str) -> Response:
    """Queue all items of an entry again."""
    found = next((one for one in site.vitals.state().entries if one.key == name), None)
    if found is None:
        raise NotFound("this entry is gone: it was resolved elsewhere")
    for one in found.items:
        site.service.requeue(one)
    return site.done("/inbox", "requeued")


def kill(site: Site, request: Request) -> Response:
    answer = site.service.kill(request.path_params["worker"], api.Requester(by=PERSON))
    return site.done(_back(request, "/workers"), "killed" if answer.changed else "over")


def retire_learning(site: Site, request: Request) -> Response:
    why = api.RetireRequest(why="retired on the page of learnings", by=PERSON)
    site.service.retire_learning(request.path_params["learning"], why)
    return site.done("/learnings", "retired")
