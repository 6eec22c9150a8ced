"""Items: units of work in the queue."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from ratchet.core.lines import split_lines

SPEC_MAX_CHARS = 100_000
LABELS_MAX = 20
Label = Annotated[
    str, msgspec.Meta(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._:/=-]*[A-Za-z0-9])?\Z")
]


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
    LOGIN = "login"  # the agent is not logged in: a person logs in and resumes


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A spec for one repository, with a priority. `settings` are `key=value` configuration overrides.

    `source` and `source_ref` name its origin; only one item per origin is open at a time. `request_key` identifies the
    request: repeating it always returns the same item. `needs` are items that must be completed first; `footprint` are
    the paths it is expected to change; `require_labels` are labels that its worker must have.
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
    metadata: dict[str, Any] = {}
    request_key: str = ""
    require_labels: Annotated[list[Label], msgspec.Meta(max_length=LABELS_MAX)] = []


def new_id(kind: str, at: datetime, unique: str) -> str:
    """Return an id for an item or a run that sorts by creation time."""
    return f"{kind}-{at:%Y%m%d-%H%M%S}-{at.microsecond // 1000:03x}{unique}"


def spec_title(spec: str) -> str:
    """Return the first heading, else the first line, of a Markdown spec."""
    lines = [line.strip() for line in split_lines(spec) if line.strip()]
    heading = next((line for line in lines if line.startswith("#")), None)
    return (heading or (lines[0] if lines else "")).lstrip("#").strip()[:120]


def front_matter(spec: str) -> tuple[dict[str, str], str]:
    """Split `key: value` lines between two `---` lines at the start of a spec from its text."""
    head, mark, body = spec.removeprefix("---\n").partition("\n---\n")
    lines = [line.partition(":") for line in split_lines(head) if line.strip()]
    if not (spec.startswith("---\n") and mark) or not all(colon for _, colon, _ in lines):
        return {}, spec
    return {name.strip(): value.strip().strip("\"'") for name, _, value in lines}, body.lstrip("\n")


def front_matter_labels(spec: str) -> tuple[list[str], str]:
    """Return the labels that the line `require_labels: gpu, arm64` of a spec's front matter names, and the spec without
    its front matter; a spec that names none is returned unchanged."""
    values, body = front_matter(spec)
    if REQUIRE_LABELS not in values:
        return [], spec
    return sorted({label.strip() for label in values[REQUIRE_LABELS].split(",")} - {""}), body


REQUIRE_LABELS = "require_labels"


def make_slug(title: str, suffix: str) -> str:
    """Return a short name for branches and paths: `greet-in-many-languages-1a2b3c4d`."""
    words = "".join(c if c.isascii() and c.isalnum() else " " for c in title.lower()).split()
    return "-".join([*"-".join(words)[:40].strip("-").split("-"), suffix]).strip("-")
