"""However a document is written, a test that failed in it never lets the run pass, and neither does what is missing."""

from __future__ import annotations

import io

import pytest

from ratchet.checks.formats import Parsed, junit
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
