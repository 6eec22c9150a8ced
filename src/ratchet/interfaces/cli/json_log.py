"""Logs as JSON, one object a line, with the ids of item, run and step: `RATCHET_LOG=json`."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from ratchet.core import events as ev
from ratchet.core.ledger import Entry
from ratchet.core.timestamps import format_timestamp
from ratchet.interfaces.terminal.narrative import event_line

_ID = re.compile(r"\b(run|item)-\d{8}-\d{6}-[0-9a-f]+\b")


def json_line(text: str, ids: Mapping[str, str | int] | None = None, *, level: str = "info") -> str:
    """Return a log line as JSON. Ids that the text names are fields too; a line that is one already is returned."""
    if text.startswith('{"at":'):  # of a child process
        return text
    found = {match[1]: match[0] for match in _ID.finditer(text)}
    line = {"at": format_timestamp(datetime.now(UTC)), "level": level, "message": text}
    return msgspec.json.encode(line | found | dict(ids or {})).decode()


def event_json(entry: Entry, event: ev.Event, *, run: str, item: str) -> str:
    """Return a ledger event as a log line: its kind, and the step and role it is about."""
    line = event_line(event)
    ids: dict[str, str | int] = {"run": run, "item": item, "event": ev.kind_of(event), "seq": entry.seq}
    ids |= {name: value for name in ("step", "role") if (value := getattr(event, name, None))}
    return json_line(f"{line.actor}: {line.text}" if line else ev.kind_of(event), ids)


class _JsonHandler(logging.Handler):
    """Writes what libraries and Ratchet's own modules log."""

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        print(json_line(text, {"logger": record.name}, level=record.levelname.lower()), file=sys.stderr)  # noqa: T201


def log_as_json() -> None:
    """Have Python's loggers write JSON too."""
    logging.basicConfig(handlers=[_JsonHandler()], level=logging.WARNING, force=True)
