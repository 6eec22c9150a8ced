"""Ways of writing that came from reading other people's reports: one small document for each, written by us."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import BinaryIO

import pytest

from ratchet.checks.formats import (
    Parsed,
    allure_json,
    cargo,
    catch2_xml,
    cpp_xml,
    ctrf_json,
    cucumber_json,
    cucumber_messages,
    dotnet_xml,
    go_json,
    jest_json,
    junit,
    mocha_json,
    nim,
    playwright_json,
    rspec_json,
    tap,
    trx,
    unknown,
)
from ratchet.checks.run.ci_log import parse_ci_log
from ratchet.core.exports import ctrf
from ratchet.core.report import RED, Failure, Report, ReportStatus, TestResult, TestStatus, count_totals


def read(parse: Callable[[BinaryIO], Parsed], document: str) -> Parsed:
    return parse(io.BytesIO(document.encode()))


def only_failure(document: str) -> Failure:
    (failure,) = [test.failure for test in read(junit.parse, document).tests if test.failure]
    return failure


def test_tap_escapes_a_hash_and_a_backslash() -> None:
    result = read(tap.parse, "TAP version 14\npragma +strict\n1..1\nok 1 - a \\\\ b \\# c # skip today\n")
    assert [(test.id, test.status, test.reason) for test in result.tests] == [
        ("a \\ b # c", TestStatus.SKIPPED, "today")
    ]


def test_tap_diffs_may_be_folded_and_a_point_without_words_is_identified_by_its_name() -> None:
    rows = ["not ok 1 - should match", "  ---", "  diff: >", "    --- expected", "", "    +++ actual", "",
            "    @@ -1,1 +1,1 @@", "", "    -one", "    two", "", "    +three", "  ...", "1..1", ""]  # fmt: skip
    (test,) = read(tap.parse, "\n".join(rows)).tests
    assert test.failure
    assert (test.failure.message, test.failure.expected, test.failure.actual) == ("should match", "one two", "three")


def nimble(*printed: str) -> Parsed:
    return read(nim.parse, "".join(f"  Compiling /w/tests/{text}\n" for text in printed))


def test_a_file_of_nims_that_only_asserts_is_a_test() -> None:
    good, bad = "   Success: Execution finished", "     Error: Execution failed with exit code 1"
    died = "Error: unhandled exception: /w/tests/b.nim(7, 10) `1 == 2`  [AssertionDefect]"
    backend = "(from package p) using c backend"
    result = nimble(f"a {backend}\n{good}", f"c {backend}\n[Suite] s\n  [OK] t\n{good}", f"b {backend}\n{died}\n{bad}")
    assert [(test.id, test.file, test.status.value) for test in result.tests] == [
        ("/w/tests/a.nim", "/w/tests/a.nim", "passed"),
        ("s::t", "/w/tests/c.nim", "passed"),
        ("/w/tests/b.nim", "/w/tests/b.nim", "failed"),
    ]
    failure = result.tests[2].failure
    assert failure
    assert (failure.type, failure.message, failure.line) == ("AssertionDefect", "`1 == 2`", 7)


def test_omissions_are_skips_in_rubys_older_summary() -> None:
    printed = "606 tests, 1471 assertions, 1 failures, 0 errors, 2 pendings, 1 omissions, 0 notifications\n"
    assert read(unknown.parse, printed).reported == {"tests": 606, "failed": 1, "errors": 0, "skipped": 3}


def test_the_summary_of_node_tap_is_not_output_of_the_last_point() -> None:
    printed = b"# Subtest: a.js\n    not ok 1 - x\n      ---\n      type: TypeError\n      ...\n    \n    1..1\n"
    tally = b"    # failed 1 test\n    # time=12.5ms\nnot ok 1 - a.js # time=12.5ms\n1..1\n# failed 1 of 1 tests\n"
    (test,) = tap.parse(io.BytesIO(printed + tally)).tests
    assert test.failure
    assert (test.failure.type, test.failure.message) == ("TypeError", "x")


def test_tap_that_bails_out_has_not_ended_and_keeps_what_came_before() -> None:
    result = read(tap.parse, "1..3\nok 1 - a\nBail out! the database is gone\n")
    assert not result.ended
    assert "bailed out: the database is gone" in result.notes
    assert [test.id for test in result.tests] == ["a"]


def test_gotestsum_frames_a_tests_output_and_the_headline_is_its_message() -> None:
    printed = "=== RUN   TestB/sub\n    b_test.go:7: got 1, want 2\n--- FAIL: TestB/sub (0.00s)\n"
    failure = only_failure(
        '<testsuites><testsuite name="example.com/shop"><testcase classname="example.com/shop" name="TestB/sub" '
        f'time="0"><failure message="Failed" type="">{printed}</failure></testcase></testsuite></testsuites>'
    )
    assert failure.message == "b_test.go:7: got 1, want 2"
    assert (failure.expected, failure.actual, failure.file, failure.line) == ("2", "1", "b_test.go", 7)


def test_dart_points_to_its_stack_and_the_headline_is_what_stands_before_it() -> None:
    body = "Failure:\nExpected: &lt;4&gt;\n  Actual: &lt;5&gt;\n\nStack trace:\ntest/a_test.dart 8:5  main.&lt;fn&gt;\n"
    failure = only_failure(
        '<testsuites><testsuite name="simple"><testcase classname="test.simple" name="fails" time="0.1">'
        f'<failure message="1 failure, see stacktrace for details">{body}</failure></testcase></testsuite></testsuites>'
    )
    assert failure.message == "Expected: <4>\n  Actual: <5>"
    assert (failure.expected, failure.actual, failure.file, failure.line) == ("4", "5", "test/a_test.dart", 8)


def test_a_blank_line_before_the_declaration_is_no_damage() -> None:
    result = read(junit.parse, '\n<?xml version="1.0"?><testsuite tests="1"><testcase name="a"/></testsuite>')
    assert result.ended
    assert not result.partial


def test_a_case_inside_a_case_costs_neither() -> None:
    inner = '<testcase name="inner"><skipped/></testcase>'
    result = read(junit.parse, f'<testsuite><testcase name="outer"><failure/>{inner}</testcase></testsuite>')
    assert [(test.id, test.status.value) for test in result.tests] == [("inner", "skipped"), ("outer", "failed")]


def test_a_tap_directive_is_a_whole_word() -> None:
    result = read(tap.parse, "1..3\nnot ok 1 - a # TODOORNOT\nnot ok 2 - b # TODO: later\nok 3 - c # skipped: never\n")
    assert [test.status.value for test in result.tests] == ["failed", "todo", "skipped"]


def test_a_tap_number_outside_the_plan_is_a_contradiction() -> None:
    result = read(tap.parse, "1..2\nok 1\nok 5\n")
    assert result.notes == ["test 5 is outside the plan 1..2"]
    assert not result.ended


def test_two_mocha_tests_of_one_title_are_two() -> None:
    row = {"title": "t", "fullTitle": "s t", "file": "a.js", "duration": 1}
    bad = {**row, "err": {"message": "no"}}
    document = {"stats": {"tests": 2}, "tests": [row, row], "passes": [row], "failures": [bad], "pending": []}
    result = read(mocha_json.parse, json.dumps(document))
    assert sorted((test.id, test.status.value) for test in result.tests) == [
        ("a.js::s t", "passed"),
        ("a.js::s t #2", "failed"),
    ]


def test_what_a_playwright_test_threw_need_not_be_an_error_and_old_documents_have_no_statistics() -> None:
    test = {
        "status": "unexpected",
        "expectedStatus": "passed",
        "results": [{"status": "failed", "error": {"value": "7"}}],
    }
    document = {"config": {}, "suites": [{"title": "a", "specs": [{"title": "t", "file": "a.ts", "tests": [test]}]}]}
    result = read(playwright_json.parse, json.dumps(document))
    assert result.ended
    assert [test.failure.message for test in result.tests if test.failure] == ["7"]


def test_old_vitest_takes_for_passed_whatever_has_not_failed_and_that_is_no_contradiction() -> None:
    rows = [{"status": status, "title": status, "fullName": status} for status in ("passed", "skipped", "failed")]
    counts = {"numTotalTests": 3, "numPassedTests": 2, "numFailedTests": 1, "numPendingTests": 0}
    document = {**counts, "testResults": [{"name": "a.test.ts", "assertionResults": rows}]}
    assert read(jest_json.parse, json.dumps(document)).reported == {"tests": 3, "failed": 1}


def go(*events: tuple[str, str]) -> str:
    rows = [{"Action": action, "Package": "p", **({"Test": name} if name else {})} for action, name in events]
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_a_go_test_that_runs_again_after_its_package_was_over_is_tried_again() -> None:
    first = go(("run", "TestA"), ("fail", "TestA"), ("run", "TestB"), ("pass", "TestB"), ("fail", ""))
    result = read(go_json.parse, first + go(("run", "TestA"), ("pass", "TestA"), ("pass", "")))
    assert [(test.id, test.status.value, test.attempts) for test in result.tests] == [
        ("p.TestA", "passed", 2),
        ("p.TestB", "passed", 1),
    ]
    assert result.ended


def test_a_go_test_that_is_counted_twice_in_one_run_is_two() -> None:
    result = read(
        go_json.parse, go(("run", "TestA"), ("fail", "TestA"), ("run", "TestA"), ("pass", "TestA"), ("fail", ""))
    )
    assert [(test.id, test.status.value) for test in result.tests] == [("p.TestA", "failed"), ("p.TestA #2", "passed")]


def test_a_go_test_whose_process_died_is_named_and_those_that_waited_are_not() -> None:
    waiting = (("run", "TestA"), ("pause", "TestA"), ("run", "TestB"), ("run", "TestB/inner"))
    result = read(go_json.parse, go(*waiting, ("fail", "")))
    assert [(test.id, test.status.value) for test in result.tests] == [("p.TestB/inner", "error")]
    assert (result.running, result.ended) == (["p.TestB/inner"], False)


def test_a_panic_outside_of_a_go_tests_own_goroutine_is_the_tests() -> None:
    printed = "panic: late\n\ngoroutine 8 [running]:\np.TestA.func1()\n\t/w/a_test.go:17 +0x27\n"
    panic = json.dumps({"Action": "output", "Package": "p", "Test": "TestA", "Output": printed}) + "\n"
    result = read(go_json.parse, go(("run", "TestA")) + panic + go(("fail", "")))
    failure = result.tests[0].failure
    assert failure
    assert (failure.type, failure.message, failure.file, failure.line) == ("panic", "late", "/w/a_test.go", 17)
    assert result.ended


def test_what_a_rust_test_prints_like_a_summary_ends_no_run() -> None:
    events = [{"type": "suite", "event": "started", "test_count": 1}, {"type": "test", "event": "started", "name": "a"}]
    forged = "test a ... ok\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n"
    result = read(cargo.parse, "\n".join(map(json.dumps, events)) + "\n" + forged)
    assert (result.ended, result.running, result.tests) == (False, ["a"], [])


def test_go_events_may_come_without_a_package() -> None:
    rows = [{"Action": "run", "Test": "TestA"}, {"Action": "pass", "Test": "TestA"}, {"Action": "pass"}]
    result = read(go_json.parse, "\n".join(map(json.dumps, rows)))
    assert result.ended
    assert [test.id for test in result.tests] == ["TestA"]


def printed(name: str, *rows: str, kind: str = "") -> str:
    more = {"OutputType": kind} if kind else {}
    events = ({"Action": "output", "Package": "p", "Test": name, "Output": f"{row}\n"} | more for row in rows)
    return "".join(json.dumps(event) + "\n" for event in events)


def failed_go(*rows: str, more: str = "") -> Failure:
    text = go(("run", "TestA")) + printed("TestA", *rows) + more + go(("fail", "TestA"), ("fail", ""))
    failure = read(go_json.parse, text).tests[0].failure
    assert failure
    return failure


def test_gos_verdict_behind_what_a_test_printed_without_a_line_end_is_its_verdict() -> None:
    text = go(("run", "TestA")) + printed("TestA", "no line end--- PASS: TestA (0.25s)")
    for end in ("pass", "fail", "run"):
        (test,) = read(go_json.parse, text + go((end, "TestB" if end == "run" else ""))).tests
        assert (test.id, test.status, test.duration_s) == ("p.TestA", TestStatus.PASSED, 0.25)


def test_go_tests_that_wait_for_their_subtests_are_not_reported_as_hanging() -> None:
    text = go(("run", "TestA"), ("run", "TestA/b"), ("run", "TestA/b/c"), ("run", "TestD"), ("pause", "TestD"))
    assert read(go_json.parse, text).running == ["p.TestA/b/c"]


def test_a_go_test_without_a_word_does_not_blame_a_subtest_it_does_not_have() -> None:
    inner = go(("run", "TestA"), ("run", "TestA/b"), ("fail", "TestA/b"), ("fail", "TestA"), ("fail", ""))
    messages = [test.failure.message for test in read(go_json.parse, inner).tests if test.failure]
    assert messages == ["it failed, and says nothing of why", "a subtest failed"]


def test_the_panic_of_a_go_subtest_is_its_own_in_every_go_version() -> None:
    begun = go(("run", "TestA"), ("run", "TestA/b"), ("run", "TestA/b/c"), ("fail", "TestA/b/c"), ("fail", "TestA/b"))
    panic = printed(
        "TestA", "panic: boom [recovered, repanicked]", "", "goroutine 8 [running]:", "p.f()", "\t/p/a_test.go:5"
    )
    tests = read(go_json.parse, begun + panic + go(("fail", "TestA"), ("fail", ""))).tests
    assert [(test.name, test.failure and test.failure.message, test.stdout) for test in tests] == [
        ("TestA/b/c", "boom", "panic: boom [recovered, repanicked]"),
        ("TestA/b", "a subtest failed", ""),
        ("TestA", "a subtest failed", ""),
    ]


def test_what_go_prints_below_words_on_lines_of_their_own_are_the_values() -> None:
    blocks = ("    a_test.go:4: no:", "        Got:", "        a", "        b", "        expected:", "        c")
    for rows in (blocks, ("something", "got:", "a", "b", "want (unordered):", "c")):
        failure = failed_go(*rows)
        assert (failure.expected, failure.actual) == ("c", "a\nb")


def test_a_go_test_that_is_skipped_without_a_reason_has_none() -> None:
    text = go(("run", "TestA")) + printed("TestA", "    a_test.go:3: ") + go(("skip", "TestA"), ("pass", ""))
    assert [test.reason for test in read(go_json.parse, text).tests] == [""]


def test_errors_that_go_marks_are_reported_and_not_the_log_lines_before() -> None:
    error = printed("TestA", "    a_test.go:4: got 1, want 2", kind="error")
    failure = failed_go("    a_test.go:3: fine", more=error)
    assert (failure.line, failure.message, failure.expected) == (4, "got 1, want 2", "2")


def test_a_go_example_has_expected_and_actual_lines() -> None:
    failure = failed_go("got:", "a", "b", "want:", "a", "c")
    assert (failure.expected, failure.actual) == ("a\nc", "a\nb")


_RACE = """==================
WARNING: DATA RACE
Read at 0x00c000014108 by goroutine 7:
  p.TestA()
      /w/p/a_test.go:9 +0x10c
  testing.tRunner()
      /usr/lib/go-1.19/src/testing/testing.go:1446 +0x216

