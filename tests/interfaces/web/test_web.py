"""The pages without a browser: signing in, forms, what they show, and that nothing in them is a program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode

import msgspec
import pytest

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.item import ItemStatus, ParkReason
from ratchet.core.learning import Learning
from ratchet.core.receipt import Artifact
from ratchet.interfaces.http.sessions import LONGEST_S, Sessions
from ratchet.store.protocols import Store, open_store
from tests.contract.test_queue import named, take
from tests.interfaces.http.serving import TOKEN, Answer, Served, serving
from tests.interfaces.web.factory import Factory, featured, watched

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
    "/watch",
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


def test_a_session_ends_with_the_server_so_that_whoever_takes_its_port_gets_nothing(store: Store) -> None:
    with serving(store) as first:
        browser = Browser(first)
        answer = browser.post("/sign-in", {"token": TOKEN}, csrf=False)
        session = answer.headers["set-cookie"].partition(";")[0].partition("=")[2]
    with serving(store) as second:
        browser = Browser(second)
        browser.cookie = f"ratchet_{second.port}={session}"
        assert browser.get("/inbox").status == 303


def test_a_form_without_its_csrf_token_changes_nothing(browser: Browser, store: Store) -> None:
    store.add(named("a"))
    assert browser.post("/items/a/cancel", {}, csrf=False).status == 403
    assert browser.post("/items/a/cancel", {"csrf": "0" * 64}, csrf=False).status == 403
    assert store.item_row("a").status is ItemStatus.QUEUED


def test_the_cookie_opens_no_route_of_the_api(browser: Browser) -> None:
    assert browser.get("/api/status").status == 401


def test_signing_out_ends_the_session_everywhere(browser: Browser) -> None:
    assert "ratchet_" in browser.post("/sign-out", {}).headers["set-cookie"]
    assert browser.get("/inbox").status == 303, "the cookie still works"
    assert browser.get("/events").status == 401


def test_a_session_ends_when_unused_for_a_day_and_after_a_week_of_use() -> None:
    now = [0.0]
    sessions = Sessions(TOKEN, now_s=lambda: now[0])
    used, unused = sessions.open("user 1"), sessions.open("user 1")
    for _ in range(13):
        now[0] += LONGEST_S / 14
        assert sessions.use(used, "user 1")
    assert not sessions.use(unused, "user 1")
    now[0] += LONGEST_S / 14
    assert not sessions.use(used, "user 1")


AS_ANOTHER = """
import encodings.idna, http.client, os, sys
os.setuid(65534)
link = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
link.request("GET", sys.argv[2], headers={"cookie": sys.argv[3]})
print(link.getresponse().status)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_another_user_of_the_machine_can_use_neither_the_cookie_nor_the_link(browser: Browser) -> None:
    def ask(path: str, cookie: str) -> int:
        argv = [sys.executable, "-c", AS_ANOTHER, str(browser.served.port), path, cookie]
        return int(subprocess.run(argv, capture_output=True, check=True, text=True).stdout)

    with browser.served.client() as client:
        link = client.sign_in_link().path
    assert ask("/inbox", browser.cookie) == 303
    assert ask(link, "") == 401
    assert Browser(browser.served).get(link).status == 303, "its own user still can"


def test_the_stream_of_the_pages_has_no_head(browser: Browser) -> None:
    assert browser.served.ask("HEAD", "/events", token=None, headers={"cookie": browser.cookie}).status == 405


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


def test_a_persons_message_reaches_the_ledger_and_the_story_of_the_run(browser: Browser, store: Store) -> None:
    store.add(named("a"))
    assert browser.post("/items/a/nudge", {"message": "too early"}).status == 409
    lease = take(store)
    store.append(lease, [ev.RunClaimed(worker="w")])
    browser.post("/items/a/nudge", {"message": "use Decimal"})
    assert b'"use Decimal"' in store.entries(lease.run)[-1].data
    assert "use Decimal" in browser.text(f"/runs/{lease.run}")


