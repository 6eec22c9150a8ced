"""Decides quickly that a pattern cannot match, by a string that every match contains."""

from __future__ import annotations

import re

# From the most to the least common characters in the output of test tools; all others are rarer.
_COMMON = " etaoinsrlcdpumhfg.bwyv_k0123456789(),:=xE'\"/-AFTSCjIqzRDNO"


def rarest(needle: str) -> str:
    """Return the rarest character: finding one is several times as fast as finding two."""
    return max(needle, key=lambda character: _COMMON.find(character) if character in _COMMON else len(_COMMON))


def match_line(pattern: re.Pattern[str], text: str, needle: str) -> re.Match[str] | None:
    """Return the first line that contains the string and matches the pattern at its beginning."""
    at = text.find(needle)
    while at >= 0:
        if found := pattern.match(text, text.rfind("\n", 0, at) + 1):
            return found
        end = text.find("\n", at)
        at = text.find(needle, end) if end >= 0 else -1
    return None