Previous write at 0x00c000014108 by goroutine 8:
  p.TestA.func1()
      /w/p/a_test.go:8 +0x44

Goroutine 8 (finished) created at:
  p.TestA()
      /w/p/a_test.go:7 +0xc4
==================
    testing.go:1319: race detected during execution of test"""
_OVERDUE = """panic: test timed out after 2s

goroutine 17 [running]:
testing.(*M).startAlarm.func1()
	/usr/lib/go-1.19/src/testing/testing.go:2036 +0x8e

goroutine 6 [chan receive]:
testing.(*T).Run(0xc0000, {0x52, 0x4}, 0x52)
	/usr/lib/go-1.19/src/testing/testing.go:1494 +0x37a
p.TestA(0xc0)
	/w/p/a_test.go:7 +0x33

goroutine 7 [select (no cases)]:
p.TestA.func1(0xc0)
	/w/p/a_test.go:8 +0x1
created by testing.(*T).Run
	/usr/lib/go-1.19/src/testing/testing.go:1493 +0x35f"""
_SUITE = """    suite.go:77: test panicked: oh
        goroutine 8 [running]:
        github.com/stretchr/testify/suite.failOnPanic(0xc0)
        \t/w/vendor/github.com/stretchr/testify/suite/suite.go:77 +0x3b
        p.(*S).TestA(0x0)
        \t/w/p/a_test.go:29 +0x27"""


@pytest.mark.parametrize(
    ("output", "message", "line"),
    [(_RACE, "race detected during execution of test", 9), (_OVERDUE, "test timed out after 2s", 8),
     (_SUITE, "test panicked: oh", 29)],
)  # fmt: skip
def test_go_stacks_lead_to_the_line_of_the_project_and_are_not_repeated(output: str, message: str, line: int) -> None:
    text = go(("run", "TestA")) + printed("TestA", *output.split("\n")) + go(("fail", "TestA"), ("fail", ""))
    (test,) = read(go_json.parse, text).tests
    assert test.failure
    assert (test.failure.message, test.failure.file, test.failure.line) == (message, "/w/p/a_test.go", line)
    assert "a_test.go:7" not in test.stdout


def test_a_testify_table_becomes_the_message() -> None:
    rows = ["    a_test.go:14: ", "        \tError Trace:\t/w/a_test.go:14", "        \tError:      \tNot equal: ",
            "        \t            \texpected: 1", "        \t            \tactual  : 2",
            "        \tTest:       \tTestA", "        \tMessages:   \tsome numbers"]  # fmt: skip
    failure = failed_go(*rows)
    assert failure.message == "some numbers\nNot equal: \nexpected: 1\nactual  : 2"
    assert (failure.line, failure.expected, failure.actual) == (14, "1", "2")


def test_nunit_3_names_cases_in_full_and_an_assembly_that_it_cannot_run() -> None:
    stack = "   at A.B.Adds() in /w/B.cs:line 12&#10;"
    document = f"""<test-run total="3" passed="1" failed="1" skipped="0" inconclusive="1">
      <test-suite type="Assembly" fullname="gone.dll" label="Invalid" result="Failed"><reason><message>no file</message>
      </reason></test-suite><test-suite type="TestFixture" classname="A.B">
      <test-case name="Good(1)" fullname="A.B.Good(1)" classname="A.B" result="Passed" duration="0.5"/>
      <test-case name="Adds" fullname="A.B.Adds" classname="A.B" result="Failed"><assertions><assertion>
      <message>  Expected: 4&#10;  But was:  3</message></assertion></assertions><failure>
      <message>  Expected: 4&#10;  But was:  3&#10;</message><stack-trace>{stack}</stack-trace></failure></test-case>
      <test-case name="Odd" fullname="A.B.Odd" classname="A.B" result="Inconclusive"><reason><message>why</message>
      </reason></test-case></test-suite></test-run>"""
    result = read(dotnet_xml.parse, document)
    assert [(test.id, test.name, test.status.value, test.reason) for test in result.tests] == [
        ("A.B.Good(1)", "Good(1)", "passed", ""),
        ("A.B.Adds", "Adds", "failed", ""),
        ("A.B.Odd", "Odd", "skipped", "why"),
    ]
    failure = result.tests[1].failure
    assert failure
    assert (failure.expected, failure.actual, failure.file, failure.line) == ("4", "3", "/w/B.cs", 12)
    assert failure.message.count("Expected") == 1
    assert [(error.file, error.message) for error in result.collection_errors] == [("gone.dll", "no file")]
    assert (result.ended, result.reported) == (True, {"tests": 3, "passed": 1, "failed": 1, "skipped": 1})


def test_a_document_of_nunits_may_be_one_suite_without_a_run_around_it() -> None:
    cases = "<test-case fullname='A.B' result='Passed'/><test-case fullname='A.C' result='Failed'/>"
    counts = "total='2' passed='1' failed='1'"
    document = f"<test-suite type='Assembly' {counts}><test-suite {counts}>{cases}</test-suite></test-suite>"
    result = read(dotnet_xml.parse, document)
    assert (len(result.tests), result.ended, result.partial) == (2, True, False)
    assert result.reported == {"tests": 2, "passed": 1, "failed": 1}


def test_a_case_that_nunit_2_could_not_even_run_is_no_skip() -> None:
    case = "<test-case name='A.B' executed='False' result='NotRunnable'><reason><message>one argument too few</message>"
    document = f"<test-results errors='1' invalid='1'>{case}</reason></test-case></test-results>"
    result = read(dotnet_xml.parse, document)
    assert [(test.status, test.failure and test.failure.message) for test in result.tests] == [
        (TestStatus.ERROR, "one argument too few")
    ]
    assert result.reported == {"errors": 2}


@pytest.mark.parametrize("root", ["TestLog", "TestRun"])
def test_elements_of_catch2s_names_in_anothers_document_are_not_its_tests(root: str) -> None:
    document = (
        f"<{root}><TestSuite name='a'><TestCase name='b'><TestingTime>0</TestingTime></TestCase></TestSuite></{root}>"
    )
    assert not read(catch2_xml.parse, document).tests


def test_a_boost_log_that_broke_off_keeps_the_cases_that_ended() -> None:
    case = "<TestCase name='b'><Error file='c.cpp' line='3'><![CDATA[check 1 == 2 has failed]]></Error></TestCase>"
    result = read(cpp_xml.parse, f"<TestLog><TestSuite name='m'>{case}<TestCase name='c'><Info>")
    assert [(test.id, test.status) for test in result.tests] == [("b", TestStatus.FAILED)]
    assert (result.ended, result.partial) == (False, True)


def test_surefire_may_count_every_attempt_as_a_test() -> None:
    tries = "<flakyFailure message='no'/><flakyFailure message='no'/>"
    document = (
        f"<testsuite tests='4' failures='2'><testcase name='a'>{tries}</testcase><testcase name='b'/></testsuite>"
    )
    result = read(junit.parse, document)
    assert [(test.status.value, test.attempts) for test in result.tests] == [("passed", 3), ("passed", 1)]
    assert (result.reported, result.notes) == ({"tests": 2, "failed": 0}, [])


def test_early_nunit_may_say_no_more_than_whether_a_case_was_executed() -> None:
    document = """<test-results total="3"><test-suite><results><test-case name="A.good" executed="True"/>
      <test-case name="A.left" executed="False"><reason><message>later</message></reason></test-case>
      <test-case name="A.bad" executed="True"><failure><message>no</message></failure></test-case>
      <test-case name="A.off" result="Error"><failure><message>boom</message></failure></test-case>
      </results></test-suite></test-results>"""
    result = read(dotnet_xml.parse, document)
    assert [test.status.value for test in result.tests] == ["passed", "skipped", "failed", "error"]
    assert result.ended


def test_xunits_own_file_has_cases_in_collections_and_errors_beside_them() -> None:
    document = """<assemblies><assembly total="2" passed="0" failed="1" skipped="1"><errors>
      <error type="fixture-cleanup" name="Db"><failure exception-type="System.Exception"><message>locked</message>
      </failure></error></errors><collection><test name="A.B.Adds(n: 1)" type="A.B" method="Adds" time="0.1"
      result="Fail"><failure exception-type="Xunit.Sdk.EqualException"><message>Assert.Equal() Failure&#10;Expected: 4
