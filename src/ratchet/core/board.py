"""Columns of the board and the filters of its address."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ratchet.core.card import RunCard
from ratchet.core.item import ItemStatus, ParkReason, Priority


class BoardColumn(StrEnum):
    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    PARKED = "parked"
    FAILED = "failed"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    TO_REVIEW = "to_review"  # completed, with doubtful findings that no judge decided


class BoardRow(msgspec.Struct, frozen=True, kw_only=True):
    """An item as the board shows it, with the state of its run."""

    column: BoardColumn
    id: str
    title: str
    repo: str
    workflow: str
    status: ItemStatus
    priority: Priority
    run: str
    created_at: str
    attempts: int
    not_before: str
    park_reason: ParkReason | None
    detail: str
    card: RunCard
    needs: list[str] = []
    require_labels: list[str] = []


class Snooze(msgspec.Struct, frozen=True, kw_only=True):
    """An inbox entry that somebody has seen. Without `until` it is acknowledged: it stays away for good."""

    entry: str
    until: str
    by: str
    at: str
