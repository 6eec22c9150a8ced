"""The pages without a browser: signing in, forms, what they show, and that nothing in them is a program."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode

import msgspec
import pytest

from ratchet.core import events as ev
from ratchet.core.item import ItemStatus, ParkReason
from ratchet.core.learning import Learning
from ratchet.store.protocols import Store, open_store
from tests.contract.test_queue import named, take
from tests.interfaces.http.serving import TOKEN, Answer, Served, serving

PAGES = (
    "/inbox",
    "/inbox?hidden=1",
    "/board",
    "/board/add",
    "/runs",
    "/figures",
    "/learnings",
    "/learnings?retired=1",
    "/workers",
    "/budgets",
)
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' autofocus onfocus=alert(1) x='",
    "</title></textarea></svg><svg onload=alert(1)>",
    "{{ 7*7 }}{% raw %}",
    "javascript:alert(1)",
)


class Browser:
    """Requests with the cookie of a signed-in person."""

    def __init__(self, served: Served) -> None:
        self.served, self.cookie = served, ""

    def get(self, path: str) -> Answer:
        return self.served.ask("GET", path, token=None, headers={"cookie": self.cookie})

    def post(self, path: str, fields: dict[str, str] | list[tuple[str, str]], *, csrf: bool = True) -> Answer:
        sent = [*(fields.items() if isinstance(fields, dict) else fields)]
        if csrf:
            sent.append(("csrf", self.csrf()))
        headers = {"cookie": self.cookie, "content-type": "application/x-www-form-urlencoded"}
        return self.served.ask("POST", path, urlencode(sent).encode(), token=None, headers=headers)

    def csrf(self) -> str:
        found = re.search(r'name="csrf" value="([0-9a-f]{64})"', self.text("/board"))
        assert found
        return found[1]

    def text(self, path: str) -> str:
        answer = self.get(path)
        assert answer.status == 200, (path, answer.status, answer.body[-2000:])
        return answer.body.decode()

    def sign_in(self, answer: Answer) -> None:
        assert answer.status == 303, answer.body
        self.cookie = answer.headers["set-cookie"].partition(";")[0]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path / "ratchet.db")
    yield made
    made.close()


@pytest.fixture
def served(store: Store) -> Iterator[Served]:
    with serving(store) as made:
        yield made


@pytest.fixture
def browser(served: Served) -> Browser:
    made = Browser(served)
    made.sign_in(made.post("/sign-in", {"token": TOKEN}, csrf=False))
    return made


# --- signing in -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", *PAGES])
def test_no_page_is_shown_without_signing_in(served: Served, path: str) -> None:
    answer = Browser(served).get(path)
    assert (answer.status, answer.headers["location"]) == (303, "/sign-in")


def test_a_link_signs_in_once(served: Served) -> None:
    with served.client() as client:
        path = client.sign_in_link().path
    browser = Browser(served)
    first = browser.get(path)
    assert "HttpOnly" in first.headers["set-cookie"]
    assert "samesite=strict" in first.headers["set-cookie"].lower()
    browser.sign_in(first)
    assert browser.get("/inbox").status == 200
    again = Browser(served).get(path)
    assert again.status == 401
    assert b"was used" in again.body


def test_the_link_needs_the_servers_token(served: Served) -> None:
    assert served.ask("POST", "/api/sign-in-link", token="x" * 20).status == 401


def test_a_wrong_token_does_not_sign_in(served: Served) -> None:
    assert Browser(served).post("/sign-in", {"token": "wrong"}, csrf=False).status == 401


def test_a_forged_or_changed_cookie_is_no_session(served: Served, browser: Browser) -> None:
    browser.cookie = browser.cookie[:-4] + "0000"
    assert browser.get("/inbox").status == 303


def test_a_session_outlives_the_server(store: Store) -> None:
    with serving(store) as first:
        browser = Browser(first)
        answer = browser.post("/sign-in", {"token": TOKEN}, csrf=False)
        session = answer.headers["set-cookie"].partition(";")[0].partition("=")[2]
    with serving(store) as second:
        browser = Browser(second)
        browser.cookie = f"ratchet_{second.port}={session}"
        assert browser.get("/inbox").status == 200


def test_a_form_without_its_csrf_token_changes_nothing(browser: Browser, store: Store) -> None:
    store.add(named("a"))
    assert browser.post("/items/a/cancel", {}, csrf=False).status == 403
    assert browser.post("/items/a/cancel", {"csrf": "0" * 64}, csrf=False).status == 403
    assert store.item_row("a").status is ItemStatus.QUEUED


def test_the_cookie_opens_no_route_of_the_api(browser: Browser) -> None:
    assert browser.get("/api/status").status == 401


def test_signing_out_ends_the_session_in_this_browser(browser: Browser) -> None:
    assert "ratchet_" in browser.post("/sign-out", {}).headers["set-cookie"]


# --- pages ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_there_before_anything_happened(browser: Browser, path: str) -> None:
    page = browser.text(path)
    assert page.count("<h1>") == 1
    assert "style=" not in page


@pytest.mark.parametrize("path", PAGES)
def test_the_policy_allows_only_our_own_script_and_style(browser: Browser, path: str) -> None:
    policy = browser.get(path).headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_a_missing_run_is_an_error(browser: Browser) -> None:
    answer = browser.get("/runs/run-0")
    assert answer.status == 404
    assert b"no run run-0" in answer.body


def test_what_is_not_an_asset_is_not_served(browser: Browser) -> None:
    assert browser.get("/static/..%2froutes.py").status == 404
    assert browser.get("/static/" + "a" * 5_000).status == 404
    assert browser.get("/static/face.css").status == 200


# --- acting -----------------------------------------------------------------------------------------------------------


def test_an_item_is_added_cancelled_and_requeued(browser: Browser, store: Store) -> None:
    answer = browser.post(
        "/board/add", {"repo": "owner/name", "spec": "# Greet", "priority": "high", "workflow": "tdd"}
    )
    assert answer.headers["location"] == "/board?done=added"
    row = store.items().rows[0]
    assert (row.item.title, row.item.priority) == ("Greet", "high")
    browser.post(f"/items/{row.item.id}/cancel", {})
    assert store.item_row(row.item.id).status is ItemStatus.CANCELLED
    browser.post(f"/items/{row.item.id}/requeue", {})
    assert store.item_row(row.item.id).status is ItemStatus.QUEUED


def test_a_learning_is_found_and_retired_by_its_page(browser: Browser, store: Store) -> None:
    one = Learning(
        id="learning-1", repo="/r", content="Build the parser <b>first</b>", created_at="2026-01-01T00:00:00Z"
    )
    store.add_learning(one)
    assert "Build the parser &lt;b&gt;first" in browser.text("/learnings?text=parser")
    browser.post("/learnings/learning-1/retire", {})
    assert store.learning("learning-1").retired_at and "Build the parser" not in browser.text("/learnings")
    assert "retired on the page of learnings" in browser.text("/learnings?retired=1")


def test_a_form_with_a_mistake_comes_back_with_what_was_typed(browser: Browser, store: Store) -> None:
    answer = browser.post("/board/add", {"repo": "/nowhere", "spec": "# Greet", "iterations": "500"})
    assert answer.status == 200
    assert b"A number from 1 to 200." in answer.body
    assert b"# Greet" in answer.body
    assert store.items().rows == []


def test_several_items_change_at_once(browser: Browser, store: Store) -> None:
    for name in ("a", "b", "c"):
        store.add(named(name))
    browser.post("/board/bulk", [("item", "a"), ("item", "b"), ("verb", "priority"), ("priority", "critical")])
    browser.post("/board/bulk", [("item", "c"), ("verb", "cancel")])
    assert [store.item(name).priority for name in ("a", "b", "c")] == ["critical", "critical", "medium"]
    assert store.item_row("c").status is ItemStatus.CANCELLED


def ask_question(store: Store, detail: str = "question: which?") -> str:
    store.add(named("a"))
    lease = take(store)
    store.append(lease, [ev.RunClaimed(worker="w"), ev.RunParked(reason=ParkReason.QUESTION, detail=detail)])
    return lease.run


def test_a_question_is_answered_from_the_inbox(browser: Browser, store: Store) -> None:
    run = ask_question(store)
    assert "Which?" in browser.text("/inbox")
    assert browser.post("/items/a/answer", {"answer": "the first"}).status == 303
    assert b'"the first"' in store.entries(run)[-1].data
    assert "Nothing needs you" in browser.text("/inbox")


def test_an_acknowledged_entry_stays_away_and_can_be_brought_back(browser: Browser, store: Store) -> None:
    ask_question(store)
    found = re.search(r'action="/inbox/(question-[0-9a-f]+)"', browser.text("/inbox"))
    assert found
    browser.post(f"/inbox/{found[1]}", {"verb": "acknowledge"})
    assert "Nothing needs you" in browser.text("/inbox")
    browser.post(f"/inbox/{found[1]}", {"verb": "wake"})
    assert "Which?" in browser.text("/inbox")


# --- hostile content --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", HOSTILE)
def test_markup_in_a_field_is_text(browser: Browser, store: Store, payload: str) -> None:
    store.add(msgspec.structs.replace(named("a"), title=payload, spec=payload, repo=f"/r/{payload}"))
    lease = take(store)
    step = ev.StepStarted(step=1, action="implement", role="implementer", key="ik:1", tree="t", snapshot="s")
    spent = ev.UsageMetered(step=1, role=payload, agent=payload)
    kept = ev.StepReverted(step=1, why=payload, paths=[payload], tree="t")
    parked = ev.RunParked(reason=ParkReason.QUESTION, detail=payload)
    store.append(lease, [ev.RunClaimed(worker=payload), step, spent, kept, parked])
    for path in (*PAGES, f"/runs/{lease.run}", f"/runs/{lease.run}?show=events", f"/runs/{lease.run}?step=1"):
        assert programs(browser.text(path)) == [], path


class ProgramFinder(HTMLParser):
    """Collects what a browser would run or fetch from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            to = (value or "").strip().lower()
            runs = name.startswith("on") or name == "style" or to.startswith("javascript:")
            fetches = name in ("src", "srcset", "xlink:href") and to != "/static/page.js"
            if runs or fetches:
                self.found.append(f"{tag} {name}={value}")
        if tag in ("script", "iframe", "object", "embed", "img", "base") and ("src", "/static/page.js") not in attrs:
            self.found.append(tag)


