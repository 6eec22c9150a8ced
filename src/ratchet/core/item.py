"""Items: what was asked. The unit of the queue."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

SPEC_MAX_CHARS = 100_000


class Priority(StrEnum):
    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


RANK = {Priority.CRITICAL: 0, Priority.HIGH: 1, Priority.MEDIUM: 2, Priority.LOW: 3}


class ItemStatus(StrEnum):
    GENERATING = "generating"
    QUEUED = "queued"
    ASSIGNED = "assigned"
    IN_PROGRESS = "in_progress"
    PARKED = "parked"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN = frozenset(
    {
        ItemStatus.GENERATING,
        ItemStatus.QUEUED,
        ItemStatus.ASSIGNED,
        ItemStatus.IN_PROGRESS,
        ItemStatus.PARKED,
    }
)


class ParkReason(StrEnum):
    QUOTA = "quota"
    QUESTION = "question"
    REVIEW = "review"
    BLOCKED = "blocked"


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A spec for one repository, with a priority. `settings` are the `key=value` overrides it was asked with.

    `source` and `source_ref` name where it came from, one piece of work while it is open; `request_key` names the
    asking itself: asked again with the same key, for ever, it is the same item. `needs` are items that must be
    completed first; `footprint` are the paths it is expected to change.
    """

    id: str
    repo: str
    spec: Annotated[str, msgspec.Meta(max_length=SPEC_MAX_CHARS)]
    title: str
    workflow: str = "tdd"
    priority: Priority = Priority.MEDIUM
    base_commit: str
    slug: str
    source_ref: str = ""
    settings: list[str] = []
    created_at: str
    source: str = ""
    branch: str = ""
    max_iterations: Annotated[int, msgspec.Meta(ge=1, le=200)] | None = None
    needs: list[str] = []
    footprint: list[str] = []
    metadata: dict[str, str] = {}
    request_key: str = ""


def name_of(kind: str, at: datetime, unique: str) -> str:
    """The id of an item or a run. Ids that were made one after the other lie so in every index that has them."""
    return f"{kind}-{at:%Y%m%d-%H%M%S}-{at.microsecond // 1000:03x}{unique}"


def title_of(spec: str) -> str:
    """The first heading, else the first line, of a Markdown spec."""
    lines = [line.strip() for line in spec.splitlines() if line.strip()]
    heading = next((line for line in lines if line.startswith("#")), None)
    return (heading or (lines[0] if lines else "")).lstrip("#").strip()[:120]


def slug_of(title: str, suffix: str) -> str:
    """A short name for branches and paths: `greet-in-many-languages-1a2b3c4d`."""
    words = "".join(c if c.isascii() and c.isalnum() else " " for c in title.lower()).split()
    return "-".join([*"-".join(words)[:40].strip("-").split("-"), suffix]).strip("-")
