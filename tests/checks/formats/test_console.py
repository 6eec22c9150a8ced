"""Runners' text for people, in which each test has a line: all of it becomes results."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from ratchet.checks.formats import console, unknown
from ratchet.checks.run.ci_log import parse_ci_log
from ratchet.core.report import ReportStatus
from tests.support import make_repository, ratchet

PYTEST = """============================= test session starts ==============================
collecting ... collected 4 items

test_it.py::test_good PASSED                                             [ 25%]
test_it.py::TestIt::test_bad[a::b] FAILED                                [ 50%]
test_it.py::test_left PASSED                                             [ 75%]
test_it.py::test_left ERROR                                              [ 75%]
test_it.py::test_not SKIPPED (later)                                     [100%]

==================================== ERRORS ====================================
_________________________ ERROR at teardown of test_left ________________________
test_it.py:20: RuntimeError
=================================== FAILURES ===================================
_____________________________ TestIt.test_bad[a::b] _____________________________

    def test_bad(self):
>       assert add(1, 2) == 4
E       assert 3 == 4

test_it.py:9: AssertionError
=========================== short test summary info ============================
FAILED test_it.py::TestIt::test_bad[a::b] - assert 3 == 4
ERROR test_it.py::test_left - RuntimeError
============== 1 failed, 2 passed, 1 skipped, 1 error in 0.12s ==============
"""
UNITTEST = """test_bad (test_it.It.test_bad) ... FAIL
test_doc (test_it.It.test_doc)
What it is about. ... ok
test_early (test_it.It) ... skipped 'later'
test_x (test_it.It.test_x) ... expected failure

======================================================================
FAIL: test_bad (test_it.It.test_bad)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/it/test_it.py", line 5, in test_bad
    self.assertEqual(1, 2)
AssertionError: 1 != 2

----------------------------------------------------------------------
Ran 4 tests in 0.001s

FAILED (failures=1, skipped=1, expected failures=1)
"""
JEST = """PASS lib/a.test.js
  \u2713 adds (2 ms)
FAIL lib/b.test.js (5.1 s)
  outer
    \u2713 adds
    \u2715 negates (3 ms)
    \u25cb skipped later

  \u25cf outer \u203a negates

    expect(received).toBe(expected)

    Expected: -1
    Received: 1

      4 |   it('negates', () => {
    > 5 |     expect(neg(1)).toBe(-1);
        |                    ^

      at Object.<anonymous> (lib/b.test.js:5:20)

Test Suites: 1 failed, 1 passed, 2 total
Tests:       1 failed, 1 skipped, 2 passed, 4 total
"""
MOCHA = """

  outer
    \u2714 adds
    inner
      1) negates
    - later


  1 passing (5ms)
  1 pending
  1 failing

  1) outer
       inner
         negates:

      AssertionError [ERR_ASSERTION]: Expected values to be strictly equal:

1 !== -1

      + expected - actual

      -1
      +-1

      at Context.<anonymous> (test/a.js:7:12)
"""
RSPEC = """
Sum
  adds
  negates (FAILED - 1)
  when empty
    is nothing
    waits (PENDING: later)

Pending: (Failures listed here are expected and do not affect your suite's status)

  1) Sum when empty waits
     # later

Failures:

  1) Sum negates
     Failure/Error: expect(neg(1)).to eq(-1)

       expected: -1
            got: 1
     # ./spec/sum_spec.rb:7:in `block (2 levels) in <top (required)>'

Finished in 0.01 seconds (files took 0.1 seconds to load)
4 examples, 1 failure, 1 pending
"""
TESTDOX = """PHPUnit 10.5.1 by Sebastian Bergmann and contributors.

Sum (Tests\\Sum)
 \u2714 Adds
 \u2718 Negates
   \u2502
   \u2502 Failed asserting that 1 is identical to -1.
   \u2502
   \u2502 /it/tests/SumTest.php:14
   \u2502
 \u21a9 Later

Tests: 3, Assertions: 2, Failures: 1, Skipped: 1.
"""
CTEST = """    Start 1: good
1/3 Test #1: good .............................   Passed    0.02 sec
    Start 2: bad
2/3 Test #2: bad ..............................***Failed    0.02 sec
/it/bad.cpp:8: Failure
Expected equality of these values:
  1 + 2
    Which is: 3
  4
    Start 3: dies
3/3 Test #3: dies .............................***Exception: SegFault  0.01 sec

33% tests passed, 2 tests failed out of 3
"""
GRADLE = """> Task :test FAILED

it.SumTest > adds() PASSED

it.SumTest > inner > negates(int) FAILED
    org.opentest4j.AssertionFailedError: expected: <-1> but was: <1>
        at it.SumTest.negates(SumTest.java:12)

it.SumTest > later() SKIPPED