Actual:   3</message><stack-trace>at A.B.Adds(Int32 n) in C:\\w\\B.cs:line 7</stack-trace></failure></test>
      <test name="A.B.Later" type="A.B" method="Later" result="Skip"><reason>slow</reason></test>
      </collection></assembly></assemblies>"""
    result = read(dotnet_xml.parse, document)
    first, second = result.tests
    assert (first.id, second.status.value, second.reason) == ("A.B.Adds(n: 1)", "skipped", "slow")
    assert first.failure
    assert (first.failure.type, first.failure.expected, first.failure.line) == ("Xunit.Sdk.EqualException", "4", 7)
    assert [(error.file, error.type) for error in result.collection_errors] == [("Db", "System.Exception")]
    assert result.reported == {"tests": 2, "passed": 0, "failed": 1, "skipped": 1}


def dotnet(results: str, counters: str, info: str) -> Parsed:
    infos = f'<RunInfos><RunInfo outcome="Error"><Text>{info}</Text></RunInfo></RunInfos>' if info else ""
    summary = f'<ResultSummary outcome="Failed"><Counters {counters}/>{infos}</ResultSummary>'
    return read(trx.parse, f"<TestRun><Results>{results}</Results>{summary}</TestRun>")


RED_ROW = '<UnitTestResult testName="A.B" outcome="Failed"/>'


def test_xunit_says_twice_that_a_test_failed_and_that_is_no_contradiction() -> None:
    assert not dotnet(RED_ROW, 'total="1" failed="1"', "[xUnit.net 00:00:00.39]     A.B [FAIL]").notes
    assert not dotnet(RED_ROW, 'total="1" failed="1"', "Exit code indicates failure: &apos;2&apos;.").notes
    assert dotnet(RED_ROW, 'total="1" failed="1"', "Test host process crashed").notes == ["Test host process crashed"]
    assert dotnet("", 'total="0"', "Exit code indicates failure: &apos;2&apos;.").notes


def test_the_totals_of_a_data_driven_test_count_its_rows_and_not_the_test_that_holds_them() -> None:
    held = f'<UnitTestResult testName="A" outcome="Failed"><InnerResults>{RED_ROW}</InnerResults></UnitTestResult>'
    result = dotnet(held, 'total="2" failed="2"', "")
    assert [test.id for test in result.tests] == ["A.B"]
    assert result.reported == {"tests": 1, "failed": 1}


def test_uvu_counts_those_that_ran_and_the_skipped_besides() -> None:
    printed = "\n  Total:     3\n  Passed:    2\n  Skipped:   1\n  Duration:  3.79ms\n"
    assert read(unknown.parse, printed).reported == {"tests": 4, "passed": 2, "failed": 1, "skipped": 1}


def test_half_of_uvus_summary_says_nothing() -> None:
    assert read(unknown.parse, "  Total:     3\n  Passed:    2\n").reported == {}


def test_what_junits_own_console_says_is_counted_and_what_only_resembles_it_is_not() -> None:
    red = "JUnit version 4.13.2\n..E.EI\nTime: 0.015\nThere were 2 failures:\n1) boom(SumTest)\n"
    assert read(unknown.parse, f"{red}\nFAILURES!!!\nTests run: 3,  Failures: 2\n\n").reported == {
        "tests": 3,
        "failed": 2,
    }
    assert read(unknown.parse, "JUnit version 4.13.2\n.\nTime: 0\n\nOK (1 test)\n").reported == {
        "tests": 1,
        "failed": 0,
    }
    assert read(unknown.parse, "OK (1 test)\n").reported == {}
    assert read(unknown.parse, f"{red}Tests run: 3,  Failures: 2\nJUnit version 4\nOK (9 tests)\n").reported == {}


def test_failures_are_the_same_only_if_all_of_their_text_is() -> None:
    """What was read once is known again by how it begins and how long it is, and then compared."""
    printed = [f"{'x' * 300}\n\tat com.acme.A.b(A.java:{line})" for line in (1, 2, 1)]
    cases = "".join(
        f'<testcase name="t{at}" classname="a.B"><failure message="no">{text}</failure></testcase>'
        for at, text in enumerate(printed)
    )
    found = junit.parse(io.BytesIO(f"<testsuite>{cases}</testsuite>".encode()))
    assert [test.failure.line for test in found.tests if test.failure] == [1, 2, 1]


def feature(*elements: dict[str, object]) -> str:
    return json.dumps([{"uri": "file:///w/a.feature", "name": "A", "elements": list(elements)}], indent=1)


def ran(line: int, *words: str, **more: object) -> dict[str, object]:
    steps = [{"keyword": "Given ", "name": word, "line": line + 1, "result": {"status": word}} for word in words]
    return {"line": line, "name": f"at {line}", "type": "scenario", "steps": steps, **more}


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["passed", "passed"], TestStatus.PASSED),
        ([], TestStatus.PASSED),
        (["passed", "skipped"], TestStatus.SKIPPED),
        (["undefined", "skipped"], TestStatus.ERROR),
        (["pending"], TestStatus.ERROR),
        (["passed", "failed", "undefined"], TestStatus.FAILED),
    ],
)
def test_a_scenario_is_what_its_worst_step_is(words: list[str], status: TestStatus) -> None:
    (test,) = read(cucumber_json.parse, feature(ran(3, *words))).tests
    assert (test.id, test.status) == ("/w/a.feature:3", status)


def test_a_background_reported_separately_belongs_to_the_scenario_after_it() -> None:
    background = ran(1, "failed", type="background")
    result = read(cucumber_json.parse, feature(background, ran(4, "skipped"), ran(8, "passed")))
    assert [(test.id, test.status.value) for test in result.tests] == [
        ("/w/a.feature:4", "failed"),
        ("/w/a.feature:8", "passed"),
    ]


def test_a_hook_of_cucumbers_that_failed_fails_its_scenario() -> None:
    hook = {"result": {"status": "failed", "error_message": "Error: no database\n    at file:///w/steps.js:4:9"}}
    (test,) = read(cucumber_json.parse, feature(ran(3, "skipped", before=[hook]))).tests
    assert (test.status, test.phase, test.failure and test.failure.message) == (
        TestStatus.FAILED,
        "setup",
        "no database",
    )


def test_attempts_that_cucumber_reports_separately_are_one_test_but_the_rows_of_an_outline_are_several() -> None:
    tried = read(cucumber_json.parse, feature(ran(3, "failed"), ran(3, "failed"), ran(3, "passed"))).tests
    assert [(test.id, test.status.value, test.attempts) for test in tried] == [("/w/a.feature:3", "passed", 3)]
    twice = read(cucumber_json.parse, feature(ran(3, "passed"), ran(3, "failed"))).tests
    assert [(test.id, test.status.value) for test in twice] == [
        ("/w/a.feature:3", "passed"),
        ("/w/a.feature:3 #2", "failed"),
    ]
    rows = [ran(3, "failed", keyword="Scenario Outline"), ran(3, "passed", keyword="Scenario Outline")]
    assert [test.status.value for test in read(cucumber_json.parse, feature(*rows)).tests] == ["failed", "passed"]


def test_of_a_torn_array_of_features_what_is_complete_is_kept() -> None:
    whole = feature(ran(3, "passed"), ran(5, "failed"))
    result = read(cucumber_json.parse, whole[: whole.index('"at 5"')])
    assert [test.id for test in result.tests] == ["/w/a.feature:3"]
    assert (result.ended, result.partial) == (False, True)


def test_cucumbers_messages_name_the_scenario_that_never_finished() -> None:
    pickle = {"id": "p", "uri": "a.feature", "name": "waits", "location": {"line": 3}, "astNodeIds": [], "steps": []}
    case = {"id": "c", "pickleId": "p", "testSteps": []}
    rows = [{"pickle": pickle}, {"testCase": case}, {"testCaseStarted": {"id": "s", "testCaseId": "c", "attempt": 0}}]
    result = read(cucumber_messages.parse, "".join(json.dumps(row) + "\n" for row in rows))
    assert (result.running, result.ended) == (["a.feature:3"], False)


def test_our_own_ctrf_is_read_as_it_was_written() -> None:
    wrong = Failure(type="E", message="no", expected="1", actual="2")
    statuses = [status for status in TestStatus if status is not TestStatus.XPASSED]
    tests = [
        TestResult(id=f"a::{n}", status=status, name=str(n), suite=["s"], failure=wrong if status in RED else None)
        for n, status in enumerate(statuses)
    ]
    report = Report(runner="x", status=ReportStatus.FAILED, tests=tests, totals=count_totals(tests))
    result = read(ctrf_json.parse, json.dumps(ctrf(report, start_ms=0, stop_ms=1)))
    assert [(test.id, test.status) for test in result.tests] == [(test.id, test.status) for test in tests]
    assert [test.failure.expected for test in result.tests if test.failure] == ["1", "1"]


def test_a_status_that_ctrf_has_no_word_for_is_a_skip_that_names_it() -> None:
    row = {"name": "a", "suite": "b > c", "status": "other", "rawStatus": "interrupted", "duration": 1}
    document = json.dumps({"results": {"summary": {"tests": 1, "other": 1}, "tests": [row]}})
    (test,) = read(ctrf_json.parse, document).tests
    assert (test.id, test.status, test.reason) == ("b > c > a", TestStatus.SKIPPED, "interrupted")


def attempt(start: int, status: str, **more: object) -> str:
    return json.dumps({"uuid": str(start), "historyId": "h", "name": "a", "status": status, "start": start, **more})


def test_of_allures_attempts_the_last_counts_wherever_it_stands_in_the_stream() -> None:
    stream = attempt(2000, "passed", fullName="m#a") + attempt(1000, "failed", fullName="m#a")
    (test,) = read(allure_json.parse, stream).tests
    assert (test.id, test.status, test.attempts) == ("m#a", TestStatus.PASSED, 2)


@pytest.mark.parametrize("status", ["broken", "unknown", None])
def test_what_allure_does_not_call_passed_failed_or_skipped_is_an_error(status: str) -> None:
    (test,) = read(allure_json.parse, attempt(1, status, statusDetails={"message": "why"})).tests
    assert (test.status, test.failure and test.failure.message) == (TestStatus.ERROR, "why")


def test_a_message_that_speaks_of_a_build_is_still_a_tests() -> None:
    document = """<testsuite name="s"><testcase classname="a.B" name="c"><failure message="No such element
