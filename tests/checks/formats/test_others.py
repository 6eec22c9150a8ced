"""Documents of runners that we never start: small ones, written by us after the shape of theirs."""

from __future__ import annotations

import io
import json
import tracemalloc
from typing import Any

import pytest

from ratchet.checks.formats import (
    Parsed,
    android_xml,
    cpp_xml,
    elm_json,
    fpcunit_xml,
    ginkgo_json,
    gtester_xml,
    junit,
    karma_json,
    mbunit_xml,
    mochawesome_json,
    pytest_log_json,
    pytest_report_json,
    robot_xml,
    tap,
    testcafe_json,
    testng_xml,
)
from ratchet.checks.run.ci_log import parse_ci_log
from ratchet.core.report import Failure, TestStatus

PASSED, FAILED, SKIPPED, ERROR = TestStatus.PASSED, TestStatus.FAILED, TestStatus.SKIPPED, TestStatus.ERROR


FORMATS = (
    ginkgo_json, karma_json, testcafe_json, mochawesome_json, elm_json, pytest_report_json, pytest_log_json,
    robot_xml, testng_xml, fpcunit_xml, mbunit_xml, android_xml, gtester_xml,
)  # fmt: skip


def read_json(*documents: Any) -> Parsed:
    return read_xml("\n".join(map(json.dumps, documents)))


def read_xml(document: str) -> Parsed:
    (module,) = [module for module in FORMATS if module.SIGN.search(document.encode())]
    parsed: Parsed = module.parse(io.BytesIO(document.encode()))
    return parsed


def received(parsed: Parsed) -> list[tuple[str, TestStatus]]:
    assert parsed.ended and not parsed.partial
    return [(test.id, test.status) for test in parsed.tests]


def failure_in(parsed: Parsed) -> Failure:
    (failure,) = [test.failure for test in parsed.tests if test.failure]
    return failure


GINKGO = [
    {
        "SuitePath": "/p/pkg",
        "SuiteDescription": "Pkg",
        "SpecReports": [
            {"LeafNodeType": "BeforeSuite", "State": "passed"},
            {
                "ContainerHierarchyTexts": ["Bar"],
                "LeafNodeType": "It",
                "LeafNodeText": "adds",
                "LeafNodeLocation": {"FileName": "/p/pkg/a_test.go", "LineNumber": 5},
                "State": "failed",
                "NumAttempts": 2,
                "Failure": {
                    "Message": "Expected\n    <int>: 5\nto equal\n    <int>: 4",
                    "Location": {"FileName": "/p/pkg/a_test.go", "LineNumber": 7},
                },
            },
            {"ContainerHierarchyTexts": None, "LeafNodeType": "It", "LeafNodeText": "waits", "State": "pending"},
            {"LeafNodeType": "It", "LeafNodeText": "dies", "State": "panicked", "Failure": {"ForwardedPanic": "no"}},
        ],
    },
    {"SuitePath": "/p/q", "SpecialSuiteFailureReasons": ["Detected pending specs"], "SpecReports": []},
]


def test_ginkgo_reports_specs_and_suites_that_failed_by_themselves() -> None:
    parsed = read_json(GINKGO)
    assert received(parsed) == [("Pkg Bar adds", FAILED), ("Pkg waits", SKIPPED), ("Pkg dies", ERROR)]
    test = parsed.tests[0]
    assert test.failure and (test.failure.expected, test.failure.actual, test.failure.line) == ("4", "5", 7)
    assert (test.file, test.line, test.attempts) == ("/p/pkg/a_test.go", 5, 2)
    assert [error.file for error in parsed.collection_errors] == ["/p/q"]


def test_karmas_files_come_from_its_server() -> None:
    log = "Expected 5 to be 4.\n    at <Jasmine>\n    at U.<anonymous> (http://localhost:9876/base/t/a.js?0f1:19:18)"
    rows = [
        {"suite": ["A"], "description": "runs", "success": True, "log": []},
        {"suite": ["A"], "description": "adds", "success": False, "log": [log]},
        {"suite": ["A"], "description": "waits", "success": False, "skipped": True, "log": []},
    ]
    document = {"browsers": {"1": {"name": "C"}}, "result": {"1": rows}, "summary": {"success": 1, "failed": 1}}
    parsed = read_json(document)
    assert received(parsed) == [("A runs", PASSED), ("A adds", FAILED), ("A waits", SKIPPED)]
    found = failure_in(parsed)
    assert (found.message, found.expected, found.actual) == ("Expected 5 to be 4.", "4", "5")
    assert (found.file, found.line) == ("t/a.js", 19)


