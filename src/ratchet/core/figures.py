"""Figures of runs, folded from their ledgers into small additive tallies per quarter of an hour and dimension.

A tally holds whole numbers only, so sums are exact in any order: adding up the parts equals counting everything again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from functools import singledispatchmethod
from typing import NamedTuple

import msgspec

from ratchet.core import events as ev
from ratchet.core.budget import UNITS, UNITS_MAX
from ratchet.core.failure import FAULT, FaultOwner
from ratchet.core.item import ParkReason
from ratchet.core.picture import is_overfitted
from ratchet.core.state import OUTCOMES

NAME_MAX_CHARS = 200
SLOT_MINUTES = 15  # every time zone is a multiple of it away from UTC: a local day is a sum of slots
EVER, FOREVER = "0001-01-01T00:00", "9999-12-31T23:45"
VERSION = 3  # raise it when the fold counts differently: stored tallies are then counted again
# What figures can be grouped by. A day or an hour, in local time, is a sum of slots.
STORED = ("repo", "workflow", "worker", "iteration", "action", "role", "agent", "model", "run")
GROUPINGS = ("day", "hour", *STORED)


class Tally(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a part of the ledgers adds up to: counts, milliseconds, and millionths of a dollar."""

    runs: int = 0
    completed: int = 0
    failed: int = 0
    aborted: int = 0
    completion_ms: int = 0  # of the completed runs, from start to end
    requeued: int = 0
    recoveries: int = 0
    iterations: int = 0
    steps: int = 0
    step_ms: int = 0
    commits: int = 0
    undone: int = 0  # commits that a gate took back
    reverts: int = 0
    overfitted: int = 0
    refused_tests: int = 0
    false_done: int = 0
    greens: int = 0
    green_attempts: int = 0
    calls: int = 0
    unpriced_calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    cost_microusd: int = 0
    agent_ms: int = 0
    workspaces: int = 0
    workspace_ms: int = 0
    quota_waits: int = 0
    quota_ms: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(**{name: getattr(self, name) + getattr(other, name) for name in MEASURES})


MEASURES: tuple[str, ...] = Tally.__struct_fields__


class TallyKey(NamedTuple):
    """What a tally of a run is about; an empty dimension is none."""

    slot: str
    repo: str
    workflow: str
    worker: str
    iteration: int
    action: str
    role: str
    agent: str
    model: str