Build info: version: '4.1'">x</failure></testcase><testcase classname="p" name="[build failed]">
<failure message="Failed"/></testcase></testsuite>"""
    parsed = read(junit.parse, document)
    assert [test.name for test in parsed.tests] == ["c"] and len(parsed.collection_errors) == 1


def test_a_case_that_failed_and_broke_and_was_skipped_is_an_error() -> None:
    document = '<testsuite><testcase name="a"><skipped/><failure/><error message="m"/></testcase></testsuite>'
    assert [test.status for test in read(junit.parse, document).tests] == [TestStatus.ERROR]


def test_diagnostics_that_break_off_swallow_no_test() -> None:
    document = (
        "not ok 1 - a\n  ---\n  message: no\n this is no yaml\nok 2 - b\nnot ok 3 - c\n  ---\n  k: v\nok 4\n1..4\n"
    )
    assert [test.id for test in read(tap.parse, document).tests] == ["a", "b", "c", "#4"]


def test_a_word_that_begins_like_a_point_is_none() -> None:
    assert [test.id for test in read(tap.parse, "ok 1 - a\n  ok:\n    - b\nokay\nok 2\n1..2\n").tests] == ["a", "#2"]


@pytest.mark.parametrize(
    "document",
    [
        "not ok 1 - a\n  ---\n  k: v\n  ...\n{\n    not ok 1 - b\n    1..1\n}\nok 2 - c\n1..2\n",
        "not ok 1 - a { # time=3ms\n    not ok 1 - b\n    1..1\n}\nok 2 - c\n1..2\n",
        "not ok 1 - a {\n    not ok 1 - b\n    1..1\nok 2 - c\n1..2\n",
    ],
)
def test_a_subtest_in_braces_is_no_test_of_its_own(document: str) -> None:
    assert [test.id for test in read(tap.parse, document).tests] == ["a > b", "c"]


def test_an_error_in_the_suite_itself_is_a_file_that_was_not_loaded() -> None:
    document = """<testsuite name="a.BTest" tests="1" errors="1"><properties/>
