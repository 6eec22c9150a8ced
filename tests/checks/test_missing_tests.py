"""A test file that is there and left no trace in a run: never a pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.checks.detect.project import Project
from ratchet.checks.protocol import Target
from ratchet.checks.run.missing_tests import (
    add_missing_files,
    check_default_files,
    check_selected,
    files_with_results,
    missing_files,
    note_extra_tests,
)
from ratchet.core.report import Diagnostic, Report, ReportStatus, TestResult, TestStatus

JS = "test('adds', () => {})\n"
GO = "package p\nfunc TestAdds(t *testing.T) {}\n"


def write(folder: Path, **files: str) -> Project:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Project(folder)


def target(runner: str, *command: str) -> Target:
    return Target(runner=runner, command=list(command), tests=[], protected=[], why="")


def passed(*tests: TestResult, broken: list[Diagnostic] | None = None) -> Report:
    return Report(runner="r", status=ReportStatus.PASSED, tests=list(tests), collection_errors=broken or [])


def result(file: str = "", package: str = "") -> TestResult:
    suite = [package] if package else []
    return TestResult(id=file or package, file=file, suite=suite, status=TestStatus.PASSED)


JEST = target("jest", "jest")


def test_a_file_of_jest_without_a_result_is_no_pass(tmp_path: Path) -> None:
    project = write(tmp_path, a_dot_test_dot_js=JS, b_dot_test_dot_js=JS)
    report = check_default_files(passed(result("a.test.js")), JEST, project)
    assert report.status is ReportStatus.INCONSISTENT
    assert "b.test.js" in report.notes[0]


def test_a_file_with_results_or_without_tests_is_not_missing(tmp_path: Path) -> None:
    project = write(tmp_path, a_dot_test_dot_js=JS, b_dot_test_dot_js="// nothing yet\n", c_dot_test_dot_js=JS)
    report = passed(result("a.test.js"), broken=[Diagnostic(file="c.test.js")])
    assert check_default_files(report, JEST, project) is report


@pytest.mark.parametrize("settings", ["jest.config.js", "package.json"])
def test_a_project_that_says_which_files_is_taken_at_its_word(tmp_path: Path, settings: str) -> None:
    project = write(tmp_path, a_dot_test_dot_js=JS, b_dot_test_dot_js=JS)
    (tmp_path / settings).write_text('{"jest": {"testMatch": ["a*"]}}')
    report = passed(result("a.test.js"))
    assert check_default_files(report, JEST, project) is report


def test_a_package_of_go_without_a_result_is_no_pass(tmp_path: Path) -> None:
    files = {"x_test.go": GO, "in/y_test.go": GO, "z/z_linux_test.go": GO, "w/w_test.go": f"//go:build no\n{GO}"}
    for name, text in ({"go.mod": "module example.com/shop\n"} | files).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    go, project = target("go", "go", "test", "./..."), Project(tmp_path)
    report = check_default_files(passed(result(package="example.com/shop")), go, project)
    assert report.notes == ["no results from existing test files: in/y_test.go"]
    whole = passed(result(package="example.com/shop"), result(package="example.com/shop/in"))
    assert check_default_files(whole, go, project) is whole


def test_a_rust_file_has_results_if_its_test_names_have(tmp_path: Path) -> None:
    rust = "#[test]\n#[should_panic]\nfn adds_%s() {}\n"
    files = {"Cargo.toml": "[package]\n", "src/lib.rs": rust % "up", "tests/whole.rs": rust % "all"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    project, known = Project(tmp_path), {"src/lib.rs", "tests/whole.rs"}
    unit = TestResult(id="tests::adds_up", status=TestStatus.PASSED)
    assert files_with_results(passed(unit, TestResult(id="adds_all", status=TestStatus.PASSED)), project) == known
    assert missing_files(passed(unit), project, known) == ["tests/whole.rs"]


@pytest.mark.parametrize("status", [ReportStatus.TIMEOUT, ReportStatus.CRASHED])
def test_an_interrupted_run_needs_no_results_of_every_file(status: ReportStatus) -> None:
    report = Report(runner="r", status=status)
    assert add_missing_files(report, ["tests/test_a.py"]) == report


def test_a_hook_that_no_longer_fails_is_answered_by_the_tests_of_its_suite() -> None:
    tests = [TestResult(id="a.js::s > t", file="a.js", status=TestStatus.PASSED)]
    report = Report(runner="mocha", status=ReportStatus.PASSED, tests=tests)
    for name in ('a.js::s > "before all" hook for "t"', 'a.js::"after each" hook: x'):
        assert check_selected(report, [name], [name]).status is ReportStatus.PASSED


@pytest.mark.parametrize(
    ("asked", "more"),
    [
        ("x.ATest#small{int}[1]", ["1 test was run"]),
        ("x.ATest#small", []),
        ("small{int}[1]", []),
        ("a_test.go", []),
        ("p.TestA/x", ["2 tests were run"]),
    ],
)
def test_a_selection_that_runs_more_tests_has_a_note(asked: str, more: list[str]) -> None:
    rows = ["p.TestA", "p.TestA/x", "p.TestA/x/deep", "p.TestB", "p.TestC"]
    rows = ["x.ATest#small{int}[1]", "x.ATest#small{int}[2]"] if "small" in asked else rows
    tests = [TestResult(id=name, file="a_test.go", status=TestStatus.PASSED) for name in rows]
    report = note_extra_tests(Report(runner="r", status=ReportStatus.PASSED, tests=tests), [asked])
    assert report.status is ReportStatus.PASSED
    assert report.notes == [f"{what} in addition: r cannot select fewer" for what in more]
