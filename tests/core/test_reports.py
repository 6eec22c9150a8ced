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
    Totals,
    add_running_tests,
    conclude,
    count_totals,
    disagreements,
    error_summary,
    expected_text,
    has_results,
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


def test_an_end_that_contradicts_the_results_is_explained() -> None:
    assert concluded(exit_code=3).notes == ["nothing failed, yet the command ended with 3"]
    assert concluded(tests=[FAILED, FAILED]).notes == ["2 tests failed, yet the command ended with 0"]
    broken = concluded(collection_errors=[Diagnostic(file="a")], compile_errors=[Diagnostic(file="b")])
    assert broken.notes == ["2 files did not load, yet the command ended with 0"]
    assert concluded(partial=True).notes == ["the runner's results are damaged: only a part could be read"]
    counted = concluded(tests=[], reported={"passed": 3, "errors": 1})
    assert counted.notes == ["1 tests failed, yet the command ended with 0"]
    assert (counted.totals.tests, counted.totals.errors, counted.status) == (4, 1, ReportStatus.INCONSISTENT)


@pytest.mark.parametrize(
    ("timed_out", "running", "note", "status"),
    [
        ("timeout", [], "stopped: out of time", ReportStatus.TIMEOUT),
        ("silence", ["a"], "stopped: no output for too long", ReportStatus.TIMEOUT),
        ("interrupt", [], "interrupted: these are the results up to then", ReportStatus.INTERRUPTED),
        ("interrupt", ["a", "b"], "interrupted in a, b: these are the results up to then", ReportStatus.INTERRUPTED),
    ],
)
def test_a_run_that_was_stopped_says_why_and_its_totals_are_not_compared(
    timed_out: str, running: list[str], note: str, status: ReportStatus
) -> None:
    report = concluded(timed_out=timed_out, running=running, reported={"passed": 9}, notes=["before"])
    assert (report.status, report.notes) == (status, [note, "before"])
    assert concluded(timed_out=timed_out, ended=False, partial=True).notes == [concluded(timed_out=timed_out).notes[0]]


def test_a_conclusion_keeps_what_it_is_given_and_names_the_signal() -> None:
    report = concluded(runner="pytest", root="x", command=["p", "q"], exit_code=-6, duration_s=2.5, running=["z"],
                       compile_errors=[Diagnostic(file="c")], reported={"tests": 1}, ended=False)  # fmt: skip
    assert (report.runner, report.root, report.command) == ("pytest", "x", ["p", "q"])
    assert (report.exit_code, report.signal) == (-6, 6)
    assert (report.duration_s, report.running, report.reported, report.totals.passed) == (2.5, ["z"], {"tests": 1}, 1)
    assert concluded(exit_code=0).signal is None and concluded(exit_code=None).signal is None


@pytest.mark.parametrize(
    ("statuses", "reported", "broken"),
    [
        ("pp", {"tests": 2, "passed": 2}, 0),
        ("psxt", {"tests": 4, "passed": 1, "skipped": 3}, 0),
        ("psxt", {"tests": 3, "passed": 3, "skipped": 1}, 0),
        ("pfe", {"tests": 3, "failed": 2, "errors": 0}, 0),
        ("pfe", {"failed": 1, "errors": 1}, 0),
        ("pf", {"tests": 3, "failed": 2}, 1),
        ("pf", {"errors": 1}, 1),
        ("pP", {"passed": 2}, 0),
        ("p", {"files": 9}, 0),
    ],
)
def test_a_runner_may_count_in_any_usual_way(statuses: str, reported: dict[str, int], broken: int) -> None:
    assert disagreements(totals_of(statuses), reported, broken) == []


@pytest.mark.parametrize(
    ("statuses", "reported", "broken"),
    [
        ("pp", {"tests": 3}, 0),
        ("pp", {"passed": 1}, 0),
        ("pf", {"failed": 2}, 0),
        ("pf", {"failed": 0}, 1),
        ("pe", {"errors": 2}, 0),
        ("ps", {"skipped": 0}, 0),
        ("pf", {"tests": 4}, 1),
    ],
)
def test_a_count_that_no_way_of_counting_explains_is_a_contradiction(
    statuses: str, reported: dict[str, int], broken: int
) -> None:
    [why] = disagreements(totals_of(statuses), reported, broken)
    [(name, claimed)] = reported.items()
    known = msgspec.structs.asdict(totals_of(statuses))[name]
    assert why == f"the runner says {claimed} {name}, its records say {known}"