def test_testcafe_reports_errors_of_each_test() -> None:
    tests = [
        {"name": "a", "errs": []},
        {"name": "b", "errs": ["no\n\nBrowser: C"]},
        {"name": "c", "errs": [], "skipped": True},
    ]
    parsed = read_json({"userAgents": [], "fixtures": [{"name": "F", "path": "./f.js", "tests": tests}]})
    assert received(parsed) == [("f.js::F a", PASSED), ("f.js::F b", FAILED), ("f.js::F c", SKIPPED)]
    assert failure_in(parsed).message == "no"


def test_mochawesomes_suites_lie_in_each_other() -> None:
    inner = {
        "title": "B",
        "file": "/t/a.js",
        "tests": [
            {"title": "runs", "fullTitle": "A B runs", "pass": True},
            {
                "title": "adds",
                "fullTitle": "A B adds",
                "fail": True,
                "err": {
                    "message": "AssertionError: expected 5 to equal 4",
                    "estack": "AssertionError: expected 5 to equal 4\n    at Context.<anonymous> (t/a.js:3:5)",
                    "diff": "-5\n+4\n",
                },
            },
            {"title": "waits", "fullTitle": "A B waits", "pending": True},
        ],
    }
    parsed = read_json(
        {"stats": {"testsRegistered": 3, "tests": 3}, "results": [{"suites": [{"title": "A", "suites": [inner]}]}]}
    )
    assert received(parsed) == [
        ("t/a.js::A B runs", PASSED),
        ("t/a.js::A B adds", FAILED),
        ("t/a.js::A B waits", SKIPPED),
    ]
    found = failure_in(parsed)
    assert (found.type, found.expected, found.actual, found.line) == ("AssertionError", "4", "5", 3)


def test_elm_test_reports_both_sides() -> None:
    parsed = read_json(
        {"event": "runStart"},
        {"event": "testCompleted", "status": "pass", "labels": ["M", "a"], "failures": []},
        {
            "event": "testCompleted",
            "status": "fail",
            "labels": ["M", "b"],
            "failures": [
                {"message": "Expect.equal", "reason": {"type": "Equality", "data": {"expected": "4", "actual": "5"}}}
            ],
        },
        {"event": "runComplete", "passed": "1", "failed": "1"},
    )
    assert received(parsed) == [("M > a", PASSED), ("M > b", FAILED)] and parsed.reported == {"passed": 1, "failed": 1}
    assert (failure_in(parsed).expected, failure_in(parsed).actual) == ("4", "5")


def phase(node: str, when: str, outcome: str, **more: object) -> dict[str, object]:
    place = [node.partition("::")[0], 3, "x"]
    return {"$report_type": "TestReport", "nodeid": node, "when": when, "outcome": outcome, "location": place, **more}


CRASH = {
    "reprcrash": {"path": "/p/t.py", "lineno": 9, "message": "assert 5 == 4"},
    "reprtraceback": {"reprentries": [{"data": {"lines": ["E   assert 5 == 4"], "reprfileloc": {"path": "t.py"}}}]},
}


def test_the_worst_phase_in_pytests_log_is_the_tests() -> None:
    parsed = read_json(
        {"$report_type": "SessionStart"},
        {"$report_type": "CollectReport", "nodeid": "u.py", "outcome": "failed", "longrepr": "ImportError: no"},
        *[phase("t.py::a", when, "passed") for when in ("setup", "call", "teardown")],
        *[
            phase("t.py::b", when, "failed" if when == "call" else "passed", longrepr=CRASH)
            for when in ("setup", "call")
        ],
        phase("t.py::C::c", "setup", "failed", longrepr=CRASH),
        phase("t.py::d", "setup", "skipped"),
        phase("t.py::e", "call", "skipped", wasxfail="later"),
        {"$report_type": "SessionFinish"},
    )
    assert received(parsed) == [
        ("t.py::a", PASSED),
        ("t.py::b", FAILED),
        ("t.py::C::c", ERROR),
        ("t.py::d", SKIPPED),
        ("t.py::e", TestStatus.XFAILED),
    ]
    test = parsed.tests[1]
    assert test.failure and (test.failure.expected, test.failure.actual, test.failure.line) == ("4", "5", 9)
    assert (test.file, test.line, parsed.tests[2].phase) == ("t.py", 4, "setup")
    assert [error.file for error in parsed.collection_errors] == ["u.py"]


