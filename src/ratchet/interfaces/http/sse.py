"""Encodes server-sent events, for every stream of the API."""

from __future__ import annotations

import msgspec

RETRY_MS = 1_000
KEEP_ALIVE_S = 15.0
KEEP_ALIVE = b": keep-alive\n\n"


def encode_start(position: str = "") -> bytes:
    """Return the first block of a stream: the reconnection delay and, if known, the position to resume from."""
    position_line = f"id: {position}\n" if position else ""
    return f"retry: {RETRY_MS}\n{position_line}\n".encode()


def encode_event(*, id: str, event: str, data: object) -> bytes:
    """Return one event with JSON data, which contains no newlines and so fits into one `data:` line."""
    return encode_line(msgspec.json.encode(data), id=id, event=event)


def encode_line(data: bytes, *, id: str = "", event: str = "") -> bytes:
    """Return one event with a line of data."""
    head = (f"id: {id}\n" if id else "") + (f"event: {event}\n" if event else "")
    return b"%sdata: %s\n\n" % (head.encode(), data)
