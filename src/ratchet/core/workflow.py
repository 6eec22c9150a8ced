"""What a workflow is: a table that moves, bounds that decide, and a plan of the next step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ratchet.core import events as ev
from ratchet.core.roles import Role
from ratchet.core.state import Phase, RunState, Table


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The next thing to do. `inputs` is all that makes this work different from other work, and nothing of the clock:
    a commit id has the time in it, so commits are counted, not named."""

    phase: Phase
    action: str
    role: Role | None
    inputs: dict[str, Any]


class Workflow(msgspec.Struct, frozen=True, kw_only=True):
    """`decide` says what follows from the state alone, before anything is done; `inputs` what makes a step its own."""

    name: str
    table: Table
    roles: dict[Phase, Role]
    actions: dict[Phase, str]  # the words of the line protocol, where they are not the phase's own name
    decide: Callable[[RunState], ev.Event | None]
    inputs: Callable[[RunState], dict[str, Any]]

    def plan(self, state: RunState) -> Step:
        """What to do in this phase."""
        return Step(
            phase=state.phase,
            action=self.actions.get(state.phase, str(state.phase)),
            role=self.roles.get(state.phase),
            inputs=self.inputs(state),
        )
