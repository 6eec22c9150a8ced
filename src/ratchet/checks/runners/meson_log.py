"""What `meson test` leaves beside its log: JUnit's for the tests inside a test, JSON lines for how each ended."""

from __future__ import annotations

import os
from collections.abc import Container
from pathlib import Path
from signal import Signals

import msgspec

from ratchet.checks.formats import Parsed
from ratchet.checks.runners import inside, joined, junit, read
from ratchet.core.report import RED, Failure, TestResult, TestStatus

# A wrapper's name or a setup's stands behind the first word.
_JUNIT, _JSON = "testlog*.junit.xml", "testlog*.json"
_RED = {
    "FAIL": "Failed",
    "TIMEOUT": "Timeout",
    "UNEXPECTEDPASS": "Unexpected pass",
    "INTERRUPT": "Interrupted",
    "ERROR": "Error",
}
_ERRORS = ("INTERRUPT", "ERROR")
_OTHERS = {"EXPECTEDFAIL": TestStatus.XFAILED, "SKIP": TestStatus.SKIPPED}


class Row(msgspec.Struct, frozen=True):
    """One test as its JSON log has it."""

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
        path.unlink()


def _logs(build: Path, pattern: str) -> list[Path]:
    return sorted((build / "meson-logs").glob(pattern))


def results(build: Path, folder: Path, private: Path) -> Parsed:
    """Every test with how it ended, with those inside its program where the library tells them."""
    rows = {row.name: row for path in _logs(build, _JSON) for row in _rows(path)}
    whole = joined(read(path, junit) for path in _logs(build, _JUNIT)) if _logs(build, _JUNIT) else Parsed(ended=False)
    # Its own totals leave out the tests inside of tests, and do not know of timeouts.
    whole.tests, whole.reported = [_ended(_named(test, rows), rows.get(test.name)) for test in whole.tests], {}
    programs = inside.programs(private)
    known: dict[str, inside.Program] = {}
    ends: dict[str, inside.Ends] = {}
    for test in whole.tests:
        if row := rows.get(test.name):
            ends[test.id] = inside.ends(row.how, row.stdout)
            if program := programs.get(plain_name(row.name)):
                known[test.id] = program
    refined = inside.refined(whole, known, ends)
    refined.tests = [_from_folder(test, f"{os.path.relpath(folder, build)}{os.sep}") for test in refined.tests]
    return refined


def plain_name(name: str) -> str:
    """As `meson test` takes it: without the project and the suites, which stand before it where there are several."""
    return name.rpartition(" / ")[2]


def _rows(path: Path) -> list[Row]:
    found: list[Row] = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(msgspec.json.decode(line, type=Row))
        except msgspec.DecodeError:  # cut off in it
            break
    return found


def _named(test: TestResult, rows: Container[str]) -> TestResult:
    """What meson itself found inside a test, by the test's name: that is all it can be asked for by."""
    project, _, above = "".join(test.suite[:1]).partition(".")
    name = next((each for each in (above, above.rpartition(".")[0]) if each and each in rows), "")
    if not name or test.name in rows:
        return test
    whole = name if " / " in name else f"{project}.{name}"
    below = test.id.removeprefix(f"{test.suite[0]}::")
    return msgspec.structs.replace(test, id=f"{whole}::{below}", suite=[whole, *filter(None, [above[len(name) + 1 :]])])


def _ended(test: TestResult, row: Row | None) -> TestResult:
    """In JUnit's file a test that ran out of time has no fault."""
    if not row:
        return test
    if row.result in _RED and not (test.failure and test.failure.message):
        status = TestStatus.ERROR if row.result in _ERRORS else TestStatus.FAILED
        failure = msgspec.structs.replace(
            test.failure or Failure(), type=_RED[row.result], message=f"meson says: {row.how}"
        )
        return msgspec.structs.replace(test, status=status, failure=failure)
    other = _OTHERS.get(row.result)
    return msgspec.structs.replace(test, status=other, failure=None) if other and test.status not in RED else test


def _from_folder(test: TestResult, above: str) -> TestResult:
    """The compiler was given paths from the build, which nobody looks from."""
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
