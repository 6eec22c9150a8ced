"""Secrets taken out of what is kept, told or shown: registered values, and what looks like a key of a known kind."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

MARK = "[redacted]"
SHORTEST = 8  # shorter values occur everywhere, and are no secrets worth the damage
SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)S?(_|$)", re.IGNORECASE)

_PATTERNS = (
    r"(?<![A-Za-z0-9])sk-[A-Za-z0-9_-]{20,}",  # Anthropic, OpenAI, OpenRouter
    r"(?<![A-Za-z0-9])AIza[0-9A-Za-z_-]{35}",
    r"(?<![A-Za-z0-9])gh[pousr]_[A-Za-z0-9]{36,}",
    r"(?<![A-Za-z0-9])github_pat_[A-Za-z0-9_]{30,}",
    r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20,}",
    r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Z])",
    r"(?<![A-Za-z0-9])xox[abprs]-[A-Za-z0-9-]{10,}",
    r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----",
)


class Redactor:
    """Of `values` each as it is and as JSON writes it; longer ones first, for one may hold another."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        kept = {value for value in values if len(value) >= SHORTEST}
        spelled = kept | {json.dumps(value)[1:-1] for value in kept}
        parts = [*map(re.escape, sorted(spelled, key=len, reverse=True)), *_PATTERNS]
        joined = "|".join(parts)
        self._text = re.compile(joined, re.DOTALL)
        self._bytes = re.compile(joined.encode(), re.DOTALL)

    def text(self, text: str) -> str:
        return self._text.sub(MARK, text)

    def bytes(self, content: bytes) -> bytes:
        return self._bytes.sub(MARK.encode(), content)


def secrets_in(environ: Mapping[str, str]) -> list[str]:
    """Values of variables whose names say that they are secret; of a file that holds one, the path is none."""
    return [value for name, value in environ.items() if SECRET_NAME.search(name) and not value.startswith("/")]
