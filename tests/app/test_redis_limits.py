"""Limits counted from the ledger, of workers that share a real Redis which is killed, restarted and emptied."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import accumulate, pairwise
from pathlib import Path

import msgspec
import pytest

from ratchet.core import events as ev
from ratchet.core.item import Item
from ratchet.store.protocols import Store
from tests.app import flood
from tests.contract.servers import fresh_database
from tests.contract.test_redis_gate import Redis
from tests.support import APPROVED

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(not shutil.which("redis-server"), reason="needs redis-server: scripts/engines redis"),
]
LIMIT, TURN_S, COOLDOWN_S = 2, 1.5, 0.3
# Says in a file when it begins and ends.
AGENT = """#!/bin/sh
echo + >> {folder}/turns
sleep {turn_s}
case $RATCHET_ACTION in
audit)
  if [ -e t/$1.t ]; then echo REQUIREMENTS_COMPLETE; else cp {folder}/$1.t t/$1.t; echo "$1 is done"; fi;;
implement) mkdir -p src; echo done > src/$1; echo "Do $1";;
review) echo '{approved}';;
esac
echo - >> {folder}/turns
"""


def _with_agent(item: Item, folder: Path) -> Item:
    """The item with a program as its agent, which has a provider: scripted agents have none."""
    program = folder / "agent.sh"
    program.write_text(AGENT.format(folder=folder, turn_s=TURN_S, approved=APPROVED))
    program.chmod(0o755)
    (folder / f"{item.title}.t").write_text(flood.TEST.format(name=item.title))
    settings = [f"agent=command:{program} {item.title}", *item.settings[1:]]
    return msgspec.structs.replace(item, settings=settings)


def test_no_limit_is_exceeded_while_redis_is_disturbed(tmp_path: Path) -> None:
    place, address, redis = flood.lay_out(tmp_path), fresh_database(), Redis(tmp_path)
    store = flood.open_world(address)
    items = [store.add(_with_agent(item, tmp_path)) for item in flood.items(place, 8)]
    settings = {"redis": redis.url, "quota.concurrency": LIMIT, "limits.cooldown_s": COOLDOWN_S}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    pool, disturbed = flood.start_workers(place, address, 5, "--drain", *words), 0
    try:
        while pool.poll() is None:
            [redis.client.flushall, redis.kill, redis.start][disturbed % 3]()
            disturbed += 1
            _wait(store, pool_ended=lambda: pool.poll() is not None)
        assert pool.returncode == 0, (tmp_path / "workers.log").read_text()
    finally:
        pool.send_signal(signal.SIGKILL)
        pool.wait()
        redis.kill()
        redis.client.close()
    assert disturbed >= 9
    flood.check(store, place, items)
    turns = list(_turns(store))
    marks = [1 if mark == "+" else -1 for mark in (tmp_path / "turns").read_text().split()]
    assert max(accumulate(marks)) == LIMIT
    assert len(turns) >= 4 * len(items)
    span_s = max(end for _, end in turns) - min(end - seconds for seconds, end in turns)
    assert sum(seconds for seconds, _ in turns) <= LIMIT * span_s
    claims = sorted(_seconds(row.started_at) for row in store.workers())
    assert len(claims) == len(items)
    assert all(later - earlier >= COOLDOWN_S for earlier, later in pairwise(claims))
    store.close()


def _wait(store: Store, pool_ended: Callable[[], bool]) -> None:
    """Wait for some more events."""
    goal = sum(row.length for row in store.runs()) + 12
    while sum(row.length for row in store.runs()) < goal and not pool_ended():
        time.sleep(0.05)


def _turns(store: Store) -> Iterable[tuple[float, float]]:
    """How long each agent worked, and when the ledger recorded it."""
    for run in store.runs():
        for entry in store.entries(run.run):
            event = ev.decode(entry.kind, entry.data)
            if isinstance(event, ev.UsageMetered) and event.seconds >= TURN_S:
                yield event.seconds, _seconds(entry.at)


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()
