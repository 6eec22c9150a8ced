"""Signals: live notice that something may have changed, for those who would else have to look again and again."""

from __future__ import annotations

from enum import StrEnum

POLL_S = 1.0


class Topic(StrEnum):
    """`work`: something may be claimable. `stop`: somebody was asked to stop. `events`: the feed has more."""

    WORK = "work"
    STOP = "stop"
    EVENTS = "events"
