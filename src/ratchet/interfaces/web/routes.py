"""Routes of the web pages: sign-in, pages, forms and the event stream. Every form carries a CSRF token."""

from __future__ import annotations

import inspect
import platform
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from ratchet.errors import NotFound, RatchetError
from ratchet.interfaces.http.app import EventStreamResponse, browser_user, read_body
from ratchet.interfaces.http.app_state import AppState
from ratchet.interfaces.http.errors import HttpError, http_error_of
from ratchet.interfaces.http.sessions import LONGEST_S
from ratchet.interfaces.web import actions, lists, render, run_page
from ratchet.interfaces.web.board_page import add_values, board_values
from ratchet.interfaces.web.figures_page import figures_values
from ratchet.interfaces.web.inbox_page import inbox_values
from ratchet.interfaces.web.learnings_page import learnings_values
from ratchet.interfaces.web.site import Form, Site

FORM_MAX_BYTES = 1_000_000

Handler = Callable[[Site, Request], Any]


def web_routes(state: AppState) -> list[Route | Mount]:
    """Return the routes of the pages, to be mounted beside those of the API."""
    site = Site(state)
    pages: list[tuple[str, str, Handler]] = [
        ("GET", "/", home),
        ("GET", "/inbox", inbox),
        ("GET", "/board", board),
        ("GET", "/board/add", add_form),
        ("POST", "/board/add", actions.add),
        ("POST", "/board/check", actions.check),
        ("POST", "/board/bulk", actions.bulk),
        ("GET", "/runs", runs),
        ("GET", "/runs/{run}", run),
        ("POST", "/runs/{run}/stop", actions.stop),
        ("POST", "/items/{item}/{verb}", actions.item),
        ("GET", "/items/{item}", item),
        ("POST", "/inbox/{entry}", actions.entry),
        ("GET", "/figures", figures),
        ("GET", "/learnings", learnings),
        ("POST", "/learnings/{learning}/retire", actions.retire_learning),
        ("GET", "/workers", workers),
        ("POST", "/workers/{worker}/kill", actions.kill),
        ("GET", "/budgets", budgets),
        ("GET", "/watch", watch),
        ("GET", "/events", events),
        ("POST", "/sign-out", sign_out),
    ]
    made = [Route(path, Page(site, handler).handle, methods=[method]) for method, path, handler in pages]
    for route in made:
        if route.path == "/events" and route.methods:
            route.methods.discard("HEAD")  # Starlette adds it to GET, but a stream without a body would never end
    return [
        *made,
        Route("/sign-in", SignIn(site).handle, methods=["GET", "POST"]),
        Route("/static/{name}", static, methods=["GET"]),
    ]


class Page:
    """A handler behind the cookie. Plain functions run in a thread; forms are checked before the handler sees them."""

    def __init__(self, site: Site, handler: Handler) -> None:
        self.site, self.handler = site, handler
        self.waits = not inspect.iscoroutinefunction(handler)

    async def handle(self, request: Request) -> Response:
        try:
            response = await self._answer(request)
        except Exception as error:  # noqa: BLE001 — top level: every error becomes a page
            response = await self._error(request, error)
        self.site.state.count(request.method, "/web", response.status_code)
        return response

    async def _answer(self, request: Request) -> Response:
        site = self.site
        cookie = request.cookies.get(site.cookie_name(request), "")
        if not site.sessions.use(cookie, browser_user(request)):
            return signed_out(request)
        request.state.csrf = site.sessions.csrf(cookie)
        if request.method == "POST":
            form = await read_form(request)
            if not site.sessions.is_csrf(cookie, form.get("csrf")):
                raise HttpError(
                    403, "forbidden", "this form is too old or came from another page", hint="reload the page"
                )
            request.state.form = form
        if not self.waits:
            answer: Response = await self.handler(site, request)
            return answer
        return await site.state.run_blocking(self.handler, site, request)

    async def _error(self, request: Request, error: Exception) -> Response:
        refused = http_error_of(error)
        problem = refused.problem
        shell = None
        if hasattr(request.state, "csrf") and not isinstance(error, HttpError):
            try:
                shell = await self.site.state.run_blocking(self.site.shell, request)
            except (RatchetError, HttpError):
                shell = None
        return render.page(
            "error.html",
            status=refused.status,
            problem=problem,
            shell=shell,
            page_name="",
            notice="",
            status_code=refused.status,
        )


def signed_out(request: Request) -> Response:
    """Redirect a page to the sign-in page; answer a script with an error."""
    if request.url.path == "/events" or request.headers.get("x-ratchet-live"):
        return Response("signed out", 401, render.HEADERS)
    return RedirectResponse("/sign-in", 303, render.HEADERS)


async def read_form(request: Request) -> Form:
    text = (await read_body(request, FORM_MAX_BYTES)).decode("utf-8", "replace")
    try:
        return Form(parse_qsl(text, keep_blank_values=True, max_num_fields=2_000))
    except ValueError as error:
        raise HttpError(400, "bad_form", f"cannot read the form: {error}") from error


