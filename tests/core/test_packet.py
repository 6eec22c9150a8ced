"""A packet is read by an agent as a whole: what it names, in which order, and what it leaves out first."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.compare import Delta
from ratchet.core.packet import (
    changed_ranges,
    clusters,
    difference_window,
    output_beyond_failure,
    packet,
    same_error_in,
)
from ratchet.core.packet import test_title as title_of
from ratchet.core.report import Diagnostic, Failure, Frame, Report, ReportStatus, TestResult, TestStatus, count_totals


def red(name: str, **fields: Any) -> TestResult:
    usual: dict[str, Any] = {"id": name, "status": TestStatus.FAILED}
    failure = Failure(**{"type": "E", "message": "no", "file": "a.py", "line": 1} | fields.pop("failure", {}))
    return TestResult(**usual | {"failure": failure} | fields)


def report(*tests: TestResult, **fields: Any) -> Report:
    usual: dict[str, Any] = {"runner": "pytest", "status": ReportStatus.FAILED}
    return Report(tests=list(tests), totals=count_totals(tests), **usual | fields)


def delta(**fields: list[Any]) -> Delta:
    names = ("new_failures", "still_failing", "fixed", "added", "missing", "silenced", "broken")
    return Delta(**{name: [] for name in names} | fields)


def test_a_packet_is_head_errors_of_files_clusters_and_what_to_do_next() -> None:
    frames = [Frame(file="shop.py", line=n, function=f"f{n}") for n in (1, 2, 3, 4)]
    failure = {
        "type": "AssertionError", "message": "wrong sum", "expected": "4", "actual": "3", "operator": "!=",
        "file": "shop.py", "line": 4, "frames": [*frames, Frame(file="shop.py", line=5)],
    }  # fmt: skip
    tests = [
        red("t::a", file="t.py", failure=failure, stdout="loading", stderr="wrong sum\nlow memory\n"),
        red("t::b", file="t.py", failure=failure),
        red("t::c", file="t.py", status=TestStatus.ERROR, failure={"type": "Hung", "message": ""}),
        TestResult(id="t::d", status=TestStatus.PASSED),
        TestResult(id="t::e", status=TestStatus.XPASSED),
    ]
    whole = report(
        *tests,
        notes=["the runner says so"],
        compile_errors=[Diagnostic(file="x.py", line=3, column=7, type="SyntaxError", message="bad")],
    )
    moved: dict[str, list[Any]] = {"fixed": ["t::d"], "missing": ["u", "v"], "renamed": [("o", "n")]}
    changes = delta(new_failures=["t::a"], still_failing=["t::b"], **moved)
    text = packet(
        whole, delta=changes, flaky=["t::c"], known=["t::b"], changed={"shop.py": [(2, 2)], "new.py": []},
        again=lambda test: f"pytest {test.id}",
    )  # fmt: skip
    assert text == (
        "failed: 2 failed, 1 error, 1 passed, 0 skipped, 1 unexpectedly passed of 5 tests, "
        "1 file not compiled (pytest)\n"
        "since last time: 1 newly failing, 1 still failing, 1 fixed, 2 gone, 1 renamed\n"
        "of the failures 1 flaky, 1 hung, 1 known\n"
        "note: the runner says so\n\n"
        "x.py:3:7: SyntaxError: bad\n\n"
        "t::a at shop.py:4 (new)\n"
        "  AssertionError: wrong sum\n"
        "  expected: != 4\n"
        "  actual:   3\n"
        "  shop.py:3 in f3\n"
        "  shop.py:4 in f4\n"
        "  shop.py:5\n"
        "  | loading\n"
        "  | low memory\n"
        "  the same in 1 more: t::b\n\n"
        "t::c at a.py:1 (flaky)\n"
        "  Hung\n\n"
        "suspects: f2 in shop.py (changed here);  in shop.py (changed); f1 in shop.py (changed); "
        "f3 in shop.py (changed); f4 in shop.py (changed)\n\n"
        "run one again: pytest t::a"
    )


def test_the_tests_asked_about_are_reported_without_the_totals_of_all() -> None:
    assert packet(report(red("a"), red("b", failure={"line": 2})), only=["b"]) == "b at a.py:2\n  E: no"


def test_a_run_that_died_without_a_failing_test_shows_the_end_of_its_output() -> None:
    output = "\n".join(f"line {n}" for n in range(1, 13))
    died = report(status=ReportStatus.CRASHED, output=output)
    assert packet(died).split("\n")[1:] == ["output:", *(f"  | line {n}" for n in range(3, 13))]
    assert "output:" not in packet(report(red("a"), status=ReportStatus.CRASHED, output=output))
    assert "output:" not in packet(report(output=output))
    assert "output:" in packet(report(status=ReportStatus.ERROR, output=output))


def test_a_packet_shows_five_kinds_of_failures_and_names_the_tests_of_the_others() -> None:
    tests = [red(f"t{n:02}", failure={"line": 10 + n}) for n in range(1, 20)]
    text = packet(report(*tests))
    assert [f"a.py:{n}\n" in text for n in range(11, 18)] == [True] * 5 + [False] * 2
    assert text.endswith("… and 14 more failures: t06, t07, t08, t09, t10, t11, t12, t13, …")
    assert packet(report(*tests[:6])).endswith("… and 1 more failures: t06")


def test_at_most_five_notes_and_ten_kinds_of_broken_files_are_shown() -> None:
    errors = [Diagnostic(file=f"f{n:02}.py", message=f"m{n}") for n in range(1, 13)]
    text = packet(report(notes=[f"n{n}" for n in range(1, 8)], collection_errors=errors))
    assert [f"note: n{n}" in text for n in range(1, 8)] == [True] * 5 + [False] * 2
    assert "f10.py: m10\n\n… and 2 more errors of files" in text and "f11.py" not in text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, ""), (1, "; the same for f1"), (3, "; the same for f1, f2, f3"), (5, "; the same for f1, f2, f3 and 2 more")],
)
def test_files_with_the_same_error_are_named_once(count: int, text: str) -> None:
    files = [Diagnostic(file=f"f{n}") for n in range(1, count + 1)]
    assert same_error_in([*files, *files, Diagnostic()]) == text


def test_failures_are_alike_by_type_and_place_and_without_a_place_by_the_form_of_the_message() -> None:
    def groups(*tests: TestResult) -> list[list[str]]:
        return [[test.id for test in cluster.tests] for cluster in clusters(tests)]

    nowhere = {"file": "", "line": 0}
    assert groups(red("b"), red("a"), red("c", failure={"type": "F"})) == [["a", "b"], ["c"]]
    assert groups(red("a", failure={"line": 2}), red("b")) == [["b"], ["a"]]
    one, other = (red(f"t{n}", failure={"message": f"row {n}\nmore {n}", **nowhere}) for n in (1, 22))
    assert groups(one, other) == [["t1", "t22"]]
    assert len(groups(one, red("x", failure={"message": "col 1", **nowhere}))) == 2
    silent = [red(name, failure={"message": " ", "type": "", **nowhere}) for name in "ab"]
    assert groups(*silent) == [["a"], ["b"]]
    assert groups(TestResult(id="a", status=TestStatus.FAILED)) == [["a"]]


def test_of_failures_that_are_alike_one_with_values_is_shown_and_a_group_after_its_tests() -> None:
    tests = [red("a"), red("a/1"), red("b", failure={"actual": "3"})]
    assert [test.id for test in clusters(tests)[0].tests] == ["b", "a/1", "a"]


def test_new_failures_come_before_those_of_unknown_age_and_flaky_before_known_ones() -> None:
    tests = [red(name, failure={"line": n}) for n, name in enumerate(["known", "flaky", "old", "new"], start=1)]
    text = packet(report(*tests), delta=delta(added=["new"]), flaky=["flaky"], known=["known"])
    assert [line.split()[0] for line in text.splitlines() if " at a.py" in line] == ["new", "old", "flaky", "known"]


@given(st.text("ab", max_size=60), st.text("ab", max_size=60), st.integers(6, 30))
def test_the_window_of_two_values_shows_their_first_difference(expected: str, actual: str, limit: int) -> None:
    one, other = difference_window(expected, actual, limit)
    if max(len(expected), len(actual)) <= limit:
        assert (one, other) == (expected, actual)
    elif expected != actual:
        assert one != other
        assert len(one) <= limit + 50 and len(other) <= limit + 50


def test_a_window_says_how_much_is_left_out_on_both_sides() -> None:
    one, other = difference_window("x" * 30 + "a" + "y" * 20, "x" * 30 + "b", 9)
    assert one == "… (27 characters) xxxayyyyy … (15 characters)"
    assert other == "… (27 characters) xxxb"
    assert difference_window("a" + "x" * 9, "b", 9) == ("axxxxxxxx … (1 characters)", "b")
    assert difference_window("x" * 9, "x" * 8, 9) == ("x" * 9, "x" * 8)


def test_long_names_and_messages_keep_their_beginning_and_their_end() -> None:
    name = "n" * 299 + "END" + "m" * 99
    text = packet(report(red(name, failure={"message": "m" * 301})))
    assert f"{'n' * 200} … {'m' * 99}" not in text
    assert f"{'n' * 200} … n{'m' * 99}"[:203] in text and "(401 characters) at a.py:1" in text
    assert f"  E: {'m' * 200} … {'m' * 100} (301 characters)" in text
    assert f"E: {'m' * 300}" in packet(report(red("t", failure={"message": "m" * 300})))


def test_a_title_has_the_name_of_the_test_unless_the_id_says_it() -> None:
    for name, title in (("adds two", "spec[1:2] (adds two)"), ("spec_1", "spec[1:2]"), ("--", "spec[1:2]")):
        assert title_of(TestResult(id="spec[1:2]", name=name, status=TestStatus.FAILED)) == title


@pytest.mark.parametrize("line", ["no", "  no  ", "x: no", "left: 3", "right: 4", "thread 'a' (7) panicked at x.rs:1"])
def test_a_line_that_repeats_the_failure_is_left_out(line: str) -> None:
    failure = Failure(message="no\n\nmore", expected="4", actual="3")
    assert output_beyond_failure(f"{line}\nother", failure) == ["other"]


@pytest.mark.parametrize("line", ["nothing", "not no", "left: 33", "thread 'a' started"])
def test_a_line_that_says_something_else_is_kept(line: str) -> None:
    assert output_beyond_failure(f"{line}\n", Failure(message="no", expected="4", actual="3")) == [line]
    assert output_beyond_failure(" \n", Failure()) == []


def test_a_value_is_shown_in_full_up_to_a_limit() -> None:
    text = packet(report(red("t", failure={"expected": "e" * 1_200, "actual": "e" * 1_199 + "f"})))
    assert f"  expected: {'e' * 1_200}\n  actual:   {'e' * 1_199}f" in text
    alone = packet(report(red("t", failure={"actual": "a" * 1_501})))
    assert f"actual:   {'a' * 1_000} … {'a' * 500} (1501 characters)" in alone and "expected" not in alone


def test_what_is_left_out_first_is_output_then_frames() -> None:
    failure = {"frames": [Frame(file="a.py", line=n, function="f" * 40) for n in (1, 2, 3)]}
    one = report(red("t", failure=failure, stdout="o" * 150))
    sizes = {line: packet(one, budget_bytes=line) for line in range(100, 600)}
    shown = [(text.count("ooo") > 0, text.count("a.py:")) for text in sizes.values()]
    ranks = [(has_output, frames) for has_output, frames in dict.fromkeys(shown) if frames]
    assert ranks == sorted(ranks) and len(ranks) >= 4
    assert all(len(text.encode()) <= size for size, text in sizes.items())


def test_the_command_to_run_a_test_again_is_shown_unless_it_is_too_long() -> None:
    one = report(red("t"))
    assert "run one again" not in packet(one, again=lambda _: "x" * 1_201)
    assert f"run one again: {'x' * 1_200}" in packet(one, again=lambda _: "x" * 1_200)
    assert "run one again" not in packet(one, again=lambda _: "")


def test_functions_in_test_files_are_no_suspects_and_the_most_frequent_come_first() -> None:
    def through(name: str, *functions: str) -> TestResult:
        frames = [Frame(file="t.py", line=1, function=name)]
        frames += [Frame(file="src.py", line=5, function=function) for function in functions]
        return red(name, file="t.py", failure={"frames": frames, "line": len(functions)})

    tests = [through("a", "often"), through("b", "often", "seldom"), through("c", "late", "often")]
    assert "suspects: often in src.py; late in src.py; seldom in src.py" in packet(report(*tests))
    text = packet(report(*tests), changed={"src.py": [(6, 9), (1, 4)], "t.py": [], "z.py": [(1, 1)]})
    assert text.endswith(
        "suspects: often in src.py (changed); late in src.py (changed); seldom in src.py (changed); z.py (changed)"
    )
    assert "suspects" not in packet(report(), changed={"z.py": []})


def test_ranges_of_a_diff_are_those_of_the_new_side() -> None:
    diff = (
        'diff --git a/x b/x\n--- "a/x"\n+++ "b/x"\n@@ -2 +2 @@\n-a\n+b\n--- a/x y\t\n+++ b/x y\t\n'
        "@@ -1,2 +1,3 @@ f\n a\n b\n+c\n@@ -9 +10 @@\n-d\n+e\n@@ -20,2 +18,0 @@\n-f\n-g\n"
        "--- /dev/null\n+++ b/new\n@@ -0,0 +1,2 @@\n+a\n+b\n--- a/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
    )
    assert changed_ranges(diff) == {"x": [(2, 2)], "x y": [(1, 3), (10, 10), (18, 19)], "new": [(1, 2)]}
    assert changed_ranges("") == changed_ranges("@@ -1 +1 @@") == {}
