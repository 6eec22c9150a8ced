"""Globs written by users and in their projects mean the same on every Python version."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.checks.globs import find
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
