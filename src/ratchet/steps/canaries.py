"""Canaries laid among the tests of a workspace, and what a report says of them afterwards."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ratchet.core.canary import with_canary
from ratchet.core.report import RED, Report, TestResult
from ratchet.steps.work import some

_ENOUGH = 8  # each is a failure more to tell, and one that is faked is enough to know


class Canaries(msgspec.Struct, frozen=True, kw_only=True):
    """`laid` are the files by the token in their canary's name; `without` those none is known for."""

    laid: dict[str, str]
    without: list[str]

    def of(self, report: Report, token: str) -> list[TestResult]:
        return [test for test in report.tests if token in test.id or token in test.name]

    def seen(self, report: Report) -> int:
        return sum(bool(self.of(report, token)) for token in self.laid)

    def unseen(self, report: Report) -> list[str]:
        """Files that are not run at all, whoever chose so: nothing is said by them, and nothing is faked."""
        run = {test.file for test in report.tests}
        return [path for token, path in self.laid.items() if not self.of(report, token) and path not in run]

    def faked(self, report: Report) -> str:
        """Why the results cannot be believed; empty when every canary that was run is red."""
        found = {path: self.of(report, token) for token, path in self.laid.items()}
        passed = [path for path, tests in found.items() if any(test.status not in RED for test in tests)]
        if passed:
            count = f"{len(passed)} of {len(self.laid)}, in {some(passed)}"
            return f"a test that cannot pass did not fail ({count}): the results are faked"
        silent = set(self.unseen(report))
        if missing := [path for path, tests in found.items() if not tests and path not in silent]:
            return f"a test that cannot pass was not reported by {some(missing)}: the results are not whole"
        return ""

    def left_out_of(self, report: Report) -> Report:
        ours = {id(test) for token in self.laid for test in self.of(report, token)}
        return msgspec.structs.replace(report, tests=[test for test in report.tests if id(test) not in ours])


def lay(folder: Path, files: Iterable[str]) -> Canaries:
    """One in each folder and language of these test files."""
    together: dict[tuple[Path, str], list[str]] = {}
    for path in sorted(files):
        together.setdefault((Path(path).parent, Path(path).suffix), []).append(path)
    laid: dict[str, str] = {}
    without = []
    for paths in list(together.values())[:_ENOUGH]:
        token = f"c{secrets.token_hex(6)}"
        # Fixtures and helpers lie among the tests, and have no place for one.
        if place := next((path for path in paths if _add(folder / path, token)), ""):
            laid[token] = place
        else:
            without.append(paths[0])
    return Canaries(laid=laid, without=without)


def _add(path: Path, token: str) -> bool:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    longer = with_canary(path.name, text, token)
    if longer:
        path.write_text(longer, "utf-8")
    return bool(longer)
