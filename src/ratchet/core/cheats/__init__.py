"""Cheat detection between two trees: ways to turn tests green without doing the work, each with file, line and rule.

Pure, and one of several defences: the final verification runs the base's own tests in a process of its own, so what is
missed here is still caught there when it fakes a result. What is caught here is what no run can show: a test that asks
less than it did.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ratchet.core.cheats import curly, lines, python, settings, surroundings
from ratchet.core.cheats.cases import Case, compare_cases
from ratchet.core.cheats.found import Change, Cheat
from ratchet.core.cheats.special import special_cases
from ratchet.core.roles import Scope

__all__ = ["Change", "Cheat", "find_cheats"]


def find_cheats(
    changes: Sequence[Change], scope: Scope, *, tests: Iterable[tuple[str, str]] = (), spec: str = ""
) -> list[Cheat]:
    """`changes` are the files that differ; `tests` are unchanged test files, whose inputs a source may not answer by
    heart either; `spec` is what was asked: an expected value that it names may take the place of another."""
    inside = [change for change in changes if scope.is_test(change.path)]
    outside = [change for change in changes if not scope.is_test(change.path)]
    found = [cheat for change in changes for cheat in settings.find(change)]
    before, after = _cases(inside, "before"), _cases(inside, "after")
    tests = list(tests)
    found += compare_cases(before, after, _unread(inside), surroundings.around(inside, outside, tests, spec))
    fresh = {(case.file, case.name) for case in after} - {(case.file, case.name) for case in before}
    for change in inside:
        found += lines.find_in_test(change, [case for case in after if (case.file, case.name) in fresh])
    known = [*tests, *((change.path, change.after) for change in inside if change.after is not None)]
    gone = [change.before for change in outside if change.after is None and change.before]
    moved = frozenset(line.strip() for text in gone for line in text.splitlines())
    for change in outside:
        found += lines.find_in_source(change, moved)
        found += python.find_in_source(change) if change.path.endswith((".py", ".pyi")) else []
        found += special_cases(change, known)
    return sorted(set(found), key=lambda cheat: (cheat.file, cheat.line, cheat.rule, cheat.detail))


def _cases(changes: Sequence[Change], side: str) -> list[Case]:
    return [case for change in changes if (text := getattr(change, side)) for case in _read(change.path, text)]


def _read(path: str, text: str) -> list[Case]:
    reader = python.cases if path.endswith(".py") else curly.cases
    return reader(path, text)


def _unread(changes: Sequence[Change]) -> set[str]:
    """Test files that can no longer be read: their tests are not gone, the file is broken, and the run will say so."""
    return {
        change.path
        for change in changes
        if change.path.endswith(".py") and change.after is not None and not python.parses(change.after)
    }
