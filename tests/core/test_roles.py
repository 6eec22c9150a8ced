"""Each role writes its own kind of files, and no role what decides how tests run."""

from __future__ import annotations

import pytest

from ratchet.core.roles import PathRules, Role, Writes, default_writes, matches_glob

RULES = PathRules(tests=("tests/**", "**/*_test.go"), spec="SPEC.md")
TEST, SOURCE, SPEC = "tests/a.py", "src/a.py", "SPEC.md"


@pytest.mark.parametrize(
    ("role", "written"),
    [
        (Role.AUDITOR, {TEST}),
        (Role.IMPLEMENTER, {SOURCE}),
        (Role.ARCHITECT, {SOURCE}),
        (Role.FIXER, {SOURCE}),
        (Role.REVIEWER, set()),
        (Role.SCRIBE, {SPEC}),
        ("unknown", set()),
    ],
)
def test_a_role_writes_its_own_kind_of_files(role: str, written: set[str]) -> None:
    assert {path for path in (TEST, SOURCE, SPEC) if RULES.may_write(role, path)} == written


@pytest.mark.parametrize("path", ["ratchet.toml", ".ratchet/x/y", ".git", ".git/hooks/pre-commit"])
@pytest.mark.parametrize("writes", Writes)
def test_nobody_writes_a_protected_path(path: str, writes: Writes) -> None:
    assert RULES.is_protected(path)
    assert not RULES.may_write("fixer", path, writes=writes, paths=("**",), exists=False)
    assert not RULES.is_protected(f"src/{path}")


def test_additions_are_source_and_tests_that_did_not_exist() -> None:
    def may(path: str, *, exists: bool = True) -> bool:
        return RULES.may_write("implementer", path, writes=Writes.ADDITIONS, exists=exists)

    assert may(SOURCE) and may(TEST, exists=False)
    assert not may(TEST) and not may(SPEC) and not may(SPEC, exists=False)


def test_a_role_with_paths_of_its_own_writes_those_unless_they_are_tests() -> None:
    def may(path: str) -> bool:
        return RULES.may_write("docs", path, writes=Writes.PATHS, paths=("docs/**", "tests/**"))

    assert may("docs/a/b.md") and not may(SOURCE) and not may(TEST)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("tests/**", ["tests/a", "tests/a/b.py"], ["tests", "mytests/a", "x/tests/a"]),
        ("**/*_test.go", ["a_test.go", "x/y/a_test.go"], ["a_test.goo", "a_test.go/b"]),
        ("*.py", ["a.py", ".py"], ["x/a.py", "a.pyc"]),
        ("a?.py", ["ab.py"], ["a.py", "a/.py", "abc.py"]),
        ("src/**/a.py", ["src/a.py", "src/x/y/a.py"], ["src/xa.py", "a.py"]),
        ("a.b", ["a.b"], ["axb", "a.bc"]),
        ("**", ["a", "a/b\nc"], []),
    ],
)
def test_a_glob_matches_whole_paths(pattern: str, matching: list[str], others: list[str]) -> None:
    assert all(matches_glob(path, pattern) for path in matching)
    assert not any(matches_glob(path, pattern) for path in others)


def test_an_unknown_role_may_write_nothing() -> None:
    assert default_writes("mine") is Writes.NOTHING and default_writes("scribe") is Writes.SPEC
    assert default_writes("implementer") is Writes.SOURCE
