"""JUnit XML in all its dialects: what each writer of it means by a name, a status, a line and a total."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from ratchet.checks.formats import Parsed
from ratchet.checks.formats.junit import lane
from ratchet.checks.formats.junit.document import Document
from ratchet.checks.formats.xml import Reader


def parse(stream: BinaryIO) -> Parsed:
    """Every test case of the document; torn or malformed documents give what can be read, marked `partial`."""
    handler = Document()
    reader = Reader(handler, _Lane(handler))
    with _uncollected():
        reader.read(stream)
    return handler.parsed(reader.fault)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Half a million results that all stay make the collector look at them again and again: a fifth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    # What is old by now is not young then: the list of all results would be the first thing that is looked at.
    gc.collect(1)
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Lane:
    """Hands runs of plainly written cases to the handler."""

    def __init__(self, handler: Document) -> None:
        self.handler = handler
        self.known = lane.Known()
        self.chunk = lane.Chunk(b"", self.known)
        self.run: lane.Run | None = None
        self.heard = 0

    def find(self, data: bytes, begin: int, /) -> tuple[int, int, int] | None:
        if self.chunk.data is not data:
            self.chunk = lane.Chunk(data, self.known)
        self.run = self.chunk.find(begin)
        return (self.run.begin, self.run.second, self.run.end) if self.run else None

    def enter(self) -> bool:
        self.handler.settle()
        self.heard = self.handler.cases
        return True

    def take(self) -> bool:
        handler, run = self.handler, self.run
        heard = handler.cases + len(handler.plain) - self.heard
        # One more case, nothing left open, inside a suite: what follows it is in the same place.
        if run is None or heard != 1 or handler.case or handler.child or not handler.open:
            return False
        if run.alike and run.alike.suites and not handler.is_among_suites(*run.alike.levels()):
            return False
        if run.alike:
            handler.together(run.alike)
        for case, children in run.single:
            handler.told(case, children)
        handler.remember()
        return True
