"""Locks, retries and stuck agents: what waits, what is tried again, and what is the end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ratchet.app.runs import RunService
from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.item import Item, ItemStatus
from ratchet.core.state import RunState, RunStatus
from ratchet.errors import LeaseHeld
from ratchet.interfaces.terminal import tables
from ratchet.interfaces.terminal.colour import painter
from tests.support import APPROVED, AUDIT, COMPLETE, GOOD_SCRIPT, IMPLEMENT, open_factory, ratchet, small_project

HANG = {"fail": "hang"}
QUICK = ("roles.auditor.timeout_s=0.1", "roles.implementer.timeout_s=0.1")


def carried(factory: RunService, item: str, retry_s: Sequence[float] | None = None) -> tuple[RunState, list[ev.Event]]:
    received: list[ev.Event] = []
    lease = factory.claim(item)
    state = asyncio.run(
        factory.work(
            lease,
            watch=lambda _entry, event, _state: received.append(event),
            on_agent_event=lambda _text: None,
            retry_s=retry_s,
        )
    )
    return state, received


def queued(factory: RunService, place: Path, name: str = "SPEC.md", **fields: Any) -> Item:
    """As somebody else than `ratchet run` would add it."""
    (place / name).write_text(f"# {name}\n")
    item = factory.add(place / name)
    factory.store.cancel(item.id, by="the test")
    unique = f"item-{name.lower().removesuffix('.md')}"
    changed = msgspec.structs.replace(item, id=unique, slug=unique, source_ref="", **fields)
    return factory.store.add(changed)


# --- retries ---------------------------------------------------------------------------------------------------------


def test_a_failed_run_is_tried_again_from_its_last_green_commit_with_every_try_unused(tmp_path: Path) -> None:
    refused = {"say": "no"}
    script = GOOD_SCRIPT | {"review": [*[refused] * 3, {"say": APPROVED}]}
    place = small_project(tmp_path, script)
    with open_factory(place) as factory:
        item = factory.add(place / "SPEC.md").id
        first, received = carried(factory, item, retry_s=[0.0, 0.0])
        assert isinstance(received[-1], ev.RunReturned) and received[-1].reason is Reason.NO_PROGRESS
        assert first.status is RunStatus.RUNNING and len(first.commits) == 1
        row = factory.store.item_row(item)
        assert row.status is ItemStatus.QUEUED and row.attempts == 1
        second, received = carried(factory, item, retry_s=[0.0, 0.0])
    assert second.status is RunStatus.COMPLETED and len(second.commits) == 1
    assert not any(isinstance(event, ev.StepCommitted) for event in received), "nothing green is done again"


def test_after_the_last_retry_it_has_failed(tmp_path: Path) -> None:
    place = small_project(tmp_path, GOOD_SCRIPT | {"audit": []})
    with open_factory(place) as factory:
        item = factory.add(place / "SPEC.md").id
        ends = [carried(factory, item, retry_s=[0.0])[0].status for _ in range(2)]
        assert ends == [RunStatus.RUNNING, RunStatus.FAILED]
        assert factory.store.item_row(item).status is ItemStatus.FAILED


def test_the_wait_before_a_retry_is_kept_and_shown(tmp_path: Path) -> None:
    place = small_project(tmp_path, GOOD_SCRIPT | {"audit": []})
    with open_factory(place) as factory:
        item = factory.add(place / "SPEC.md").id
        carried(factory, item, retry_s=[3600.0])
        row = factory.store.item_row(item)
        assert row.status is ItemStatus.QUEUED and row.not_before > row.item.created_at[:10]
    assert "retry in 60m: " in tables.items([row], painter(colour=False), now=datetime.now(UTC))


def test_in_the_foreground_a_failure_is_the_end_unless_retries_are_asked_for(tmp_path: Path) -> None:
    tries = [*[{"say": "no"}] * 3, {"say": APPROVED}]
    place = small_project(tmp_path, GOOD_SCRIPT | {"review": tries})
    words = ["run", "SPEC.md", "--agent", f"scripted:{place.parent}/script.json"]
    settings = ["--set", f"workspace.root={place.parent}/ws", "--set", "worker.retry_s=[0]"]
    assert ratchet(*words, *settings, cwd=place).returncode == 1
    again = ratchet(*words, *settings, "--retry", cwd=place)
    assert again.returncode == 0, again.stderr


# --- stuck -----------------------------------------------------------------------------------------------------------


def test_a_stuck_agent_is_nudged_then_the_run_goes_back_for_a_fresh_context(tmp_path: Path) -> None:
    place = small_project(tmp_path, GOOD_SCRIPT | {"implement": [HANG, HANG, IMPLEMENT]})
    with open_factory(place, *QUICK) as factory:
        item = factory.add(place / "SPEC.md").id
        first, received = carried(factory, item, retry_s=[0.0])
        assert [event.reason for event in received if isinstance(event, ev.AttemptFailed)] == [
            Reason.AGENT_TIMED_OUT
        ] * 2
        assert isinstance(received[-1], ev.RunReturned) and received[-1].reason is Reason.NO_PROGRESS
        assert first.attempts == 0 and factory.store.workers()[0].nudges == 2
        second, _ = carried(factory, item, retry_s=[0.0])
    assert second.status is RunStatus.COMPLETED


def test_an_agent_that_stays_stuck_is_no_dead_end(tmp_path: Path) -> None:
    place = small_project(tmp_path, GOOD_SCRIPT | {"audit": [HANG] * 9})
    with open_factory(place, *QUICK) as factory:
        item = factory.add(place / "SPEC.md").id
        ends = [carried(factory, item, retry_s=[0.0])[0].status for _ in range(2)]
    assert ends == [RunStatus.RUNNING, RunStatus.FAILED]


# --- locks -----------------------------------------------------------------------------------------------------------


def test_an_item_whose_footprint_is_held_is_not_claimed_until_it_is_free(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    with open_factory(place) as factory:
        holder = factory.claim(queued(factory, place, "A.md", footprint=["tests/"]).id)
        queued(factory, place, "B.md", footprint=["calc.py", "tests/test_sub.py"])
        with pytest.raises(LeaseHeld, match=holder.run):
            factory.claim("item-b")
        factory.store.release(holder)
        again, _ = carried(factory, "item-b")
        assert again.status is RunStatus.COMPLETED
        assert factory.store.locks(str(place)) == {}


def test_a_write_outside_the_footprint_asks_for_the_lock(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    with open_factory(place) as factory:
        state, received = carried(factory, queued(factory, place, "A.md", footprint=["tests/"]).id)
    assert state.status is RunStatus.COMPLETED and not any(isinstance(event, ev.WritesUndone) for event in received)


def test_a_write_to_a_path_locked_by_another_run_is_undone(tmp_path: Path) -> None:
    both = IMPLEMENT | {"write": {"theirs.py": "mine = True\n"}}
    place = small_project(tmp_path, GOOD_SCRIPT | {"audit": [AUDIT, COMPLETE], "implement": [both]})
    with open_factory(place) as factory:
        holder = factory.claim(queued(factory, place, "A.md", footprint=["theirs.py"]).id)
        factory.store.lock(holder, ["theirs.py"])
        state, received = carried(factory, queued(factory, place, "B.md", footprint=["tests/", "calc.py"]).id)
    undone = [event.paths for event in received if isinstance(event, ev.WritesUndone)]
    assert undone == [["theirs.py"]] and state.status is RunStatus.COMPLETED
