"""Logs of other people's runs, in whatever format they are."""

# Lines as they are printed.
# ruff: noqa: E501

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.checks.formats import Parsed
from ratchet.checks.run.ci_log import LOG_MAX_BYTES, _other_failures, parse_ci_log, read_log_tail
from ratchet.core.compare import failing
from ratchet.core.packet import clusters
from ratchet.core.report import RED, ReportStatus, TestResult, TestStatus
from tests.checks.formats.golden import fixtures, named

FIXTURES = Path(__file__).parent / "formats" / "fixtures"


@pytest.mark.parametrize(
    ("text", "red"),
    [
        ("FAILED tests/test_a.py::test_b[x y] - assert 1 == 2\n", ["tests/test_a.py::test_b[x y]"]),
        ("2026-01-02T03:04:05.6789Z FAILED t.py::test_a\n", ["t.py::test_a"]),
        ("job\tstep\t2026-01-02T03:04:05.6Z --- FAIL: TestAdd (0.00s)\n", ["TestAdd"]),
        ("FAIL: test_a (tests.test_b.Some)\n", ["test_a (tests.test_b.Some)"]),
        ("\x1b[31m  \u2715 adds (3 ms)\x1b[0m\n", ["adds"]),
        ("rspec ./spec/a_spec.rb:3 # adds\n", ["./spec/a_spec.rb:3"]),
        ("\t 12 - unit.add (Failed)\n", ["unit.add"]),
    ],
)
def test_failures_named_in_plain_text(text: str, red: list[str]) -> None:
    assert failing(parse_ci_log(text.encode())) == red


@pytest.mark.parametrize(
    "name",
    ["junit/surefire.xml", "tap/node.tap", "go_json/go_new.jsonl", "cargo/cargo_text.txt", "jest_json/jest.json"],
)
def test_a_format_we_know_is_read_as_such(name: str) -> None:
    report = parse_ci_log((FIXTURES / name).read_bytes())
    assert report.status is ReportStatus.FAILED and report.runner == f"log of {name.split('/', maxsplit=1)[0]}"


GO = """=== RUN   TestNeg
    calc_test.go:12: neg(1) = 1, want -1
--- FAIL: TestNeg (0.00s)
FAIL
FAIL\texample.com/calc\t0.003s
ok  \texample.com/other\t0.002s
ok  \texample.com/third\t0.002s
FAIL
"""
JEST = """FAIL test/calc.test.js
  calc
    \x1b[31m\u2715\x1b[39m negates (3 ms)
    \u2715 subtracts

  \u25cf calc \u203a negates

    Expected: -1
    Received: 1

  \u25cf calc \u203a subtracts

    TypeError: sub is not a function
"""
CARGO = """running 2 tests
test tests::adds ... ok
test tests::negates ... FAILED

failures:

---- tests::negates stdout ----
thread 'tests::negates' panicked at src/lib.rs:14:9:
assertion `left == right` failed
  left: 1
 right: -1

failures:
    tests::negates

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
"""
PYTEST = """tests/test_calc.py .F                            [100%]
E       assert 1 == -1
FAILED tests/test_calc.py::test_neg - assert 1 == -1
ERROR tests/test_more.py::test_db - RuntimeError: no database
==================== 1 failed, 1 passed, 1 error in 0.12s =====================
"""


def of_github(text: str, before: str, end: str) -> bytes:
    """As its page and `gh run view --log` give it: a stamp on every line, and what is tidied up when all is over."""
    text = (
        f"##[group]Run the tests\n##[endgroup]\n{text}##[error]Process completed with exit code 1.\nPost job cleanup.\n"
    )
    lines = [f"{before}2026-01-02T03:04:05.{n:07d}Z {line}{end}" for n, line in enumerate(text.splitlines())]
    return "".join(lines).encode()


@pytest.mark.parametrize(("before", "end"), [("", "\n"), ("build\tRun tests\t", "\n"), ("", "\r\n")])
@pytest.mark.parametrize(
    ("text", "red"),
    [
        (GO, ["example.com/calc.TestNeg"]),
        (JEST, ["test/calc.test.js::calc > negates", "test/calc.test.js::calc > subtracts"]),
        (CARGO, ["tests::negates"]),
        (PYTEST, ["tests/test_calc.py::test_neg", "tests/test_more.py::test_db"]),
    ],
    ids=["go", "jest", "cargo", "pytest"],
)
def test_a_github_log_shows_what_failed(text: str, red: list[str], before: str, end: str) -> None:
    report = parse_ci_log(of_github(text, before, end))
    assert report.status is ReportStatus.FAILED and failing(report) == red
    assert report.output.strip().endswith("exit code 1.")  # and not with what comes after
    assert len(clusters(test for test in report.tests if test.status in RED)) == len(red)


