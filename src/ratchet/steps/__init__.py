"""How each step of a run is done: ask an agent, run the tests, commit or revert, run the gates, land.

Every one may be cut off anywhere and called again: it starts from the tree its step was announced with. Which one is
done in a phase is said by the workflow, by name; ours register through the same entry points as anybody's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache

from ratchet import plugins
from ratchet.errors import UsageError
from ratchet.steps.work import Doing, Done, Parked, Work, cross

__all__ = ["Do", "Doing", "Done", "Parked", "Work", "cross", "do", "open_step"]

Do = Callable[[Work, Doing], Awaitable[Done]]


async def do(work: Work, doing: Doing) -> Done:
    return await open_step(doing.step.act.does)(work, doing)


@lru_cache(maxsize=64)
def open_step(name: str) -> Do:
    known = plugins.found("steps")
    if name not in known:
        raise UsageError(f"there is no step {name!r}", hint=f"steps: {', '.join(sorted(known))}")
    step: Do = known[name].load()
    return step
