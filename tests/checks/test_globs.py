"""Globs written by users and in their projects mean the same on every Python version."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ratchet.checks.globs import find, find_files
from ratchet.core.report import ReportStatus
from tests.checks.support import needs, run
from tests.checks.test_detect import lay, package

FILES = {"a.xml": "", "in/a.xml": "", "in/deep/a.xml": "", "in/deep/b.txt": ""}


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("**/a.xml", ["a.xml", "in/a.xml", "in/deep/a.xml"]),
        ("**a.xml", ["a.xml"]),
        ("in/***.xml", ["in/a.xml"]),
        ("in/**/d**p/*", ["in/deep/a.xml", "in/deep/b.txt"]),
        ("in/**", ["in/a.xml", "in/deep", "in/deep/a.xml", "in/deep/b.txt"]),
    ],
)
def test_two_stars_are_any_folders_only_as_a_whole_name(tmp_path: Path, pattern: str, found: list[str]) -> None:
    lay(tmp_path, FILES)
    assert sorted(path.relative_to(tmp_path).as_posix() for path in find(tmp_path, pattern)) == found


def test_two_stars_within_a_name_in_a_script_of_node_find_its_tests(tmp_path: Path) -> None:
    needs("node")
    script = "node --test 'test/**.test.js'"
    test = "require('node:test')('one', () => {});\n"
    folder = lay(tmp_path / "it", {"package.json": package(scripts={"test": script}), "test/a.test.js": test})
    report = run(folder)
    assert (report.status, [each.name for each in report.tests]) == (ReportStatus.PASSED, ["one"])


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("**/a.xml", ["a.xml", "in/a.xml", "in/deep/a.xml"]),
        ("in/**/*", ["in/a.xml", "in/deep/a.xml", "in/deep/b.txt"]),
        ("in/**", ["in/a.xml", "in/deep/a.xml", "in/deep/b.txt"]),
        ("./in/d*/[ab].*", ["in/deep/a.xml", "in/deep/b.txt"]),
        ("a.xml", ["a.xml"]),
        ("in", []),
        ("/etc/*", []),
        ("../**", []),
        ("out/**", []),
        ("pipe", []),
    ],
)
def test_reports_are_regular_files_inside_the_tree(tmp_path: Path, pattern: str, found: list[str]) -> None:
    folder = lay(tmp_path / "it", FILES)
    (folder / "out").symlink_to("/usr")
    os.mkfifo(folder / "pipe")
    assert [path.relative_to(folder).as_posix() for path in find_files(folder, pattern)] == found


def test_a_pattern_of_many_stars_takes_the_time_of_one_walk(tmp_path: Path) -> None:
    folder = lay(tmp_path, {f"{'d/' * depth}{name}.txt": "" for depth in range(40) for name in "abc"})
    assert list(find_files(folder, "**/*/" * 20 + "*.zzz")) == []
    assert list(find(folder, "**/" * 40 + "*.zzz")) == []
