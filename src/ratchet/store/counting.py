"""The factory's figures, each one counted from the rows that are the truth."""

from __future__ import annotations

from datetime import datetime

from ratchet.core import events as ev
from ratchet.core.budget import Scope
from ratchet.core.failure import FAULT, Fault
from ratchet.core.figures import Figures
from ratchet.store.budgets import Budgets
from ratchet.store.database import Transaction, reads, stamp
from ratchet.store.ledger import holder_of
from ratchet.store.queue import COUNTED, Queue


class Counting(Queue, Budgets):
    def figures(self) -> Figures:
        counts, ended = self._counts(), self._completion_s()
        return Figures(
            active_workers=self._active(),
            queue=self.stats(),
            oldest_queued_at=self._oldest(),
            completed_today=counts.get("run_completed", 0),
            failed_today=counts.get("run_failed", 0),
            iterations_today=counts.get("red_confirmed", 0),
            commits_today=counts.get("step_committed", 0),
            reverts_today=sum(n for kind, n in counts.items() if kind.endswith("_reverted")),
            recoveries_today=self._recovered() + counts.get("step_resumed", 0),
            spent_today=self.spent(Scope.DAY),
            reserved_today=self.used(Scope.DAY),
            average_completion_s=sum(ended) / len(ended) if ended else None,
        )

    @reads
    def _active(self, db: Transaction) -> int:
        rows = db.all("SELECT * FROM leases WHERE expires_at > ?", stamp(self._clock()))
        return sum(not self._gone(holder_of(row)) for row in rows)

    @reads
    def _oldest(self, db: Transaction) -> str:
        row = db.one("SELECT min(created_at) AS at FROM items WHERE status = 'queued'")
        return (row and row["at"]) or ""

    @reads
    def _counts(self, db: Transaction) -> dict[str, int]:
        rows = db.all(_COUNTS, self._today())
        return {row["kind"]: int(row["n"]) for row in rows}

    @reads
    def _recovered(self, db: Transaction) -> int:
        """Runs that came back through nobody's fault of theirs: a failure that is tried again is no recovery."""
        rows = db.all(_RETURNED, self._today())
        events = [ev.decode(row["kind"], bytes(row["data"])) for row in rows]
        return sum(isinstance(one, ev.RunReturned) and FAULT[one.reason] is Fault.PLATFORM for one in events)

    @reads
    def _completion_s(self, db: Transaction) -> list[float]:
        rows = db.all(_COMPLETED, self._today())
        both = [(datetime.fromisoformat(row["began"]), datetime.fromisoformat(row["ended"])) for row in rows]
        return [(ended - began).total_seconds() for began, ended in both]


_COUNTS = f"SELECT kind, count(*) AS n FROM events WHERE {COUNTED} AND at >= ? GROUP BY kind"  # noqa: S608 — ours
_RETURNED = f"SELECT kind, data FROM events WHERE {COUNTED} AND kind = 'run_returned' AND at >= ?"  # noqa: S608 — ours
_COMPLETED = f"""
SELECT runs.created_at AS began, events.at AS ended FROM events JOIN runs ON runs.id = events.run
WHERE {COUNTED} AND events.kind = 'run_completed' AND events.at >= ? LIMIT 10000
"""  # noqa: S608 — ours
