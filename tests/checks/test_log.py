"""Logs of other people's runs, in whatever format they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.checks.log import read_log
from ratchet.core.compare import failing
from ratchet.core.report import ReportStatus

FIXTURES = Path(__file__).parents[1] / "formats" / "fixtures"


@pytest.mark.parametrize(
    ("text", "red"),
    [
        ("FAILED tests/test_a.py::test_b[x y] - assert 1 == 2\n", ["tests/test_a.py::test_b[x y]"]),
        ("2026-01-02T03:04:05.6789Z FAILED t.py::test_a\n", ["t.py::test_a"]),
        ("job\tstep\t2026-01-02T03:04:05.6Z --- FAIL: TestAdd (0.00s)\n", ["TestAdd"]),
        ("FAIL: test_a (tests.test_b.Some)\n", ["test_a (tests.test_b.Some)"]),
        ("\x1b[31m  \u2715 adds (3 ms)\x1b[0m\n", ["adds"]),
        ("rspec ./spec/a_spec.rb:3 # adds\n", ["./spec/a_spec.rb:3"]),
        ("\t 12 - unit.add (Failed)\n", ["unit.add"]),
    ],
)
def test_failures_named_in_plain_text(text: str, red: list[str]) -> None:
    assert failing(read_log(text.encode())) == red


@pytest.mark.parametrize(
    "name",
    ["junit/surefire.xml", "tap/node.tap", "go_json/go_new.jsonl", "cargo/cargo_text.txt", "jest_json/jest.json"],
)
def test_a_format_we_know_is_read_as_such(name: str) -> None:
    report = read_log((FIXTURES / name).read_bytes())
    assert report.status is ReportStatus.FAILED and report.runner == f"log of {name.split('/', maxsplit=1)[0]}"


def test_compiler_errors_are_failures_too() -> None:
    report = read_log((FIXTURES / "compiler" / "mvn_compile.txt").read_bytes())
    assert report.status is ReportStatus.FAILED and failing(report)


@given(st.binary(max_size=500))
def test_any_bytes_can_be_read(content: bytes) -> None:
    assert read_log(content).status in (ReportStatus.UNKNOWN, ReportStatus.FAILED, ReportStatus.PASSED)
