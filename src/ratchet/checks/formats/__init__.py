"""Parsers of the streams that test runners write. They are pure: they read only the stream, bound their memory and
never raise."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from operator import attrgetter
from pkgutil import iter_modules

import msgspec

from ratchet.core.report import Diagnostic, TestResult


class Parsed(msgspec.Struct, kw_only=True):
    """The content of one stream, before it is judged.

    `reported` is the runner's own summary with the names of `Totals`; `ended`: the stream reached its own end;
    `partial`: a part was lost or repaired; each of `notes` is a contradiction; `running` names tests that started and
    never finished.
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
    """Import every parser now, before forking: otherwise each child would import them again."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


def ids_of(tests: list[TestResult]) -> set[str]:
    return set(map(attrgetter("id"), tests))


def distinct(tests: list[TestResult]) -> list[TestResult]:
    """Give every test a unique id: the second of one name becomes `name #2`."""
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
