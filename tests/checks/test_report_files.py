"""A runner nobody knows, which leaves a report where the configuration says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import ratchet

JUNIT = """<testsuite name="s" tests="2" failures="1">
<testcase classname="a.B" name="one"/>
<testcase classname="a.B" name="two"><failure type="E" message="expected 4 but was 5">x</failure></testcase>
</testsuite>"""
GREEN = '<testsuite name="s" tests="1"><testcase classname="a.C" name="three"/></testsuite>'
TAP = "TAP version 13\n1..2\nok 1 - one\nnot ok 2 - two\n"
CTRF = json.dumps({
    "results": {
        "tool": {"name": "own"},
        "summary": {"tests": 1, "passed": 0, "failed": 1, "skipped": 0, "pending": 0, "other": 0},
        "tests": [{"name": "one", "status": "failed", "duration": 1, "message": "no"}],
    }
})  # fmt: skip


def report_of(folder: Path, script: str, report: str = "build/*.xml") -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    (folder / "run-tests").write_text(f"#!/bin/sh\nmkdir -p build\n{script}\n")
    (folder / "run-tests").chmod(0o755)
    (folder / "ratchet.toml").write_text(f'[test]\ncommand = "./run-tests"\nreport = "{report}"\n')
    done = ratchet("test", "--json", cwd=folder)
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == {"passed": 0, "no_tests": 2, "error": 3}.get(found["status"], 1), done.stderr
    return found


def writes(name: str, text: str, code: int) -> str:
    return f"cat > build/{name} <<'EOT'\n{text}\nEOT\nexit {code}"


@pytest.mark.parametrize(
    ("name", "text", "ids"),
    [("r.xml", JUNIT, {"a.B#one", "a.B#two"}), ("r.tap", TAP, {"one", "two"}), ("r.json", CTRF, {"one"})],
)
def test_each_test_of_a_report_file_is_reported(tmp_path: Path, name: str, text: str, ids: set[str]) -> None:
    report = report_of(tmp_path / "it", writes(name, text, 1), f"build/{name}")
    assert report["status"] == "failed" and report["totals"]["failed"] == 1
    assert {test["id"] for test in report["tests"]} == ids


def test_a_glob_takes_all_files_of_this_run_and_none_of_an_earlier_one(tmp_path: Path) -> None:
    folder = tmp_path / "it"
    assert report_of(folder, f"{writes('a.xml', JUNIT, 1)}")["totals"]["tests"] == 2
    both = report_of(folder, f"echo '{GREEN}' > build/b.xml\nexit 0")
    assert (both["status"], [test["id"] for test in both["tests"]]) == ("passed", ["a.C#three"])
    same = report_of(folder, f"echo '{GREEN}' > build/b.xml\n{writes('a.xml', JUNIT, 1)}")
    assert (same["status"], same["totals"]["tests"], same["totals"]["failed"]) == ("failed", 3, 1)


def test_a_run_that_leaves_no_report_has_not_passed(tmp_path: Path) -> None:
    folder = tmp_path / "it"
    assert report_of(folder, writes("a.xml", GREEN, 0))["status"] == "passed"
    for code in (0, 1):
        report = report_of(folder, f"exit {code}")
        assert report["status"] == "unknown" and not report["tests"]
        assert "nothing was written to build/*.xml" in report["notes"]


def test_a_report_against_the_exit_code_or_torn_or_of_no_known_format_is_no_pass(tmp_path: Path) -> None:
    assert report_of(tmp_path / "a", writes("a.xml", JUNIT, 0))["status"] == "inconsistent"
    assert report_of(tmp_path / "b", writes("a.xml", GREEN, 1))["status"] == "inconsistent"
    assert report_of(tmp_path / "c", writes("a.xml", GREEN[:-20], 0))["status"] != "passed"
    assert (
        report_of(tmp_path / "e", writes("a.xml", '<testsuite tests="3"></testsuite>', 0))["status"] == "inconsistent"
    )
    strange = report_of(tmp_path / "d", writes("a.xml", "<nothing/>", 0))
    assert strange["status"] == "unknown" and "build/a.xml contains no known results" in strange["notes"]


def test_a_report_without_a_command_is_a_mistake(tmp_path: Path) -> None:
    done = ratchet("test", "--set", "test.report=a.xml", cwd=tmp_path)
    assert done.returncode == 2 and "test.command" in done.stderr


@pytest.mark.parametrize(
    ("pattern", "why"), [("**x.xml", "is not a valid path or glob"), ("/", "leads out of the project")]
)
def test_a_pattern_that_is_none_is_a_mistake(tmp_path: Path, pattern: str, why: str) -> None:
    done = ratchet("test", "--set", "test.command=true", "--set", f"test.report={pattern}", cwd=tmp_path)
    assert done.returncode == 2 and "test.report" in done.stderr and why in done.stderr
