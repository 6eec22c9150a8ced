"""What is added to a file so that its tests fail, and which results then prove a fake."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

Name = list[str]  # the parts of a name around its gaps; one part is the whole name


_LABEL = re.compile(r"^(test\w*[?!]?)\[.*\]$", re.DOTALL)
_ALIKE_MAX = 200  # paths with one name: so that the time to look one up has a bound


class FailingTests(msgspec.Struct, frozen=True):
    """`sure` are the paths (suites, then name) of tests that were rewritten, `doubtful` the names of other tests.

    Both are found by name, those of names with gaps below ''. `suffix` is that of the file.
    """

    sure: dict[str, list[list[Name]]]
    doubtful: dict[str, list[list[Name]]]
    suffix: str = ""

    def must_fail(self, suite: list[str], name: str) -> bool:
        name = _in_source(self.suffix, suite, name)
        return _holds(self.sure, [*suite, name]) and not _holds(self.doubtful, [name])


def _in_source(suffix: str, suite: list[str], name: str) -> str:
    """Return the name that stands in the file: runners add suites, numbers, labels of data and names of subtests."""
    if suffix == "go":
        return name.partition("/")[0]
    if suffix == "erl":
        return name.partition(":")[2].partition("#")[0]
    if suffix != "rb":
        return name
    own = name
    for each in suite:
        if not own.startswith(each):
            break
        own = own.removeprefix(each).lstrip()
    else:
        name = own
    return _LABEL.sub(r"\1", re.sub(r"^test_\d{4,9}_", "test_0_", name))


def failing_tests(sure: Iterable[list[Name]], doubtful: Iterable[Name]) -> FailingTests:
    """Build the tests of a file. Too many of one name are left out; if they are doubtful, the file is unclear."""
    doubts = _by_name([name] for name in doubtful)
    if any(len(alike) > _ALIKE_MAX for alike in doubts.values()):
        raise Unclear
    return FailingTests({name: alike[:_ALIKE_MAX] for name, alike in _by_name(sure).items()}, doubts)


def _by_name(paths: Iterable[list[Name]]) -> dict[str, list[list[Name]]]:
    found: dict[str, list[list[Name]]] = {}
    for path in paths:
        alike = found.setdefault(path[-1][0] if len(path[-1]) == 1 else "", [])
        if len(alike) <= _ALIKE_MAX and path not in alike:
            alike.append(path)
    return found


def _holds(paths: dict[str, list[list[Name]]], path: list[str]) -> bool:
    alike = (each for name in {path[-1], ""} for each in paths.get(name, ()))
    return any(len(each) == len(path) and all(map(_matches, each, path)) for each in alike)


def _matches(parts: Name, name: str) -> bool:
    """Whether a name has these parts. No regular expression: many gaps would take it for ever on a long name."""
    if len(parts) == 1:
        return name == parts[0]
    first, *middle, last = parts
    at, end = len(first), len(name) - len(last)
    if end < at or not name.startswith(first) or not name.endswith(last):
        return False
    for part in middle:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


class Rewriting(NamedTuple):
    additions: dict[int, str]  # by offset
    tests: FailingTests


class Unclear(Exception):
    """The file cannot be rewritten for certain: what it says needs a parser of its language."""
