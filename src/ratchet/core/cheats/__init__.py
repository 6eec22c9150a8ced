"""Detects cheats between two trees: ways to make tests pass without doing the work, each with file, line and rule.

Pure, and one of several defences. The final verification runs the base's own tests in a separate process, so a faked
result that is missed here is found there. This package finds what no run can show: a test that checks less than before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ratchet.core.cheats import (
    asked_for,
    c_family,
    config_files,
    edited_tests,
    hardcoded_answers,
    inline_cases,
    inline_tests,
    line_rules,
    python,
    test_context,
)
from ratchet.core.cheats.findings import Change, Cheat
from ratchet.core.cheats.test_cases import TestCase, compare_cases
from ratchet.core.lines import split_lines
from ratchet.core.roles import PathRules

__all__ = ["Change", "Cheat", "find_cheats"]


def find_cheats(
    changes: Sequence[Change], scope: PathRules, *, tests: Iterable[tuple[str, str]] = (), spec: str = ""
) -> list[Cheat]:
    """Return the cheats. `changes` are the files that differ; `tests` are unchanged test files, whose inputs the source
    must not hardcode either; `spec` is the item's text: an expected value that it names may replace another."""
    inside = [change for change in changes if scope.is_test(change.path)]
    mixed = [change for change in changes if not scope.is_test(change.path)]
    outside, inline = _apart(mixed)
    found = [cheat for change in changes for cheat in config_files.find(change, spec)]
    before = [*_cases(inside, "before"), *_inline_cases(mixed, "before")]
    after = [*_cases(inside, "after"), *_inline_cases(mixed, "after")]
    inside = [*inside, *inline]
    tests = list(tests)
    found += compare_cases(before, after, _unread(inside), test_context.around(inside, outside, tests, spec))
    known_names = {(case.file, case.name) for case in before}
    fresh = [case for case in after if (case.file, case.name) not in known_names]
    for change in inside:
        found += line_rules.find_in_test(change, fresh)
    known = [*tests, *((change.path, change.after) for change in inside if change.after is not None)]
    gone = [change.before for change in outside if change.after is None and change.before]
    moved = frozenset(line.strip() for text in gone for line in split_lines(text))
    for change in outside:
        found += line_rules.find_in_source(change, moved)
        found += python.find_in_source(change) if change.path.endswith((".py", ".pyi")) else []
    found += hardcoded_answers.find(outside, known, spec)
    seen = {cheat.file for cheat in found} | _unread(inside)
    found += [cheat for cheat in edited_tests.find(inside, outside, fresh, spec) if cheat.file not in seen]
    weighed = {asked_for.weigh(cheat, spec) for cheat in found}
    return sorted(weighed, key=lambda cheat: (cheat.file, cheat.line, cheat.rule, cheat.detail))


def _apart(changes: Sequence[Change]) -> tuple[list[Change], list[Change]]:
    """Split source files into source and inline tests."""
    sources, tests = [], []
    for change in changes:
        before, after = (inline_tests.split(change.path, side) for side in (change.before, change.after))
        if before[1] is None and after[1] is None:
            sources.append(change)
            continue
        sources.append(Change(path=change.path, before=before[0], after=after[0]))
        tests.append(Change(path=change.path, before=before[1], after=after[1]))
    return sources, tests


def _inline_cases(changes: Sequence[Change], side: str) -> list[TestCase]:
    return [
        case for change in changes if (text := getattr(change, side)) for case in inline_cases.cases(change.path, text)
    ]


def _cases(changes: Sequence[Change], side: str) -> list[TestCase]:
    return [case for change in changes if (text := getattr(change, side)) for case in _read(change.path, text)]


def _read(path: str, text: str) -> list[TestCase]:
    reader = python.cases if path.endswith(".py") else c_family.cases
    return reader(path, text)


def _unread(changes: Sequence[Change]) -> set[str]:
    """Return test files that can no longer be parsed: their tests are not removed, and the test run reports the error."""
    return {
        change.path
        for change in changes
        if change.path.endswith(".py") and change.after is not None and not python.parses(change.after)
    }
