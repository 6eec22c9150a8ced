"""A test's source is known again whatever its name and wherever its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.checks.run.test_fingerprints import with_fingerprints
from ratchet.core.report import TestResult, TestStatus

PYTHON = """
import x

@mark(1)
def test_{name}(n):
    value = x.f(n)
    assert value == 2

def helper():
    pass
"""
SCRIPT = """
describe('sum', () => {{
  it('{name}', () => {{
    expect(1).toBe(2);
  }});
  it('other', () => {{}});
}});
"""


def body(folder: Path, source: str, name: str, line: int, test_name: str = "") -> str:
    (folder / "t").write_text(source.format(name=name))
    test = TestResult(id="t", name=test_name or name, file="t", line=line, status=TestStatus.PASSED)
    return with_fingerprints([test], folder)[0].body


@pytest.mark.parametrize(("source", "line", "prefix"), [(PYTHON, 4, "test_"), (SCRIPT, 3, "")])
def test_a_new_name_and_another_place_leave_the_body_alone(tmp_path: Path, source: str, line: int, prefix: str) -> None:
    one = body(tmp_path, source, "one", line, f"{prefix}one")
    two = body(tmp_path, f"# a line more\n{source}", "two", line + 1, f"{prefix}two")
    assert one == two != ""
    assert body(tmp_path, source.replace("2", "3"), "one", line, f"{prefix}one") != one


def test_what_follows_a_test_is_not_part_of_it(tmp_path: Path) -> None:
    one = body(tmp_path, PYTHON, "one", 4, "test_one")
    assert body(tmp_path, PYTHON.replace("helper", "other"), "one", 4, "test_one") == one


def test_a_test_without_a_line_or_a_file_has_no_body(tmp_path: Path) -> None:
    test = TestResult(id="t", name="t", file="gone", line=3, status=TestStatus.PASSED)
    assert with_fingerprints([test], tmp_path)[0].body == ""
