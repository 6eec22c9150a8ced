"""Selects tests: by file, and by a pattern that only their names match."""

from __future__ import annotations

import re

from ratchet.core.report import TestResult


def files_of(tests: list[TestResult]) -> list[str]:
    return list(dict.fromkeys(test.file for test in tests if test.file))


def pattern_of(tests: list[TestResult]) -> str:
    """Return a pattern for the full names of the tests as the runners build them: suites and name, separated by
    spaces."""
    return "|".join(dict.fromkeys(_pattern(names_of(test)) for test in tests))


def _pattern(names: list[str]) -> str:
    """Return the pattern; a hook cannot be selected, so the tests that it serves are."""
    *suite, own = names
    if _HOOK.match(own):
        return f"^{escaped(' '.join(suite))}" + (" " if suite else "")
    return f"^{escaped(' '.join(names))}$"


_HOOK = re.compile(r'"(?:before|after) (?:all|each)" hook\b')


def escaped(name: str) -> str:
    """Escape text for a JavaScript pattern and keep it readable."""
    return re.sub(r"([\\^$.*+?()\[\]{}|])", r"\\\1", name)


def by_name(option: str, test: TestResult) -> list[str]:
    """Return the arguments that select only this test, and no other whose name contains its own."""
    return [option, _pattern(names)] if (names := names_of(test)) else []


def names_of(test: TestResult) -> list[str]:
    """Return suites and name, also of an id that was typed instead of read from a report."""
    if test.name:
        return [*test.suite, test.name]
    return test.id.partition("::")[2].split(" > ") if "::" in test.id else []


def project_of(test: TestResult) -> str:
    """Return the project that distinguishes it from tests of the same name in others."""
    found = re.fullmatch(r" \[(.+)\](?: \(\d+\))?", test.id.removeprefix(f"{test.file}::{' > '.join(names_of(test))}"))
    return found[1] if found and test.name else ""


def all_named(tests: list[TestResult]) -> bool:
    return all(names_of(test) for test in tests)


def chosen_by(tests: list[TestResult], option: str) -> list[str]:
    named = [option, pattern_of(tests)] if tests and all_named(tests) else []
    return [*files_of(tests), *named]
