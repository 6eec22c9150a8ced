"""The exception with which a step parks or fails its run."""

from __future__ import annotations

from ratchet.core import events as ev


class Parked(Exception):
    """The step cannot continue now. `event` parks the run until a time, or fails it; `facts` are recorded before it."""

    def __init__(self, event: ev.RunParked | ev.RunFailed, facts: list[ev.Event]) -> None:
        super().__init__(event.detail)
        self.event, self.facts = event, facts