def programs(page: str) -> list[str]:
    finder = ProgramFinder()
    finder.feed(page)
    return finder.found


# --- size -------------------------------------------------------------------------------------------------------------


def seconds(browser: Browser) -> float:
    found = []
    for _ in range(7):
        began = time.perf_counter()
        browser.text("/board")
        found.append(time.perf_counter() - began)
    return min(found)


@pytest.mark.slow
def test_a_board_of_ten_thousand_items_costs_less_than_five_times_one_of_a_hundred(
    browser: Browser, store: Store
) -> None:
    store.add_all([named(f"item-{n:05}") for n in range(100)])
    few = seconds(browser)
    store.add_all([named(f"item-{n:05}") for n in range(100, 10_000)])
    many = seconds(browser)
    assert many < 5 * few, (few, many)


def test_the_number_of_queries_of_a_board_does_not_depend_on_its_items(
    browser: Browser, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    read = type(store)._read  # type: ignore[attr-defined]  # where every query of a page goes through

    def counted(self: object, action: object) -> object:
        asked.append("read")
        return read(self, action)

    monkeypatch.setattr(type(store), "_read", counted)

    def queries() -> int:
        browser.text("/board")  # the vitals of all pages are kept for two seconds
        asked.clear()
        browser.text("/board")
        return len(asked)

    store.add(named("a"))
    few = queries()
    store.add_all([named(f"item-{n}") for n in range(300)])
    assert queries() == few == 2  # the board, and the place in the event stream
