"""Signals: notifications that something may have changed, which spare consumers from polling."""

from __future__ import annotations

from enum import StrEnum

POLL_S = 1.0


class Topic(StrEnum):
    """`work`: an item may be claimable. `stop`: a worker was asked to stop. `events`: the feed has new entries."""

    WORK = "work"
    STOP = "stop"
    EVENTS = "events"
