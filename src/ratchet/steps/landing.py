"""The last step: the result is where people can take it."""

from __future__ import annotations

from ratchet.core import events as ev
from ratchet.steps.work import Doing, Done, Work, cross


async def land(work: Work, doing: Doing) -> Done:
    """For now the branch is left; it must stand where the ledger says."""
    state = doing.state
    assert state.started
    await cross(work.workspace.hold, state.head)
    landed = ev.Landed(step=doing.number, how="branch", branch=state.started.branch, head=state.head)
    return Done(events=[landed])
