"""`docs/faults.md` kept true: every fault has a row, and every test it names is there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
TABLE = (TESTS.parent / "docs" / "faults.md").read_text()


def rows() -> dict[str, list[str]]:
    found = [line.split(" | ") for line in TABLE.splitlines() if re.match(r"\| \d", line)]
    return {number: cells for cells in found for number in re.findall(r"\d+", cells[0])}


def test_every_fault_has_its_row() -> None:
    assert sorted(map(int, rows())) == list(range(1, 38))


def test_every_test_that_is_named_is_there() -> None:
    for number, cells in rows().items():
        named = re.findall(r"`([^`]*)::(\w+)`", cells[-1])
        assert named, f"fault {number} has no test"
        file = ""
        for place, name in named:
            file = place or file
            there = [folder / file for folder in (TESTS, TESTS / "contract") if (folder / file).is_file()]
            assert any(f"def {name}(" in path.read_text() for path in there), f"fault {number}: {file}::{name}"
