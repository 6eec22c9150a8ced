"""XML whose cases are small trees: each comes whole, with the elements it stands in. Memory is bounded by one case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, distinct
from ratchet.checks.formats.text import Ends, plain
from ratchet.checks.formats.xml import Reader

_LEVELS = 100  # deeper than this no case is told where it stands
_NODES = 2000  # of one case; what comes after them is not kept


class Tree:
    """An element: its tag, the elements in it, and its own text without theirs."""

    __slots__ = ("attributes", "children", "name", "words")

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name = name
        self.attributes = attributes
        self.children: list[Tree] = []
        self.words = Ends()

    @property
    def text(self) -> str:
        return plain(self.words.text()).strip()

    def get(self, name: str) -> str:
        return plain(self.attributes.get(name, ""))

    def all(self, *names: str) -> list[Tree]:
        return [child for child in self.children if child.name in names]

    def first(self, *names: str) -> Tree | None:
        return next(iter(self.all(*names)), None)

    def said(self, *way: str) -> str:
        """The text of the element that is reached this way, or nothing."""
        here: Tree | None = self
        for name in way:
            here = here.first(name) if here else None
        return here.text if here else ""


class Dialect(msgspec.Struct, frozen=True):
    """Which elements under a root are wanted, and who takes each of them with those around it, outermost first."""

    wanted: frozenset[str]
    take: Callable[[Tree, list[Tree]], None]


class Trees:
    """The document's handler. `root` is the first element that a dialect begins with; `closed` says that it ended."""

    reader: Reader

    def __init__(self, dialects: Callable[[], Mapping[str, Dialect]]) -> None:
        self._begin = dialects
        self.rewind()

    def rewind(self) -> None:
        """It marks nothing, so a fault begins the document anew."""
        self._dialects = self._begin()
        self._dialect: Dialect | None = None
        self._around: list[Tree] = []
        self._open: list[Tree] = []
        self._nodes = 0
        self._deep = Tree("", {})  # stands for every element down there, of which nothing is told
        self.closed = False

    def start(self, name: str, attributes: dict[str, str], /) -> None:
        is_deep = len(self._around) > _LEVELS or len(self._open) > _LEVELS
        tree = self._deep if is_deep else Tree(name, attributes)
        if self._dialect is None:
            self._dialect = self._dialects.get(name)
            self._around = [tree] if self._dialect else []
            self.closed = self.closed and self._dialect is None
        elif self._open or name in self._dialect.wanted:
            self._inside(tree)
        else:
            self._around.append(tree)

    def _inside(self, tree: Tree) -> None:
        self._nodes += 1
        # Robot Framework says last how a case ended.
        is_near = len(self._open) == 1 and self._nodes < 50 * _NODES
        if self._open and tree is not self._deep and (self._nodes < _NODES or is_near):
            self._open[-1].children.append(tree)
        self._open.append(tree)
        self.reader.listen()

    def text(self, data: str, /) -> None:
        if self._open:
            self._open[-1].words.add(data)

    def end(self, _name: str, /) -> None:
        if self._dialect is None:
            return
        if self._open:
            self._finish(self._open.pop(), self._dialect)
        elif self._around:
            self._around.pop()
            self.closed = not self._around
            self._dialect = None if self.closed else self._dialect

    def _finish(self, tree: Tree, dialect: Dialect) -> None:
        if not self._open:
            self.reader.listen(False)
            self._nodes = 0
            dialect.take(tree, self._around[:_LEVELS])


def read(stream: BinaryIO, dialects: Callable[[Parsed], Mapping[str, Dialect]]) -> Parsed:
    """What the dialects, which are given what they have to fill, make of every element that they want."""
    parsed = Parsed()

    def anew() -> Mapping[str, Dialect]:
        # A fault in the document begins it anew.
        parsed.tests, parsed.collection_errors, parsed.reported = [], [], {}
        return dialects(parsed)

    handler = Trees(anew)
    Reader(handler).read(stream)
    parsed.ended, parsed.partial = handler.closed, not handler.closed
    parsed.tests = distinct(parsed.tests)
    return parsed
