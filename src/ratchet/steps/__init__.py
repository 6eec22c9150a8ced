"""How each step of a run is done: ask an agent, run the tests, commit or revert, run the gates, land.

Every one may be cut off anywhere and called again: it starts from the tree its step was announced with.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ratchet.core.state import Phase
from ratchet.steps.asking import audit, propose, review
from ratchet.steps.gating import verify
from ratchet.steps.judging import judge
from ratchet.steps.landing import land
from ratchet.steps.testing import baseline, verify_red
from ratchet.steps.work import Doing, Done, Parked, Work, cross

__all__ = ["Doing", "Done", "Parked", "Work", "cross", "do"]

DO: dict[Phase, Callable[[Work, Doing], Awaitable[Done]]] = {
    Phase.BASELINE: baseline,
    Phase.AUDIT: audit,
    Phase.VERIFY_RED: verify_red,
    Phase.IMPLEMENT: propose,
    Phase.JUDGE: judge,
    Phase.VERIFY: verify,
    Phase.REFACTOR: propose,
    Phase.JUDGE_REFACTOR: judge,
    Phase.REVIEW: review,
    Phase.REVISE: propose,
    Phase.JUDGE_REVISION: judge,
    Phase.VERIFY_REVISION: verify,
    Phase.LAND: land,
}


async def do(work: Work, doing: Doing) -> Done:
    return await DO[doing.phase](work, doing)
