"""Ledgers of random runs: any events in any order, with agents that use any amount."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import msgspec

from ratchet.core import events as ev
from ratchet.core.failure import Reason, RevertOutcome
from ratchet.core.gates import GateStatus
from ratchet.core.item import ParkReason
from ratchet.core.timestamps import format_timestamp
from tests.core.playing import REPORT, started

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
AGENTS = ("claude:opus", "codex", "scripted:play.json", "lost")
ENDS = (
    ev.RunCompleted(commits=1, head="h"),
    ev.RunFailed(reason=Reason.NO_PROGRESS, detail="d"),
    ev.RunAborted(by="ann"),
)


def ledger(chance: random.Random, *, start: datetime = START) -> list[tuple[str, ev.Event]]:
    """Times and events of one run; it may not have ended."""
    workflow, repo = chance.choice(["tdd", "fix", "loop"]), f"/r{chance.randrange(3)}"
    first = msgspec.structs.replace(started(workflow), repo=repo)
    events: list[ev.Event] = [first, ev.RunClaimed(worker=_worker(chance))]
    events += [_event(chance, number) for number in range(chance.randrange(60))]
    if chance.random() < 0.7:
        events.append(chance.choice(ENDS))
    at, found = start + timedelta(minutes=chance.randrange(1_000)), []
    for event in events:
        at += timedelta(seconds=chance.choice([0, 0, 1, 40, 700]), milliseconds=chance.randrange(1_000))
        found.append((format_timestamp(at), event))
    return found


def _worker(chance: random.Random) -> str:
    return f"w{chance.randrange(3)}"


def _event(c: random.Random, n: int) -> ev.Event:
    events = [
        ev.RunClaimed(worker=_worker(c)),
        ev.RunParked(reason=c.choice(list(ParkReason)), detail="d"),
        ev.RunReturned(reason=c.choice(list(Reason)), detail="d"),
        ev.StepStarted(
            step=n, action=c.choice(["audit", "implement", "judge"]), role=c.choice(["", "auditor", "implementer"]),
            key="k", tree="t", snapshot="s", workspace_s=c.choice([None, 0.003, 1.5]),
        ),
        ev.StepResumed(step=n),
        ev.UsageMetered(
            step=n, role=c.choice(["auditor", "implementer"]), agent=c.choice(AGENTS), tokens_in=c.randrange(10**6),
            tokens_out=c.randrange(10**5), cost_usd=round(c.random() * 5, 6), seconds=round(c.random() * 900, 3),
            priced=c.random() < 0.8, model=c.choice(["", "m1", "m2"]), tokens_cached=c.randrange(10**5),
        ),
        ev.TestWritten(step=n, paths=["t.py"], tree="t", summary="s"),
        ev.RedConfirmed(step=n, tests=["t"], fingerprint="f", report=REPORT),
        ev.RedRefused(step=n, why="green", tree="t"),
        ev.ChangeProposed(step=n, paths=["a.py"], tree="t", summary="s"),
        ev.AttemptFailed(step=n, reason=Reason.NO_PROGRESS, why="w"),
        ev.StepCommitted(step=n, commit="c", parent="p", subject="s", tests=["t"], report=REPORT, tree="t"),
        ev.StepVerified(step=n, gates=[], warnings=[]),
        ev.StepReverted(
            step=n, why="w", paths=[], tree="t", commit=c.choice(["", "c"]), outcome=c.choice([None, *RevertOutcome])
        ),
        ev.TaskBegun(task="T1", title="t"),
        ev.TaskUnfinished(step=n, task="T1", why="w"),
        ev.FinalRefused(step=n, why="w", reports=[]),
        ev.TestAbandoned(why="w"),
        ev.GateRan(step=n, gate="lint", status=c.choice(list(GateStatus))),
    ]  # fmt: skip
    return c.choice(events)