def totals_of(statuses: str) -> Totals:
    order = ["passed", "failed", "error", "skipped", "xfailed", "xpassed", "todo"]
    kinds = {letter: TestStatus(name) for letter, name in zip("pfesxPt", order, strict=True)}
    return count_totals(TestResult(id=str(n), status=kinds[letter]) for n, letter in enumerate(statuses))


def test_contradictions_are_listed_by_name() -> None:
    found = disagreements(totals_of("p"), {"tests": 9, "failed": 1, "passed": 5}, 0)
    assert [text.split()[4].rstrip(",") for text in found] == ["failed", "passed", "tests"]


def test_a_test_that_hung_or_was_running_at_the_death_of_the_runner_is_located() -> None:
    hung = add_running_tests(
        concluded(timed_out="timeout", running=["a::one", "t.py::three"]), {"t.py::three": ("x.py", 7)}
    )
    assert [test.id for test in hung.tests] == ["a::one", "t.py::three"], "what has a result is not added again"
    last = hung.tests[-1]
    assert last.failure and (last.failure.type, last.file, last.line, last.name) == ("Hung", "x.py", 7, "three")
    assert last.failure.message == "t.py::three was still running when the time ran out"
    assert (hung.totals.tests, hung.totals.errors) == (2, 1)
    for code, how in (
        (-9, "was killed by SIGKILL"),
        (-99, "was killed by 99"),
        (None, "died"),
        (3, "died (exit code 3)"),
    ):
        lost = add_running_tests(concluded(ended=False, running=["three"], exit_code=code)).tests[-1]
        assert lost.failure and lost.failure.message == f"three was running when the runner {how}"
        assert (lost.failure.type, lost.name, lost.file, lost.line) == ("Crashed", "", "", 0)


def test_a_run_that_ended_has_no_running_tests_to_add() -> None:
    for report in (concluded(running=["z"]), concluded(ended=False), concluded(timed_out="interrupt", running=["z"])):
        assert add_running_tests(report) is report


def test_targets_are_merged_with_their_notes_errors_and_outputs() -> None:
    error = Diagnostic(file="b", message="no")
    one = concluded(root="x", runner="pytest", duration_s=1.25, exit_code=0)
    two = msgspec.structs.replace(
        concluded(root=".", runner="go", tests=[FAILED], exit_code=2, collection_errors=[error], duration_s=0.5),
        output="boom\n", notes=["noted"], running=["r"],
    )  # fmt: skip
    three = msgspec.structs.replace(
        concluded(root="z", runner="go", exit_code=1, tests=[FAILED], compile_errors=[error], running=["r"]),
        output="b\n",
    )
    whole = merge_targets([msgspec.structs.replace(one, output="fine\n"), two, three])
    assert (whole.runner, whole.exit_code, whole.duration_s, whole.output) == ("pytest+go", 2, 2.75, "boom\nb\n")
    assert (whole.notes, whole.running) == (["go: noted"], ["r", "z/r"])
    assert [found.file for found in (*whole.collection_errors, *whole.compile_errors)] == ["b", "z/b"]
    assert [test.target for test in whole.tests] == ["pytest@x", "go", "go@z"]
    assert whole.totals == count_totals(whole.tests)
    assert [(part.runner, part.exit_code) for part in whole.parts] == [("pytest", 0), ("go", 2), ("go", 1)]
    assert (merge_targets([]).runner, merge_targets([]).exit_code) == ("none", None)
    assert merge_targets([one, one]).exit_code == 0


def test_one_target_below_the_repository_is_moved_and_absolute_paths_stay() -> None:
    frames = [Frame(file="src", line=1), Frame(file="/usr/lib/x", line=2)]
    failure = Failure(type="E", file="", frames=frames)
    test = TestResult(id="a::b", status=TestStatus.FAILED, file="a", failure=failure, target="given")
    moved = merge_targets([concluded(root="x", tests=[test, PASSED], exit_code=1)]).tests
    assert (moved[0].id, moved[0].file, moved[0].target, moved[1].failure) == ("x/a::b", "x/a", "given", None)
    assert moved[0].failure and [frame.file for frame in moved[0].failure.frames] == ["x/src", "/usr/lib/x"]
    assert moved[0].failure.file == ""