<error message="a/C" type="java.lang.NoClassDefFoundError">java.lang.NoClassDefFoundError: a/C</error></testsuite>"""
    (error,) = read(junit.parse, document).collection_errors
    assert (error.file, error.type) == ("a.BTest", "java.lang.NoClassDefFoundError")


def test_a_rust_doc_test_on_windows_has_a_name_that_is_no_json() -> None:
    rows = [
        '{ "type": "suite", "event": "started", "test_count": 2 }',
        '{ "type": "test", "name": "src\\lib.rs - a (line 3)", "event": "ok" }',
        '{ "type": "test", "name": "src\\\\new.rs - b (line 4)", "event": "ignored" }',
        '{ "type": "suite", "event": "ok", "passed": 1, "failed": 0, "ignored": 1 }',
    ]
    parsed = read(cargo.parse, "\n".join(rows))
    assert [test.id for test in parsed.tests] == ["src\\lib.rs - a (line 3)", "src\\new.rs - b (line 4)"]
    assert not parsed.notes


def test_errors_outside_of_rspec_examples_are_reported_even_if_they_are_only_counted() -> None:
    document = {"examples": [], "summary": {"example_count": 0, "errors_outside_of_examples_count": 2}}
    assert [error.message for error in read(rspec_json.parse, json.dumps(document)).collection_errors] == [
        "2 errors occurred outside of examples"
    ]


@pytest.mark.parametrize("element", ["UnitTestResult", "TestResultAggregation", "GenericTestResult"])
def test_a_trx_has_an_element_for_each_kind_of_test(element: str) -> None:
    document = f'<TestRun><Results><{element} testName="a" outcome="Failed"/></Results></TestRun>'
    assert [(test.id, test.status) for test in read(trx.parse, document).tests] == [("a", TestStatus.FAILED)]


def test_cppunit_may_have_a_list_of_those_that_were_skipped() -> None:
    document = "<TestRun><SkippedTests><Test id='1'><Name>A::b</Name></Test></SkippedTests></TestRun>"
    assert [(test.id, test.status) for test in read(cpp_xml.parse, document).tests] == [("A::b", TestStatus.SKIPPED)]


def test_playwright_says_why_below_the_title_of_the_test() -> None:
    document = """<testsuite><testcase name="opens" classname="a.spec.ts"><failure message="a.spec.ts:3:5 opens">
  [chromium] \u203a a.spec.ts:3:5 \u203a opens ─────

    Test timeout of 1ms exceeded.

      2 | test("opens")
    &gt; 3 |   await page.goto("/")
        at /project/a.spec.ts:3:14</failure></testcase></testsuite>"""
    found = only_failure(document)
    assert (found.message, found.file, found.line) == ("Test timeout of 1ms exceeded.", "/project/a.spec.ts", 3)


def test_xunit_writes_the_end_of_a_line_as_two_characters() -> None:
    message = r"Assert.Equal() Failure\r\nExpected: 4\r\nActual:   5"
    document = f"""<assemblies><assembly name="a"><collection><test name="A.b" type="A" method="b" result="Fail">
