"""Scenarios in Gherkin, as Cucumber for JavaScript and behave run them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ratchet.checks.detect.targets import detect
from ratchet.checks.protocol import Target
from ratchet.core.report import ReportStatus
from tests.checks.support import CACHE, NPM, red, run, statuses

FEATURE = """Feature: Calculator

  Scenario: adds
    Given 1 and 1
    Then the sum is 2

  Scenario: negates
    Given 1 and 2
    Then the sum is 4

  Scenario: not written yet
    Given a divisor
"""
SCRIPT = """const { Given, Then } = require("@cucumber/cucumber");
Given("{int} and {int}", function (a, b) { this.sum = a + b; });
Then("the sum is {int}", function (n) {
  require("node:assert").strictEqual(this.sum, n);
});
"""
PYTHON = """from behave import given, then


@given("{a:d} and {b:d}")
def both(context, a, b):
    context.sum = a + b


@then("the sum is {n:d}")
def is_sum(context, n):
    assert context.sum == n, f"expected {n}, got {context.sum}"
"""
STEPS = {"cucumber": ("features/steps.js", SCRIPT), "behave": ("features/steps/steps.py", PYTHON)}
PACKAGE = {"name": "calc", "scripts": {"test": "cucumber-js"}, "devDependencies": {"@cucumber/cucumber": "12"}}


def lay(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def project(folder: Path, name: str, **package: object) -> Path:
    file, text = STEPS[name]
    more = {"package.json": json.dumps(PACKAGE | package)} if name == "cucumber" else {}
    return lay(folder, {"features/calc.feature": FEATURE, file: text} | more)


def ready(folder: Path, name: str) -> list[Target]:
    """Its targets, with what they need in place."""
    if name == "cucumber":
        if not (NPM / "@cucumber" / "cucumber").exists():
            pytest.skip("@cucumber/cucumber is not in the cache: scripts/toolchains gets it")
        (folder / "node_modules").symlink_to(NPM)
        return detect(folder)
    python = CACHE / "venv" / "bin" / "python"
    if not (python.parent / "behave").exists():
        pytest.skip("behave is not in the cache: scripts/toolchains gets it")
    return detect(folder, command=f"{python} -m behave", runner_name="behave")


@pytest.mark.parametrize("name", ["cucumber", "behave"])
def test_scenarios_are_found_by_their_steps(name: str, tmp_path: Path) -> None:
    assert [target.runner for target in detect(project(tmp_path, name))] == [name]


def test_scenarios_beside_other_tests_are_not_ours_to_start(tmp_path: Path) -> None:
    package = {"scripts": {"test": "mocha"}, "devDependencies": {"@cucumber/cucumber": "12", "mocha": "1"}}
    assert [target.runner for target in detect(project(tmp_path, "cucumber", **package))] == ["mocha"]


@pytest.mark.toolchain
@pytest.mark.parametrize(("name", "at"), [("cucumber", "features/steps.js:4"), ("behave", "features/calc.feature:9")])
def test_scenarios_are_run_and_one_of_them_alone(name: str, at: str, tmp_path: Path) -> None:
    folder = project(tmp_path / "it", name)
    targets = ready(folder, name)
    report = run(folder, targets)
    file, _, line = at.partition(":")
    assert (report.status, statuses(report)) == (
        ReportStatus.FAILED,
        {"features/calc.feature:3": "passed", "features/calc.feature:7": "failed", "features/calc.feature:11": "error"},
    )
    assert red(report)["features/calc.feature:7"] == (file, int(line), "4", "3")
    alone = run(folder, targets, only={targets[0].name: report.tests[:1]})
    assert (alone.status, statuses(alone)) == (ReportStatus.PASSED, {"features/calc.feature:3": "passed"})


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("name", "text", "says", "line"),
    [
        ("cucumber", "const { = 1\n", "Unexpected token '='", 1),
        ("cucumber", "require('gone')\n", "Cannot find module 'gone'", 1),
        ("behave", "def (\n", "invalid syntax", 1),
        ("behave", "import gone\n", "No module named 'gone'", 0),  # it does not say where
    ],
)
def test_steps_that_do_not_load_are_named(name: str, text: str, says: str, line: int, tmp_path: Path) -> None:
    folder = project(tmp_path / "it", name)
    file = STEPS[name][0].replace("steps.", "wrong.")
    lay(folder, {file: text})
    report = run(folder, ready(folder, name))
    assert report.status is ReportStatus.FAILED
    (error,) = report.compile_errors + report.collection_errors
    assert (error.file, error.line) == (file if line else "", line) and says in error.message


@pytest.mark.toolchain
@pytest.mark.skipif(
    not (NPM / "@cucumber/cucumber").exists(), reason="cucumber is not there: scripts/toolchains gets it"
)
def test_a_feature_that_is_not_gherkin_is_an_error_with_its_place(tmp_path: Path) -> None:
    folder = project(tmp_path / "it", "cucumber")
    lay(folder, {"features/bad.feature": "Feature: bad\n  Scenario: x\n    Given 1 and 1\n  nonsense\n"})
    (folder / "node_modules").symlink_to(NPM)
    report = run(folder)
    (error,) = report.collection_errors
    assert (report.status, error.file, error.line, error.column) == (
        ReportStatus.FAILED,
        "features/bad.feature",
        4,
        3,
    )