@pytest.mark.parametrize("grave", list(ReportStatus))
def test_the_gravest_status_of_parts_is_that_of_the_whole(grave: ReportStatus) -> None:
    order = ["interrupted", "timeout", "crashed", "error", "inconsistent", "unknown", "failed", "passed", "no_tests"]
    reports = [Report(runner="r", status=ReportStatus(name)) for name in order[order.index(grave) :]]
    assert merge_targets([*reports[::-1], reports[0]]).status is grave
    if grave is not ReportStatus.NO_TESTS:
        assert merge_commands([*reports[::-1], reports[0]]).status is grave


def test_an_error_of_a_file_with_results_happened_outside_of_its_tests() -> None:
    report = Report(
        runner="r", status=ReportStatus.FAILED, tests=[TestResult(id="a", status=TestStatus.PASSED, file="p/a.go")]
    )
    for file in ("p/a.go", "p", ""):
        assert error_summary(Diagnostic(file=file), report) == "went wrong outside of its tests"
    for file in ("p/b.go", "."):
        assert error_summary(Diagnostic(file=file), report) == "does not load"
    top = Report(
        runner="r", status=ReportStatus.FAILED, tests=[TestResult(id="a", status=TestStatus.PASSED, file="a.go")]
    )
    assert has_results(Diagnostic(file="."), top)


def test_a_report_in_junit_counts_and_keeps_everything() -> None:
    frames = [Frame(file="s.py", line=2, function="f"), Frame(file="t.py", line=9)]
    failed = Failure(type="E", message="no", expected="4", actual="3", frames=frames)
    tests = [
        TestResult(id="a.py::one", name="one", file="a.py", status=TestStatus.PASSED, duration_s=0.5),
        TestResult(id="a.py::two", name="two", file="a.py", status=TestStatus.FAILED, duration_s=0.25, failure=failed),
        TestResult(id="three", status=TestStatus.SKIPPED, reason="slow & old"),
        TestResult(id="four", status=TestStatus.XFAILED, reason="known"),
        TestResult(id="five", status=TestStatus.TODO),
        TestResult(id="six", status=TestStatus.ERROR),
    ]
    broken = [Diagnostic(file="c.py", type="SyntaxError", message="a < b")]
    report = Report(runner="py", status=ReportStatus.FAILED, tests=tests, totals=count_totals(tests), duration_s=1.5,
                    collection_errors=broken)  # fmt: skip
    assert exports.junit(report).split("\n") == [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<testsuites name="py" tests="7" failures="1" errors="2" skipped="3" time="1.500">',
        '  <testsuite name="a.py" tests="2" failures="1" errors="0" skipped="0" time="0.750">',
        '    <testcase classname="a.py" name="one" file="a.py" time="0.500"/>',
        '    <testcase classname="a.py" name="two" file="a.py" time="0.250">',
        '      <failure type="E" message="no">E: no',
        "expected: 4",
        "actual: 3",
        "  at f (s.py:2)",
        "  at t.py:9</failure>",
        "    </testcase>",
        "  </testsuite>",
        '  <testsuite name="py" tests="4" failures="0" errors="1" skipped="3" time="0.000">',
        '    <testcase classname="" name="three" time="0.000">',
        '      <skipped message="slow &amp; old"/>',
        "    </testcase>",
        '    <testcase classname="" name="four" time="0.000">',
        '      <skipped type="pytest.xfail" message="known"/>',
        "    </testcase>",
        '    <testcase classname="" name="five" time="0.000">',
        '      <skipped type="todo" message=""/>',
        "    </testcase>",
        '    <testcase classname="" name="six" time="0.000">',
        '      <error type="" message=""></error>',
        "    </testcase>",
        "  </testsuite>",
        '  <testsuite name="files that did not load" tests="1" failures="0" errors="1">',
        '    <testcase classname="c.py" name="c.py">',
        '      <error type="SyntaxError" message="a &lt; b"/>',
        "    </testcase>",
        "  </testsuite>",
        "</testsuites>",
        "",
    ]


