"""Reports are concluded, merged, compared, exported and summarised: pure functions of a runner's results."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ET
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.checks.formats import junit
from ratchet.core import exports
from ratchet.core.compare import Delta
from ratchet.core.flaky import OutcomeHistory, merge_rerun, record_outcomes
from ratchet.core.packet import changed_ranges, clusters, output_beyond_failure, packet
from ratchet.core.report import (
    Diagnostic,
    Failure,
    Frame,
    Report,
    ReportStatus,
    TestResult,
    TestStatus,
    add_running_tests,
    conclude,
    count_totals,
    expected_text,
    merge_commands,
    merge_targets,
    reported_totals,
)

PASSED = TestResult(id="a::one", status=TestStatus.PASSED, file="a")
FAILED = TestResult(
    id="a::two",
    status=TestStatus.FAILED,
    file="a",
    failure=Failure(type="E", message="m", expected="4", actual="3", file="src", line=7),
)


def concluded(**given: Any) -> Report:
    usual: dict[str, Any] = {
        "runner": "r", "root": ".", "command": ["r"], "exit_code": 0, "timed_out": "", "duration_s": 1.0,
        "tests": [PASSED], "collection_errors": [], "compile_errors": [], "reported": {}, "ended": True,
        "partial": False, "notes": [], "running": [],
    }  # fmt: skip
    return conclude(**(usual | given))


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({}, ReportStatus.PASSED),
        ({"exit_code": 1}, ReportStatus.INCONSISTENT),
        ({"tests": [FAILED], "exit_code": 1}, ReportStatus.FAILED),
        ({"tests": [FAILED]}, ReportStatus.INCONSISTENT),
        ({"ended": False}, ReportStatus.CRASHED),
        ({"partial": True}, ReportStatus.INCONSISTENT),
        ({"timed_out": "timeout", "ended": False}, ReportStatus.TIMEOUT),
        ({"tests": [], "exit_code": 5}, ReportStatus.NO_TESTS),
        ({"collection_errors": [Diagnostic(file="a")], "exit_code": 2}, ReportStatus.FAILED),
        ({"collection_errors": [Diagnostic(file="a")]}, ReportStatus.INCONSISTENT),
        ({"reported": {"passed": 2}}, ReportStatus.INCONSISTENT),
        ({"reported": {"passed": 1, "tests": 1}}, ReportStatus.PASSED),
        ({"tests": [], "reported": {"passed": 3}}, ReportStatus.PASSED),
        ({"tests": [], "reported": {"passed": 3, "failed": 1}, "exit_code": 1}, ReportStatus.FAILED),
        ({"tests": [], "reported": {"passed": 3, "failed": 1}}, ReportStatus.INCONSISTENT),
    ],
)
def test_only_records_totals_end_and_exit_code_that_agree_are_a_yes(
    given: dict[str, Any], status: ReportStatus
) -> None:
    report = concluded(**given)
    assert report.status is status
    assert report.notes or status is not ReportStatus.INCONSISTENT


def test_what_was_running_when_the_runner_died_is_a_result() -> None:
    report = add_running_tests(concluded(ended=False, running=["b.py::three"]))
    lost = report.tests[-1]
    assert (lost.id, lost.file, lost.name, lost.status) == ("b.py::three", "b.py", "three", TestStatus.ERROR)
    assert report.totals.errors == 1


def test_a_module_in_the_name_of_a_test_that_was_running_is_no_file() -> None:
    lost = add_running_tests(concluded(ended=False, running=["tests::deep::three"], exit_code=-6)).tests[-1]
    assert (lost.file, lost.name) == ("", "three")
    assert lost.failure and lost.failure.message.endswith("was running when the runner was killed by SIGABRT")


def test_the_gravest_part_decides_for_all_and_ids_start_at_the_repository() -> None:
    one = concluded(root="x")
    two = concluded(root="y", tests=[FAILED], exit_code=1)
    whole = merge_targets([one, two])
    assert whole.status is ReportStatus.FAILED
    assert [test.id for test in whole.tests] == ["x/a::one", "y/a::two"]
    assert [(part.root, part.status) for part in whole.parts] == [("x", "passed"), ("y", "failed")]
    failure = whole.tests[1].failure
    assert failure and failure.file == "y/src"
    assert merge_targets([concluded()]) == concluded()
    assert merge_targets([]).status is ReportStatus.NO_TESTS


def test_a_test_that_passes_the_second_time_keeps_its_failure_and_counts_its_attempts() -> None:
    first = concluded(tests=[PASSED, FAILED], exit_code=1)
    again = concluded(tests=[msgspec.structs.replace(FAILED, status=TestStatus.PASSED, failure=None)])
    settled = merge_rerun(first, again)
    assert settled.status is ReportStatus.PASSED
    assert (settled.tests[1].attempts, settled.tests[1].failure) == (2, FAILED.failure)
    assert merge_rerun(first, first).tests[1].attempts == 2
    assert merge_rerun(first, first).status is ReportStatus.FAILED


def test_different_ends_on_one_tree_are_flaky_and_on_two_trees_are_not() -> None:
    red, green = concluded(tests=[FAILED]), concluded(tests=[msgspec.structs.replace(FAILED, status=TestStatus.PASSED)])
    moved = record_outcomes(record_outcomes(OutcomeHistory(), red, tree="1"), green, tree="2")
    assert moved.flaky() == []
    assert record_outcomes(moved, green, tree="1").flaky() == ["a::two"]
    assert record_outcomes(OutcomeHistory(), green, tree="1").outcomes == {}


def test_another_operator_than_equality_is_part_of_the_wish() -> None:
    assert expected_text(Failure(expected="2", operator="!=")) == "!= 2"
    assert expected_text(Failure(expected="2", operator="==")) == "2"
    assert expected_text(Failure(operator="!=")) is None


def failing(n: int, place: int, *, size: int = 10) -> TestResult:
    failure = Failure(
        type="AssertionError",
        message="boom",
        expected=f"expected-{n}-" + "e" * size,
        actual=f"actual-{n}-" + "a" * size,
        file="src/shop.py",
        line=place,
        frames=[Frame(file="src/shop.py", line=place, function="total")],
    )
    return TestResult(id=f"t::{n:03}", status=TestStatus.FAILED, failure=failure, stdout="noise\n" * 500)


def test_failures_of_one_kind_at_one_place_are_reported_once() -> None:
    tests = [failing(n, n % 3) for n in range(30)]
    assert [len(cluster.tests) for cluster in clusters(tests)] == [10, 10, 10]
    assert [len(cluster.tests) for cluster in clusters([*tests, failing(99, 2)])] == [11, 10, 10]
    output = packet(Report(runner="r", status=ReportStatus.FAILED, tests=tests, totals=count_totals(tests)))
    assert "the same in 9 more: t::003, t::006, …" in output
    assert "suspects: total in src/shop.py" in output


@given(st.integers(1, 40), st.integers(1, 600))
def test_a_packet_keeps_to_its_budget_and_cuts_output_and_frames_before_values(count: int, size: int) -> None:
    tests = [failing(n, n, size=size) for n in range(count)]
    report = Report(runner="r", status=ReportStatus.FAILED, tests=tests, totals=count_totals(tests))
    output = packet(report, budget_bytes=4_000)
    assert len(output) <= 4_000
    first = clusters(tests)[0].tests[0].failure
    assert first and first.expected and first.actual
    assert first.expected in output and first.actual in output
    assert packet(report, budget_bytes=4_000) == output


@given(st.text("aä€\n", max_size=9_000), st.integers(1, 30), st.integers(0, 20))
def test_a_packet_keeps_to_its_budget_whatever_is_long(text: str, tests: int, files: int) -> None:
    failure = Failure(type=text[:900], message=text, expected=text, actual=text, file=text[:90], line=1)
    red = [TestResult(id=f"{n}{text}", status=TestStatus.FAILED, failure=failure, stdout=text) for n in range(tests)]
    lost = [Diagnostic(file=f"{n}{text[:500]}", message=text) for n in range(files)]
    reported = Report(runner="r", status=ReportStatus.FAILED, tests=red, notes=[text], collection_errors=lost)
    assert len(packet(reported, again=lambda test: test.id).encode()) <= 4_000


def test_a_packet_shows_where_long_values_differ() -> None:
    failure = Failure(expected="x" * 3_000 + "<here>" + "y" * 3_000, actual="x" * 3_000 + "<there>" + "y" * 3_000)
    tests = [TestResult(id="a", status=TestStatus.FAILED, failure=failure)]
    output = packet(Report(runner="r", status=ReportStatus.FAILED, tests=tests, totals=count_totals(tests)))
    assert "x<here>y" in output and "x<there>y" in output


def test_a_packet_says_what_is_new_known_flaky_or_hung_and_names_what_it_leaves_out() -> None:
    ids = ["new", "known", "flaky", "hung", *"abcd"]
    tests = [TestResult(id=name, status=TestStatus.FAILED, failure=Failure(type=name.title())) for name in ids]
    delta = Delta(
        new_failures=["new"], still_failing=ids[1:], fixed=[], added=[], missing=[], silenced=[], broken=[]
    )  # fmt: skip
    reported = Report(runner="r", status=ReportStatus.FAILED, tests=tests, totals=count_totals(tests))
    output = packet(reported, delta=delta, flaky=["flaky"], known=["known"])
    assert "since last time: 1 newly failing, 7 still failing\nof the failures 1 flaky, 1 hung, 1 known" in output
    assert output.index("new (new)\n  New") < output.index("a\n  A") and "known (known)" not in output
    assert "… and 3 more failures: hung, flaky, known" in output


def test_a_packet_cuts_long_values_to_where_they_differ_before_it_leaves_a_failure_out() -> None:
    def fails(name: str, size: int) -> TestResult:
        failure = Failure(type=name, expected=f"{'x' * size}<{name}>", actual=f"{'x' * size}<other>")
        return TestResult(id=name, status=TestStatus.FAILED, failure=failure)

    tests = [fails(name, 1_100) for name in "abc"] + [fails("added", 3)]
    reported = Report(runner="r", status=ReportStatus.FAILED, tests=tests, totals=count_totals(tests))
    delta = Delta(new_failures=[], still_failing=["a", "b", "c"], fixed=[], added=["added"], missing=[], silenced=[],
                  broken=[])  # fmt: skip
    output = packet(reported, delta=delta, whole="ratchet test --json")
    assert "since last time: 1 newly failing, 3 still failing\n\nadded (new)" in output
    assert all(f"x<{name}>" in output for name in (*"abc", "added")) and len(output.encode()) <= 4_000
    assert output.endswith("\n\nall of it: ratchet test --json") and "more failures" not in output
    assert "all of it" not in packet(msgspec.structs.replace(reported, tests=tests[-1:]), whole="ratchet test --json")


def test_what_an_output_says_once_more_of_its_failure_is_left_out() -> None:
    failure = Failure(type="panic", message="assertion failed: sum", expected="3", actual="-1")
    output = "thread 'adds' (7) panicked at src/lib.rs:5:25:\nassertion failed: sum\n  left: -1\n right: 3\n"
    assert output_beyond_failure(output, failure) == []
    assert output_beyond_failure(f"loaded 3\n\n{output}", failure) == ["loaded 3", ""]
    assert output_beyond_failure("    a_test.go:3: no\nnotice", Failure(message="no")) == ["notice"]
    diagnostic = Diagnostic(file="src/lib.rs", line=1, column=4, message="cannot find value `c`")
    assert "\nsrc/lib.rs:1:4: cannot find value `c`" in packet(
        Report(runner="r", status=ReportStatus.FAILED, compile_errors=[diagnostic])
    )


def test_a_module_that_breaks_many_files_is_reported_once() -> None:
    broken = [Diagnostic(file=f"test_{n}.py", line=2, type="ImportError", message="no lib") for n in range(12)]
    other = Diagnostic(file="test_x.py", line=1, type="SyntaxError", message="invalid syntax")
    output = packet(Report(runner="r", status=ReportStatus.FAILED, collection_errors=[*broken, other]))
    assert output.startswith("failed: 0 failed, 0 errors, 0 passed, 0 skipped of 0 tests, 13 files not loaded (r)")
    beside = Diagnostic(file="", type="PluginError", message="at the end")
    reported = packet(Report(runner="r", status=ReportStatus.FAILED, collection_errors=[other, beside]))
    assert "of 0 tests, 1 file not loaded, 1 error outside of tests (r)" in reported
    assert output.count("no lib") == 1 and "test_x.py:1: SyntaxError: invalid syntax" in output
    assert "test_0.py:2: ImportError: no lib\n  the same for test_1.py, test_2.py, test_3.py and 8 more" in output


def test_an_id_that_is_only_a_number_is_shown_with_the_name() -> None:
    for name, reported in (
        ("x adds", "a_spec.rb[1:1] (x adds)"),
        ("a_spec.rb[1:1]", "a_spec.rb[1:1]"),
        ("", "a_spec.rb[1:1]"),
    ):
        test = TestResult(id="a_spec.rb[1:1]", name=name, status=TestStatus.FAILED, failure=Failure(message="no"))
        output = packet(Report(runner="rspec", status=ReportStatus.FAILED, tests=[test]))
        assert output.splitlines()[2] == reported


def test_of_a_group_and_its_tests_the_test_is_reported() -> None:
    group = TestResult(
        id="TestSub", status=TestStatus.FAILED, failure=Failure(message="a subtest failed", file="a", line=1)
    )
    inner = TestResult(id="TestSub/a", status=TestStatus.FAILED, failure=Failure(message="why", file="a", line=1))
    output = packet(Report(runner="go", status=ReportStatus.FAILED, tests=[group, inner]))
    assert "TestSub/a at a:1\n  why\n  the same in 1 more: TestSub" in output


@given(st.text(), st.text(), st.sampled_from(TestStatus))
def test_any_text_survives_as_xml_json_and_annotations(name: str, message: str, status: TestStatus) -> None:
    test = TestResult(id=name, name=name, status=status, failure=Failure(message=message), stdout=message)
    report = Report(runner="r", status=ReportStatus.FAILED, tests=[test], totals=count_totals([test]))
    root = ET.fromstring(exports.junit(report).encode("utf-8", "replace"))
    assert root.get("tests") == "1"
    assert len(root.findall(".//testcase")) == 1
    table = exports.ctrf(report, start_ms=0, stop_ms=1)
    assert json.loads(json.dumps(table))["results"]["summary"]["tests"] == 1
    assert all("\n" not in line for line in exports.github(report))
    error = Diagnostic(file="a,b:c.py", line=3, message="50%\r\nno")
    broken = Report(runner="r", status=ReportStatus.FAILED, collection_errors=[error])
    [line] = exports.github(broken, inside="sub")
    assert line.startswith("::error file=sub/a%2Cb%3Ac.py,line=3,title=") and line.endswith("::50%25%0D%0Ano")


def test_exports_distinguish_two_classes_of_one_name_and_locate_failures_without_a_stack() -> None:
    failed = Failure(message="no", file="a_test.go", line=4)
    names = [("a.py::TestK::test_m", "test_m", ["TestK"]), ("b.py::TestK::test_m", "test_m", ["TestK"])]
    tests = [TestResult(id=id, name=name, suite=suite, status=TestStatus.PASSED) for id, name, suite in names]
    tests += [TestResult(id="m/p.TestBad", name="TestBad", suite=["p"], status=TestStatus.FAILED, failure=failed)]
    reported = Report(runner="x", status=ReportStatus.FAILED, tests=tests, totals=count_totals(tests))
    cases = list(ET.fromstring(exports.junit(reported)).iter("testcase"))
    assert [case.get("classname") for case in cases] == ["a.py::TestK", "b.py::TestK", "m/p"]
    assert (cases[2].findtext("failure") or "").splitlines() == ["no", "  at a_test.go:4"]
    rows = exports.ctrf(reported, start_ms=0, stop_ms=1)["results"]["tests"]
    assert [row["suite"] for row in rows] == [["TestK"], ["TestK"], ["p"]]


def test_our_own_reader_finds_every_status_in_our_junit() -> None:
    tests = [TestResult(id=f"a.py::{status}", name=str(status), status=status) for status in TestStatus]
    reported = Report(runner="x", status=ReportStatus.FAILED, tests=tests, totals=count_totals(tests))
    read = junit.parse(io.BytesIO(exports.junit(reported).encode()))
    assert {test.name: test.status for test in read.tests} == {
        str(status): TestStatus.PASSED if status is TestStatus.XPASSED else status for status in TestStatus
    }


def test_suspects_are_the_changed_lines_of_a_stack_then_changed_files_then_the_rest() -> None:
    frames = [Frame(file=f"{name}.py", line=10, function=name) for name in ("plain", "near", "hit")]
    red = TestResult(
        id="t", status=TestStatus.FAILED, file="t.py", failure=Failure(type="E", message="m", frames=frames)
    )
    reported = packet(
        Report(runner="r", status=ReportStatus.FAILED, tests=[red]),
        changed={"hit.py": [(8, 12)], "near.py": [(50, 60)], "unseen.py": []},
    )
    assert "suspects: hit in hit.py (changed here); near in near.py (changed); plain in plain.py; unseen.py" in reported


def test_the_lines_of_a_diff_are_found() -> None:
    diff = "--- a/x.py\n+++ b/x.py\n@@ -3 +3,2 @@ def f\n-a\n+b\n+c\n@@ -9,2 +10,0 @@\n-d\n-e\n"
    diff += "--- a/y\n+++ /dev/null\n@@ -1 +0,0 @@\n-z\n"
    assert changed_ranges(diff) == {"x.py": [(3, 4), (10, 11)]}


def test_a_test_that_needed_a_second_attempt_is_remembered_as_flaky() -> None:
    def passed(attempts: int) -> Report:
        test = TestResult(id="a::one", status=TestStatus.PASSED, attempts=attempts)
        return Report(runner="pytest", status=ReportStatus.PASSED, tests=[test])

    assert record_outcomes(OutcomeHistory(), passed(2), tree="1").outcomes == {"a::one": [("1", False), ("1", True)]}
    assert record_outcomes(OutcomeHistory(), passed(2), tree="1").flaky() == ["a::one"]
    assert record_outcomes(OutcomeHistory(), passed(1), tree="1").outcomes == {}


def test_the_history_of_a_test_keeps_its_last_twenty_results() -> None:
    history = OutcomeHistory()
    for number in range(25):
        red = TestResult(id="a", status=TestStatus.FAILED)
        history = record_outcomes(
            history, Report(runner="pytest", status=ReportStatus.FAILED, tests=[red]), tree=str(number)
        )
    assert [tree for tree, _ in history.outcomes["a"]] == [str(number) for number in range(5, 25)]


def test_a_rerun_keeps_what_passed_at_first_and_the_first_failure_of_what_passes_now() -> None:
    failure = Failure(type="AssertionError", message="no")
    first = Report(
        runner="pytest",
        status=ReportStatus.FAILED,
        tests=[
            TestResult(id="a", status=TestStatus.PASSED),
            TestResult(id="b", status=TestStatus.FAILED, failure=failure, attempts=2),
        ],
    )
    again = [TestResult(id=name, status=TestStatus.PASSED) for name in ("a", "b")]
    merged = merge_rerun(first, Report(runner="pytest", status=ReportStatus.PASSED, tests=again))
    assert merged.status is ReportStatus.PASSED and merged.totals.passed == 2
    assert [(test.status, test.attempts, test.failure) for test in merged.tests] == [
        (TestStatus.PASSED, 1, None),
        (TestStatus.PASSED, 3, failure),
    ]


@pytest.mark.parametrize("status", [ReportStatus.CRASHED, ReportStatus.TIMEOUT, ReportStatus.PASSED])
def test_a_rerun_settles_only_a_report_of_failures(status: ReportStatus) -> None:
    first = Report(runner="pytest", status=status, tests=[TestResult(id="a", status=TestStatus.FAILED)])
    again = Report(runner="pytest", status=ReportStatus.PASSED, tests=[TestResult(id="a", status=TestStatus.PASSED)])
    assert merge_rerun(first, again).status is status


def test_a_file_that_does_not_load_stays_a_failure_after_a_rerun() -> None:
    again = Report(runner="pytest", status=ReportStatus.PASSED, tests=[TestResult(id="a", status=TestStatus.PASSED)])
    torn = [Diagnostic(file="c.py", message="no")]
    red = Report(runner="pytest", status=ReportStatus.FAILED, tests=[TestResult(id="a", status=TestStatus.FAILED)])
    for first in (
        msgspec.structs.replace(red, collection_errors=torn),
        msgspec.structs.replace(red, compile_errors=torn),
    ):
        assert merge_rerun(first, again).status is ReportStatus.FAILED


def test_a_case_in_junit_has_only_what_is_known_of_it() -> None:
    known = TestResult(
        id="a.py::two",
        name="two",
        status=TestStatus.FAILED,
        file="a.py",
        line=3,
        duration_s=0.5,
        failure=Failure(type="E", message="m"),
        stdout="out",
        stderr="err",
    )
    tests = [TestResult(id="Suite one", suite=["Suite"], status=TestStatus.PASSED), known]
    cases = "".join(exports.junit(Report(runner="r", status=ReportStatus.FAILED, tests=tests)))
    assert '<testcase classname="Suite" name="Suite one" time="0.000"/>' in cases
    assert '<testcase classname="a.py" name="two" file="a.py" line="3" time="0.500">' in cases
    assert "<system-out>out</system-out>" in cases and "<system-err>err</system-err>" in cases


def test_a_file_that_does_not_load_is_a_failed_test_in_ctrf() -> None:
    broken = [Diagnostic(file="c.py", type="SyntaxError", message="no")]
    made = exports.ctrf(Report(runner="r", status=ReportStatus.FAILED, collection_errors=broken), start_ms=1, stop_ms=2)
    assert made["results"]["tests"] == [
        {"name": "c.py", "status": "failed", "duration": 0, "message": "SyntaxError: no"}
    ]


def test_totals_of_a_runner_count_the_rest_as_passed() -> None:
    assert reported_totals({"tests": 5, "failed": 1, "skipped": 1, "files": 9}).passed == 3
    assert reported_totals({"passed": 2, "failed": 1}).tests == 3
    assert reported_totals({"failed": 2, "tests": 1}).passed == 0


def test_commands_of_a_target_are_merged_into_one_report() -> None:
    error = Diagnostic(file="b", message="no")
    first = Report(
        runner="pytest", status=ReportStatus.PASSED, command=["pytest", "a"], exit_code=0, duration_s=1.0,
        tests=[PASSED], totals=count_totals([PASSED]), reported={"tests": 1}, output="fine\n",
        collection_errors=[error],
    )  # fmt: skip
    second = Report(
        runner="pytest", status=ReportStatus.CRASHED, command=["pytest", "b"], exit_code=-9, signal=9, duration_s=0.5,
        tests=[PASSED, FAILED], totals=count_totals([PASSED, FAILED]), reported={"tests": 2}, notes=["it died"],
        running=["a::x"], output="boom\n", collection_errors=[error], compile_errors=[error],
    )  # fmt: skip
    idle = Report(runner="pytest", status=ReportStatus.NO_TESTS, command=["pytest", "c"], exit_code=5, duration_s=0.25)
    merged = merge_commands([first, second, idle])
    assert [test.id for test in merged.tests] == ["a::one", "a::one (2)", "a::two"]
    assert (merged.status, merged.exit_code, merged.signal, merged.duration_s) == (ReportStatus.CRASHED, -9, 9, 1.75)
    assert (merged.totals.tests, merged.totals.failed, merged.reported) == (3, 1, {"tests": 3})
    assert (merged.notes, merged.running, merged.output) == (["`pytest b`: it died"], ["a::x"], "boom\n")
    assert (merged.collection_errors, merged.compile_errors) == ([error], [error])
    assert merge_commands([idle, idle]).exit_code == 5
    assert merge_commands([second]) is second