def test_doubts_of_a_completed_item_are_in_the_inbox_until_somebody_has_looked(browser: Browser, store: Store) -> None:
    store.add(named("a"))
    lease = take(store)
    made = ev.Completion(commit="c" * 40, tree="t", doubts=["src/tax.py:41: a value of the test"])
    verified = ev.StepVerified(step=1, gates=[], warnings=[], completion=made)
    started = ev.StepStarted(step=1, action="verify", role="", key="ik:1", tree="t", snapshot="s")
    store.append(lease, [ev.RunClaimed(worker="w"), started, verified, ev.RunCompleted(commits=1, head="c", doubts=1)])
    page = browser.text("/inbox")
    assert "is completed with doubts" in page and "Review the doubts" in page
    assert "src/tax.py:41: a value of the test" in browser.text(f"/runs/{lease.run}")
    assert "doubts to review" in browser.text("/board?state=to_review")
    found = re.search(r'action="/inbox/(doubt-[0-9a-f]+)"', page)
    assert found
    browser.post(f"/inbox/{found[1]}", {"verb": "acknowledge"})
    assert "Nothing needs you" in browser.text("/inbox")


def test_a_filter_by_agent_looks_behind_the_first_cards_and_keeps_the_other_filters(
    browser: Browser, store: Store
) -> None:
    for number in range(20):  # more than a column shows
        store.add(named(f"i{number:02}", repo=f"/r/{'one' if number else 'two'}"))
        lease = take(store, f"w{number}")
        agent = "codex:gpt" if number else "claude"
        store.append(lease, [ev.RunClaimed(worker="w"), ev.SessionOpened(step=1, role="r", agent=agent, session="s")])
        store.append(lease, [ev.RunFailed(reason=Reason.NO_PROGRESS, detail="")])
    found = browser.text("/board?agent=Claude")
    assert found.count('class="card item"') == 1
    assert ">Codex</a>" in found and ">one</a>" in found


def test_the_matrix_shows_how_sealed_examples_judged_each_change(store: Store, tmp_path: Path) -> None:
    factory = Factory(tmp_path / "factory")
    run = featured(factory)
    with serving(factory.store) as served:
        browser = Browser(served)
        browser.sign_in(browser.post("/sign-in", {"token": TOKEN}, csrf=False))
        page = browser.text(f"/runs/{run.lease.run}")
    factory.store.close()
    matrix = page[page.index('class="matrix"') : page.index("</table>", page.index('class="matrix"'))]
    open_tests, sealed = matrix.split('class="group"')
    assert "sealed" not in open_tests
    assert sealed.count("sealed, failed") == 1 and sealed.count("sealed, passed") == 3


def test_the_watch_page_shows_the_colour_of_a_tree_and_what_fails(
    browser: Browser, store: Store, tmp_path: Path
) -> None:
    assert "Nothing is watched" in browser.text("/watch")
    watched(tmp_path)
    store.add(named("a", repo=str(tmp_path)))
    page = browser.text("/watch")
    assert "red</span>" in page and "test_half_even" in page and "50 tests, 1 failing, 1 flaky" in page


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
    store.nudge("a", payload, by=payload)
    store.add_learning(Learning(id="l", repo=payload, content=payload, created_at="2026-01-01T00:00:00Z"))
    asked = urlencode({"repo": payload, "agent": payload, "spec": payload, "text": payload})
    for path in (
        *PAGES,
        f"/board?{asked}",
        f"/board/add?{asked}",
        f"/learnings?{asked}",
        "/items/none",
        f"/runs/{lease.run}",
        f"/runs/{lease.run}?show=events",
        f"/runs/{lease.run}?step=1",
    ):
        assert programs(browser.get(path).body.decode()) == [], path


class ProgramFinder(HTMLParser):
    """Collects what a browser would run or fetch from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            to = (value or "").strip().lower()
            leads = name in ("href", "action", "formaction") and to.startswith("javascript:")
            runs = name.startswith("on") or name == "style" or leads
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


def best_of(browser: Browser, path: str, times: int = 40) -> float:
    """Return the seconds of the quickest answer: the others tell how busy the machine is."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        browser.text(path)
        found.append(time.perf_counter() - began)
    return min(found)


