"""Tests inside source files are separated from the source, in every language that has them."""

from __future__ import annotations

from collections import Counter

import pytest

from ratchet.core.cheats import Change, find_cheats
from ratchet.core.cheats.inline_tests import keeps_tests, same_source, split, units, with_tests_of
from ratchet.core.roles import PathRules
from tests.core.cheats.test_cheats import CHEATS, HONEST

SCOPE = PathRules(tests=("tests/**",))
RUST = """pub fn area(w: u32, h: u32) -> u32 {
    w
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiplies() {
        assert_eq!(area(3, 4), 12);
    }
}
"""
ZIG = 'pub fn area() u8 {\n    return 1;\n}\n\ntest "one" {\n    try std.testing.expectEqual(12, area());\n}\n'
DOCTEST = 'def area():\n    """Area.\n\n    >>> area()\n    12\n    """\n    return 1\n'
IEX = 'defmodule Area do\n  @doc """\n      iex> Area.area()\n      12\n  """\n  def area, do: 1\nend\n'
VITEST = """export const area = () => 1;

if (import.meta.vitest) {
  const { it, expect } = import.meta.vitest;
  it("one", () => {
    expect(area()).toBe(12);
  });
}
"""
RUSTDOC = "/// Area.\n///\n/// ```\n/// assert_eq!(area(), 12);\n/// ```\npub fn area() -> u32 {\n    1\n}\n"
INLINE = {
    "src/lib.rs": RUST,
    "src/area.zig": ZIG,
    "source/area.d": "int area() { return 1; }\n\nunittest {\n    assert(area() == 12);\n}\n",
    "lib/area.ml": 'let area () = 1\n\nlet%test "one" = area () = 12\n',
    "area.py": DOCTEST,
    "lib/area.ex": IEX,
    "src/area.ts": VITEST,
    "src/doc.rs": RUSTDOC,
}


@pytest.mark.parametrize("path", INLINE)
def test_an_expected_value_inside_a_source_file_is_a_tests(path: str) -> None:
    text, wanted, other = INLINE[path], "12", "7"
    edited = text.replace(wanted, other)
    source, tests = split(path, text)
    assert source and tests and wanted not in source and wanted in tests
    assert not keeps_tests(path, text, edited, Counter())
    assert same_source(path, text, edited)
    assert with_tests_of(path, edited, text) == text
    found = find_cheats([Change(path=path, before=text, after=edited)], SCOPE)
    assert [cheat.rule for cheat in found] == ["expected-edited"]


@pytest.mark.parametrize("path", INLINE)
def test_source_may_change_beside_its_tests(path: str) -> None:
    text = INLINE[path]
    fixed = text.replace("1;", "2;").replace("return 1\n", "return 2\n").replace("=> 1", "=> 2")
    assert keeps_tests(path, text, fixed, Counter())
    assert find_cheats([Change(path=path, before=text, after=fixed)], SCOPE) == []


def test_new_tests_may_stand_beside_the_old_ones_but_no_macro_may_change_what_they_mean() -> None:
    more = "\n    #[test]\n    fn empty() {\n        assert_eq!(area(0, 4), 0);\n    }\n}\n"
    grown = RUST[: RUST.rindex("}\n")] + more
    assert keeps_tests("src/lib.rs", RUST, grown, Counter())
    fooled = RUST.replace("use super::*;", "use super::*;\n    macro_rules! assert_eq { ($($t:tt)*) => {} }")
    assert not keeps_tests("src/lib.rs", RUST, fooled, Counter())
    ignored = RUST.replace("#[test]", "#[test]\n    #[ignore]")
    assert not keeps_tests("src/lib.rs", RUST, ignored, Counter())


def test_tests_that_moved_with_their_module_are_kept() -> None:
    assert not keeps_tests("src/lib.rs", RUST, None, Counter())
    assert keeps_tests("src/lib.rs", RUST, None, units("src/area.rs", RUST))


def test_a_test_module_that_was_dropped_is_put_back() -> None:
    bare = RUST[: RUST.index("#[cfg")].replace("    w\n", "    w * h\n")
    restored = with_tests_of("src/lib.rs", bare, RUST)
    assert "w * h" in restored and "assert_eq!(area(3, 4), 12);" in restored


SIDES = sorted(
    {(change.path, text) for sample in [*CHEATS, *HONEST] for change in sample.changes
     for text in (change.before, change.after) if text}
)  # fmt: skip


@pytest.mark.parametrize(("path", "text"), [*INLINE.items()])
def test_each_line_is_source_or_test_at_its_own_place(path: str, text: str) -> None:
    source, tests = split(path, text)
    assert source and tests
    for line, *sides in zip(text.split("\n"), source.split("\n"), tests.split("\n"), strict=False):
        assert sorted(sides) == ["", line] if line else sides == ["", ""]


def test_whatever_a_file_holds_it_keeps_its_own_tests_and_differs_from_itself_in_nothing() -> None:
    assert len(SIDES) > 300
    for path, text in [*SIDES, *INLINE.items()]:
        assert keeps_tests(path, text, text, Counter()) and same_source(path, text, text)
        assert with_tests_of(path, text, text) == text
        source, tests = split(path, text)
        if tests:
            assert split(path, source)[1] is None, "what is left has no tests"


def test_a_test_that_moved_down_its_file_or_was_indented_is_kept() -> None:
    moved = RUST.replace("    #[test]", "    fn helper() {}\n\n    #[test]").replace(
        "        assert", "          assert"
    )
    assert keeps_tests("src/lib.rs", RUST, moved, Counter())
    twice = RUST.replace(
        "#[test]", "#[test]\n    fn again() {\n        assert_eq!(area(1, 4), 4);\n    }\n\n    #[test]"
    )
    assert keeps_tests("src/lib.rs", RUST, twice, Counter()) and not keeps_tests("src/lib.rs", twice, RUST, Counter())
    assert keeps_tests("src/lib.rs", None, RUST, Counter()) and keeps_tests(
        "src/lib.rs", "fn a() {}\n", None, Counter()
    )
    unhelped = RUST.replace("    use super::*;\n", "")
    assert not keeps_tests("src/lib.rs", RUST, unhelped, Counter()), "a line around the tests is gone"
