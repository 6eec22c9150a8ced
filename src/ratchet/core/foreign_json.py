"""What decoding raises for text that others wrote: not only invalid, also nested without end or no Unicode."""

from __future__ import annotations

import msgspec

MALFORMED = (msgspec.DecodeError, UnicodeError, RecursionError, OverflowError)
