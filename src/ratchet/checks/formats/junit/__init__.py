"""Parses JUnit XML in all its dialects: what each tool means by a name, a status, a line and a total."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from ratchet.checks.formats import Parsed
from ratchet.checks.formats.junit import fast_path
from ratchet.checks.formats.junit.document import JUnitDocument
from ratchet.checks.formats.xml import XmlReader


def parse(stream: BinaryIO) -> Parsed:
    """Return all test cases. Truncated or malformed documents give what can be read, marked `partial`."""
    handler = JUnitDocument()
    reader = XmlReader(handler, _Lane(handler))
    with _uncollected():
        reader.read(stream)
    return handler.parsed(reader.fault)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Switch the garbage collector off: scanning half a million live results takes a fifth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    # Move existing objects to the old generation, so that the first collection afterwards does not scan them.
    gc.collect(1)
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Lane:
    """Passes runs of regularly written cases to the handler."""

    def __init__(self, handler: JUnitDocument) -> None:
        self.handler = handler
        self.known = fast_path.SeenBodies()
        self.chunk = fast_path.Chunk(b"", self.known)
        self.run: fast_path.Run | None = None
        self.cases_before = 0

    def find(self, data: bytes, begin: int, /) -> tuple[int, int, int] | None:
        if self.chunk.data is not data:
            self.chunk = fast_path.Chunk(data, self.known)
        self.run = self.chunk.find(begin)
        return (self.run.begin, self.run.second, self.run.end) if self.run else None

    def enter(self) -> bool:
        self.handler.settle()
        self.cases_before = self.handler.cases
        return True

    def take(self) -> bool:
        handler, run = self.handler, self.run
        arrived = handler.cases + len(handler.plain) - self.cases_before
        # Exactly one more case, nothing left open, inside a suite: the cases that follow are in the same suite.
        if run is None or arrived != 1 or handler.case or handler.child or not handler.open:
            return False
        if run.alike and run.alike.suites and not handler.is_among_suites(*run.alike.levels()):
            return False
        if run.alike:
            handler.together(run.alike)
        for case, children in run.single:
            handler.add_case(case, children)
        handler.remember()
        return True