def count_queries(monkeypatch: pytest.MonkeyPatch, store: Store) -> list[str]:
    """Return a list that gets an entry for every query of a page."""
    asked: list[str] = []
    read = type(store)._read  # type: ignore[attr-defined]  # where every query of a page goes through

    def counted(self: object, action: object) -> object:
        asked.append("read")
        return read(self, action)

    monkeypatch.setattr(type(store), "_read", counted)
    return asked


@pytest.mark.slow
def test_a_board_of_ten_thousand_items_costs_less_than_five_times_one_of_a_hundred(
    browser: Browser, store: Store
) -> None:
    store.add_all([named(f"item-{n:05}") for n in range(100)])
    few = best_of(browser, "/board")
    store.add_all([named(f"item-{n:05}") for n in range(100, 10_000)])
    many = best_of(browser, "/board")
    assert many < 5 * few, (few, many)


def recorded_run(store: Store, name: str, iterations: int) -> str:
    """A run in which every third change is reverted; some fourteen events an iteration."""
    store.add(named(name))
    lease = take(store, name)
    report = Artifact(path="reports/x.json", sha256="0" * 64, size=1)
    events: list[ev.Event] = [ev.RunClaimed(worker="w")]
    number = 0

    def begin(action: str, role: str = "") -> int:
        nonlocal number
        number += 1
        events.append(ev.StepStarted(step=number, action=action, role=role, key=f"ik:{number}", tree="t", snapshot="s"))
        return number

    for turn in range(iterations):
        events.append(ev.TestWritten(step=begin("audit", "auditor"), paths=["t.py"], tree="t", summary=f"Part {turn}"))
        events.append(ev.RedConfirmed(step=begin("verify_red"), tests=["t::a"], fingerprint="f", report=report))
        for slips in (True, False) if turn % 3 == 0 else (False,):
            step = begin("implement", "implementer")
            events.append(ev.UsageMetered(step=step, role="implementer", agent="claude", cost_usd=0.1))
            events.append(ev.ChangeProposed(step=step, paths=["a.py"], tree="t", summary="a change"))
            step = begin("judge")
            if slips:
                events.append(ev.StepReverted(step=step, why="still red", paths=["a.py"], tree="t"))
            else:
                kept = ev.StepCommitted(
                    step=step, commit="c" * 40, parent="p", subject="It", tests=["t::a"], report=report, tree="t"
                )
                events.append(kept)
        events.append(ev.StepVerified(step=begin("verify"), gates=["unit"], warnings=[]))
    store.append(lease, events)
    return lease.run


@pytest.mark.slow
def test_a_page_of_five_thousand_events_is_about_as_large_as_one_of_five_hundred_and_as_quick_to_use(
    browser: Browser, store: Store
) -> None:
    short, long = recorded_run(store, "short", 40), recorded_run(store, "long", 400)
    assert store.run(long).length > 5_000
    sizes = [len(browser.text(f"/runs/{run}")) for run in (short, long)]
    assert sizes[1] < 2 * sizes[0] < 1_000_000, sizes
    quick, slow = (best_of(browser, f"/runs/{run}", times=8) for run in (short, long))
    assert slow < 10 * quick, (quick, slow)
    failures = browser.text(f"/runs/{long}?show=failures")
    assert 'class="step bad"' in failures and 'class="step"' not in failures


def test_the_number_of_queries_of_the_budgets_does_not_depend_on_repositories(
    browser: Browser, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = count_queries(monkeypatch, store)

    def of_page() -> int:
        browser.text("/budgets")  # the vitals of all pages are kept for two seconds
        queries.clear()
        browser.text("/budgets")
        return len(queries)

    few = of_page()
    store.add_all([named(f"i{n}", repo=f"/r/{n}") for n in range(10)])
    for number in range(3):
        take(store, f"w{number}")
    assert of_page() == few == 3  # the board, the spending, and the place in the event stream


def test_the_number_of_queries_of_a_board_does_not_depend_on_its_items(
    browser: Browser, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = count_queries(monkeypatch, store)

    def queries() -> int:
        browser.text("/board")  # the vitals of all pages are kept for two seconds
        asked.clear()
        browser.text("/board")
        return len(asked)

    store.add(named("a"))
    few = queries()
    store.add_all([named(f"item-{n}") for n in range(300)])
    assert queries() == few == 2  # the board, and the place in the event stream
