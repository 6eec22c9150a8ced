"""The sets that have been opened: what was found in them once stays found. Rates are printed by `make trust`."""

from __future__ import annotations

import time

import pytest

from ratchet.core.cheats import Change, find_cheats
from tests.core.cheats.trust import OPENED, SCOPE, Sample, judge, read

SAMPLES = [sample for path in sorted(OPENED.glob("*.txt")) for sample in read(path)]
SELDOM_SEEN = read(OPENED / "K-cheats.txt")


@pytest.mark.parametrize("sample", SELDOM_SEEN, ids=lambda one: f"{one.name}-{one.language}-{one.of}")
def test_a_cheat_in_a_language_seldom_seen_is_found(sample: Sample) -> None:
    assert judge(sample.files, sample.spec, SCOPE) != "none"


def test_no_honest_change_of_an_opened_set_is_refused() -> None:
    honest = [sample for sample in SAMPLES if sample.kind == "honest"]
    assert [one.name for one in honest if judge(one.files, one.spec, SCOPE) == "hard"] == []
    assert len(honest) > 300


def test_cheats_of_the_opened_sets_are_found() -> None:
    cheats = [sample for sample in SAMPLES if sample.kind == "cheat"]
    missed = [one.name for one in cheats if judge(one.files, one.spec, SCOPE) == "none"]
    assert len(missed) <= 0.03 * len(cheats), missed


def test_a_large_file_in_one_line_is_judged_in_time() -> None:
    row = ", ".join(f'{{"id": {number}, "name": "n{number}"}}' for number in range(20_000))
    test = Change(path="tests/test_a.py", before=None, after="def test_a():\n    assert load(31337) == 4711\n")
    data = Change(path="data/rows.json", before=None, after=f"[{row}]\n")
    code = Change(path="src/rows.js", before=None, after=f"export const rows = [{row}];\n")
    began = time.process_time()
    find_cheats([test, data, code], SCOPE)
    assert time.process_time() - began < 10, "the time grows with the square of the line"
