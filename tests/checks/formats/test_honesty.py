"""However a document is written, a test that failed in it never lets the run pass, and neither does what is missing."""

from __future__ import annotations

import io
import json

import pytest

from ratchet.checks.formats import Parsed, bazel_events, junit, open_test_xml, robot_xml, xcresult_json
from ratchet.core.report import RED, ReportStatus, conclude

PASSED = '<testcase classname="c" name="p"/>'
FAILED = '<testcase classname="c" name="t">{}</testcase>'


def verdict(parsed: Parsed) -> ReportStatus:
    """Of a command that ended with 0."""
    return conclude(
        runner="x",
        root=".",
        command=[],
        exit_code=0,
        timed_out="",
        duration_s=0.0,
        tests=parsed.tests,
        collection_errors=parsed.collection_errors,
        compile_errors=parsed.compile_errors,
        reported=parsed.reported,
        ended=parsed.ended,
        partial=parsed.partial,
        notes=parsed.notes,
        running=parsed.running,
    ).status


def read(document: str, encoding: str = "utf-8") -> Parsed:
    return junit.parse(io.BytesIO(document.encode(encoding)))


@pytest.mark.parametrize(
    "inside",
    [
        "<failure/>",
        "<Failure message='m'/>",
        "<FAILURE>x</FAILURE>",
        "<failed>x</failed>",
        "<j:failure xmlns:j='urn:x'>x</j:failure>",
        "<Error/>",
        "<skipped/><failure/>",
        "<rerunFailure message='m'/>",
        "<![CDATA[</testcase>]]><failure/>",
        "<!-- </testcase> --><failure/>",
        "<system-out><![CDATA[</system-out></testcase>]]></system-out><failure/>",
        "<properties><failure/></properties>",
    ],
)
@pytest.mark.parametrize("around", [0, 3])
def test_a_failure_is_seen_however_it_is_written(inside: str, around: int) -> None:
    many = PASSED * around
    parsed = read(f"<testsuite name='s'>{many}{FAILED.format(inside)}{many}</testsuite>")
    assert [test.name for test in parsed.tests if test.status in RED] == ["t"] and len(parsed.tests) == 2 * around + 1


@pytest.mark.parametrize("word", ["failed", "Failure", "KO", "broken", "timeout", "TimedOut", "aborted", "crashed"])
@pytest.mark.parametrize("attributes", ['status="{}"', 'status="run" result="{}"', 'status="disabled" result="{}"'])
def test_a_failure_may_be_only_a_word_in_an_attribute(word: str, attributes: str) -> None:
    case = f'<testcase name="t" {attributes.format(word)}/>'
    parsed = read(f"<testsuite>{case}</testsuite>")
    assert [test.status in RED for test in parsed.tests] == [True]


@pytest.mark.parametrize(
    "document",
    [
        '<testsuites tests="1" failures="0"><testsuite tests="1" failures="1">{}</testsuite></testsuites>',
        "<testsuites><testsuite>{}</testsuite></testsuites>\n<testsuites><testsuite name='b'><testcase name='q'/>",
        "<testsuite>{}</testsuite><testsuite name='b'><testcase name='q'><failu",
        '<testsuite tests="2">{}</testsuite>',
        '<testsuite errors="1">{}<error>x</error></testsuite>',
        '<!DOCTYPE x [<!ENTITY f "<failure/>">]><testsuite><testcase name="t">&f;</testcase>{}</testsuite>',
        '<testsuite><testcase name="t" status="failed" status="passed"/>{}</testsuite>',
    ],
    ids=["inner suite", "second torn", "torn in a case", "one missing", "suite", "entity", "twice"],
)
def test_a_document_that_is_torn_or_denies_itself_does_not_pass(document: str) -> None:
    assert verdict(read(document.format(PASSED))) not in (ReportStatus.PASSED, ReportStatus.NO_TESTS)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "cp1252", "shift_jis"])
def test_the_encoding_hides_nothing(encoding: str) -> None:
    document = f'<?xml version="1.0" encoding="{encoding}"?><testsuite>{FAILED.format("<failure/>")}</testsuite>'
    assert [test.status in RED for test in read(document, encoding).tests] == [True]


def test_a_second_document_that_breaks_off_is_not_the_end_in_any_xml() -> None:
    whole = "<robot><suite name='s'><test name='a'><status status='PASS'/></test></suite></robot>"
    parsed = robot_xml.parse(io.BytesIO(f"{whole}{whole.removesuffix('</suite></robot>')}".encode()))
    assert verdict(parsed) is ReportStatus.CRASHED


def test_a_case_of_xcode_has_not_passed_where_it_failed_on_a_device() -> None:
    devices = [
        {"nodeType": "Device", "name": name, "result": result} for name, result in (("a", "Passed"), ("b", "Failed"))
    ]
    case = {"nodeType": "Test Case", "name": "t()", "result": "Passed", "children": devices}
    parsed = xcresult_json.parse(io.BytesIO(json.dumps({"testNodes": [case]}).encode()))
    assert [test.status in RED for test in parsed.tests] == [True]


@pytest.mark.parametrize(
    ("results", "summary", "end", "status"),
    [
        (["PASSED"], "PASSED", True, ReportStatus.PASSED),
        (["FAILED", "PASSED"], "FLAKY", True, ReportStatus.PASSED),
        (["FAILED"], "PASSED", True, ReportStatus.INCONSISTENT),
        (["PASSED"], "FAILED_TO_BUILD", True, ReportStatus.INCONSISTENT),
        (["PASSED"], "PASSED", False, ReportStatus.INCONSISTENT),
        (["PASSED"], "PASSED", None, ReportStatus.CRASHED),
    ],
)
def test_bazel_must_say_three_times_that_a_target_passed(
    results: list[str], summary: str, end: bool | None, status: ReportStatus
) -> None:
    """In its last attempt, in its sum, and in that of the build."""
    rows: list[dict[str, object]] = [
        {"id": {"testResult": {"label": "//:t", "attempt": at}}, "testResult": {"status": word}}
        for at, word in enumerate(results)
    ]
    rows.append({"id": {"testSummary": {"label": "//:t"}}, "testSummary": {"overallStatus": summary}})
    rows += [] if end is None else [{"id": {"buildFinished": {}}, "finished": {"overallSuccess": end}}]
    parsed = bazel_events.parse(io.BytesIO("\n".join(map(json.dumps, rows)).encode()))
    assert verdict(parsed) is status


def test_what_the_junit_platform_started_and_did_not_finish_was_running() -> None:
    started = '<e:started id="1" name="a()"/><e:finished id="1"><result status="SUCCESSFUL"/></e:finished>'
    parsed = open_test_xml.parse(io.BytesIO(f'<e:events>{started}<e:started id="2" name="b()"/></e:events>'.encode()))
    assert (parsed.running, verdict(parsed)) == (["b()"], ReportStatus.CRASHED)
