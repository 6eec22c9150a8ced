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
    """Return one event. Encoded JSON contains no newlines, so it fits into one `data:` line."""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (id.encode(), event.encode(), msgspec.json.encode(data))
