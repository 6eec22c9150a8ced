"""The pages in a real browser: Debian's Chromium, driven by Playwright; skipped with a reason where one is missing."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ratchet.core import events as ev
from ratchet.core.board import BoardColumn
from ratchet.core.item import ItemStatus, ParkReason
from ratchet.core.receipt import Artifact
from ratchet.interfaces.http.sessions import Sessions
from ratchet.store.protocols import Store, open_store
from tests.contract.test_queue import named, take
from tests.interfaces.http.serving import TOKEN, Served, serving
from tests.interfaces.web.factory import Factory, featured, watched, whole_day
from tests.interfaces.web.test_web import HOSTILE, PAGES

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
AXE = Path(sys.prefix) / "share" / "axe.min.js"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WAIT_MS = 20_000

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="no chromium: scripts/system-packages installs it as root"),
    pytest.mark.xdist_group("browser"),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path / "ratchet.db")
    yield made
    made.close()


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Factory]:
    """A day's work, with everything that an inbox can hold."""
    factory = whole_day(tmp_path_factory.mktemp("day"), long=30, days=2)
    watched(factory.repos["billing-api"])
    yield factory
    factory.store.close()


def pages_of(factory: Factory) -> list[str]:
    """Every page, each with something on it; of runs, those that look different."""
    runs = {row.title: row.run for row in factory.store.runs()}
    queued = factory.store.board((BoardColumn.QUEUED,))[0].id
    shown = (
        "Proration when a plan changes mid-month",
        "Port the label renderer to the new layout engine",
        "Round tax per line, not per invoice",
    )
    more = [f"/runs/{runs[shown[0]]}?show={show}" for show in ("failures", "events")]
    return [*PAGES, "/board?state=failed", f"/items/{queued}", *(f"/runs/{runs[title]}" for title in shown), *more]


@contextmanager
def signed_in(chromium: Any, served: Served, **options: Any) -> Iterator[Any]:
    """A page of a person who came by a link; what its scripts complain about fails the test."""
    context = chromium.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: errors.append(said.text) if "Content Security Policy" in said.text else None)

    def dismiss(dialog: Any) -> None:
        errors.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("dialog", dismiss)
    with served.client() as client:
        page.goto(f"{served.url}{client.sign_in_link().path}")
    yield page
    context.close()
    assert errors == []


def step(number: int, action: str, role: str = "") -> ev.StepStarted:
    return ev.StepStarted(step=number, action=action, role=role, key=f"ik:{number}", tree="t", snapshot="s")


def test_an_item_is_added_and_watched_through_red_revert_and_green_without_a_reload(
    chromium: Any, store: Store
) -> None:
    with serving(store) as served, signed_in(chromium, served) as page:
        page.get_by_role("link", name="Add an item").first.click()
        page.fill("#t", "# Greet politely\n- by name\n")
        page.fill("#r", "owner/name")
        page.wait_for_selector("#note-repo.green")  # validated as it was typed
        page.get_by_role("button", name="Add to the queue").click()
        page.wait_for_selector("#col-queued")
        lease = take(store)
        store.append(lease, [ev.RunClaimed(worker="w"), step(1, "implement", "implementer")])
        page.wait_for_selector("#section-col-in_progress .item")  # moved by itself
        page.click("#section-col-in_progress h3 a")
        page.evaluate("window.sameDocument = true")
        page.wait_for_selector("svg.big .pawl")
        store.append(lease, [ev.ChangeProposed(step=1, paths=["a.py"], tree="t2", summary="a try"), step(2, "judge")])
        store.append(lease, [ev.StepReverted(step=2, why="still red: t::a", paths=["a.py"], tree="t")])
        page.wait_for_selector("svg.big .slip")
        store.append(lease, [step(3, "implement", "implementer")])
        store.append(lease, [ev.ChangeProposed(step=3, paths=["a.py"], tree="t3", summary="again"), step(4, "judge")])
        store.append(lease, [kept(4)])
        page.wait_for_selector("svg.big .tooth")
        assert page.locator(".step").count() == 4
        assert page.evaluate("window.sameDocument") is True


def kept(number: int) -> ev.StepCommitted:
    report = Artifact(path="reports/x.json", sha256="0" * 64, size=1)
    return ev.StepCommitted(
        step=number, commit="c" * 40, parent="p", subject="Greet by name", tests=["t::a"], report=report, tree="t3"
    )


