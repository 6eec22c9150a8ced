"""Reads the files of `meson test`: JUnit for the tests inside a test, JSON lines for how each ended."""

from __future__ import annotations

import os
from collections.abc import Container
from pathlib import Path
from signal import Signals

import msgspec

from ratchet.checks.formats import Parsed
from ratchet.checks.runners import c_subtests, junit, merge_parsed, parse_file
from ratchet.core.foreign_json import MALFORMED
from ratchet.core.report import RED, Diagnostic, Failure, TestResult, TestStatus
from ratchet.tree_files import read_source, remove_inside

# The name of a wrapper or setup follows the first word.
_LOGS, _JUNIT, _JSON = "meson-logs", "testlog*.junit.xml", "testlog*.json"
_LOG_BYTES = 256 << 20
_RED = {
    "FAIL": "Failed",
    "TIMEOUT": "Timeout",
    "UNEXPECTEDPASS": "Unexpected pass",
    "INTERRUPT": "Interrupted",
    "ERROR": "Error",
}
_ERRORS = ("INTERRUPT", "ERROR")
_OTHERS = {"EXPECTEDFAIL": TestStatus.XFAILED, "SKIP": TestStatus.SKIPPED}


class MesonLogRow(msgspec.Struct, frozen=True):
    """One test in the JSON log."""

    name: str
    result: str = ""
    returncode: int = 0
    stdout: str = ""

    @property
    def how(self) -> str:
        known = self.returncode < 0 and -self.returncode in {*Signals}
        signal = f" ({Signals(-self.returncode).name})" if known and self.result != "TIMEOUT" else ""
        return f"{_RED.get(self.result, '')}{signal}"


def forget(build: Path) -> None:
    for path in [*_logs(build, _JUNIT), *_logs(build, _JSON)]:
        remove_inside(build, f"{_LOGS}/{path.name}")


def _logs(build: Path, pattern: str) -> list[Path]:
    return sorted((build / _LOGS).glob(pattern))


def results(build: Path, folder: Path, private: Path) -> Parsed:
    """Return every test with how it ended, and the tests inside of its program if the library reports them."""
    rows = {row.name: row for path in _logs(build, _JSON) for row in _rows(path)}
    whole = (
        merge_parsed(parse_file(path, junit) for path in _logs(build, _JUNIT))
        if _logs(build, _JUNIT)
        else Parsed(ended=False)
    )
    # Its totals omit tests inside of tests and ignore timeouts.
    whole.tests, whole.reported = [_ended(_named(test, rows), rows.get(test.name)) for test in whole.tests], {}
    programs = c_subtests.programs(private)
    known: dict[str, c_subtests.SubtestProgram] = {}
    ends: dict[str, c_subtests.ProgramEnd] = {}
    for test in whole.tests:
        if row := rows.get(test.name):
            ends[test.id] = c_subtests.program_end(row.how, row.stdout)
            if program := programs.get(plain_name(row.name)):
                known[test.id] = program
    refined = c_subtests.with_subtests(whole, known, ends)
    refined.tests = [_from_folder(test, f"{os.path.relpath(folder, build)}{os.sep}") for test in refined.tests]
    return refined


def plain_name(name: str) -> str:
    """Return the name that `meson test` accepts: without project and suites, which precede it if there are several."""
    return name.rpartition(" / ")[2]


def _rows(path: Path) -> list[MesonLogRow]:
    found: list[MesonLogRow] = []
    for line in read_source(path.parents[1], f"{_LOGS}/{path.name}", max_bytes=_LOG_BYTES).splitlines():
        try:
            found.append(msgspec.json.decode(line, type=MesonLogRow))
        except MALFORMED:  # truncated line
            break
    return found


def _named(test: TestResult, rows: Container[str]) -> TestResult:
    """Name tests that meson found inside a test by the test's name, the only one that it can select."""
    project, _, above = "".join(test.suite[:1]).partition(".")
    name = next((each for each in (above, above.rpartition(".")[0]) if each and each in rows), "")
    if not name or test.name in rows:
        return test
    whole = name if " / " in name else f"{project}.{name}"
    below = test.id.removeprefix(f"{test.suite[0]}::")
    return msgspec.structs.replace(test, id=f"{whole}::{below}", suite=[whole, *filter(None, [above[len(name) + 1 :]])])


def _ended(test: TestResult, row: MesonLogRow | None) -> TestResult:
    """Correct tests that timed out: the JUnit file reports no failure for them."""
    if not row:
        return test
    explained = test.failure and test.failure.message and (test.failure.file or row.returncode >= 0)
    if row.result in _RED and not explained:
        status = TestStatus.ERROR if row.result in _ERRORS else TestStatus.FAILED
        failure = msgspec.structs.replace(
            test.failure or Failure(), type=_RED[row.result], message=f"meson says: {row.how}"
        )
        return msgspec.structs.replace(test, status=status, failure=failure)
    other = _OTHERS.get(row.result)
    return msgspec.structs.replace(test, status=other, failure=None) if other and test.status not in RED else test


def running_from_folder(errors: list[Diagnostic], build: Path, folder: Path) -> list[Diagnostic]:
    above = f"{os.path.relpath(folder, build)}{os.sep}"
    return [msgspec.structs.replace(error, file=error.file.removeprefix(above)) for error in errors]


def _from_folder(test: TestResult, above: str) -> TestResult:
    """Make paths relative to the project: the compiler got paths relative to the build folder."""
    file, stdout = test.file.removeprefix(above), test.stdout.replace(above, "")
    failure = test.failure
    if failure:
        failure = msgspec.structs.replace(
            failure,
            file=failure.file.removeprefix(above),
            message=failure.message.replace(above, ""),
            frames=[msgspec.structs.replace(frame, file=frame.file.removeprefix(above)) for frame in failure.frames],
        )
    return msgspec.structs.replace(test, file=file, stdout=stdout, failure=failure)
