"""The forms in which a secret may be written down: encoded, reversed, spaced out."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from urllib.parse import quote

_PART_MIN_CHARS = 10  # of an encoded form; shorter ones occur in other text
_GAP = r"[\s.,:;|_+-]{1,3}"


def secret_patterns(value: str) -> list[str]:
    """Return patterns that match the value and its usual encodings, longest first."""
    forms = {value, json.dumps(value)[1:-1], value[::-1], *_encodings(value.encode(errors="surrogateescape"))}
    plain = [re.escape(form) for form in sorted(forms, key=len, reverse=True)]
    return [*plain, _GAP.join(map(re.escape, value))]


_LAID_OUT = str.maketrans("", "", " \t\r\n\"'`,\\")


def encoded_forms(value: str) -> list[str]:
    """Return the base64 and hexadecimal forms, which tools break into lines and programs into strings."""
    raw = value.encode(errors="surrogateescape")
    return sorted({raw.hex(), raw.hex().upper(), *(form for offset in range(3) for form in _base64(raw, offset))})


def without_layout(text: str) -> str:
    """Return a text without white space, quotes and commas."""
    return text.translate(_LAID_OUT)


def _encodings(raw: bytes) -> Iterator[str]:
    yield from (raw.hex(), raw.hex().upper(), raw.hex(":"), raw.hex(" "))
    yield from ("".join(f"{sign}{byte:02x}" for byte in raw) for sign in ("%", "\\x"))
    yield from ("".join(f"{sign}{byte:02X}" for byte in raw) for sign in ("%", "\\x"))
    yield from (quote(raw), quote(raw, safe=""))
    yield base64.b32encode(raw).decode().rstrip("=")[:-1]
    for offset in range(3):
        yield from _base64(raw, offset)


def _base64(raw: bytes, offset: int) -> Iterator[str]:
    """Yield the part of the encoding that is the same whatever stands before and after the value."""
    first, last = -(-offset * 8 // 6), (offset + len(raw)) * 8 // 6
    for encode in (base64.standard_b64encode, base64.urlsafe_b64encode):
        part = encode(b"\0" * offset + raw).decode()[first:last]
        if len(part) >= _PART_MIN_CHARS:
            yield part