<failure><message>{message}</message></failure></test></collection></assembly></assemblies>"""
    (test,) = read(dotnet_xml.parse, document).tests
    assert test.failure and (test.failure.expected, test.failure.actual) == ("4", "5")


def test_a_rust_doc_test_that_was_built_with_others_stands_where_its_name_says() -> None:
    rows = [
        '{"type": "suite", "event": "started", "test_count": 1}',
        '{"type": "test", "name": "src/lib.rs - f (line 7)", "event": "failed", "stdout": "thread \'main\' panicked at '
        '/tmp/rustdoctestX/doctest_bundle_2024.rs:24:1:\\nno\\n"}',
        '{"type": "suite", "event": "failed", "passed": 0, "failed": 1, "ignored": 0}',
    ]
    (test,) = read(cargo.parse, "\n".join(rows)).tests
    assert test.failure and (test.failure.file, test.failure.line, test.file) == ("src/lib.rs", 7, "src/lib.rs")


def test_the_race_detectors_last_word_is_not_where_a_go_test_failed() -> None:
    rows = [
        "WARNING: DATA RACE",
        "Write at 0x1 by goroutine 8:",
        "  p.F()",
        "      /p/race_test.go:9 +0x39",
        "    testing.go:1312: race detected during execution of test",
    ]
    events = [{"Action": "output", "Package": "p", "Test": "TestA", "Output": row + "\n"} for row in rows]
    document = "\n".join(map(json.dumps, [*events, {"Action": "fail", "Package": "p", "Test": "TestA"}]))
    (test,) = read(go_json.parse, document).tests
    assert test.failure and (test.failure.file, test.failure.line) == ("/p/race_test.go", 9)


def test_the_first_allure_has_names_in_elements() -> None:
    document = """<ns2:test-suite xmlns:ns2="urn:x"><name>a.BTest</name><test-cases>
