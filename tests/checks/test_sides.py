"""Expected and actual are distinguished by the source, whichever side the expected value is written on."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.checks.run.sides import with_sides
from ratchet.core.report import Failure, TestResult, TestStatus


def sides(tmp_path: Path, name: str, line: str) -> tuple[str | None, str | None]:
    """What is expected and found where a tool reports `3` on the left and `4` on the right."""
    (tmp_path / name).write_text(f"{line}\n")
    failure = Failure(expected="4", actual="3", file=name, line=1)
    [test] = with_sides([TestResult(id="t", name="t", status=TestStatus.FAILED, failure=failure)], tmp_path)
    assert test.failure
    return test.failure.expected, test.failure.actual


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("test_a.py", "    assert 3 == total()"),
        ("test_a.py", "    assert [1, 2] == total(x)"),
        ("test_a.py", "    self.assertEqual(3, total())"),
        ("test_a.py", "    assert expected == total()"),
        ("test_a.py", "    assert case.want == (\n        total()\n    )"),
        ("a.rs", "        assert_eq!(3, total());"),
        ("a.rs", '        assert_eq!("a(b)", name(), "message");'),
        ("a_test.exs", "    assert 3 == total()"),
    ],
)
def test_a_wanted_value_on_the_left_is_the_expected_one(tmp_path: Path, name: str, line: str) -> None:
    assert sides(tmp_path, name, line) == ("3", "4")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("test_a.py", "    assert total() == 3"),
        ("test_a.py", "    assert 3 == 4"),
        ("test_a.py", "    self.assertEqual(total(), 3)"),
        ("test_a.py", "    assert got == want"),
        ("test_a.py", "    check(3, total())"),
        ("a.rs", "        assert_eq!(total(), 3);"),
        ("a_test.exs", "    assert total() == 3"),
    ],
)
def test_any_other_comparison_stays_as_reported(tmp_path: Path, name: str, line: str) -> None:
    assert sides(tmp_path, name, line) == ("4", "3")
