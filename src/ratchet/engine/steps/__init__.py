"""The steps of a run: ask an agent, run the tests, commit or revert, run the gates, land.

A step may be interrupted anywhere and called again: it starts from the tree with which it was announced. A workflow
names the step of each phase; built-in steps register through the same entry points as those of plugins.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache

from ratchet import plugins
from ratchet.core import events as ev
from ratchet.core.item import ParkReason
from ratchet.engine.blocking import run_blocking
from ratchet.engine.parked import Parked
from ratchet.engine.steps.context import RunContext, StepContext, StepResult, truncate
from ratchet.errors import BranchMoved, UsageError

__all__ = [
    "Parked",
    "RunContext",
    "StepContext",
    "StepFunction",
    "StepResult",
    "branch_moved",
    "open_step",
    "run_blocking",
    "run_step",
]

StepFunction = Callable[[RunContext, StepContext], Awaitable[StepResult]]


async def run_step(context: RunContext, step: StepContext) -> StepResult:
    """Do the step that the workflow names for this phase. A branch that a person has moved parks the run."""
    try:
        return await open_step(step.plan.act.does)(context, step)
    except BranchMoved as moved:
        raise Parked(branch_moved(moved), []) from moved


def branch_moved(moved: BranchMoved) -> ev.RunParked:
    return ev.RunParked(reason=ParkReason.QUESTION, detail=truncate(f"{moved.message}; {moved.hint}"))


@lru_cache(maxsize=64)
def open_step(name: str) -> StepFunction:
    known = plugins.entry_points("steps")
    if name not in known:
        raise UsageError(f"there is no step {name!r}", hint=f"steps: {', '.join(sorted(known))}")
    step: StepFunction = known[name].load()
    return step
