"""What `go test` and gotestsum print for people is read as their events would be."""

from __future__ import annotations

import io

from ratchet.checks.formats import Parsed, go_text, tap
from ratchet.checks.run.ci_log import parse_ci_log
from ratchet.core.report import ReportStatus, TestStatus

PASSED, FAILED, SKIPPED = TestStatus.PASSED, TestStatus.FAILED, TestStatus.SKIPPED


def read(text: str) -> Parsed:
    return go_text.parse(io.BytesIO(text.encode()))


def reported(parsed: Parsed) -> list[tuple[str, TestStatus]]:
    return [(test.id, test.status) for test in parsed.tests]


VERBOSE = """=== RUN   TestAdd
--- PASS: TestAdd (0.01s)
=== RUN   TestNeg
=== RUN   TestNeg/one
    neg_test.go:12: got 1, want -1
=== RUN   TestNeg/two
--- FAIL: TestNeg (0.00s)
    --- FAIL: TestNeg/one (0.00s)
    --- SKIP: TestNeg/two (0.00s)
        neg_test.go:20: not here
FAIL
FAIL\texample.com/neg\t0.003s
=== RUN   TestSay
said without an end--- PASS: TestSay (0.00s)
PASS
ok  \texample.com/say\t(cached)\tcoverage: 1.0% of statements
?   \texample.com/none\t[no test files]
FAIL
"""


def test_each_test_has_its_package_although_that_is_named_after_it() -> None:
    parsed = read(VERBOSE)
    assert sorted(reported(parsed)) == [
        ("example.com/neg.TestAdd", PASSED),
        ("example.com/neg.TestNeg", FAILED),
        ("example.com/neg.TestNeg/one", FAILED),
        ("example.com/neg.TestNeg/two", SKIPPED),
        ("example.com/say.TestSay", PASSED),
    ]
    (one,) = [test.failure for test in parsed.tests if test.id.endswith("/one")]
    assert one and (one.file, one.line, one.expected, one.actual) == ("neg_test.go", 12, "-1", "1")
    assert parsed.ended and [test.reason for test in parsed.tests if test.reason] == ["not here"]


def test_without_v_a_tests_output_follows_its_result() -> None:
    parsed = read("--- FAIL: TestA (0.00s)\n    a_test.go:3: first\n--- FAIL: TestB (0.00s)\nFAIL\nFAIL\tp\t0.1s\n")
    assert [(t.id, t.failure.message, t.failure.line) for t in parsed.tests if t.failure] == [
        ("p.TestA", "first", 3),
        ("p.TestB", "it failed, and says nothing of why", 0),
    ]


def test_a_package_that_passed_is_no_test_point() -> None:
    document = "ok  \texample.com/a\t0.01s\nok  \texample.com/b\t(cached)\n"
    assert tap.parse(io.BytesIO(document.encode())).tests == []
    assert parse_ci_log(VERBOSE.encode()).runner == "log of go_text"


def test_a_package_that_was_not_built_or_panicked_is_reported_beside_the_tests() -> None:
    parsed = read(
        "# p/a\na/a.go:3:5: undefined: x\nFAIL\tp/a [build failed]\n"
        "panic: no\n\ngoroutine 1 [running]:\nFAIL\tp/b\t0.1s\n"
    )
    assert [(error.file, error.line) for error in parsed.compile_errors] == [("a/a.go", 3)]
    assert [(error.file, error.type) for error in parsed.collection_errors] == [("p/b", "panic")]


def test_a_test_that_ran_when_its_package_ended_is_an_error() -> None:
    parsed = read("=== RUN   TestA\npanic: test timed out after 1s\n\ngoroutine 9 [running]:\nFAIL\tp\t1.0s\n")
    assert reported(parsed) == [("p.TestA", TestStatus.ERROR)]


def test_a_log_that_breaks_off_has_not_ended() -> None:
    parsed = read("=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n")
    assert reported(parsed) == [("TestA", PASSED)] and not parsed.ended and parsed.running == ["TestB"]


def test_a_binary_that_was_run_by_itself_has_no_package() -> None:
    parsed = read("=== RUN   TestA\n--- PASS: TestA (0.00s)\nPASS\n")
    assert reported(parsed) == [("TestA", PASSED)] and parsed.ended


def test_the_output_before_a_failed_benchmark_is_its_message() -> None:
    parsed = read("BenchmarkA\n    a_test.go:6: no\n--- FAIL: BenchmarkA\nBenchmarkB\n    a_test.go:9: nor\nFAIL\n")
    assert [(t.id, t.failure.line) for t in parsed.tests if t.failure] == [("BenchmarkA", 6)]


def test_gotestsums_list_names_the_package_and_a_test_is_counted_once() -> None:
    parsed = read(
        "PASS p/a.TestA (0.00s)\n=== RUN   TestB\n    b_test.go:4: no\n--- FAIL: TestB (0.00s)\n"
        "FAIL p/a.TestB (0.00s)\n\n=== Failed\n=== FAIL: p/a TestB (0.01s)\n    TestB: b_test.go:4: no\n"
        "\n=== FAIL: p/c  (0.00s)\nexit status 2\n"
        "\nDONE 2 tests, 2 failures in 0.1s\n"
    )
    assert reported(parsed) == [("p/a.TestA", PASSED), ("p/a.TestB", FAILED)] and parsed.ended
    assert [(t.failure.file, t.failure.line, t.failure.message) for t in parsed.tests if t.failure] == [
        ("b_test.go", 4, "no")
    ]
    assert [error.file for error in parsed.collection_errors] == ["p/c"]


def test_the_log_of_a_run_that_failed_has_those_that_passed_too() -> None:
    report = parse_ci_log(VERBOSE.encode())
    assert (report.status, report.totals.tests, report.totals.failed) == (ReportStatus.FAILED, 5, 2)


def test_a_binary_that_frames_its_lines_for_test2json_reads_the_same() -> None:
    assert reported(read("".join(f"\x16{row}\n" for row in VERBOSE.splitlines()))) == reported(read(VERBOSE))
