"""Gates: their order, the findings that are new, and coverage of the changed lines."""

from __future__ import annotations

import pytest

from ratchet.core.gates import (
    ARCHITECTURE_LINES,
    Coverage,
    Gate,
    changed_lines,
    is_large,
    new_findings,
    plan_gates,
    uncovered,
)


def test_configured_gates_override_detected_ones_and_run_in_order_of_cost() -> None:
    detected = [
        Gate(name="mutation"),
        Gate(name="lint@packages/a", command="ruff check", root="packages/a"),
        Gate(name="types", command="mypy"),
        Gate(name="cheats"),
    ]
    configured = [
        Gate(name="types", command="pyright", root="ignored"),
        Gate(name="lint@packages/a", threshold=3.0),
        Gate(name="licences", command="check"),
        Gate(name="cheats", on=False),
    ]
    planned = plan_gates(detected, configured)
    assert [gate.name for gate in planned] == ["lint@packages/a", "types", "licences", "mutation"]
    assert (planned[0].command, planned[0].root, planned[0].threshold) == ("ruff check", "packages/a", 3.0)
    assert (planned[1].command, planned[1].root) == ("pyright", ".")


def test_only_findings_that_the_base_does_not_have_are_new() -> None:
    before = "a.py:1:2: unused import x\nb.py:9: bad name\nFound 2 errors in 0.31s\n"
    after = (
        "a.py:7:2: unused import x\n\x1b[31mb.py:9: bad name\x1b[0m\nb.py:12: bad name\nc.py:1: no\n"
        "---\nFound 4 errors in 1.2 seconds\n"
    )
    assert new_findings(before, before) == []
    assert new_findings(before, after) == ["b.py:: bad name", "c.py:: no"]


def test_the_lines_that_a_diff_adds_are_counted_in_the_new_file() -> None:
    diff = (
        "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n+2b\n three\n"
        "@@ -10 +11,2 @@ def f():\n ten\n+eleven\n--- a/b.py\n+++ b/b.py\t2026-01-01\n@@ -0,0 +1 @@\n+first\n"
    )
    assert changed_lines(diff) == {"a.py": {2, 3, 12}, "b.py": {1}}


def test_coverage_counts_all_lines_or_only_the_changed_ones() -> None:
    coverage = Coverage(files={"b.py": {1: False, 2: True}, "a.py": {9: False, 3: False, 4: True, 5: True}})
    assert coverage.percent() == 50.0
    assert coverage.percent({"a.py": {3, 4, 99}}) == 50.0
    assert coverage.percent({"c.py": {1}}) is None
    assert coverage.missed({"a.py": {9, 3, 4}, "b.py": {1}}) == ["a.py:3", "a.py:9", "b.py:1"]


@pytest.mark.parametrize(
    ("gate", "changed", "reason"),
    [
        (Gate(name="coverage", threshold=50, changed=50), {"a.py": {1, 2}}, ""),
        (Gate(name="coverage", threshold=50.1), {}, "coverage is 50.0 %, 50.1 % is wanted"),
        (Gate(name="coverage", threshold=0, changed=51), {"a.py": {1, 2}},
         "50.0 % of the changed lines are covered, 51 % are wanted; never run: a.py:2"),
        (Gate(name="coverage", threshold=0, changed=100), {"z.py": {1}}, ""),
    ],
)  # fmt: skip
def test_a_coverage_gate_fails_below_its_threshold(gate: Gate, changed: dict[str, set[int]], reason: str) -> None:
    assert uncovered(gate, Coverage(files={"a.py": {1: True, 2: False}}), changed) == reason


def test_a_coverage_gate_names_ten_missed_lines_and_fails_without_any() -> None:
    gate = Gate(name="coverage", threshold=0, changed=1)
    missed = Coverage(files={"a.py": dict.fromkeys(range(1, 14), False)})
    assert uncovered(gate, missed, {"a.py": set(range(14))}).endswith("a.py:9, a.py:10 and 3 more")
    ten = Coverage(files={"a.py": dict.fromkeys(range(1, 11), False)})
    assert uncovered(gate, ten, {"a.py": set(range(14))}).endswith("a.py:10")
    assert uncovered(gate, Coverage(files={}), {}) == "no lines were measured for coverage"


def test_a_change_of_over_a_hundred_lines_or_with_a_new_module_is_large() -> None:
    lines = set(range(ARCHITECTURE_LINES))
    assert not is_large({"a.py": lines}, [])
    assert is_large({"a.py": lines, "b.py": {1}}, [])
    assert is_large({}, ["new.py"])
