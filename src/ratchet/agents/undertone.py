"""What a program tells nobody in particular: on its stderr, in its own logs, in passing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from ratchet.agents import Ask, Failed, Noticed, Said
from ratchet.agents.faults import complaint, dated
from ratchet.core.failure import FAULT, Fault, Reason

_STDERR_BYTES = 8_000
_WORDS = 2  # less is a piece of a trace


class Undertone:
    """What a program tells in passing, or only its stderr and its own logs, while its turn gets no further: many wait
    out a provider's limit in silence, some for an hour."""

    def __init__(self, ask: Ask, *, logs: Sequence[str] = (), turn_logs: Sequence[str] = ()) -> None:
        """`logs` are patterns of files in the home, of all that ran there; `turn_logs` are files of this turn's."""
        self._ask, self._logs = ask, logs
        self._own = [errors_of(ask), *(place_of(ask) / name for name in turn_logs)]
        self._begin()

    def heard(self, said: Said) -> None:
        """It went on: what it muttered before is over."""
        if isinstance(said, Noticed):
            self._noticed = said.text
        else:
            self._begin()

    def complaint(self) -> Failed | None:
        """Its last one about its provider."""
        lines = [line for text in self._told() for line in text.splitlines() if len(line.split()) > _WORDS]
        found = (complaint(line) for line in reversed(lines))
        limited = next((each for each in found if FAULT[each.reason] is Fault.PROVIDER), None)
        return dated(limited, now=datetime.now().astimezone()) if limited else None

    def timed_out(self) -> Failed:
        late = Failed(reason=Reason.AGENT_TIMED_OUT, detail=f"no end after {self._ask.timeout_s:.0f} s")
        return self.complaint() or late

    def _begin(self) -> None:
        self._noticed, self._at = "", time.time()
        self._sizes = [path.stat().st_size if path.exists() else 0 for path in self._own]

    def _told(self) -> Iterator[str]:
        yield self._noticed
        for path in [path for pattern in self._logs for path in Path.home().glob(pattern)]:
            if path.stat().st_mtime >= self._at:
                yield tail(path)
        for path, size in zip(self._own, self._sizes, strict=True):
            yield content_of(path)[size:][-_STDERR_BYTES:].decode(errors="replace")


def errors_of(ask: Ask) -> Path:
    return ask.log.with_suffix(".err")


def place_of(ask: Ask) -> Path:
    """The folder of this turn's own that the program may write."""
    return ask.log.with_suffix(".d")


def tail(path: Path) -> str:
    return content_of(path)[-_STDERR_BYTES:].decode(errors="replace")


def content_of(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""