def test_compiler_errors_are_failures_too() -> None:
    report = parse_ci_log((FIXTURES / "compiler" / "mvn_compile.txt").read_bytes())
    assert report.status is ReportStatus.FAILED and failing(report)


def test_what_a_test_printed_into_a_document_is_not_taken_for_another_runners_log() -> None:
    printed = "".join(f"not ok {n} - of the program under test\n" for n in range(1, 4))
    case = f"<testcase name='a'><failure message='no'/><system-out>{printed}</system-out></testcase>"
    report = parse_ci_log(f"<testsuite tests='2'>{case}<testcase name='b'/></testsuite>".encode())
    assert (report.runner, report.totals.tests, failing(report)) == ("log of junit", 2, ["a"])


@given(st.binary(max_size=500))
def test_any_bytes_can_be_read(content: bytes) -> None:
    assert parse_ci_log(content).status not in (ReportStatus.CRASHED, ReportStatus.ERROR, ReportStatus.TIMEOUT)


@pytest.mark.parametrize(
    ("document", "status", "tests"),
    [
        ('<testsuites tests="0"><testsuite name="a" tests="0"/></testsuites>', ReportStatus.NO_TESTS, 0),
        ('<testsuite name="a" tests="6" failures="1" skipped="2"/>', ReportStatus.FAILED, 6),
        ('<testsuite name="a" tests="2" failures="1"><testcase name="b"/></testsuite>', ReportStatus.INCONSISTENT, 1),
        ('<testsuite name="a" tests="2"/>', ReportStatus.INCONSISTENT, 2),
        (
            '<testsuite tests="2" failures="1"><testcase name="b"><flakyFailure message="m"/></testcase></testsuite>',
            ReportStatus.PASSED,
            1,
        ),
        ("<project/>", ReportStatus.UNKNOWN, 0),
        ("</testsuite>", ReportStatus.UNKNOWN, 0),
    ],
)
def test_a_document_without_cases_says_no_more_than_it_counts(document: str, status: ReportStatus, tests: int) -> None:
    report = parse_ci_log(document.encode())
    assert (report.status, report.totals.tests) == (status, tests)


MOCHA = """

  Car
    1) drives
    \u2713 waits

  1 passing (5ms)
  3 failing

  1) Car
       drives
         fast:

      AssertionError [ERR_ASSERTION]: Expected values to be strictly equal:

1 !== 2

      + expected - actual

      -1
      +2

      at Context.<anonymous> (test/car.js:5:14)

  2) single:
     Error: boom
      at Context.<anonymous> (test/one.js:9:14)

  3) Car
       "before each" hook for "waits":
     TypeError: no
      at Context.<anonymous> (test/car.js:2:3)

npm ERR! code 3
  4) of something else
"""


def test_mochas_list_of_failures_has_titles_above_titles() -> None:
    report = parse_ci_log(MOCHA.encode())
    assert [(test.id, test.status.value, test.phase) for test in report.tests] == [
        ("Car drives fast", "failed", "call"),
        ("single", "failed", "call"),
        ('Car "before each" hook for "waits"', "error", "setup"),
    ]
    first, second, _ = (test.failure for test in report.tests)
    assert first and (first.expected, first.actual, first.file, first.line) == ("2", "1", "test/car.js", 5)
    assert second and (second.message, second.file) == ("Error: boom", "test/one.js")
    assert (report.runner, report.reported) == ("log of mocha_text", {"passed": 1, "failed": 3})


def test_deno_names_each_failure_with_its_place() -> None:
    log = """running 2 tests from ./a_test.ts
adds ... FAILED (2ms)
waits ... ok (0ms)

 FAILURES

adds => ./a_test.ts:3:6

FAILED | 1 passed | 1 failed (12ms)
"""
    assert failing(parse_ci_log(log.encode())) == ["adds"]


