"""Reads XML whose cases are small trees: each is delivered complete, with its parent elements. Memory is bounded by
one case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, distinct
from ratchet.checks.formats.text import HeadAndTail, strip_control_characters
from ratchet.checks.formats.xml import XmlReader
from ratchet.core.report import RED, Failure, TestResult, TestStatus

_LEVELS = 100  # maximum depth at which parents are known
_NODES = 2000  # limit of nodes in one case; further ones are dropped


class Tree:
    """An element: its tag, its children, and its own text without theirs."""

    __slots__ = ("attributes", "children", "name", "words")

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name = name
        self.attributes = attributes
        self.children: list[Tree] = []
        self.words = HeadAndTail()

    @property
    def text(self) -> str:
        return strip_control_characters(self.words.text()).strip()

    def get(self, name: str) -> str:
        return strip_control_characters(self.attributes.get(name, ""))

    def all(self, *names: str) -> list[Tree]:
        return [child for child in self.children if child.name in names]

    def first(self, *names: str) -> Tree | None:
        return next(iter(self.all(*names)), None)

    def text_at(self, *way: str) -> str:
        """Return the text of the element at this path, or an empty string."""
        here: Tree | None = self
        for name in way:
            here = here.first(name) if here else None
        return here.text if here else ""


class TreeDialect(msgspec.Struct, frozen=True):
    """The wanted elements below a root, and the function that handles each of them with its parents, outermost
    first."""

    wanted: frozenset[str]
    handle: Callable[[Tree, list[Tree]], None]


class TreeHandler:
    """Handles the document. `root` is the first element that a dialect begins with; `closed` means that it ended."""

    reader: XmlReader

    def __init__(self, dialects: Callable[[], Mapping[str, TreeDialect]]) -> None:
        self._begin = dialects
        self.rewind()

    def rewind(self) -> None:
        """Restart: there are no checkpoints, so an error restarts the document."""
        self._dialects = self._begin()
        self._dialect: TreeDialect | None = None
        self._around: list[Tree] = []
        self._open: list[Tree] = []
        self._nodes = 0
        self._deep = Tree("", {})  # represents every deeper element
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
        # Robot Framework reports the status of a case last.
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

    def _finish(self, tree: Tree, dialect: TreeDialect) -> None:
        if not self._open:
            self.reader.listen(False)
            self._nodes = 0
            dialect.handle(tree, self._around[:_LEVELS])


def read(stream: BinaryIO, dialects: Callable[[Parsed], Mapping[str, TreeDialect]]) -> Parsed:
    """Read a document with the dialects, which fill the given result."""
    parsed = Parsed()

    def anew() -> Mapping[str, TreeDialect]:
        # An error in the document restarts it.
        parsed.tests, parsed.collection_errors, parsed.reported = [], [], {}
        return dialects(parsed)

    handler = TreeHandler(anew)
    XmlReader(handler).read(stream)
    parsed.ended, parsed.partial = handler.closed, not handler.closed
    parsed.tests = distinct(parsed.tests)
    return parsed


_STATUSES = {
    "ok": TestStatus.PASSED,
    "pass": TestStatus.PASSED,
    "success": TestStatus.PASSED,
    "failed": TestStatus.FAILED,
    "fail": TestStatus.FAILED,
    "failure": TestStatus.FAILED,
    "ignored": TestStatus.SKIPPED,
    "ignore": TestStatus.SKIPPED,
    "skip": TestStatus.SKIPPED,
    "skipped": TestStatus.SKIPPED,
    "not_executed": TestStatus.SKIPPED,
    "assumption_failure": TestStatus.SKIPPED,
}


def to_status(text: str) -> TestStatus:
    """Map the usual English words for an outcome to a status."""
    return _STATUSES.get(text.lower(), TestStatus.ERROR)


def result_of(key: str, name: str, above: list[str], status: TestStatus, failure: Failure | None) -> TestResult:
    """Build a result that has a failure exactly when its status is a failing one."""
    red = status in RED
    failure = (failure or Failure(message="failed")) if red else None
    return TestResult(
        id=key,
        name=name,
        suite=above,
        status=status,
        file=failure.file if failure else "",
        failure=failure,
    )


def count(text: str) -> int:
    """Read a number of at most nine digits, or 0."""
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def seconds(text: str) -> float:
    """Read a duration, or 0.0 if it is missing or absurd."""
    try:
        value = float(text or 0)
    except ValueError:
        return 0.0
    return round(value, 6) if 0 <= value < 1e9 else 0.0
