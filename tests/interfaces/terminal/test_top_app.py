"""`ratchet top` on a terminal of 80 by 24, driven by its keys."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("textual", reason="textual is not installed")

from textual.widgets import DataTable, Static
from textual.widgets._toast import Toast

from ratchet.app.queue import StoreQueueService
from ratchet.core import events as ev
from ratchet.core.item import ItemStatus, ParkReason
from ratchet.interfaces.terminal.top_app import RunScreen, TopApp
from ratchet.store.protocols import open_store
from ratchet.store.run_directory import RunDirectory
from tests.contract.test_queue import named, take


def test_the_inbox_the_board_and_a_run_are_read_and_an_item_is_cancelled_by_keys(tmp_path: Path) -> None:
    store = open_store(tmp_path / "ratchet.db")
    store.add(named("a"))
    lease = take(store)
    asked = ev.RunParked(reason=ParkReason.QUESTION, detail="question: which?")
    store.append(lease, [ev.RunClaimed(worker="w"), asked])
    store.add(named("b"))

    async def use() -> None:
        app = TopApp(StoreQueueService(store), every_s=60)
        async with app.run_test(size=(80, 24)) as pilot:
            await app.workers.wait_for_complete()
            await pilot.pause()
            assert app.query_one("#inbox-rows", DataTable).row_count == 1
            await pilot.press("enter")
            await pilot.pause()
            assert isinstance(app.screen, RunScreen)
            await app.workers.wait_for_complete()
            await pilot.pause()
            assert "parked (question)" in str(app.screen.query_one("#run-body", Static).render())
            await pilot.press("escape", "2")
            await pilot.pause()
            assert app.selected() == "b"
            await pilot.press("c")
            await app.workers.wait_for_complete()
        assert store.item_row("b").status is ItemStatus.CANCELLED

    asyncio.run(use())
    store.close()


def test_a_run_is_nudged_its_log_is_read_and_a_call_that_fails_does_not_end_the_screen(tmp_path: Path) -> None:
    store = open_store(tmp_path / "ratchet.db")
    store.add(named("a", repo=str(tmp_path)))
    lease = take(store)
    # No workflow begins so: whoever folds this ledger, as the diff does, gets an error.
    store.append(lease, [ev.RunClaimed(worker="w"), ev.RequirementsMet(step=1, summary="")])
    directory = RunDirectory(tmp_path / ".ratchet", lease.run)
    directory.log_path("step-1-agent.log").write_text("read calc.py\n")

    async def use() -> None:
        app = TopApp(StoreQueueService(store), every_s=60)
        async with app.run_test(size=(80, 24)) as pilot:
            await app.workers.wait_for_complete()
            await pilot.press("2")
            await pilot.pause()
            await pilot.press("enter")
            await pilot.pause()

            async def shown_after(*keys: str) -> str:
                await pilot.press(*keys)
                await app.workers.wait_for_complete()
                await pilot.pause()
                return str(app.screen.query_one("#run-body", Static).render())

            assert "read calc.py" in await shown_after("l")
            assert "Error" in await shown_after("d")
            await pilot.press("n")
            await pilot.pause()
            await pilot.press(*"use Decimal".replace(" ", "_"), "enter")
            assert "nudged: use_Decimal" in await shown_after("t")

    asyncio.run(use())
    assert store.entries(lease.run)[-1].kind == "run_nudged"
    store.close()


def test_an_error_that_quotes_an_agent_is_shown_as_it_is_and_does_not_end_the_screen(tmp_path: Path) -> None:
    store = open_store(tmp_path / "ratchet.db")
    said = "agent said [/] [link=http://x]here[/nope] \x1b]0;title\x07"

    async def use() -> None:
        app = TopApp(StoreQueueService(store), every_s=60)
        async with app.run_test(size=(80, 24), notifications=True) as pilot:
            await app.workers.wait_for_complete()
            app.notify(said, severity="error")
            await pilot.pause()
            assert "[/] [link=http://x]here[/nope]" in str(app.screen.query_one(Toast).render())
            assert "\x1b" not in str(app.screen.query_one(Toast).render())

    asyncio.run(use())
    store.close()