class RunPast(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What counting the next event needs to know of the events before it."""

    started_at: str = ""
    repo: str = ""
    workflow: str = ""
    worker: str = ""
    iteration: int = 1
    counted: int = 0  # iterations that are counted
    action: str = ""  # of the step in progress
    role: str = ""
    since: str = ""
    asked: tuple[str, str, str] = ("", "", "")  # role, agent and model of the last call in this step
    author: tuple[str, str, str] = ("", "", "")  # of the last test or change
    goal: str = ""  # what is to turn green: a red test, or a task
    tasks_begun: bool = False
    tries: int = 0
    interrupted: bool = False  # by something that was recorded
    quota_since: str = ""


class RunTallies:
    """Counts the events of one run. `tallies` are those since `past` was taken."""

    def __init__(self, past: RunPast | None = None) -> None:
        self.past = past or RunPast()
        self._found: dict[TallyKey, dict[str, int]] = defaultdict(lambda: defaultdict(int))

    @property
    def tallies(self) -> dict[TallyKey, Tally]:
        return {key: Tally(**found) for key, found in self._found.items()}

    def add(self, at: str, event: object) -> None:
        past = self.past
        past.started_at = past.started_at or at
        self._count(event, at)
        if type(event) in OUTCOMES:
            self._end_step(at)
            past.action, past.role, past.asked, past.interrupted = "", "", ("", "", ""), False

    def _tally(self, at: str, who: tuple[str, str, str] | None = None, **measures: int) -> None:
        past = self.past
        role, agent, model = who or (past.role, *past.asked[1:])
        key = TallyKey(
            slot_of(at), past.repo, past.workflow, past.worker, past.iteration, past.action, role, agent, model
        )
        found = self._found[key]
        for name, much in measures.items():
            found[name] += much

    def _end_step(self, at: str) -> None:
        if self.past.since:
            self._tally(at, step_ms=_ms_between(self.past.since, at))
        self.past.since = ""

    @property
    def _run_author(self) -> tuple[str, str, str]:
        """Whose run it is: that of the agent that made the last change."""
        return "", self.past.author[1], self.past.author[2]

    @singledispatchmethod
    def _count(self, _event: object, _at: str) -> None:
        """Events that no figure counts."""

    # --- the run -----------------------------------------------------------------------------------------------

    @_count.register
    def _(self, event: ev.RunStarted, at: str) -> None:
        self.past.repo, self.past.workflow = event.repo.replace("\0", ""), _name(event.workflow)
        self._tally(at, runs=1)

    @_count.register
    def _(self, event: ev.RunClaimed, at: str) -> None:
        past = self.past
        past.worker = _name(event.worker)
        if past.quota_since:
            self._tally(at, past.author, quota_ms=_ms_between(past.quota_since, at))
        past.quota_since = ""

    @_count.register
    def _(self, event: ev.RunParked, at: str) -> None:
        self._end_step(at)
        self._stop(at, waits=event.reason is ParkReason.QUOTA)

    @_count.register
    def _(self, event: ev.RunReturned, at: str) -> None:
        owner = FAULT[event.reason]
        self._tally(at, self._run_author, requeued=1, recoveries=int(owner is FaultOwner.PLATFORM))
        self._stop(at, waits=owner is FaultOwner.PROVIDER)

    def _stop(self, at: str, *, waits: bool) -> None:
        """The run waits for its next worker, which repeats the step in progress: not a recovery of its own."""
        self.past.since, self.past.interrupted = "", True
        if waits:
            self._tally(at, quota_waits=1)
            self.past.quota_since = at

    @_count.register
    def _(self, _event: ev.RunCompleted, at: str) -> None:
        self._finish(at, completed=1, completion_ms=_ms_between(self.past.started_at, at))

    @_count.register
    def _(self, _event: ev.RunFailed, at: str) -> None:
        self._finish(at, failed=1)

    @_count.register
    def _(self, _event: ev.RunAborted, at: str) -> None:
        self._finish(at, aborted=1)

    def _finish(self, at: str, **measures: int) -> None:
        self._end_step(at)
        self._tally(at, self._run_author, **measures)

    # --- steps and calls ---------------------------------------------------------------------------------------

    @_count.register
    def _(self, event: ev.StepStarted, at: str) -> None:
        past = self.past
        past.action, past.role, past.since, past.asked = _name(event.action), _name(event.role), at, ("", "", "")
        past.interrupted = False
        self._tally(at, steps=1)
        self._workspace(at, event.workspace_s)

    @_count.register
    def _(self, event: ev.StepResumed, at: str) -> None:
        past = self.past
        if not past.interrupted:
            self._tally(at, recoveries=1)
        past.since, past.interrupted = at, False
        self._workspace(at, event.workspace_s)

    def _workspace(self, at: str, seconds: float | None) -> None:
        if seconds is not None:
            self._tally(at, workspaces=1, workspace_ms=_ms(seconds))

    @_count.register
    def _(self, event: ev.UsageMetered, at: str) -> None:
        past = self.past
        past.asked = (_name(event.role), _name(event.agent), _name(event.model))
        # As the budget counts them: an iteration begins with its first call, also one that finds nothing left to do.
        begun, past.counted = max(0, past.iteration - past.counted), max(past.iteration, past.counted)
        self._tally(
            at,
            past.asked,
            iterations=begun,
            calls=1,
            unpriced_calls=int(not event.priced),
            tokens_in=_whole(event.tokens_in),
            tokens_out=_whole(event.tokens_out),
            tokens_cached=_whole(event.tokens_cached),
            cost_microusd=_whole(event.cost_usd * UNITS["cost_usd"]),
            agent_ms=_ms(event.seconds),
        )

    # --- what came of it ---------------------------------------------------------------------------------------

    @_count.register(ev.TestWritten)
    @_count.register(ev.ChangeProposed)
    def _(self, event: ev.TestWritten | ev.ChangeProposed, _at: str) -> None:
        self.past.author = self.past.asked
        self.past.tries += isinstance(event, ev.ChangeProposed)

    @_count.register
    def _(self, _event: ev.AttemptFailed, _at: str) -> None:
        self.past.tries += 1

    @_count.register(ev.RedConfirmed)
    @_count.register(ev.FailuresAnalysed)
    def _(self, _event: ev.RedConfirmed | ev.FailuresAnalysed, _at: str) -> None:
        self._aim("red")

    @_count.register
    def _(self, _event: ev.TaskBegun, _at: str) -> None:
        self.past.iteration += self.past.tasks_begun
        self.past.tasks_begun = True
        self._aim("task")

    def _aim(self, goal: str) -> None:
        self.past.goal, self.past.tries = goal, 0

    @_count.register
    def _(self, _event: ev.RedRefused, at: str) -> None:
        self._tally(at, self.past.author, refused_tests=1)

    @_count.register
    def _(self, _event: ev.StepCommitted, at: str) -> None:
        self._tally(at, self.past.author, commits=1)

    @_count.register
    def _(self, _event: ev.StepVerified, at: str) -> None:
        past = self.past
        if past.goal:
            self._tally(at, past.author, greens=1, green_attempts=max(1, past.tries))
            past.iteration += past.goal == "red"
        self._aim("")

    @_count.register(ev.StepReverted)
    @_count.register(ev.RefactorReverted)
    @_count.register(ev.RevisionReverted)
    def _(self, event: ev.StepReverted | ev.RefactorReverted | ev.RevisionReverted, at: str) -> None:
        undone, overfitted = int(bool(event.commit)), int(is_overfitted(event))
        self._tally(at, self.past.author, reverts=1, undone=undone, overfitted=overfitted)

    @_count.register(ev.TestAbandoned)
    @_count.register(ev.SealedUpheld)
    def _(self, _event: object, _at: str) -> None:
        self.past.iteration += 1
        self._aim("")

    @_count.register(ev.FinalRefused)
    @_count.register(ev.TaskUnfinished)
    def _(self, _event: object, at: str) -> None:
        """The work was reported as done, and the factory found that it was not."""
        self._tally(at, self.past.author, false_done=1)


def recount(events: Iterable[tuple[str, object]]) -> dict[TallyKey, Tally]:
    """Count the whole ledger of a run, given as times and events."""
    counted = RunTallies()
    for at, event in events:
        counted.add(at, event)
    return counted.tallies


def slot_of(at: str) -> str:
    """Return the quarter of an hour of a timestamp: `2026-11-19T01:45`."""
    return f"{at[:14]}{int(at[14:16]) // SLOT_MINUTES * SLOT_MINUTES:02}"


def _name(text: str) -> str:
    """Return a name as a database can index it: an agent's may be a whole command line."""
    return text.replace("\0", "")[:NAME_MAX_CHARS]


def _ms_between(began: str, ended: str) -> int:
    return _ms((datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds())


def _ms(seconds: float) -> int:
    return _whole(seconds * UNITS["seconds"])


def _whole(units: float) -> int:
    return round(min(max(0, units), UNITS_MAX))