# --- signing in -------------------------------------------------------------------------------------------------------


class SignIn:
    def __init__(self, site: Site) -> None:
        self.site = site

    async def handle(self, request: Request) -> Response:
        if request.method == "POST":
            try:
                given = (await read_form(request)).get("token").strip()
            except HttpError as error:
                return self._page(error.problem.error, error.status)
            return self._signed_in(request) if self.site.sessions.is_token(given) else self._page(_WRONG, 401)
        key = request.query_params.get("key", "")
        if not key:
            return self._page("", 200)
        is_valid = self.site.sessions.use_link(key, browser_user(request))
        return self._signed_in(request) if is_valid else self._page(_EXPIRED, 401)

    def _page(self, note: str, status: int) -> Response:
        return render.page("sign_in.html", status=status, note=note, host=platform.node() or "this machine")

    def _signed_in(self, request: Request) -> Response:
        answer = RedirectResponse("/", 303, render.HEADERS)
        answer.set_cookie(
            self.site.cookie_name(request),
            self.site.sessions.open(browser_user(request)),
            max_age=int(LONGEST_S),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer


_WRONG = "That is not the token of this server."
_EXPIRED = "This link was used, is older than 10 minutes, or was made for another user. Run `ratchet open` again."


def sign_out(site: Site, request: Request) -> Response:
    site.sessions.end(request.cookies.get(site.cookie_name(request), ""))
    answer = RedirectResponse("/sign-in", 303, render.HEADERS)
    answer.delete_cookie(site.cookie_name(request), httponly=True, samesite="strict")
    return answer


# --- pages ------------------------------------------------------------------------------------------------------------


def home(_site: Site, _request: Request) -> Response:
    return RedirectResponse("/inbox", 303, render.HEADERS)


def inbox(site: Site, request: Request) -> Response:
    return site.page(request, "inbox.html", "inbox", **inbox_values(site, request))


def board(site: Site, request: Request) -> Response:
    return site.page(request, "board.html", "board", **board_values(site, request))


def add_form(site: Site, request: Request) -> Response:
    return site.page(request, "add.html", "board", **add_values(site, dict(request.query_params)))


def runs(site: Site, request: Request) -> Response:
    return site.page(request, "runs.html", "runs", **lists.runs_values(site, request))


def run(site: Site, request: Request) -> Response:
    name = request.path_params["run"]
    query = run_page.parse_query(dict(request.query_params))
    values = run_page.values(site.reader, name, query)
    return site.page(request, "run.html", "run", run_name=name, **values)


def item(site: Site, request: Request) -> Response:
    """Show an item that has no run yet; forward to the run of one that has."""
    row = site.store.item_row(request.path_params["item"])
    if row.run:
        return RedirectResponse(f"/runs/{quote(row.run)}", 303, render.HEADERS)
    return site.page(request, "item.html", "board", row=row)


def figures(site: Site, request: Request) -> Response:
    return site.page(request, "figures.html", "figures", **figures_values(site, request))


def learnings(site: Site, request: Request) -> Response:
    return site.page(request, "learnings.html", "learnings", **learnings_values(site, request))


def workers(site: Site, request: Request) -> Response:
    return site.page(request, "workers.html", "workers", **lists.workers_values(site))


def budgets(site: Site, request: Request) -> Response:
    return site.page(request, "budgets.html", "budgets", **lists.budgets_values(site))


def watch(site: Site, request: Request) -> Response:
    return site.page(request, "watch.html", "watch", **lists.watch_values(site))


async def events(site: Site, request: Request) -> Response:
    """Stream which runs have new events. The page reads their content itself: nothing an agent wrote is in here."""
    after = request.headers.get("last-event-id", "") or request.query_params.get("after", "")
    run_name = request.query_params.get("run", "")
    chunks = site.state.event_streams.listen(after, run=run_name, encode=site.encode_event)
    cookie, user = request.cookies.get(site.cookie_name(request), ""), browser_user(request)
    going_on = partial(site.sessions.is_open, cookie, user)
    return await EventStreamResponse.open(
        _bytes(chunks, going_on), {"content-type": "text/event-stream", **render.HEADERS}
    )


async def _bytes(chunks: AsyncIterator[bytes], going_on: Callable[[], bool]) -> Any:
    async for chunk in chunks:
        if not going_on():
            return
        yield chunk


_STATIC = frozenset(file.name for file in render.STATIC.iterdir() if file.is_file())


async def static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _STATIC:
        return render.page(
            "error.html",
            status=404,
            problem=http_error_of(NotFound("no such file")).problem,
            shell=None,
            page_name="",
            notice="",
            status_code=404,
        )
    return FileResponse(
        render.STATIC / name, headers={"cache-control": "no-cache", "x-content-type-options": "nosniff"}
    )