<test-case status="broken"><name>breaks</name><title>It breaks</title><failure><message>no</message></failure>
<steps><step><name>inner</name></step></steps></test-case>
<test-case status="canceled"><name>stops</name></test-case><test-case status="passed"><name>runs</name></test-case>
</test-cases></ns2:test-suite>"""
    parsed = read(dotnet_xml.parse, document)
    assert [(test.id, test.status) for test in parsed.tests] == [
        ("a.BTest.breaks", TestStatus.ERROR),
        ("a.BTest.stops", TestStatus.SKIPPED),
        ("a.BTest.runs", TestStatus.PASSED),
    ]
    assert parsed.ended


def test_what_boost_could_not_place_has_no_file() -> None:
    document = """<TestLog><TestSuite name="m"><TestCase name="a">
<Exception file="unknown location" line="0">no</Exception>
</TestCase></TestSuite></TestLog>"""
    (test,) = read(cpp_xml.parse, document).tests
    assert test.failure and test.failure.file == ""


def test_jests_reporter_data_gives_the_same_results_as_its_json() -> None:
    why = "Error: expect(received).toBe(expected)\n\nExpected: 3\nReceived: 2\n    at a.test.js:4:5"
    rows = [
        {"title": "adds", "fullName": "car adds", "ancestorTitles": ["car"], "status": "failed",
         "failureMessages": [why]},
        {"title": "waits", "fullName": "car waits", "ancestorTitles": ["car"], "status": "pending"},
    ]  # fmt: skip
    files = [
        {"testFilePath": "/p/a.test.js", "testResults": rows, "failureMessage": "adds"},
        {"testFilePath": "/p/b.test.js", "testResults": [], "failureMessage": "Cannot find module './c'"},
        {"testFilePath": "/p/d.test.js", "testResults": [], "failureMessage": None},
        {"testFilePath": "/p/e.test.js", "testResults": rows[1:], "testExecError": {"message": "the worker died"}},
    ]
    result = read(jest_json.parse, json.dumps({"numTotalTests": 2, "numFailedTests": 1, "testResults": files}))
    assert [(test.id, test.status.value) for test in result.tests] == [
        ("/p/a.test.js::car adds", "failed"),
        ("/p/a.test.js::car waits", "skipped"),
        ("/p/e.test.js::car waits", "skipped"),
    ]
    assert [(error.file, error.message) for error in result.collection_errors] == [
        ("/p/b.test.js", "Cannot find module './c'"),
        ("/p/e.test.js", "the worker died"),
    ]


@pytest.mark.parametrize(
    ("parse", "document"),
    [
        (mocha_json.parse, '{"exist": {"/a": true}, "stats": {"/a": {"isFile": true}}}'),
        (dotnet_xml.parse, "<assembly><id>site-source</id><formats><format>zip</format></formats></assembly>"),
        (trx.parse, "<TestResult><TestSuite name='m' result='failed'/></TestResult>"),
        (tap.parse, "running 2 tests from ./a.ts\nadds ... ok (2ms)\n\nok | 2 passed | 0 failed (12ms)\n"),
    ],
)
def test_a_document_that_only_shares_a_word_says_nothing(parse: Callable[[BinaryIO], Parsed], document: str) -> None:
    result = read(parse, document)
    assert (result.tests, result.ended) == ([], False)


def test_what_boost_logs_outside_of_a_case_is_an_error_beside_the_tests() -> None:
    bad = "<Error file='a.cpp' line='12'><![CDATA[check 4 == 3 has failed]]></Error>"
    result = read(cpp_xml.parse, f"<TestLog>{bad}</TestLog>")
    assert [(error.file, error.line, error.message) for error in result.collection_errors] == [
        ("a.cpp", 12, "check 4 == 3 has failed")
    ]
    damaged = read(cpp_xml.parse, f"\x00<TestLog><TestSuite name='m'>{bad}</TestSuite></TestLog>")
    assert len(damaged.collection_errors) == 1


def test_boosts_report_of_results_names_the_cases_and_why_it_does_not_say() -> None:
    document = """<TestResult><TestSuite name="m" result="failed" test_cases_passed="1" test_cases_failed="1"
 test_cases_skipped="1" test_cases_aborted="1"><TestSuite name="s" result="failed">
