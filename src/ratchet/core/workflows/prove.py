"""The `prove` workflow: the tests and the gates on the untouched base, and nothing else. No agent is called."""

from __future__ import annotations

from ratchet.core import events as ev
from ratchet.core.state import BASELINE, DONE, Table
from ratchet.core.workflows.workflow import PhaseAction, Workflow, default_inputs

NEXT: Table = {(BASELINE, ev.BaselineTaken): DONE}

PROVE = Workflow(
    name="prove",
    table=NEXT,
    actions={BASELINE: PhaseAction(does="baseline")},
    bounds=lambda _state: None,
    inputs=default_inputs,
)
