"""Distinguishes files that a change needs from those an agent left by accident: logs, output, backups, scratch
files."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SUSPICIOUS = re.compile(
    r"(?:.*/)?(?:[^/]*\.(?:log|tmp|temp|bak|orig|rej|swp|swo|pid|out|err|patch|diff|pyc|pyo|class|o|obj|exe|core|prof|trace|sqlite"
    r"|sqlite3|db|coverage|lcov|dmp)|[^/]*~|nohup\.out|core(?:\.\d+)?|a\.out|\.coverage(?:\..*)?|(?:output|stdout|stderr|scratch"
    r"|debug|tmp|temp)\d*(?:\.(?:txt|json|py|js|sh))?)",
    re.IGNORECASE,
)


def is_suspicious(path: str) -> bool:
    """Whether a new file looks like something that tools and agents leave behind."""
    return _SUSPICIOUS.fullmatch(path) is not None


def is_referred_to(path: str, texts: Iterable[str]) -> bool:
    """Whether one of the texts names the file: by its name, or without the extension as an import does."""
    name = path.rpartition("/")[2]
    stem = name.rpartition(".")[0] if name.endswith((".py", ".js", ".sh")) else name
    words = [re.escape(word) for word in {name, stem} if word]
    pattern = re.compile(rf"(?<![\w.-])(?:{'|'.join(words)})(?![\w-])")
    return any(pattern.search(text) for text in texts)
