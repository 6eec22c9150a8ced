"""A lease that cannot be renewed: the work under it stops before the lease ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratchet.engine import lease_keeper
from ratchet.engine.blocking import run_blocking
from ratchet.engine.lease_keeper import keep_lease
from ratchet.errors import LeaseLost
from tests.contract.servers import World
from tests.contract.test_store import claim, item


def test_a_heartbeat_that_is_cancelled_as_a_renewal_ends_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path / "ratchet.db")
    store = world.open()
    store.add(item("i1"))
    lease = claim(store, name="i1")
    work: list[asyncio.Task[None]] = []
    over: list[bool] = []

    async def renewed_and_over(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        if function != store.renew or over:
            return await run_blocking(function, *args, **named)
        over.append(True)
        asyncio.get_running_loop().call_soon(work[0].cancel)
        return function(*args, **named)

    async def keep() -> None:
        monkeypatch.setattr(lease_keeper, "run_blocking", renewed_and_over)
        work.append(asyncio.ensure_future(lease_keeper._renew(store, lease, 60, lease_keeper.LeaseHandle())))
        await asyncio.wait({work[0]}, timeout=5)
        assert work[0].cancelled()

    asyncio.run(keep())
    world.close()


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
