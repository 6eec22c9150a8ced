"""How some of the tests are asked for: by file, and by a pattern that their names alone match."""

from __future__ import annotations

import re

from ratchet.core.report import TestResult


def files_of(tests: list[TestResult]) -> list[str]:
    return list(dict.fromkeys(test.file for test in tests if test.file))


def pattern_of(tests: list[TestResult]) -> str:
    """Matches the whole names of the tests, as the runners spell them: the suites and the name with spaces between."""
    return "|".join(dict.fromkeys(_pattern(names_of(test)) for test in tests))


def _pattern(names: list[str]) -> str:
    """A hook cannot be asked for: the tests that it is there for are."""
    *suite, own = names
    if _HOOK.match(own):
        return f"^{escaped(' '.join(suite))}" + (" " if suite else "")
    return f"^{escaped(' '.join(names))}$"


_HOOK = re.compile(r'"(?:before|after) (?:all|each)" hook\b')


def escaped(name: str) -> str:
    """As a pattern of JavaScript's that matches just this, and can still be read."""
    return re.sub(r"([\\^$.*+?()\[\]{}|])", r"\\\1", name)


def by_name(option: str, test: TestResult) -> list[str]:
    """What a person gives a runner to have this test and no other whose name holds its own."""
    return [option, _pattern(names)] if (names := names_of(test)) else []


def names_of(test: TestResult) -> list[str]:
    """Suites and name, also of an id that was typed and not read from a report."""
    if test.name:
        return [*test.suite, test.name]
    return test.id.partition("::")[2].split(" > ") if "::" in test.id else []


def project_of(test: TestResult) -> str:
    """The project that tells it from tests of its name in others."""
    found = re.fullmatch(r" \[(.+)\](?: \(\d+\))?", test.id.removeprefix(f"{test.file}::{' > '.join(names_of(test))}"))
    return found[1] if found and test.name else ""


def all_named(tests: list[TestResult]) -> bool:
    return all(names_of(test) for test in tests)


def chosen_by(tests: list[TestResult], option: str) -> list[str]:
    named = [option, pattern_of(tests)] if tests and all_named(tests) else []
    return [*files_of(tests), *named]
