"""Which tests are sealed ones."""

from __future__ import annotations

from ratchet.core.report import Report, ReportStatus, TestResult, TestStatus
from ratchet.core.sealed import sealed_result


def test_a_sealed_test_is_found_by_its_program_where_the_runner_names_neither_file_nor_class() -> None:
    suites = {"shouts": "strsim::shout", "shouts_others": "strsim::shout_sealed"}
    tests = [TestResult(id=name, suite=[suite], status=TestStatus.PASSED) for name, suite in suites.items()]
    result = sealed_result(Report(runner="cargo", status=ReportStatus.PASSED, tests=tests), ["tests/shout_sealed.rs"])
    assert (result.ok, result.tests) == (True, 1)