def test_what_xml_cannot_hold_is_replaced() -> None:
    test = TestResult(id="a\0b", status=TestStatus.PASSED, stdout="x\x1b[31m\ud800\ufffe y\t")
    text = exports.junit(Report(runner="r", status=ReportStatus.PASSED, tests=[test]))
    assert 'name="a�b"' in text and "<system-out>x�[31m�� y\t</system-out>" in text


def test_a_report_in_ctrf_counts_and_keeps_everything() -> None:
    failure = Failure(type="E", message="no", expected="4", actual="3", file="a.py", line=2)
    tests = [
        TestResult(
            id="a::one", status=TestStatus.PASSED, file="a.py", line=3, suite=["S"], duration_s=0.0016, attempts=3
        ),
        TestResult(id="a::two", status=TestStatus.ERROR, failure=failure, attempts=2),
        TestResult(id="a::three", status=TestStatus.XFAILED),
        TestResult(id="a::four", status=TestStatus.TODO),
    ]
    report = Report(runner="py", status=ReportStatus.FAILED, tests=tests, notes=["noted"],
                    compile_errors=[Diagnostic(file="c", type="T", message="m")])  # fmt: skip
    assert exports.ctrf(report, start_ms=5, stop_ms=9) == {
        "reportFormat": "CTRF",
        "specVersion": "0.0.0",
        "results": {
            "tool": {"name": "py"},
            "summary": {
                "tests": 5, "passed": 1, "failed": 2, "skipped": 1, "pending": 1, "other": 0, "start": 5, "stop": 9,
            },
            "tests": [
                {"name": "a::one", "status": "passed", "duration": 2, "rawStatus": "passed", "filePath": "a.py",
                 "line": 3, "suite": ["S"], "retries": 2, "flaky": True},
                {"name": "a::two", "status": "failed", "duration": 0, "rawStatus": "error", "retries": 1,
                 "flaky": False, "message": "no", "trace": "E: no\nexpected: 4\nactual: 3\n  at a.py:2",
                 "extra": {"type": "E", "expected": "4", "actual": "3"}},
                {"name": "a::three", "status": "skipped", "duration": 0, "rawStatus": "xfailed"},
                {"name": "a::four", "status": "pending", "duration": 0, "rawStatus": "todo"},
                {"name": "c", "status": "failed", "duration": 0, "message": "T: m"},
            ],
            "extra": {"status": "failed", "notes": ["noted"]},
        },
    }  # fmt: skip


def test_annotations_stand_at_the_line_of_the_failure_else_of_the_test() -> None:
    tests = [
        TestResult(
            id="one", status=TestStatus.FAILED, file="t.py", line=2, failure=Failure(message="no", file="s.py", line=7)
        ),
        TestResult(id="two", status=TestStatus.ERROR, file="t.py", line=2),
        TestResult(id="three", status=TestStatus.FAILED, file="/abs/t.py"),
        TestResult(id="four", status=TestStatus.PASSED, file="t.py"),
    ]
    errors = [Diagnostic(file="c.py", line=3, column=4, type="SyntaxError", message="bad"), Diagnostic(file="d.py")]
    report = Report(runner="r", status=ReportStatus.FAILED, tests=tests, collection_errors=errors)
    assert list(exports.github(report, inside="x")) == [
        "::error file=x/c.py,line=3,col=4,title=SyntaxError::bad",
        "::error file=x/d.py,title=does not load::",
        "::error file=x/s.py,line=7,title=one::no%0A  at s.py:7",
        "::error file=x/t.py,line=2,title=two::",
        "::error file=/abs/t.py,title=three::",
    ]
    assert next(iter(exports.github(report))).startswith("::error file=c.py,")


def test_exports_show_the_stack_of_a_failure_whose_own_line_is_unknown() -> None:
    failure = Failure(message="no", frames=[Frame(file="s.py", line=2, function="f")])
    test = TestResult(id="a", status=TestStatus.FAILED, failure=failure)
    report = Report(runner="r", status=ReportStatus.FAILED, tests=[test])
    assert "no\n  at f (s.py:2)" in exports.junit(report)
    assert exports.ctrf(report, start_ms=0, stop_ms=1)["results"]["tests"][0]["trace"] == "no\n  at f (s.py:2)"
