"""Maps selected test ids to targets, as each target names them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ratchet.checks.detect.project import Project
from ratchet.checks.protocol import Target
from ratchet.checks.run.missing_tests import files_with_tests
from ratchet.core.report import Report, TestResult, TestStatus


def select_by_id(
    ids: list[str], targets: list[Target], last: Report | None, folder: Path
) -> dict[str, list[TestResult]]:
    """Return the tests of each target for the given ids. The folder of a target selects all of it."""
    known = {test.id: test for test in (last.tests if last else [])}
    chosen: dict[str, list[TestResult]] = {}
    whole = {target.name for target in targets if target.root != "." and target.root in {n.rstrip("/") for n in ids}}
    for name in _named(ids, targets, folder):
        test = known.get(name) or _unknown(name, folder)
        target = _owner(test, targets)
        prefix = "" if target.root == "." else f"{target.root}/"
        own = msgspec.structs.replace(test, id=test.id.removeprefix(prefix), file=test.file.removeprefix(prefix))
        chosen.setdefault(target.name, []).append(own)
    return {name: tests for name, tests in chosen.items() if name not in whole} | {name: [] for name in whole}


# These accept files, packages and modules, but no folders.
_NO_FOLDERS = ("unittest", "go")


def _named(ids: list[str], targets: list[Target], folder: Path) -> Iterator[str]:
    """Return the ids; a folder is replaced by its test files if the runner does not accept folders."""
    for name in ids:
        place = name.rstrip("/")
        target = _owner(_unknown(place, folder), targets)
        inside = target.runner in _NO_FOLDERS and place != target.root and os.path.isdir(folder / place)  # noqa: PTH112
        yield from (files_with_tests(Project(folder), place, target) if inside else ()) or [name]


def _unknown(name: str, folder: Path) -> TestResult:
    """Return a test that only the user named: in most ids a file precedes the colons, but not in all."""
    file = name.partition("::")[0]
    named = "::" in name or os.path.exists(folder / file)  # noqa: PTH110 — False also where it is too long for a file
    return TestResult(id=name, status=TestStatus.TODO, file=file if named else "")


def _owner(test: TestResult, targets: list[Target]) -> Target:
    named = [target for target in targets if target.owns(test)]
    inside = [target for target in targets if target.root != "." and f"{test.id}/".startswith(f"{target.root}/")]
    extension = Path(test.file.partition("::")[0]).suffix
    fitting = [target for target in targets if any(glob.endswith(extension) for glob in target.tests if extension)]
    return (named or sorted(inside, key=lambda target: -len(target.root)) or fitting or targets)[0]
