"""JSON Schemas of everything that crosses a border, generated from the types. `schemas/v1` holds them."""

from __future__ import annotations

from typing import Any

import msgspec

from ratchet.core import wire
from ratchet.core.compare import ComparedReport
from ratchet.core.events import AnyEvent
from ratchet.core.item import Item
from ratchet.core.receipt import Receipt
from ratchet.core.report import Report
from ratchet.core.snapshot import Manifest
from ratchet.core.state import RunState
from ratchet.core.watching import WatchState

_TYPES: dict[str, Any] = {
    "command": wire.Command,
    "event": wire.AgentEvent,
    "heartbeat": wire.Heartbeat,
    "log": wire.Log,
    "snapshot-manifest": Manifest,
    "receipt": Receipt,
    "run-state": RunState,
    "ledger-event": AnyEvent,
    "item": Item,
    "report": Report,
    "compared-report": ComparedReport,
    "watch": WatchState,
}


def all_schemas() -> dict[str, str]:
    return {name: _schema(name, kind) for name, kind in _TYPES.items()}


def _schema(name: str, kind: Any) -> str:
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"ratchet/v1/{name}.schema.json"}
    return msgspec.json.format(msgspec.json.encode(head | msgspec.json.schema(kind)), indent=2).decode() + "\n"
