"""What single rules promise: how strong an assertion is, and which files decide how tests run."""

from __future__ import annotations

import pytest

from ratchet.core.cheats import Change, Cheat, find_cheats
from ratchet.core.cheats.config_files import decides_how_tests_run, is_plain_conftest
from ratchet.core.cheats.inline_tests import has_tests, is_possible, split, suffix, with_tests_of
from ratchet.core.roles import PathRules

SCOPE = PathRules(tests=("tests/**", "test/**"))
FIXTURE = "import pytest\n\n\n@pytest.fixture\ndef two():\n    return 2\n"


def edited(before: str, after: str, path: str = "tests/test_a.py") -> list[Cheat]:
    sides = [line if path.endswith(".go") else f"def test_a():\n    {line}\n" for line in (before, after)]
    return find_cheats([Change(path=path, before=sides[0], after=sides[1])], SCOPE)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("self.assertAlmostEqual(f(), 3.14)", "self.assertAlmostEqual(f(), 3.14, places=2)"),
        ("self.assertAlmostEqual(f(), 3.14, places=5)", "self.assertAlmostEqual(f(), 3.14, places=4)"),
        ("self.assertAlmostEqual(f(), 3.14, delta=0.1)", "self.assertAlmostEqual(f(), 3.14, delta=0.2)"),
        ("self.assertAlmostEqual(f(), 3.14)", "self.assertAlmostEqual(f(), 3.14, delta=0.001)"),
        ("assert f() == approx(3.14)", "assert f() == approx(3.14, abs=0.1)"),
        ("assert f() == approx(3.14, rel=1e-3)", "assert f() == approx(3.14, rel=1e-3, abs=0.5)"),
        ("assert f() == 3.14", "assert f() == approx(3.14, abs=0.5)"),
    ],
)
def test_a_tolerance_may_not_grow(before: str, after: str) -> None:
    assert [(cheat.rule, cheat.line) for cheat in edited(before, after)] == [("tolerance-loosened", 2)]
    assert all(cheat.doubt for cheat in edited(after, before)), "a smaller tolerance asks for more"


def test_an_approximate_equality_is_as_strong_as_an_exact_one_and_a_constant_on_either_side_is_the_expected_value() -> (
    None
):
    assert edited("self.assertAlmostEqual(f(), 3.14)", "self.assertAlmostEqual(3.14, f())") == []
    [cheat] = edited("self.assertAlmostEqual(f(), 3.14)", "self.assertAlmostEqual(f(), 2.72)")
    assert (cheat.rule, cheat.doubt) == ("expected-edited", True)
    assert "2.72" in cheat.detail and "3.14" in cheat.detail and "f()" in cheat.detail


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("assert f() == 3", "assert f()"),
        ("assert f() == 3", "assert f() > 1"),
        ("assert f() == 3", "assert f() != 4"),
        ("assert f() == 3", "assert isinstance(f(), int)"),
        ("assert f() == [1]", "assert len(f()) == 1"),
        ("assert f() > 3", "assert f() is not None"),
        ("self.assertEqual(f(), 3)", "self.assertTrue(f())"),
        ("self.assertEqual(f(), 3)", "self.assertIsNotNone(f())"),
        ("self.assertIn(3, f())", "self.assertIsNotNone(3)"),
        ("assert f() == 3", "assert f() == ANY"),
        ("assert f() == 3", "assert f() == f()"),
        ("assert f() == 3", "assert (f() == 3, 'a message')"),
    ],
)
def test_a_weaker_assertion_in_the_place_of_another_is_a_cheat(before: str, after: str) -> None:
    found = edited(before, after)
    assert found and any(not cheat.doubt for cheat in found), found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("assert f()", "assert f() == 3"),
        ("assert f() > 1", "assert f() == 3"),
        ("assert 3 == f()", "assert f() == 3"),
        ("assert f() == 3", "self.assertEqual(f(), 3)"),
        ("self.assertEqual(3, f())", "assert f() == 3"),
        ("assert not f()", "assert f() == 0"),
        ("assert f() == 3", "assert f() == 3\n    assert g() == 4"),
    ],
)
def test_an_assertion_that_is_as_strong_or_stronger_is_not_refused(before: str, after: str) -> None:
    assert all(cheat.doubt for cheat in edited(before, after))


@pytest.mark.parametrize(
    "path",
    [
        "conftest.py", "tests/conftest.py", "pytest.ini", "a/jest.config.mjs", ".github/workflows/ci.yml", "Makefile",
        "sub/GNUmakefile", "src/sitecustomize.py", "a.pth", "pytest.py", "src/unittest/__init__.py", ".rspec",
        "spec/spec_helper.rb", ".cargo/config.toml",
    ],
)  # fmt: skip
def test_a_file_that_decides_how_tests_run_is_known_by_its_path(path: str) -> None:
    assert decides_how_tests_run(path)


@pytest.mark.parametrize(
    "path",
    [
        "src/conftest.pyi",
        "tests/test_a.py",
        "makefile.md",
        "Makefile.am",
        "src/app/pytest.py",
        "pyproject.toml",
        "a.py",
    ],
)
def test_any_other_file_is_judged_by_its_content(path: str) -> None:
    assert not decides_how_tests_run(path)


def test_a_conftest_of_fixtures_is_plain_and_one_with_a_hook_is_not() -> None:
    def is_plain(after: str | None, path: str = "tests/conftest.py") -> bool:
        return is_plain_conftest(Change(path=path, before="", after=after))

    assert is_plain(FIXTURE) and is_plain(FIXTURE, "conftest.py")
    assert not is_plain(FIXTURE, "tests/my_conftest.py") and not is_plain(FIXTURE, "tests/test_a.py")
    assert not is_plain(FIXTURE + "\n\ndef pytest_collection_modifyitems(items):\n    items.clear()\n")


@pytest.mark.parametrize(
    "path", ["a.rs", "a.zig", "a.d", "a.py", "a.ex", "a.ts", "a.test.jsx", "x.y/a.cpp", "a.h", "a.ml"]
)
def test_source_files_of_these_kinds_may_have_tests(path: str) -> None:
    assert is_possible(path)


@pytest.mark.parametrize("path", ["a.go", "a.rb", "README.md", "a.rs/b", "Makefile"])
def test_other_files_have_none(path: str) -> None:
    assert not is_possible(path) and not has_tests(path, "#[test]\nfn a() {}\n>>> 1\n")


def test_the_kind_of_a_file_is_the_end_of_its_name() -> None:
    assert [suffix(path) for path in ("a.rs", "x.y/a.tar.gz", "x.y/a")] == [".rs", ".gz", ".a"]


def test_a_rust_file_of_tests_is_all_tests() -> None:
    text = "use super::*;\n\nfn helper() -> u32 { 1 }\n\n#[test]\nfn a() {\n    assert_eq!(f(), 1);\n}\n"
    for path in ("src/tests.rs", "src/area_test.rs", "src/tests/area.rs", "test.rs"):
        source, tests = split(path, text)
        assert source is None and tests and tests.rstrip() == text.rstrip()
        assert with_tests_of(path, text.replace("1);", "2);"), text) == text
    source, tests = split("src/latest.rs", text)
    assert source and "helper" in source and tests and "helper" not in tests


def test_a_finding_is_shown_with_its_place() -> None:
    assert str(Cheat(file="a.py", line=3, rule="always-equal", detail="why")) == "a.py:3: always-equal: why"