def test_the_stream_survives_a_restart_of_the_server_without_a_gap_or_a_double(chromium: Any, store: Store) -> None:
    store.add(named("a"))
    lease = take(store)
    store.append(lease, [ev.RunClaimed(worker="w"), step(1, "implement", "implementer")])
    sessions = Sessions(TOKEN)
    with serving(store, sessions=sessions) as first:
        port = first.port
        context = signed_in(chromium, first)
        page = context.__enter__()
        page.goto(f"{first.url}/runs/{lease.run}")
        page.wait_for_selector("#step-1")
        page.wait_for_selector("#live:not(.lost)")
    page.wait_for_selector("#live.lost")
    assert page.inner_text("#live") == "reconnecting"
    for number in range(2, 6):
        store.append(lease, [step(number, "implement", "implementer")])
    with serving(store, port=port, sessions=sessions):
        page.wait_for_selector("#step-5")
        page.wait_for_selector("#live:not(.lost)")
        store.append(lease, [step(6, "implement", "implementer")])
        page.wait_for_selector("#step-6")
        numbers = page.locator(".step .n").all_inner_texts()
        assert numbers == ["1", "2", "3", "4", "5", "6"]
    with serving(store, port=port):  # knows no session
        page.wait_for_url("**/sign-in")
        context.__exit__(None, None, None)


def test_a_question_is_answered_and_another_item_cancelled(chromium: Any, store: Store) -> None:
    store.add(named("a"))
    lease = take(store)
    store.append(
        lease, [ev.RunClaimed(worker="w"), ev.RunParked(reason=ParkReason.QUESTION, detail="question: which?")]
    )
    store.add(named("b"))
    with serving(store) as served, signed_in(chromium, served) as page:
        page.wait_for_selector(".entry.open")
        page.fill("form.answer textarea", "the first")
        page.get_by_role("button", name="Answer and resume").click()
        page.wait_for_selector("#empty")
        assert b"the first" in store.entries(lease.run)[-1].data
        page.goto(f"{served.url}/items/b")
        page.get_by_role("button", name="Cancel").click()
        page.wait_for_url("**done=cancelled")
        assert store.item_row("b").status is ItemStatus.CANCELLED


def test_a_diff_and_a_proof_are_opened_in_a_recorded_factory(chromium: Any, tmp_path: Path) -> None:
    factory = Factory(tmp_path)
    run = featured(factory)
    with serving(factory.store) as served, signed_in(chromium, served) as page:
        page.goto(f"{served.url}/runs/{run.lease.run}")
        page.click("svg.big .slip.sealed")
        page.wait_for_selector("text=overfitted, reverted")
        assert "downgrade_credit" in page.inner_text(".diff")
        assert "ratchet verify" in page.inner_text("#proofs .cmd code >> nth=0")
        axe_is_clean(page, served, [f"/runs/{run.lease.run}", "/board", "/inbox"])
    factory.store.close()


def test_hostile_content_stays_text(chromium: Any, store: Store) -> None:
    for number, payload in enumerate(HOSTILE):
        store.add(msgspec.structs.replace(named(f"i{number}"), title=payload, spec=payload, repo=f"/r/{payload}"))
        lease = take(store, f"w{number}")
        spent = ev.UsageMetered(step=1, role=payload, agent=payload)
        reverted = ev.StepReverted(step=1, why=payload, paths=[payload], tree="t")
        parked = ev.RunParked(reason=ParkReason.QUESTION, detail=payload)
        started = step(1, "implement", "implementer")
        store.append(lease, [ev.RunClaimed(worker=payload), started, spent, reverted, parked])
    with serving(store) as served, signed_in(chromium, served) as page:
        for path in ("/inbox", "/board", f"/runs/{lease.run}", f"/runs/{lease.run}?show=events"):
            page.goto(f"{served.url}{path}")
            page.wait_for_selector("#live:not(.lost)")
            assert page.locator("img, iframe, main script").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_serious_violation_of_accessibility(chromium: Any, day: Factory, scheme: str) -> None:
    with serving(day.store) as served, signed_in(chromium, served, color_scheme=scheme) as page:
        axe_is_clean(page, served, [*pages_of(day), "/sign-in", "/runs/none"])


def test_no_empty_page_has_a_serious_violation_of_accessibility(chromium: Any, store: Store) -> None:
    with serving(store) as served, signed_in(chromium, served, color_scheme="dark") as page:
        axe_is_clean(page, served, list(PAGES))


def test_no_page_scrolls_sideways_on_a_phone(chromium: Any, day: Factory) -> None:
    size = {"width": 360, "height": 740}
    with serving(day.store) as served, signed_in(chromium, served, viewport=size) as page:
        for path in pages_of(day):
            page.goto(f"{served.url}{path}")
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, path


