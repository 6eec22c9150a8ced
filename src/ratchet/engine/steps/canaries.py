"""Canaries: tests that must fail, added to the test files of a workspace to detect faked results."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from ratchet.core.canary import with_canary
from ratchet.core.report import RED, Report, TestResult
from ratchet.engine.steps.context import abbreviate
from ratchet.tree_files import read_inside, write_inside

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


def _add(folder: Path, path: str, token: str) -> bool:
    """Add a canary to a file; False when the file cannot hold one, or is reached through a symlink."""
    return rewrite(folder, path, lambda name, text: with_canary(name, text, token))


def rewrite(folder: Path, path: str, write: Callable[[str, str], str]) -> bool:
    """Write what `write` makes of a file's name and text; False when that is nothing, or the file is no regular one."""
    try:
        content = read_inside(folder, path)
        changed = write(Path(path).name, content.decode()) if content else ""
        if changed:
            write_inside(folder, path, changed.encode())
    except (OSError, UnicodeDecodeError):
        return False
    return bool(changed)
