"""Parsers: what one stream of a test runner says. Pure: they read only the stream, bound their memory, never raise."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from operator import attrgetter
from pkgutil import iter_modules

import msgspec

from ratchet.core.report import Diagnostic, TestResult


class Parsed(msgspec.Struct, kw_only=True):
    """What one stream said, before anyone judges it.

    `reported` is the runner's own summary in the words of `Totals`; `ended` says that the channel reached its own end;
    `partial` that something of it was lost or repaired; each of `notes` is a contradiction; `running` names the tests
    that started and never finished.
    """

    tests: list[TestResult] = []
    collection_errors: list[Diagnostic] = []
    compile_errors: list[Diagnostic] = []
    reported: dict[str, int] = {}
    ended: bool = False
    partial: bool = False
    notes: list[str] = []
    running: list[str] = []
    places: dict[str, tuple[str, int]] = {}


def load_all() -> None:
    """Import every parser now, for those who are forked from us: each would else do it again."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


def ids_of(tests: list[TestResult]) -> set[str]:
    return set(map(attrgetter("id"), tests))


def distinct(tests: list[TestResult]) -> list[TestResult]:
    """Every test under a name of its own: the second of one name is `name #2`."""
    names = ids_of(tests)
    if len(names) == len(tests):
        return tests
    found: list[TestResult] = []
    counts: Counter[str] = Counter()
    for test in tests:
        counts[test.id] += 1
        key = test.id
        if counts[key] > 1:
            while (key := f"{test.id} #{counts[test.id]}") in names:
                counts[test.id] += 1
            names.add(key)
        found.append(test if key == test.id else msgspec.structs.replace(test, id=key))
    return found
