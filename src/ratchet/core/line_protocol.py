"""The line protocol: what any agent program can speak. NDJSON, UTF-8, at most 262,144 bytes a line."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from ratchet.core.foreign_json import MALFORMED
from ratchet.core.item import Priority
from ratchet.core.ledger import MESSAGE_MAX_BYTES
from ratchet.core.receipt import Artifact

LINE_MAX_BYTES = MESSAGE_MAX_BYTES

Key = Annotated[str, msgspec.Meta(pattern="^ik:[0-9a-f]{64}$")]


class Action(StrEnum):
    IMPLEMENT = "implement"
    IMPLEMENT_CHANGES = "implement_changes"
    REVIEW = "review"
    UPDATE_SPEC = "update_spec"
    AUDIT = "audit"
    REFACTOR = "refactor"
    FIX = "fix"
    INTAKE = "intake"
    TASK_DISCOVERY = "task_discovery"


class Party(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    agent_type: str
    agent_id: str = ""


class ExpectedOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    path: str
    description: str = ""
    required: bool = True


class Version(msgspec.Struct, frozen=True, kw_only=True):
    snapshot_id: str


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    attempt: int = 1
    max_attempts: int = 1


class Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="command"):
    """Factory to agent: do this."""

    message_id: str
    correlation_id: str
    item: str
    idempotency_key: Key
    to: Party
    action: Action
    inputs: dict[str, Any]
    expected_outputs: list[ExpectedOutput] = []
    version: Version
    deadline: str
    retry: Retry = Retry()
    priority: Priority = Priority.MEDIUM


class EventName(StrEnum):
    PROGRESS = "progress"
    COMPLETED = "completed"
    REVIEW_COMPLETED = "review.completed"
    SPEC_UPDATED = "spec.updated"
    SPEC_NO_CHANGES_NEEDED = "spec.no_changes_needed"
    SPEC_CHANGES_REQUESTED = "spec.changes_requested"
    ARTIFACT_PRODUCED = "artifact.produced"
    ERROR = "error"


# The status of a `progress` that is a question: its payload's `text` is put to somebody, and the turn is over.
ASKS = "question"
TERMINAL = frozenset(EventName) - {EventName.PROGRESS, EventName.ARTIFACT_PRODUCED}


class AgentEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="event"):
    """Agent to factory: this happened. `error` carries a `reason` of the failure taxonomy in its payload, and a
    `message`; `progress` any of `text`, `tool` and `detail` of a call, `result` when it is over, `usage`, `session`."""

    message_id: str
    correlation_id: str
    item: str
    from_: Party = msgspec.field(name="from")
    event: EventName
    status: str = ""
    payload: dict[str, Any] = {}
    artifacts: list[Artifact] = []
    observed_version: Version | None = None
    occurred_at: str


class HeartbeatStatus(StrEnum):
    STARTING = "starting"
    READY = "ready"
    BUSY = "busy"
    STOPPING = "stopping"
    BACKOFF = "backoff"


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="heartbeat"):
    agent: Party
    seq: int
    status: HeartbeatStatus
    pid: int
    uptime_s: float
    last_activity_at: str
    stats: dict[str, float] = {}


class Log(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="log"):
    level: str
    message: str
    fields: dict[str, Any] = {}
    timestamp: str


Message = Command | AgentEvent | Heartbeat | Log

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Message)


def encode_line(message: Message) -> bytes:
    line = _encoder.encode(message) + b"\n"
    if len(line) > LINE_MAX_BYTES:
        raise ValueError(f"a line holds at most {LINE_MAX_BYTES} bytes, this one has {len(line)}")
    return line


def decode_line(line: bytes) -> Message:
    """Raises ValueError with the reason for a line that is not a valid message."""
    if len(line) > LINE_MAX_BYTES:
        raise ValueError(f"a line holds at most {LINE_MAX_BYTES} bytes, this one has {len(line)}")
    try:
        message: Message = _decoder.decode(line)
        return message
    except MALFORMED as error:
        raise ValueError(str(error)) from None
