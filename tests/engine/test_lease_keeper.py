"""A lease that cannot be renewed: the work under it stops before the lease ends."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from ratchet.engine.lease_keeper import keep_lease
from ratchet.errors import LeaseLost
from tests.contract.servers import World
from tests.contract.test_store import claim, item


def test_a_worker_that_cannot_renew_stops_its_work_before_the_lease_ends(tmp_path: Path) -> None:
    world = World(tmp_path / "ratchet.db")
    store = world.open()
    store.add(item("i1"))
    lease, lease_s = claim(store, name="i1"), 4.0
    stopped_after_s = 0.0

    async def work() -> None:
        nonlocal stopped_after_s
        async with keep_lease(store, lease, lease_s=lease_s):
            blocked = world.writers_blocked()
            blocked.__enter__()
            began = time.monotonic()
            try:
                await asyncio.Event().wait()
            finally:
                stopped_after_s = time.monotonic() - began
                blocked.__exit__(None, None, None)

    with pytest.raises(LeaseLost, match="does not answer"):
        asyncio.run(work())
    assert 0 < stopped_after_s < lease_s
    world.close()
