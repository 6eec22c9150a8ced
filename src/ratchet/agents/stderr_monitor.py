"""Finds provider errors that an agent reports only on stderr or in its log files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from fnmatch import fnmatch
from pathlib import Path

from ratchet.agents.protocol import AgentRequest, Notice, TurnEvent, TurnFailed
from ratchet.agents.provider_errors import classify_error, with_retry_time
from ratchet.core.failure import FAULT, FaultOwner, Reason
from ratchet.tree_files import find_inside, read_inside, read_tail

_STDERR_BYTES = 8_000
_WORDS = 2  # shorter lines are parts of a stack trace


class StderrMonitor:
    """Watches stderr and log files while a turn makes no progress: many agents wait silently for a provider's limit,
    some for an hour."""

    def __init__(self, request: AgentRequest, *, logs: Sequence[str] = (), turn_logs: Sequence[str] = ()) -> None:
        """`logs` are patterns of files in the agent's home; `turn_logs` are files of this turn."""
        self._ask, self._logs, self._home = request, logs, request.home or Path.home()
        self._own = [stderr_log_of(request), *(scratch_dir_of(request) / name for name in turn_logs)]
        self._begin()

    def on_event(self, event: TurnEvent) -> None:
        """Record an event. Progress invalidates earlier errors."""
        if isinstance(event, Notice):
            self._noticed = event.text
        else:
            self._begin()

    def provider_error(self) -> TurnFailed | None:
        """Return the last provider error since the last progress."""
        lines = [line for text in self._texts() for line in text.splitlines() if len(line.split()) > _WORDS]
        found = (classify_error(line) for line in reversed(lines))
        limited = next((each for each in found if FAULT[each.reason] is FaultOwner.PROVIDER), None)
        return with_retry_time(limited, now=datetime.now().astimezone()) if limited else None

    def timed_out(self) -> TurnFailed:
        late = TurnFailed(reason=Reason.AGENT_TIMED_OUT, detail=f"no end after {self._ask.timeout_s:.0f} s")
        return self.provider_error() or late

    def _begin(self) -> None:
        self._noticed, self._at = "", time.time()
        self._sizes = [path.lstat().st_size if os.path.lexists(path) else 0 for path in self._own]

    def _texts(self) -> Iterator[str]:
        yield self._noticed
        for path in [path for pattern in self._logs for path in _matching(self._home, pattern)]:
            if path.lstat().st_mtime >= self._at:
                yield tail(path)
        for path, size in zip(self._own, self._sizes, strict=True):
            yield read_result(path)[size:][-_STDERR_BYTES:].decode(errors="replace")


def _matching(home: Path, pattern: str) -> list[Path]:
    top = pattern.partition("*")[0].rstrip("/")
    return [home / top / name for name in find_inside(home, top) if fnmatch(f"{top}/{name}", pattern)]


def stderr_log_of(request: AgentRequest) -> Path:
    return request.log.with_suffix(".err")


def scratch_dir_of(request: AgentRequest) -> Path:
    """Return the scratch directory of the turn, writable by the program."""
    return request.log.with_suffix(".d")


def tail(path: Path) -> str:
    return read_tail(path.parent, path.name, max_bytes=_STDERR_BYTES).decode(errors="replace")


def read_result(path: Path) -> bytes:
    """Return a file in a folder that the agent may write; nothing for a link that leaves it or a pipe."""
    return (read_inside(path.parent, path.name) or b"") if path.parent.is_dir() else b""
