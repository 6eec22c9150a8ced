"""JSON Schemas of all stored and exchanged types, generated into `schemas/v1`."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec

from ratchet.core import line_protocol
from ratchet.core.compare import ComparedReport
from ratchet.core.events import AnyEvent
from ratchet.core.item import Item
from ratchet.core.receipt import Receipt
from ratchet.core.report import Report
from ratchet.core.snapshot import Manifest
from ratchet.core.state import RunState
from ratchet.core.watch import WatchState


class LedgerLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `ledger.ndjson`: an entry of a run's ledger with its event. `sum` is the digest of the line and of
    `prev`, the digest of the line before."""

    run: str
    seq: int
    at: str
    epoch: int
    kind: str
    data: AnyEvent
    prev: str
    sum: str


_TYPES: dict[str, Any] = {
    "command": line_protocol.Command,
    "event": line_protocol.AgentEvent,
    "heartbeat": line_protocol.Heartbeat,
    "log": line_protocol.Log,
    "snapshot-manifest": Manifest,
    "receipt": Receipt,
    "run-state": RunState,
    "ledger-event": AnyEvent,
    "ledger-line": LedgerLine,
    "item": Item,
    "report": Report,
    "compared-report": ComparedReport,
    "watch": WatchState,
}


def all_schemas() -> dict[str, str]:
    return {name: _schema(name, kind) for name, kind in _TYPES.items()}


def _schema(name: str, kind: Any) -> str:
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"ratchet/v1/{name}.schema.json"}
    return (
        msgspec.json.format(
            msgspec.json.encode(clean_descriptions(head | msgspec.json.schema(kind))), indent=2
        ).decode()
        + "\n"
    )


def clean_descriptions(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove the indentation of docstrings from a schema. Python 3.13 and later remove it when they compile a class."""
    return {key: _clean(value, is_description=key == "description") for key, value in schema.items()}


def _clean(value: Any, *, is_description: bool = False) -> Any:
    if isinstance(value, dict):
        return clean_descriptions(value)
    if isinstance(value, list):
        return [_clean(each) for each in value]
    return inspect.cleandoc(value) if is_description and isinstance(value, str) else value
