"""Queue, leases and locks against a simple model, in any order of calls, on every backend."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.item import ParkReason, Priority
from ratchet.core.lease import Lease
from ratchet.core.locks import Blocked, overlaps
from ratchet.core.queue import ClaimLimits, NoWork
from ratchet.core.retry import RetryAction, decide_retry
from ratchet.errors import LeaseLost, UsageError
from ratchet.store.protocols import CancelOutcome
from tests.contract.servers import new_world
from tests.contract.test_queue import holder, named

TTL_S = 60
PATHS = ["src/a.py", "src/**", "docs/*.md", "docs/x.md", "README.md"]
OVER = ("completed", "failed", "cancelled")
RANKS = {Priority.CRITICAL: 0, Priority.HIGH: 1, Priority.MEDIUM: 2, Priority.LOW: 3}


class Machine(RuleBasedStateMachine):
    """The model: a status and a time for each item, one lease or none, and the paths it holds."""

    backend = "sqlite"

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.world = new_world(self.backend, self.folder)
        self.store = self.world.open()
        self.status: dict[str, str] = {}
        self.place: dict[str, tuple[float, str]] = {}
        self.not_before: dict[str, float] = {}
        self.returns: dict[str, int] = {}
        self.leases: dict[str, tuple[Lease, float]] = {}
        self.paths: dict[str, set[str]] = {}
        self.stale: list[Lease] = []

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.close()
            shutil.rmtree(self.folder)

    @property
    def now(self) -> float:
        return self.world.now.timestamp()

    def end(self, item: str, status: str) -> None:
        lease, _ = self.leases.pop(item)
        self.stale.append(lease)
        self.paths.pop(item, None)
        self.status[item] = status

    def sweep(self) -> None:
        for item in [item for item, (_, until) in self.leases.items() if until <= self.now]:
            self.end(item, self.lost(item))

    def lost(self, item: str) -> str:
        """What becomes of an item whose worker is gone: one that loses too many waits longer each time."""
        after = decide_retry(Reason.WORKER_LOST, attempts=0, returns=self.returns[item])
        self.returns[item] = after.returns
        self.not_before[item] = self.now + after.delay_s if after.delay_s else 0
        return "parked" if after.after is RetryAction.PARK else "queued"

    @rule(priority=st.sampled_from(list(Priority)))
    def add(self, priority: Priority) -> None:
        name = f"i{len(self.status):03}"
        self.store.add(named(name, priority=priority))
        self.status[name], self.not_before[name], self.returns[name] = "queued", 0, 0
        self.place[name] = (self.now + RANKS[priority] * 86_400, name)

    @rule(limit=st.sampled_from([None, 2]))
    def claim(self, limit: int | None) -> None:
        self.sweep()
        ready = [i for i, s in self.status.items() if s == "queued" and self.not_before[i] <= self.now]
        full = limit is not None and len(self.leases) >= limit
        expected = None if full or not ready else min(ready, key=lambda i: self.place[i])
        run = f"run-{len(self.stale) + len(self.leases)}"
        got = self.store.claim_next(holder(), run=run, ttl_s=TTL_S, limits=ClaimLimits(workers=limit))
        if isinstance(got, NoWork):
            assert expected is None
            return
        assert got.item == expected
        self.leases[got.item] = (got, self.now + TTL_S)
        self.status[got.item] = "assigned"

    def some(self, data: Any) -> Lease:
        item = data.draw(st.sampled_from(sorted(self.leases)))
        return self.leases[item][0]

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def renew(self, data: Any) -> None:
        lease = self.some(data)
        self.store.renew(lease, ttl_s=TTL_S)
        self.leases[lease.item] = (lease, self.now + TTL_S)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), how=st.sampled_from(["complete", "release", "park", "kill", "crash"]))
    def finish(self, data: Any, how: str) -> None:
        lease = self.some(data)
        if how == "complete":
            self.store.complete(lease, commits=1, head="h")
        elif how == "release":
            self.store.release(lease)
        elif how == "park":
            self.store.append(lease, [ev.RunParked(reason=ParkReason.REVIEW, detail="look")])
        elif how == "kill":
            assert self.store.kill(lease.worker, by="ann")
        else:
            after = self.store.fail(lease, Reason.AGENT_CRASHED, "boom")
            self.not_before[lease.item], self.returns[lease.item] = self.now + after.delay_s, after.returns
        row = self.store.item_row(lease.item)
        ends = {"complete": "completed", "release": "queued", "park": "parked"}
        wanted = self.lost(lease.item) if how == "kill" else ends.get(how, row.status)
        assert row.status == wanted and row.status in (*OVER, "queued", "parked")
        self.end(lease.item, row.status)

    @precondition(lambda self: self.status)
    @rule(data=st.data())
    def requeue(self, data: Any) -> None:
        item = data.draw(st.sampled_from(sorted(self.status)))
        try:
            self.store.requeue(item)
        except UsageError:
            assert self.status[item] in ("assigned", "completed")
        else:
            assert self.status[item] in ("failed", "cancelled", "queued", "parked")
            self.status[item], self.not_before[item], self.returns[item] = "queued", 0, 0

    @precondition(lambda self: self.status)
    @rule(data=st.data())
    def cancel_what_nobody_holds(self, data: Any) -> None:
        item = data.draw(st.sampled_from(sorted(self.status)))
        if item in self.leases:
            return
        answer = self.store.cancel(item, by="ann")
        assert answer is (CancelOutcome.OVER if self.status[item] in OVER else CancelOutcome.DONE)
        if answer is CancelOutcome.DONE:
            self.status[item] = "cancelled"

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), wanted=st.sets(st.sampled_from(PATHS), min_size=1, max_size=3))
    def lock(self, data: Any, wanted: set[str]) -> None:
        lease = self.some(data)
        others = {p for i, held in self.paths.items() if i != lease.item and self.leases[i][1] > self.now for p in held}
        free = not any(overlaps(a, b) for a in wanted for b in others)
        got = self.store.lock(lease, wanted)
        assert isinstance(got, Blocked) is not free
        if free:
            self.paths[lease.item] = self.paths.get(lease.item, set()) | wanted

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def a_stale_worker_can_do_nothing(self, data: Any) -> None:
        lease = data.draw(st.sampled_from(self.stale))
        if self.store.run(lease.run).status == "running":
            for write in (
                lambda: self.store.renew(lease, ttl_s=TTL_S),
                lambda: self.store.lock(lease, ["x"]),
                lambda: self.store.fail(lease, Reason.AGENT_CRASHED, "late"),
            ):
                try:
                    write()
                except LeaseLost:
                    continue
                raise AssertionError("a lease that was lost still writes")
        self.store.release(lease)
        assert not self.store.kill(lease.worker, by="ann")

    @rule(seconds=st.sampled_from([1, 40, 61, 400]))
    def pass_time(self, seconds: int) -> None:
        self.world.pass_time(seconds)

    @rule()
    def expire(self) -> None:
        due = {lease.run for lease, until in self.leases.values() if until <= self.now}
        assert set(self.store.expire()) == due
        self.sweep()

    @invariant()
    def the_rows_are_as_the_model_says(self) -> None:
        if not hasattr(self, "world"):
            return
        rows = self.store.items(limit=500).rows
        assert {row.item.id: str(row.status) for row in rows} == self.status
        assert len(self.store.workers(live=True)) == sum(until > self.now for _, until in self.leases.values())
        live = {
            lease.run: sorted(self.paths[i])
            for i, (lease, until) in self.leases.items()
            if until > self.now and self.paths.get(i)
        }
        assert self.store.locks("/r") == live


class OnPostgres(Machine):
    backend = "postgres"


TIMES = int(os.environ.get("RATCHET_EXAMPLES", "1"))
_QUICK: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True}
TestOnSqlite = Machine.TestCase
TestOnSqlite.settings = settings(max_examples=25 * TIMES, stateful_step_count=30, **_QUICK)
TestOnPostgres = OnPostgres.TestCase
TestOnPostgres.settings = settings(max_examples=12 * TIMES, stateful_step_count=25, **_QUICK)
