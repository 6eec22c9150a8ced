"""Expected beside actual, as people see them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.interfaces.terminal.colour import painter
from ratchet.interfaces.terminal.value_diff import beside, spread

PLAIN, COLOUR = painter(colour=False), painter(colour=True)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_a_structure_in_one_long_line_is_compared_element_by_element() -> None:
    expected = "Order(id=7, items=[{'price': 3, 'name': 'a, (b'}, {'price': 5, 'name': 'ü'}], total=8, by=Who('x'))"
    output = list(beside(expected, expected.replace("5", "4").replace("total=8", "total=7"), PLAIN))
    assert output == [
        "- expected  + actual",
        "  …",
        "    items=[",
        "      {'price': 3, 'name': 'a, (b'},",
        "-     {'price': 5, 'name': 'ü'}",
        "+     {'price': 4, 'name': 'ü'}",
        "    ],",
        "-   total=8,",
        "+   total=7,",
        "    by=Who('x')",
        "  )",
    ]


def test_where_one_line_differs_is_marked_below_it_also_behind_wide_characters() -> None:
    *_, mark = beside("'日本語日本語日本語日本語 a'", "'日本語日本語日本語日本語 b'", PLAIN)
    assert mark == " " * (10 + 1 + 24 + 1) + "^"
    _, actual = beside("'of ten and one'", "'of ten and two'", COLOUR)
    assert actual == "actual:   \x1b[31m'of ten and \x1b[0m\x1b[31m\x1b[7mtwo\x1b[0m\x1b[31m'\x1b[0m"


def test_a_mark_that_would_not_fit_into_the_line_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert len(list(beside("x" * 30 + "a", "x" * 30 + "b", PLAIN))) == 2
    output = list(beside("x" * 900 + "a" + "y" * 900, "x" * 900 + "b" + "y" * 900, PLAIN))
    assert "xay" in output[0] and "xby" in output[1] and max(map(len, output)) < 100


def test_blanks_that_are_the_only_difference_are_seen_and_long_lines_show_where_they_differ() -> None:
    lines = "\n".join(f"line {n}" for n in range(20))
    output = list(beside(lines, lines.replace("line 9", "line\t9 "), PLAIN))
    assert "- line·9" in output and "+ line→9·" in output
    long = "\n".join(["first", "x" * 900 + "<here>" + "y" * 900])
    rows = list(beside(long, long.replace("<here>", "<there>"), PLAIN))
    assert any("x<here>y" in row for row in rows) and any("x<there>y" in row for row in rows)


@given(st.text(alphabet="a1 ,'\"\\()[]{}\n", max_size=200))
@settings(max_examples=200, deadline=None)
def test_what_is_spread_over_lines_is_otherwise_the_same(value: str) -> None:
    assert "".join(spread(value).split()) == "".join(value.split())