<TestCase name="a" result="passed"></TestCase><TestCase name="b" result="failed"/></TestSuite>
<TestCase name="c" result="skipped"/><TestCase name="d" result="aborted"/></TestSuite></TestResult>"""
    result = read(cpp_xml.parse, document)
    assert [(test.id, test.status.value) for test in result.tests] == [
        ("s/a", "passed"),
        ("s/b", "failed"),
        ("c", "skipped"),
        ("d", "error"),
    ]
    assert result.reported == {"passed": 1, "failed": 2, "skipped": 1}
    assert parse_ci_log(document.encode()).runner == "log of cpp_xml"


def test_a_suite_of_nodes_without_tests_is_no_test_and_a_failure_that_was_expected_is_one() -> None:
    document = """TAP version 13
ok 1 - empty
  ---
  duration_ms: 1
  type: 'suite'
  ...
ok 2 - waits # SKIP
  ---
  duration_ms: 1
  type: 'suite'
  ...
not ok 3 - throws
  ---
  duration_ms: 1
  type: 'suite'
  error: 'boom'
  ...
ok 4 - falls # EXPECTED FAILURE
  ---
  duration_ms: 1
  type: 'test'
  ...
ok 5 - falls for a reason # EXPECTED FAILURE bug 12
1..5
"""
    result = read(tap.parse, document)
    assert [(test.id, test.status.value, test.reason) for test in result.tests] == [
        ("throws", "failed", ""),
        ("falls", "xfailed", ""),
        ("falls for a reason", "xfailed", "bug 12"),
    ]
    assert result.ended


def test_a_test_of_nodes_that_is_still_to_do_may_fail() -> None:
    document = """<testsuites><testcase name="falls" classname="test" file="/p/a.js">
<skipped type="todo" message="later"/><failure type="testCodeFailure" message="no">Error: no</failure></testcase>
</testsuites>"""
    (test,) = read(junit.parse, document).tests
    assert test.status is TestStatus.TODO and test.failure and test.failure.message == "no"


def test_boosts_junit_says_where_and_what_in_a_list() -> None:
    failure = only_failure("""<testcase name="a">
<failure message="failure" type="assertion error"><![CDATA[
ASSERTION FAILURE:
- file   : tests/car.cpp
- line   : 50
- message: check speed() == 3 has failed [2 != 3]
- context:
  - 'gear=1'

]]></failure></testcase>""")
    assert (failure.file, failure.line) == ("tests/car.cpp", 50)
    assert failure.message == "check speed() == 3 has failed [2 != 3]\n- context:\n  - 'gear=1'"
    assert (failure.expected, failure.actual) == ("3", "2")


def test_an_exception_under_boost_is_placed_at_the_last_checkpoint() -> None:
    failure = only_failure("""<testcase name="a">
<error message="unexpected exception" type="uncaught exception"><![CDATA[
UNCAUGHT EXCEPTION:
- file: unknown location
- line: 0


EXCEPTION STACK TRACE: --------------
std::runtime_error: no petrol
-------------------------------------

Last checkpoint:
- message: ""
- file: tests/car.cpp
- line: 73


]]></error></testcase>""")
    assert (failure.message, failure.file, failure.line) == ("std::runtime_error: no petrol", "tests/car.cpp", 73)


def test_a_traceback_without_a_message_has_its_last_line_as_the_message() -> None:
    failure = only_failure("""<testcase name="a">
<failure type="exceptions.AssertionError" message="">Traceback (most recent call last):
  File "/usr/lib/python2.7/unittest/case.py", line 331, in run
    testMethod()
  File "/p/test_car.py", line 5, in test_adds
    assert add(1) == 3
AssertionError: too little:
1
-------------------- &gt;&gt; begin captured stdout &lt;&lt; ---------------------
noise
</failure></testcase>""")
    assert (failure.message, failure.file, failure.line) == ("AssertionError: too little:\n1", "/p/test_car.py", 5)


def test_the_insides_of_node_are_no_place_of_a_tap_failure() -> None:
    document = """not ok 1 - SyntaxError: no
  ---
    name: SyntaxError
    message: no
    at: 'compileSourceTextModule (node:internal/modules/esm/utils:346:16)'
  ...
1..1
"""
    (test,) = read(tap.parse, document).tests
    assert test.failure and (test.file, test.failure.file) == ("", "")


def test_words_that_boost_also_uses_are_a_message_elsewhere() -> None:
    failure = only_failure(
        '<testcase name="a"><error message="Unexpected exception" type="E">details of the stack</error></testcase>'
    )
    assert failure.message == "Unexpected exception"


def test_what_prove_says_at_its_end_counts_below_any_command() -> None:
    end = "Files=7, Tests=56,  2 wallclock secs ( 0.03 usr  0.00 sys +  0.33 cusr  0.09 csys =  0.45 CPU)\n"
    passed = read(unknown.parse, f"a.sh .. ok\nAll tests successful.\n{end}Result: PASS\n")
    assert (passed.reported, passed.ended) == ({"tests": 56, "failed": 0, "errors": 0}, True)
    failed = f"Failed 2/7 test programs. 3/56 subtests failed.\n{end}Result: FAIL\n"
    assert read(unknown.parse, failed).reported == {"tests": 56, "failed": 3, "errors": 0}
    died = f"Failed 1/7 test programs. 0/56 subtests failed.\n{end}Result: FAIL\n"
    assert read(unknown.parse, died).reported == {"tests": 57, "failed": 0, "errors": 1}
    assert not read(unknown.parse, end).ended
