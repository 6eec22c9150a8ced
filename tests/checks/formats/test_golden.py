"""Every recorded output gives the right counts, identities, statuses, places and values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.checks.formats.golden import expected, facts, fixtures, named, parsed


@pytest.mark.parametrize("path", fixtures(), ids=named)
def test_a_recorded_output_is_read_exactly(path: Path) -> None:
    assert facts(parsed(path)) == expected(path)


def test_every_failing_test_says_why_and_nearly_all_say_where() -> None:
    failures = [test.failure for path in fixtures() for test in parsed(path).tests if test.failure]
    assert all(failure.message for failure in failures)
    assert sum(bool(failure.file and failure.line) for failure in failures) / len(failures) > 0.85


def test_the_accuracy_table_is_full_marks(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [_marks(path) for path in fixtures()]
    with capsys.disabled():
        print(f"\n{'fixture':44} {'ids':>7} {'status':>7} {'place':>7} {'values':>7}")
        for name, marks in [*rows, ("all of them", _together(rows))]:
            print(f"{name:44} " + " ".join(f"{right:>3}/{of:<3}" for right, of in marks))
    assert all(right == of for _, marks in rows for right, of in marks)


def _together(rows: list[tuple[str, list[tuple[int, int]]]]) -> list[tuple[int, int]]:
    return [
        (sum(right for right, _ in column), sum(of for _, of in column))
        for column in zip(*(m for _, m in rows), strict=True)
    ]


def _marks(path: Path) -> tuple[str, list[tuple[int, int]]]:
    wanted, found = expected(path)["tests"], facts(parsed(path))["tests"]
    by_id = {row["id"]: row for row in found}
    failing = [row for row in wanted if "failure" in row]
    valued = [row for row in failing if row["failure"]["expected"] is not None]
    return named(path), [
        (sum(row["id"] in by_id for row in wanted), max(len(wanted), len(found))),
        (sum(_same(row, by_id, "status") for row in wanted), len(wanted)),
        (sum(_same_failure(row, by_id, ["at"]) for row in failing), len(failing)),
        (sum(_same_failure(row, by_id, ["expected", "actual"]) for row in valued), len(valued)),
    ]


def _same(row: dict[str, Any], by_id: dict[str, dict[str, Any]], key: str) -> bool:
    return bool(by_id.get(row["id"], {}).get(key) == row[key])


def _same_failure(row: dict[str, Any], by_id: dict[str, dict[str, Any]], keys: list[str]) -> bool:
    found = by_id.get(row["id"], {}).get("failure", {})
    return all(found.get(key) == row["failure"][key] for key in keys)
