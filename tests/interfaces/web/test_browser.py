"""The pages in a real browser: Debian's Chromium, driven by Playwright; skipped with a reason where one is missing."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ratchet.core import events as ev
from ratchet.core.item import ItemStatus, ParkReason
from ratchet.core.receipt import Artifact
from ratchet.store.protocols import Store, open_store
from tests.contract.test_queue import named, take
from tests.interfaces.http.serving import Served, serving
from tests.interfaces.web.factory import Factory, featured
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


@contextmanager
def signed_in(chromium: Any, served: Served, **options: Any) -> Iterator[Any]:
    """A page of a person who came by a link; what its scripts complain about fails the test."""
    context = chromium.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))

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
    with serving(store) as first:
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
    with serving(store, port=port):
        page.wait_for_selector("#step-5")
        page.wait_for_selector("#live:not(.lost)")
        store.append(lease, [step(6, "implement", "implementer")])
        page.wait_for_selector("#step-6")
        numbers = page.locator(".step .n").all_inner_texts()
        assert numbers == ["1", "2", "3", "4", "5", "6"]
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
def test_no_page_has_a_serious_violation_of_accessibility(chromium: Any, store: Store, scheme: str) -> None:
    store.add(named("a", title="An item", repo="/r/name"))
    with serving(store) as served, signed_in(chromium, served, color_scheme=scheme) as page:
        axe_is_clean(page, served, [*PAGES, "/items/a"])


@pytest.mark.parametrize("path", PAGES)
def test_no_page_scrolls_sideways_on_a_phone(chromium: Any, store: Store, path: str) -> None:
    store.add(named("a", title="An item with a rather long title that has to be cut somewhere", repo="/r/name"))
    size = {"width": 360, "height": 740}
    with serving(store) as served, signed_in(chromium, served, viewport=size) as page:
        page.goto(f"{served.url}{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


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
