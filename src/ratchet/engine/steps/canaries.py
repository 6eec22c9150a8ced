"""Canaries: tests that must fail, added to the test files of a workspace to detect faked results."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from ratchet.core.canary import names_of_tests, with_canary, with_failing_bodies
from ratchet.core.report import RED, Report, TestResult, TestStatus
from ratchet.engine.steps.context import abbreviate
from ratchet.tree_files import read_inside, write_inside

_FILES_MAX = 50
_CANARIES_MAX = 8  # each one adds a failure to the report, and one faked result is enough to know


class Canaries(msgspec.Struct, frozen=True, kw_only=True):
    """`files` maps the token in a canary's name to its file; `without` are files that no canary could be added to."""

    files: dict[str, str]
    without: list[str]

    def results_of(self, report: Report, token: str) -> list[TestResult]:
        return [test for test in report.tests if token in test.id or token in test.name]

    def count_run(self, report: Report) -> int:
        return sum(bool(self.results_of(report, token)) for token in self.files)

    def not_run(self, report: Report) -> list[str]:
        """Return canary files of which no test was run: they report nothing, so nothing in them is faked."""
        run = {test.file for test in report.tests}
        return [path for token, path in self.files.items() if not self.results_of(report, token) and path not in run]

    def why_faked(self, report: Report) -> str:
        """Return why the results cannot be trusted; empty when every canary that ran has failed."""
        found = {path: self.results_of(report, token) for token, path in self.files.items()}
        passed = [path for path, tests in found.items() if any(test.status not in RED for test in tests)]
        if passed:
            count = f"{len(passed)} of {len(self.files)}, in {abbreviate(passed)}"
            return f"a test that cannot pass did not fail ({count}): the results are faked"
        silent = set(self.not_run(report))
        if missing := [path for path, tests in found.items() if not tests and path not in silent]:
            return f"a test that cannot pass is missing in the report, in {abbreviate(missing)}: results were left out"
        return ""

    def without_canaries(self, report: Report) -> Report:
        canaries = {id(test) for token in self.files for test in self.results_of(report, token)}
        return msgspec.structs.replace(report, tests=[test for test in report.tests if id(test) not in canaries])


def add_canaries(folder: Path, files: Iterable[str]) -> Canaries:
    """Add one canary per folder and language of these test files."""
    groups: dict[tuple[Path, str], list[str]] = {}
    for path in sorted(files):
        groups.setdefault((Path(path).parent, Path(path).suffix), []).append(path)
    added: dict[str, str] = {}
    without = []
    for paths in list(groups.values())[:_CANARIES_MAX]:
        token = f"c{secrets.token_hex(6)}"
        # Fixtures and helpers among the test files cannot hold a canary: take the first file that can.
        if chosen := next((path for path in paths if _add(folder, path, token)), ""):
            added[token] = chosen
        else:
            without.append(paths[0])
    return Canaries(files=added, without=without)


def add_failing_bodies(folder: Path, files: Iterable[str]) -> set[str]:
    """Make the tests of these files fail, as far as their language is known; returns their ids without parameters."""
    made: set[str] = set()
    for path in sorted(files)[:_FILES_MAX]:
        made |= {f"{path}::{name}" for name in _with_failing_bodies(folder, path)}
    return made


def _with_failing_bodies(folder: Path, path: str) -> set[str]:
    names = set[str]()

    def write(name: str, text: str) -> str:
        if changed := with_failing_bodies(name, text):
            names.update(names_of_tests(text))
        return changed

    return names if _rewrite(folder, path, write) else set()


def why_not_failing(report: Report, failing: set[str]) -> str:
    """Return why the results cannot be trusted, with those bodies; empty when none of these tests has passed."""
    passed = [test.id for test in report.tests if test.status is TestStatus.PASSED and _plain_id(test) in failing]
    return f"tests passed whose bodies fail: {abbreviate(passed)}: the results are faked" if passed else ""


def _plain_id(test: TestResult) -> str:
    """Return the id without parameters, as pytest writes it: unittest's has dots."""
    plain = test.id.partition("[")[0]
    if "::" in plain or not test.file.endswith(".py"):
        return plain
    module = test.file.removesuffix(".py").replace("/", ".")
    return f"{test.file}::{plain.removeprefix(f'{module}.').replace('.', '::')}"


def _add(folder: Path, path: str, token: str) -> bool:
    """Add a canary to a file; False when the file cannot hold one, or is reached through a symlink."""
    return _rewrite(folder, path, lambda name, text: with_canary(name, text, token))


def _rewrite(folder: Path, path: str, write: Callable[[str, str], str]) -> bool:
    try:
        content = read_inside(folder, path)
        changed = write(Path(path).name, content.decode()) if content else ""
        if changed:
            write_inside(folder, path, changed.encode())
    except (OSError, UnicodeDecodeError):
        return False
    return bool(changed)
