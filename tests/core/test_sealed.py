"""Sealed tests: their results in a report, the report without them, and the words that are withheld."""

from __future__ import annotations

import pytest

from ratchet.core.report import Diagnostic, Report, ReportStatus, TargetSummary, TestResult, TestStatus, count_totals
from ratchet.core.sealed import SealedResult, has_sealed_name, sealed_result, withheld, without_sealed

OPEN = TestResult(id="t/test_a.py::test_a", file="t/test_a.py", status=TestStatus.PASSED)
SEALED = TestResult(id="t/test_a_sealed.py::test_b", file="t/test_a_sealed.py", status=TestStatus.PASSED)
RED = TestResult(id="t/test_a_sealed.py::test_c", file="t/test_a_sealed.py", status=TestStatus.FAILED)
PATHS = ["t/test_a_sealed.py", "src/TotalSealedTest.java"]


def report(*tests: TestResult, **fields: object) -> Report:
    made = {"runner": "pytest", "status": ReportStatus.FAILED, "tests": list(tests), "totals": count_totals(tests)}
    return Report(**{**made, **fields})  # type: ignore[arg-type]


def test_the_name_of_the_file_decides_and_not_of_its_folder() -> None:
    assert has_sealed_name("t/test_Sealed_a.py") and not has_sealed_name("sealed/test_a.py")


def test_only_tests_of_the_sealed_files_count() -> None:
    assert sealed_result(report(OPEN, SEALED, RED), PATHS) == SealedResult(passed=1, tests=2)
    assert sealed_result(report(OPEN), PATHS) == SealedResult()


@pytest.mark.parametrize(
    ("name", "counts"),
    [("com.TotalSealedTest.adds", True), ("t/test_a_sealed.py::x", True), ("com.TotalTest.adds", False)],
)
def test_a_test_without_a_file_is_found_by_its_class(name: str, counts: bool) -> None:
    test = TestResult(id=name, status=TestStatus.PASSED)
    assert sealed_result(report(test), PATHS).tests == counts
    assert len(without_sealed(report(test), PATHS).tests) == (not counts)


def test_a_file_that_does_not_load_or_a_run_that_died_has_not_passed() -> None:
    error = Diagnostic(file=PATHS[0], message="no")
    for broken in (report(SEALED, collection_errors=[error]), report(SEALED, compile_errors=[error]),
                   report(SEALED, running=["x"])):  # fmt: skip
        assert sealed_result(broken, PATHS) == SealedResult(passed=1, tests=1, loaded=False)
    other = Diagnostic(file="t/test_z.py", message="no")
    assert sealed_result(report(SEALED, collection_errors=[other]), PATHS).loaded


def test_a_result_is_ok_when_all_of_at_least_one_passed() -> None:
    assert SealedResult(passed=1, tests=1).ok
    for bad in (SealedResult(), SealedResult(passed=1, tests=2), SealedResult(passed=1, tests=1, loaded=False)):
        assert not bad.ok
    assert str(SealedResult(passed=1, tests=3)) == "2 of 3 sealed examples do not pass"
    unfinished = "its sealed examples did not run to their end"
    assert str(SealedResult()) == str(SealedResult(tests=1, loaded=False)) == unfinished


def test_a_report_without_sealed_files_has_no_trace_of_them() -> None:
    mine, other = Diagnostic(file=PATHS[0], message="no"), Diagnostic(file="t/test_z.py", message="no")
    whole = report(
        OPEN, SEALED, RED,
        collection_errors=[mine, other], compile_errors=[other, mine], reported={"tests": 3}, notes=["test_c failed"],
        running=["test_c"], output="expected 6",
        parts=[TargetSummary(runner="pytest", status=ReportStatus.FAILED)],
    )  # fmt: skip
    assert without_sealed(whole, PATHS) == report(OPEN, collection_errors=[other], compile_errors=[other])


def test_words_that_only_sealed_files_have_are_withheld() -> None:
    words = withheld(["assert total('Kiwi', 3.50) == 42"], ["total of a price", "assert x == 3"])
    assert words.clean("total kiwi KIWI 3.50 42 is 3, not 420") == (
        "total [sealed] [sealed] [sealed] [sealed] is 3, not 420"
    )


def test_a_sealed_test_is_found_by_its_program_where_the_runner_names_neither_file_nor_class() -> None:
    suites = {"shouts": "strsim::shout", "shouts_others": "strsim::shout_sealed"}
    tests = [TestResult(id=name, suite=[suite], status=TestStatus.PASSED) for name, suite in suites.items()]
    assert sealed_result(report(*tests), ["tests/shout_sealed.rs"]) == SealedResult(passed=1, tests=1)
