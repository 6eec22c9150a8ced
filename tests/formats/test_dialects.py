"""Ways of writing that came from reading other people's reports: one small document for each, written by us."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import BinaryIO

from ratchet.checks.formats import Parsed, junit, tap
from ratchet.core.report import Failure, TestStatus


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


def test_tap_that_bails_out_has_not_ended_and_keeps_what_came_before() -> None:
    result = read(tap.parse, "1..3\nok 1 - a\nBail out! the database is gone\n")
    assert not result.ended
    assert "bailed out: the database is gone" in result.notes
    assert [test.id for test in result.tests] == ["a"]


def test_gotestsum_frames_what_a_test_said_and_the_headline_is_what_it_said() -> None:
    said = "=== RUN   TestB/sub\n    b_test.go:7: got 1, want 2\n--- FAIL: TestB/sub (0.00s)\n"
    failure = only_failure(
        '<testsuites><testsuite name="example.com/shop"><testcase classname="example.com/shop" name="TestB/sub" '
        f'time="0"><failure message="Failed" type="">{said}</failure></testcase></testsuite></testsuites>'
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
