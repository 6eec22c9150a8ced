"""What a text must contain for a pattern to be worth a search, and how to see that it does not, quickly."""

from __future__ import annotations

import re

# From the most common in what test runners print; what is not here is rarer.
_COMMON = " etaoinsrlcdpumhfg.bwyv_k0123456789(),:=xE'\"/-AFTSCjIqzRDNO"


def rarest(needle: str) -> str:
    """The character of it that most texts do not have: one is found several times as fast as two."""
    return max(needle, key=lambda character: _COMMON.find(character) if character in _COMMON else len(_COMMON))


def match_line(pattern: re.Pattern[str], text: str, needle: str) -> re.Match[str] | None:
    """The first line with the needle in it that begins as the pattern says."""
    at = text.find(needle)
    while at >= 0:
        if found := pattern.match(text, text.rfind("\n", 0, at) + 1):
            return found
        end = text.find("\n", at)
        at = text.find(needle, end) if end >= 0 else -1
    return None