def test_pytests_json_report_has_a_test_with_its_phases() -> None:
    crash = {"path": "/p/t.py", "lineno": 9, "message": "assert 5 == 4"}
    call = {"outcome": "failed", "crash": crash, "longrepr": "E   assert 5 == 4\n\nt.py:9: AssertionError"}
    tests = [
        {"nodeid": "t.py::a", "lineno": 0, "outcome": "passed"},
        {"nodeid": "t.py::b", "lineno": 7, "outcome": "failed", "setup": {"outcome": "passed"}, "call": call},
    ]
    parsed = read_json({"created": 1, "exitcode": 1, "summary": {}, "tests": tests})
    assert received(parsed) == [("t.py::a", PASSED), ("t.py::b", FAILED)]
    assert (failure_in(parsed).expected, failure_in(parsed).line, failure_in(parsed).type) == ("4", 9, "AssertionError")


ROBOT = """<robot generator="Robot 7"><suite name="Cars" source="/p"><suite name="Minus" source="/p/minus.robot">
<test name="Checks" line="6"><kw name="Result Is"><status status="FAIL">0 != -1</status></kw>
<status status="FAIL" elapsed="0.5">0 != -1</status></test>
<test name="Waits" line="9"><status status="SKIP">not here</status></test>
<test name="Runs"><kw><status status="PASS"/></kw><status status="PASS"/></test></suite></suite>
<statistics><total><stat pass="1" fail="1" skip="1">All Tests</stat></total></statistics></robot>"""


def test_robots_tests_have_long_names_and_the_found_value_first() -> None:
    parsed = read_xml(ROBOT)
    assert received(parsed) == [
        ("Cars.Minus.Checks", FAILED),
        ("Cars.Minus.Waits", SKIPPED),
        ("Cars.Minus.Runs", PASSED),
    ]
    found = failure_in(parsed)
    assert (found.expected, found.actual, found.file, found.line) == ("-1", "0", "/p/minus.robot", 6)
    assert parsed.reported == {"passed": 1, "failed": 1, "skipped": 1} and parsed.tests[1].reason == "not here"


def test_a_robot_test_of_many_keywords_still_says_how_it_ended() -> None:
    many = "<kw><status status='PASS'/></kw>" * 3000
    document = f"<robot><suite name='s'><test name='t'>{many}<status status='FAIL'>no</status></test></suite></robot>"
    assert failure_in(read_xml(document)).message == "no"


@pytest.mark.parametrize(
    ("document", "tests"),
    [
        (
            "<TestResults><TestListing><TestSuite Name=''><TestSuite Name='T'><Test Name='a' Result='OK'/>"
            "<Test Name='b' Result='Error'><ExceptionMessage>no</ExceptionMessage></Test></TestSuite></TestSuite>"
            "</TestListing></TestResults>",
            [("T.a", PASSED), ("T.b", ERROR)],
        ),
        (
            "<report-result><fixture type='N.T'><runs><run name='T.a' result='success'/>"
            "<run name='T.b' result='failure'><exception type='E'><message>no</message></exception></run>"
            "</runs></fixture></report-result>",
            [("N.T.a", PASSED), ("N.T.b", FAILED)],
        ),
        (
            "<Result><Module name='M'><TestCase name='a.T'><Test result='pass' name='a'/><Test result='fail' name='b'>"
            "<Failure message='no'/></Test></TestCase></Module></Result>",
            [("a.T#a", PASSED), ("a.T#b", FAILED)],
        ),
        (
            "<gtester><testbinary path='bin'><testcase path='/a'><status result='success'/></testcase>"
            "<testcase path='/b'><error>no</error><status result='failed'/></testcase>"
            "<testcase path='/c' skipped='1'/></testbinary></gtester>",
            [("bin:/a", PASSED), ("bin:/b", FAILED), ("bin:/c", SKIPPED)],
        ),
    ],
    ids=["fpcunit", "mbunit", "android", "gtester"],
)
def test_the_root_element_identifies_the_format(document: str, tests: list[tuple[str, TestStatus]]) -> None:
    parsed = read_xml(document)
    assert received(parsed) == tests and failure_in(parsed).message == "no"
    assert junit.parse(io.BytesIO(document.encode())).tests == []


@pytest.mark.parametrize(("document", "name"), [(json.dumps(GINKGO), "ginkgo_json"), (ROBOT, "robot_xml")])
def test_a_log_may_be_one_of_them(document: str, name: str) -> None:
    assert parse_ci_log(document.encode()).runner == f"log of {name}"