def test_pages_do_without_motion_and_without_a_pointer(chromium: Any, day: Factory) -> None:
    with serving(day.store) as served, signed_in(chromium, served, reduced_motion="reduce") as page:
        page.wait_for_selector("#live:not([hidden])")
        assert page.evaluate("document.getAnimations().length") == 0
        page.keyboard.press("g")
        page.keyboard.press("b")
        page.wait_for_url("**/board")
        page.keyboard.press("j")
        page.keyboard.press("x")
        assert page.locator(".pick:checked").count() == 1
        assert page.is_visible("#bulk")
        page.keyboard.press("Enter")
        page.wait_for_url("**/items/**")
        page.keyboard.press("?")
        assert page.is_visible("#keys")


def test_what_is_resolved_elsewhere_leaves_the_inbox_and_what_is_new_waits_while_one_writes(
    chromium: Any, store: Store
) -> None:
    for name in ("a", "b"):
        park(store, name)
    with serving(store) as served, signed_in(chromium, served) as page:
        page.wait_for_selector(".entry >> nth=1")
        store.answer("b", "elsewhere", by="somebody")
        page.wait_for_selector(".entry >> nth=1", state="detached")
        page.fill("form.answer textarea", "half an ans")
        park(store, "c")
        page.click("button.fresh")  # "1 new"
        page.wait_for_selector(".entry >> nth=1")
        assert page.input_value("form.answer textarea >> nth=0") == "half an ans"


def test_a_browser_that_was_asked_to_notifies_of_what_is_new(chromium: Any, store: Store) -> None:
    with serving(store) as served, signed_in(chromium, served, permissions=["notifications"]) as page:
        page.context.add_init_script(
            "window.Notification = class { constructor(title, {body}) { document.title = `${title}: ${body}`; }"
            " static permission = 'granted'; static requestPermission() {} }"
        )
        page.reload()
        page.wait_for_selector("#live:not(.lost):not([hidden])")
        park(store, "a")
        page.wait_for_selector(".entry")
        sync_api.expect(page).to_have_title("Ratchet: 1 thing needs a person")


def park(store: Store, name: str) -> None:
    store.add(named(name))
    lease = take(store, f"w-{name}")
    asked = ev.RunParked(reason=ParkReason.QUESTION, detail=f"question: which of {name}?")
    store.append(lease, [ev.RunClaimed(worker="w"), asked])


def test_a_log_is_followed_and_a_message_is_sent_to_a_run_that_works(chromium: Any, tmp_path: Path) -> None:
    factory = Factory(tmp_path)
    run = featured(factory)
    log = run.directory.log_path(f"step-{run.step}-agent.log")
    with serving(factory.store) as served, signed_in(chromium, served) as page:
        page.goto(f"{served.url}/runs/{run.lease.run}")
        page.wait_for_selector(".log >> text=session 019a continues")
        page.click("#nudge summary")
        page.fill("#nudge-text", "a leap year has 366 days")
        with log.open("a") as opened:
            opened.write("14:36:00  a line that was written later\n")
        page.wait_for_selector(".log >> text=a line that was written later")  # and what is typed stays
        page.click("#nudge >> text=Send")
        page.wait_for_selector(".story >> text=a leap year has 366 days")
    factory.store.close()


def test_the_demo_is_watched_by_the_link_it_prints(chromium: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ratchet", "demo", "--web", "--into", str(tmp_path / "demo")]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert demo.stdout
        links = (re.search(r"http://\S+/sign-in\?key=\S+", line) for line in demo.stdout)
        link = next(found[0] for found in links if found)
        page = chromium.new_page()
        page.goto(link)
        page.click("nav >> text=Board")
        page.click("#section-col-in_progress h3 a", timeout=60_000)
        page.wait_for_selector("svg.big .bar", state="attached", timeout=60_000)
        page.close()
    finally:
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=60)
    assert demo.returncode == 0


def axe_is_clean(page: Any, served: Served, paths: list[str]) -> None:
    """Check pages with axe-core, through the browser's own console: the pages' policy allows no foreign script."""
    if not AXE.exists():
        pytest.skip("no axe-core: scripts/system-packages fetches it from npm")
    found = []
    for path in paths:
        page.goto(f"{served.url}{path}")
        page.evaluate(AXE.read_text("utf-8"))
        result = page.evaluate("axe.run({resultTypes: ['violations']})")
        found += [
            (path, one["id"], [node["html"][-400:] for node in one["nodes"]][:3])
            for one in result["violations"]
            if one["impact"] in ("serious", "critical")
        ]
    assert found == []
