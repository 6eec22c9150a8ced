"""A worker that stops itself (SIGSTOP) in a given kind of step.

Called as `python -m tests.crash.stopped_worker PLACE ITEM ACTION WHEN`. WHEN is `announced` (before the step begins) or
the seconds to wait after that. An empty ACTION never stops. With `foreign` as fifth argument it takes all other
processes for those of another container.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

from ratchet.core import events as ev
from ratchet.core.ledger import Entry
from ratchet.core.state import RunState
from ratchet.errors import LeaseLost
from ratchet.process import former_owner, spawn
from ratchet.store.protocols import Store
from ratchet.store.sqlite.store import SqliteStore
from tests.support import open_factory

LEASE_S = 2.0


def _stop(store: Store, after_s: float) -> None:
    """Stop between two writes: SQLite's lock, held by a stopped process, keeps everybody else from writing."""
    time.sleep(after_s)
    stop = partial(os.kill, os.getpid(), signal.SIGSTOP)
    store._writes.drain(stop) if isinstance(store, SqliteStore) else stop()


def main(place: Path, item: str, action: str, when: str) -> int:
    stopped: list[str] = []

    def watch(_entry: Entry, event: ev.Event, _state: RunState) -> None:
        if isinstance(event, ev.StepStarted) and event.action == action and not stopped:
            stopped.append(action)
            if when == "announced":
                _stop(service.store, 0)
            else:
                threading.Thread(target=_stop, args=(service.store, float(when))).start()

    with open_factory(place, "sandbox.mode=off", f"lease_s={LEASE_S}", "tdd.refactor_interval=1") as service:
        lease = service.claim(item)
        try:
            state = asyncio.run(service.work(lease, watch=watch, on_agent_event=lambda _text: None))
        except LeaseLost:
            return 3
        return 0 if state.status == "completed" else 4


if __name__ == "__main__":
    if sys.argv[5:]:
        elsewhere = f"{spawn.this_machine().partition(':')[0]}:0"
        spawn._machine = lambda: elsewhere  # type: ignore[assignment]
        former_owner.this_machine = spawn._machine  # type: ignore[attr-defined]
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:5]))
