"""Mutants of Python source: which places are changed, in which order, and how."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.core.mutants import mutants, rewritten


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x < y", "x <= y"), ("x >= y", "x > y"), ("x == y", "x != y"), ("x in y", "x not in y"),
        ("x is y", "x is not y"), ("x + 1", "x - 1"), ("x * y", "x // y"), ("x / y", "x * y"), ("x % 2", "x * 2"),
        ("x and y", "x or y"), ("x < y < z", "x <= y < z"),
    ],
)  # fmt: skip
def test_an_operator_is_replaced(before: str, after: str) -> None:
    [mutant] = mutants("a.py", f"z = {before}\n", {1}, at_most=9)
    assert (mutant.path, mutant.line, mutant.source) == ("a.py", 1, f"z = {after}")
    assert mutant.what == f"`{before}` became `{after}`"


@pytest.mark.parametrize("source", ["x = 'a' + y\n", "x = y % 'b'\n", "x = f'{y}' * 2\n", "def f():\n    return\n",
                                    "def f():\n    return None\n", "x = (\n", "x = -y\n"])  # fmt: skip
def test_text_and_returns_of_nothing_are_not_mutated(source: str) -> None:
    assert mutants("a.py", source, {1, 2}, at_most=9) == []


def test_a_returned_value_becomes_none() -> None:
    [mutant] = mutants("a.py", "def f(x):\n    return x\n", {2}, at_most=9)
    assert mutant.source == "def f(x):\n    return None"


def test_each_line_is_mutated_once_before_any_is_twice() -> None:
    source = "a = b + c - d\ne = f < g\nh = i < j\n"
    found = mutants("a.py", source, {1, 2}, at_most=9)
    assert [mutant.line for mutant in found] == [1, 2, 1]
    assert [mutant.line for mutant in mutants("a.py", source, {1, 2}, at_most=2)] == [1, 2]
    assert all(mutant.source.count("\n") == 2 for mutant in found), "the tree is restored after each"
    assert found[1].source == "a = b + c - d\ne = f <= g\nh = i < j"


def test_the_same_in_other_words_computes_the_same_and_differs_at_each_place_of_a_mutant() -> None:
    source = (
        "def f(a):\n    match a:\n        case 1 + 2j:\n            return 0\n    return a + 1 if a < 2 and a else -a\n"
    )
    words = rewritten(source, set(range(1, 9)))
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    exec(source, before)
    exec(words, after)
    assert [after["f"](a) for a in (0, 1, 2, 1 + 2j)] == [before["f"](a) for a in (0, 1, 2, 1 + 2j)] == [0, 2, -2, 0]
    assert "[a + 1][0]" in words and "[a < 2][0]" in words and "case 1 + 2j" in words