SHORT = """tests/test_a.py F..                              [100%]

=================================== FAILURES ===================================
__________________________________ TestK.test_m _________________________________

    def test_m(self):
>       assert add(1, 2) == 4
E       assert 3 == 4
E        +  where 3 = add(1, 2)

tests/test_a.py:9: AssertionError
=========================== short test summary info ============================
FAILED tests/test_a.py::TestK::test_m - assert 3 == 4
========================= 1 failed, 2 passed in 0.02s ==========================
"""
UNLOADED = """
==================================== ERRORS ====================================
_______________________ ERROR collecting tests/test_c.py _______________________
tests/test_c.py:1: in <module>
    import nothing_here
E   ModuleNotFoundError: No module named 'nothing_here'
=========================== short test summary info ============================
ERROR tests/test_c.py
!!!!!!!!!!!!!!!!!!!! Interrupted: 1 error during collection !!!!!!!!!!!!!!!!!!!!
=============================== 1 error in 0.10s ===============================
"""


def test_pytest_failures_are_read_although_only_their_names_follow_them() -> None:
    report = parse_ci_log(SHORT.encode())
    (test,) = report.tests
    assert test.failure and (test.failure.file, test.failure.line) == ("tests/test_a.py", 9)
    assert (test.failure.expected, test.failure.actual, test.failure.type) == ("4", "3", "AssertionError")
    unloaded = parse_ci_log(UNLOADED.encode())
    assert unloaded.status is ReportStatus.FAILED
    assert [(error.file, error.type) for error in unloaded.collection_errors] == [
        ("tests/test_c.py", "ModuleNotFoundError")
    ]


def _of_buildkite(row: str, _n: int) -> str:
    return f"\x1b_bk;t=1700000000000\x07{row}"


def _of_teamcity(row: str, n: int) -> str:
    return f"[03:04:{n % 60:02d}] :\t [Step 1/2] {row}"


PREFIXES: dict[str, Callable[[str, int], str]] = {
    "gitlab": lambda row, n: f"2026-01-02T03:04:05.{n:06d}Z 01O {row}",
    "azure": lambda row, n: f"2026-01-02T03:04:05.{n:07d}Z {row}",
    "jenkins": lambda row, n: f"[2026-01-02T03:04:05.{n:03d}Z] {row}",
    "timestamper": lambda row, n: f"03:04:{n % 60:02d}  {row}",
    "teamcity": _of_teamcity,
    "buildkite": _of_buildkite,
    "compose": lambda row, _n: f"web-1  | {row}",
    "colours": lambda row, _n: f"\x1b[0K\x1b[31m{row}\x1b[0m",
}


@pytest.mark.parametrize("system", PREFIXES)
def test_failures_of_several_runners_are_found_in_one_log_of_any_system(system: str) -> None:
    rows = f"Building\n\n{GO}\nnext\n{CARGO}\nnext\n{SHORT}\nDone\n".splitlines()
    report = parse_ci_log("\n".join(PREFIXES[system](row, n) for n, row in enumerate(rows)).encode())
    found = {"example.com/calc.TestNeg", "tests::negates", "tests/test_a.py::TestK::test_m"}
    assert report.status is ReportStatus.FAILED and set(failing(report)) == found
    assert all(test.failure and test.failure.file for test in report.tests if test.status in RED)


def test_a_long_line_that_gitlab_cut_is_whole_again() -> None:
    log = "2026-01-02T03:04:05.000001Z 01O FAILED t.py::test_\n2026-01-02T03:04:05.000002Z 01O+a - no\n"
    assert failing(parse_ci_log(log.encode())) == ["t.py::test_a"]


def test_what_powershell_wrote_is_read() -> None:
    assert failing(parse_ci_log(SHORT.encode("utf-16"))) == ["tests/test_a.py::TestK::test_m"]