def test_a_robot_suite_whose_teardown_failed_fails_the_tests_in_it() -> None:
    document = """<robot><suite name="Cars"><suite name="Minus" source="/p/minus.robot">
<test name="Runs" line="6"><status status="PASS"/></test>
<test name="Waits"><status status="SKIP"/></test>
<test name="Falls"><status status="FAIL">no</status></test>
<kw name="Cleanup" type="TEARDOWN"><kw><status status="FAIL">gone</status></kw><status status="FAIL">gone</status></kw>
<status status="FAIL"/></suite>
<suite name="Plus"><test name="Runs"><status status="PASS"/></test>
<kw name="Cleanup" type="TEARDOWN"><status status="PASS"/></kw></suite></suite></robot>"""
    parsed = read_xml(document)
    assert received(parsed) == [
        ("Cars.Minus.Runs", ERROR),
        ("Cars.Minus.Waits", SKIPPED),
        ("Cars.Minus.Falls", FAILED),
        ("Cars.Plus.Runs", PASSED),
    ]
    torn = parsed.tests[0]
    assert torn.failure and torn.failure.message == "the teardown of the suite failed: gone"
    assert (torn.phase, torn.failure.file, torn.failure.line) == ("teardown", "/p/minus.robot", 6)


TESTNG = """<testng-results ignored="1" total="5" passed="1" failed="1" skipped="1"><reporter-output/>
<suite name="All"><groups><group name="g"><method name="adds" class="a.CarTest"/></group></groups>
<test name="Fast"><class name="a.CarTest">
<test-method status="PASS" is-config="true" signature="setUp()" name="setUp"/>
<test-method status="PASS" signature="adds(int)" name="adds" duration-ms="12">
<params><param index="0"><value><![CDATA[1]]></value></param><param index="1"><value is-null="true"/></param></params>
</test-method>
<test-method status="FAIL" name="adds"><params><param index="0"><value>2</value></param></params>
<exception class="java.lang.AssertionError"><message><![CDATA[expected [3] but found [2]]]></message>
<full-stacktrace><![CDATA[java.lang.AssertionError: expected [3] but found [2]
	at org.testng.Assert.fail(Assert.java:93)
	at a.CarTest.adds(CarTest.java:17)]]></full-stacktrace></exception></test-method>
<test-method status="SKIP" name="drives" retried="true"><exception class="a.Odd"><message>x</message></exception>
</test-method>
<test-method status="SKIP" name="drives"><exception class="a.Odd"><message>no petrol</message></exception></test-method>
<test-method status="FAIL" is-config="true" name="tearDown"><exception class="a.Odd"><message>stuck</message>
</exception></test-method>
</class></test></suite></testng-results>"""


def test_testng_reports_methods_with_arguments_and_failed_configurations() -> None:
    parsed = read_xml(TESTNG)
    assert received(parsed) == [
        ("a.CarTest.adds(1, null)", PASSED),
        ("a.CarTest.adds(2)", FAILED),
        ("a.CarTest.drives", SKIPPED),
        ("a.CarTest.tearDown", ERROR),
    ]
    first, bad, waits, config = parsed.tests
    assert (first.name, first.suite, first.duration_s) == ("adds(1, null)", ["a.CarTest"], 0.012)
    assert bad.failure and (bad.failure.expected, bad.failure.actual, bad.failure.line) == ("3", "2", 17)
    assert (waits.reason, waits.attempts, config.phase) == ("no petrol", 2, "teardown")
    assert parsed.reported == {"passed": 1, "failed": 1, "skipped": 1}


@pytest.mark.parametrize("unit", ["<suite name='s'>", "<suite name='s'><test name='t'><status status='PASS'/></test>"])
def test_suites_that_never_end_cost_no_memory(unit: str) -> None:
    document = "<robot>" + unit * 5_000
    tracemalloc.start()
    parsed = read_xml(document)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert parsed.partial and most < 24 << 20
    assert all(len(test.suite) <= 100 for test in parsed.tests)


def test_a_file_of_checks_is_in_the_folder_that_it_names() -> None:
    test = "<test result='failure'><path>/w/tests</path><fn>a.c:5</fn><id>fails</id><message>no</message></test>"
    text = f"<testsuites xmlns='http://check.sourceforge.net/ns'><suite><title>S</title>{test}</suite></testsuites>"
    (found,) = cpp_xml.parse(io.BytesIO(text.encode())).tests
    assert found.failure
    assert (found.file, found.failure.file, found.failure.line) == ("/w/tests/a.c", "/w/tests/a.c", 5)


def test_qunits_values_go_on_over_several_rows() -> None:
    output = (
        'TAP version 13\nnot ok 1 a\n  ---\n  message: m\n  actual  : {\n    "a": [\n      1\n    ]\n  }\n'
        "  expected: [\n    2\n  ]\n  stack: |\n        at x (/w/test/a.js:5:12)\n  ...\n1..1\n# fail 1\n"
    )
    (test,) = tap.parse(io.BytesIO(output.encode())).tests
    assert test.failure
    assert (test.failure.expected, test.failure.actual) == ("[\n  2\n]", '{\n  "a": [\n    1\n  ]\n}')
    assert (test.failure.file, test.failure.line, test.failure.message) == ("/w/test/a.js", 5, "m")