3 tests completed, 1 failed, 1 skipped
"""


@pytest.mark.parametrize(
    ("text", "ends", "red", "values", "place"),
    [
        (PYTEST, "PFES", "test_it.py::TestIt::test_bad[a::b]", ("4", "3"), "test_it.py:9"),
        (UNITTEST, "FPSx", "test_it.It.test_bad", ("2", "1"), "/it/test_it.py:5"),
        (JEST, "PPFS", "lib/b.test.js::outer > negates", ("-1", "1"), "lib/b.test.js:5"),
        (MOCHA, "PFS", "outer > inner > negates", ("-1", "1"), "test/a.js:7"),
        (RSPEC, "PFPS", "Sum > negates", ("-1", "1"), "spec/sum_spec.rb:7"),
        (TESTDOX, "PFS", "Tests\\Sum::Negates", ("-1", "1"), "/it/tests/SumTest.php:14"),
        (CTEST, "PFE", "bad", ("4", "3"), "/it/bad.cpp:8"),
        (GRADLE, "PFS", "it.SumTest > inner > negates(int)", ("-1", "1"), "it/SumTest.java:12"),
    ],
    ids=["pytest", "unittest", "jest", "mocha", "rspec", "testdox", "ctest", "gradle"],
)
def test_every_test_of_a_verbose_log_is_a_result(
    text: str, ends: str, red: str, values: tuple[str, str], place: str
) -> None:
    for content in (text.encode(), text.replace("\n", "\x1b[0m\r\n").encode()):
        report = parse_ci_log(content)
        assert (report.runner, report.status, report.notes) == ("log of console", ReportStatus.FAILED, [])
        assert "".join({"xfailed": "x"}.get(test.status, test.status[0].upper()) for test in report.tests) == ends
        (failed,) = [test for test in report.tests if test.id == red]
        assert failed.failure and (failed.failure.expected, failed.failure.actual) == values
        assert f"{failed.failure.file}:{failed.failure.line}" == place


@pytest.mark.parametrize(
    ("text", "more"),
    [
        (PYTEST, "test_it.py::test_more PASSED    [ 1%]\n"),
        (UNITTEST, "test_more (test_it.It.test_more) ... ok\n"),
        (JEST, "PASS lib/c.test.js\n  \u2713 more\n"),
        (MOCHA, "\n  outer\n    \u2714 more\n"),
        (TESTDOX, "Sum (Tests\\Sum)\n \u2714 More\n"),
        (CTEST, "4/4 Test #4: more .............................   Passed    0.02 sec\n"),
        (GRADLE, "it.SumTest > more() PASSED\n"),
    ],
)
def test_a_list_that_is_not_what_its_summary_counts_is_inconsistent(text: str, more: str) -> None:
    most = more.replace("more", "most").replace("More", "Most").replace("/c.", "/d.")
    report = parse_ci_log(f"{more}{most}{text}".encode())
    assert report.status is ReportStatus.INCONSISTENT and "its records say" in " ".join(report.notes)


MAVEN = """[INFO] Running it.SumTest
[ERROR] Tests run: 3, Failures: 1, Errors: 0, Skipped: 0, Time elapsed: 0.1 s <<< FAILURE! - in it.SumTest
[ERROR] it.SumTest.negates -- Time elapsed: 0.01 s <<< FAILURE!
java.lang.AssertionError: expected:<-1> but was:<1>
\tat it.SumTest.negates(SumTest.java:16)

[INFO] Results:
[ERROR] Tests run: 3, Failures: 1, Errors: 0, Skipped: 0
"""


def test_a_log_that_names_only_failures_gives_them_complete() -> None:
    report = parse_ci_log(MAVEN.encode())
    (test,) = report.tests
    assert test.id == "it.SumTest > negates" and report.status is ReportStatus.FAILED
    assert test.failure and (test.failure.expected, test.failure.file, test.failure.line) == (
        "-1",
        "it/SumTest.java",
        16,
    )


def test_expected_failures_of_unittest_are_no_failures() -> None:
    text = b"Ran 4 tests in 0.1s\n\nOK (expected failures=2)\n"
    assert unknown.parse(io.BytesIO(text)).reported["failed"] == 0


def test_a_command_that_lists_its_tests_and_counts_as_many_gives_all_of_them(tmp_path: Path) -> None:
    makefile = "test:\n\t@cat said; exit 1\n"
    folder = make_repository(tmp_path / "it", {"Makefile": makefile, "said": RSPEC})
    done = ratchet("test", cwd=folder)
    assert done.stdout.splitlines()[-1].startswith("FAILED  1 failed, 2 passed, 1 skipped"), done.stdout
    (folder / "said").write_text(RSPEC.replace("  adds\n", ""))
    assert "3 of 4" not in ratchet("test", cwd=folder).stdout  # then only its counts are believed


@pytest.mark.parametrize(
    "text", ["", "  adds\n    is nothing\n", "> Task :test\n\nBUILD SUCCESSFUL\n", "ok 1 - PASSED\n"]
)
def test_text_that_lists_no_tests_has_none(text: str) -> None:
    assert not console.parse(io.BytesIO(text.encode())).tests
