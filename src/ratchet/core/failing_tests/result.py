"""What is added to a file so that its tests fail, and which results then prove a fake."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

Name = list[str]  # the parts of a name around its gaps; one part is the whole name


class FailingTests(msgspec.Struct, frozen=True):
    """`sure` are the paths (suites, then name) of tests that were rewritten, `doubtful` the names of other tests."""

    sure: list[list[Name]]
    doubtful: list[Name]

    def must_fail(self, suite: list[str], name: str) -> bool:
        path = [*suite, name]
        sure = any(len(each) == len(path) and all(map(_matches, each, path)) for each in self.sure)
        return sure and not any(_matches(each, name) for each in self.doubtful)


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
    """The file holds something whose meaning cannot be told without a parser of its language."""