@pytest.mark.parametrize("path", [path for path in fixtures() if b"</" in path.read_bytes()[:4000]], ids=named)
def test_a_truncated_document_is_no_success(path: Path) -> None:
    content = path.read_bytes().rstrip()
    for size in range(0, len(content) - 8, max(1, len(content) // 20)):
        assert parse_ci_log(content[:size]).status is not ReportStatus.PASSED


@pytest.mark.parametrize(
    "log",
    ["ok 1 - a\nok 2 - b\n", "1..3\nok 1 - a\nok 2 - b\n", "  [OK] adds\n  [OK] negates\n", "test a ... ok\n"],
    ids=["tap without a plan", "tap that stops", "nim", "cargo that stops"],
)
def test_tests_that_passed_are_not_all_where_nothing_says_so(log: str) -> None:
    report = parse_ci_log(log.encode())
    assert report.status is ReportStatus.INCONSISTENT and report.notes


def test_of_a_log_that_is_larger_than_what_is_read_its_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ci.log"
    with path.open("wb") as stream:
        stream.truncate(LOG_MAX_BYTES)
        stream.seek(0, 2)
        stream.write(b"\n" + SHORT.encode())
    assert len(content := read_log_tail(path)) == LOG_MAX_BYTES and content.endswith(SHORT.encode())


@pytest.mark.parametrize("text", ["jobs:\n  test: unit\n", "export default {\n  test: {\n  },\n}\n"])
def test_a_configuration_that_is_printed_is_no_failed_test(text: str) -> None:
    report = parse_ci_log(text.encode())
    assert (report.status, report.tests) == (ReportStatus.UNKNOWN, [])


def test_a_traceback_below_a_point_of_tap_says_what_was_raised() -> None:
    received = '# Traceback (most recent call last):\n#   File "test_a.py", line 3, in test_a\n# ValueError: no\n'
    (test,) = parse_ci_log(f"1..1\nnot ok 1 - a\n{received}".encode()).tests
    assert test.failure and (test.failure.type, test.failure.message) == ("ValueError", "ValueError: no")
    assert (test.failure.file, test.failure.line) == ("test_a.py", 3)


RULE = "=" * 70 + "\n"
TOLD = {
    "unittest": (
        f"..F.\n{RULE}FAIL: test_sub (tests.test_calc.Calc)\n{'-' * 70}\nTraceback (most recent call last):\n"
        '  File "tests/test_calc.py", line 9, in test_sub\n    self.assertEqual(sub(3, 1), 2)\nAssertionError: 4 != 2\n\n'
        f"{'-' * 70}\nRan 4 tests in 0.01s\n\nFAILED (failures=1)\n",
        "tests.test_calc.Calc.test_sub", "tests/test_calc.py", 9, "2",
    ),
    "nose": (
        f".F\n{RULE}ERROR: tests.test_calc.test_sub\n{'-' * 70}\nTraceback (most recent call last):\n"
        '  File "tests/test_calc.py", line 9, in test_sub\n    sub()\nTypeError: no\n\n'
        f"{'-' * 70}\nRan 2 tests in 0.01s\n\nFAILED (SKIP=1, errors=1)\n",
        "tests.test_calc.test_sub", "tests/test_calc.py", 9, None,
    ),
    "pytest without a list": (
        SHORT.replace("FAILED tests/test_a.py::TestK::test_m - assert 3 == 4\n", ""),
        "tests/test_a.py::TestK::test_m", "tests/test_a.py", 9, "4",
    ),
    "jest in colours": (
        "\x1b[7m PASS \x1b[0m test/a.test.js\n\x1b[7m FAIL \x1b[0m test/calc.test.js\n  \u25cf Console\n\n    console.log\n\n"
        "  \u25cf calc \u203a subtracts\n\n    expect(received).toBe(expected)\n\n    Expected: 2\n    Received: 4\n\n"
        "      at Object.<anonymous> (test/calc.test.js:9:3)\n\nTest Suites: 1 failed, 1 passed, 2 total\n"
        "Tests:       1 failed, 6 passed, 7 total\n",
        "test/calc.test.js::calc > subtracts", "test/calc.test.js", 9, "2",
    ),
    "maven with reruns": (
        "[ERROR] Tests run: 3, Failures: 1, Errors: 0, Skipped: 0 <<< FAILURE! - in com.acme.CalcTest\n"
        + "[ERROR] subtracts  Time elapsed: 0.02 s  <<< FAILURE!\norg.opentest4j.AssertionFailedError: expected: <2> but "
        "was: <4>\n\tat com.acme.CalcTest.subtracts(CalcTest.java:9)\n\n[INFO] \n" * 2,
        "com.acme.CalcTest > subtracts", "com/acme/CalcTest.java", 9, "2",
    ),
    "old maven": (
        "Tests run: 9, Failures: 1, Errors: 0, Skipped: 0, Time elapsed: 6 sec <<< FAILURE!\n\nResults :\n\nFailed tests: \n"
        "  it subtracts(com.acme.CalcTest): expected:<2> but was:<4>\n\nTests run: 9, Failures: 1, Errors: 0, Skipped: 0\n",
        "com.acme.CalcTest > it subtracts", "", 0, "2",
    ),
    "ant": (
        "    [junit] Testsuite: com.acme.CalcTest\n    [junit] Testcase: adds took 0.001 sec\n"
        "    [junit] Testcase: subtracts took 0.002 sec\n    [junit] \tFAILED\n    [junit] expected:<2> but was:<4>\n"
        "    [junit] junit.framework.AssertionFailedError: expected:<2> but was:<4>\n"
        "    [junit] \tat com.acme.CalcTest.subtracts(CalcTest.java:9)\n",
        "com.acme.CalcTest#subtracts", "com/acme/CalcTest.java", 9, "2",
    ),
    "ant before 1.7": (
        "    [junit] Testcase: subtracts(com.acme.CalcTest):\tCaused an ERROR\n    [junit] no\n"
        "    [junit] java.lang.IllegalStateException: no\n    [junit] \tat com.acme.CalcTest.subtracts(CalcTest.java:9)\n",
        "com.acme.CalcTest#subtracts", "com/acme/CalcTest.java", 9, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("runner", TOLD)
def test_of_a_runner_that_names_only_failures_each_is_found_once_with_its_place(runner: str) -> None:
    text, name, file, line, expected = TOLD[runner]
    report = parse_ci_log(text.encode())
    (test,) = report.tests
    assert (test.id, report.status) == (name, ReportStatus.FAILED) and test.failure
    assert (test.failure.file, test.failure.line, test.failure.expected) == (file, line, expected)


def test_what_a_linter_crosses_out_is_no_test() -> None:
    log = "\u2716 3 problems (1 error, 2 warnings)\n  \u2716   19:11  Generic type\n  \u2716 is left out (skipped)\n"
    assert failing(parse_ci_log(log.encode())) == []


XCTEST = """Test Suite 'All tests' started at 2026-01-02 03:04:05.678
Test Case '-[CalcTests.CalcTests testAdds]' started.
Test Case '-[CalcTests.CalcTests testAdds]' passed (0.001 seconds).
/app/Tests/CalcTests.swift:17: error: -[CalcTests.CalcTests testFails] : XCTAssertEqual failed: ("5") is not equal to ("4")
Test Case '-[CalcTests.CalcTests testFails]' failed (0.1 seconds).
Test Case 'LinuxTests.testSkips' skipped (0.0 seconds)
Test Suite 'All tests' failed at 2026-01-02 03:04:05.900.
\t Executed 3 tests, with 1 test skipped and 1 failure (0 unexpected) in 0.1 (0.1) seconds
\u25c7 Test run started.
\u25c7 Test "rows" with 2 test cases started.
\u2714 Test adds() passed after 0.001 seconds.
\u2718 Test "rows" recorded an issue with 1 argument n \u2192 2 at Rows.swift:41:9: Expectation failed: (n \u2192 2) == 1
\u2718 Test "rows" with 2 test cases failed after 0.002 seconds with 1 issue.
\u2718 Test run with 2 tests in 1 suite failed after 0.002 seconds with 1 issue.
"""


def test_xctest_and_swift_testing_are_read_from_one_log() -> None:
    report = parse_ci_log(XCTEST.encode())
    assert (report.status, report.notes, report.compile_errors) == (ReportStatus.FAILED, [], [])
    assert {test.id: test.status.value for test in report.tests} == {
        "CalcTests.CalcTests/testAdds": "passed", "CalcTests.CalcTests/testFails": "failed",
        "LinuxTests/testSkips": "skipped", "adds()": "passed", "rows": "failed",
    }  # fmt: skip
    received = [test.failure for test in report.tests if test.failure]
    assert [(failure.file, failure.line, failure.expected, failure.actual) for failure in received] == [
        ("/app/Tests/CalcTests.swift", 17, "4", "5"),
        ("Rows.swift", 41, "1", "2"),
    ]


def test_thousands_of_failures_in_two_formats_take_time_by_their_number() -> None:
    def failures(word: str) -> Parsed:
        names = [f"tests/x.py::test_{word}{number}" for number in range(15_000)]
        return Parsed(tests=[TestResult(id=name, status=TestStatus.FAILED) for name in names], ended=True)

    begun = time.process_time()
    [(other, fresh)] = _other_failures("tap", {"tap": failures("a"), "go_text": failures("b"), "jest": failures("a")})
    assert (other, len(fresh)) == ("go_text", 15_000) and time.process_time() - begun < 5.0
