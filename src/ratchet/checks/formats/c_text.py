"""Parses the output of cmocka, Unity, QtTest and CUnit, which have no other channel.

An output counts only if it names as many tests as its own summary. If it ends earlier, the tests so far are returned as
a run that has not ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from ratchet.checks.formats import Parsed, distinct, recover
from ratchet.core.report import RED, Failure, TestResult, TestStatus

_PASSED, _FAILED, _ERROR, _SKIPPED, _XFAILED = (
    TestStatus.PASSED,
    TestStatus.FAILED,
    TestStatus.ERROR,
    TestStatus.SKIPPED,
    TestStatus.XFAILED,
)
RUNNING = "was running when its program ended"
Found = tuple[list[TestResult], int | None]


def parse_printed(text: str) -> Parsed:
    """Return the tests of the first library that matches, or none."""
    rows = text.splitlines()
    for words, library in _LIBRARIES:
        if words not in text:
            continue
        tests, count = library(rows)
        if tests and count in (None, len(tests)):
            return Parsed(tests=distinct(tests), ended=count is not None or _names_its_end(tests[-1]))
    return Parsed(ended=False)


def _names_its_end(test: TestResult) -> bool:
    return bool(test.failure and test.failure.message == RUNNING)


def _test(name: str, status: TestStatus, output: list[str], *, reason: str = "", file: str = "") -> TestResult:
    failure = None
    if status in RED:
        text = "\n".join(output).strip()
        failure = recover.sanitizer(text) or recover.failure(text, message=text or "failed")
    return TestResult(
        id=name,
        name=name,
        status=status,
        reason=reason,
        file=file or (failure.file if failure else ""),
        failure=failure,
    )


_CMOCKA = re.compile(r"^\[ *(RUN|OK|FAILED|ERROR|SKIPPED) *\] (?!---)(.+)$")
_CMOCKAS_SUM = re.compile(r"^\[=+\] (?:.*: )?(\d+) test\(s\) run\.$")
_CMOCKAS = {"OK": _PASSED, "FAILED": _FAILED, "ERROR": _ERROR, "SKIPPED": _SKIPPED}
_DRESS = re.compile(r"^\[ +(?:ERROR|LINE) +\] --- ")


def _cmocka(rows: list[str]) -> Found:
    """Parse cmocka: output of a test is between its start and end; the summary repeats names."""
    tests: list[TestResult] = []
    open_name, output, counts = "", list[str](), list[int]()
    for row in rows:
        found = _CMOCKA.match(row)
        if found and found[1] == "RUN":
            open_name, output = found[2], []
        elif found and found[2] == open_name:
            tests.append(_undressed(_test(open_name, _CMOCKAS[found[1]], _placed(output))))
            open_name = ""
        elif total := _CMOCKAS_SUM.match(row):
            counts.append(int(total[1]))
        elif open_name:
            output.append(row)
    if open_name:
        lost = Failure(type="Crashed", message=RUNNING)
        tests.append(TestResult(id=open_name, name=open_name, status=_ERROR, failure=lost))
    return tests, sum(counts) if counts and not open_name else None


def _placed(output: list[str]) -> list[str]:
    """Move the location to the front, as compilers print it, so that the compared values follow."""
    rows = [row for row in output if row]
    places = [_DRESS.sub("", row) for row in rows if row.startswith("[   LINE   ]")]
    return [*places, *(row for row in rows if not row.startswith("[   LINE   ]"))]


def _undressed(test: TestResult) -> TestResult:
    if not test.failure:
        return test
    rows = [_DRESS.sub("", row) for row in test.failure.message.splitlines()]
    message = "\n".join(row for row in rows if not row.endswith(": error: Failure!"))
    return msgspec.structs.replace(test, failure=msgspec.structs.replace(test.failure, message=message or "failed"))


_UNITY = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):(?P<name>\w[^:\n]*):(?P<word>PASS|FAIL|IGNORE)(?:: ?(?P<output>.*))?$"
)
_UNITYS_SUM = re.compile(r"^(\d+) Tests (\d+) Failures (\d+) Ignored")
_ACTUAL = re.compile(r"^('.*?'|[^\s:']+)[:.]\s?\D.*$")  # followed by the test's own message
_UNITYS = {"PASS": _PASSED, "FAIL": _FAILED, "IGNORE": _SKIPPED}


def _unity(rows: list[str]) -> Found:
    found = [match for row in rows if (match := _UNITY.match(row))]
    totals = [int(match[1]) for row in rows if (match := _UNITYS_SUM.match(row))]
    return [_unitys(match) for match in found], sum(totals) if totals else None


def _unitys(found: re.Match[str]) -> TestResult:
    status, output = _UNITYS[found["word"]], found["output"] or ""
    place = f"{found['file']}:{found['line']}: {output}" if status in RED else ""
    test = _test(found["name"], status, [place], reason=output if status is _SKIPPED else "", file=found["file"])
    if not test.failure:
        return test
    at = msgspec.structs.replace(
        test.failure,
        message=output or "failed",
        actual=_ACTUAL.sub(r"\1", test.failure.actual) if test.failure.actual else test.failure.actual,
        file=found["file"],
        line=int(found["line"]),
    )
    return msgspec.structs.replace(test, failure=at)


_QT = re.compile(r"^(PASS  |FAIL! |SKIP  |XFAIL |XPASS |BPASS |BFAIL ) : (\w[\w:]*\(.*?\))(?: (.*))?$")
_QTS_SUM = re.compile(r"^Totals: (\d+) passed, (\d+) failed, (\d+) skipped(?:, (\d+) blacklisted)?")
_QTS_PLACE = re.compile(r"^ +Loc: \[(.+)\((\d+)\)\]$")
_QTS = {"PASS": _PASSED, "FAIL!": _FAILED, "SKIP": _SKIPPED, "XPASS": _FAILED, "BPASS": _PASSED, "BFAIL": _XFAILED}


def _qt(rows: list[str]) -> Found:
    """Parse QtTest: an expected failure precedes the test's own result and is not counted."""
    tests: list[TestResult] = []
    expected = ""
    for at, row in enumerate(rows):
        found = _QT.match(row)
        word = found[1].strip() if found else ""
        if not found or (word == "XFAIL" and (expected := found[2])):
            continue
        status = _XFAILED if word == "PASS" and expected == found[2] else _QTS[word]
        tests.append(_qts(found, status, list(_below(rows, at))))
        expected = ""
    totals = [sum(int(number or 0) for number in match.groups()) for row in rows if (match := _QTS_SUM.match(row))]
    return tests, sum(totals) if totals else None


def _below(rows: list[str], at: int) -> Iterator[str]:
    for row in rows[at + 1 : at + 40]:
        if not row.startswith(" "):
            return
        yield row


def _qts(found: re.Match[str], status: TestStatus, more: list[str]) -> TestResult:
    why = found[3] or ""
    test = _test(found[2], status, [why, *more], reason=why if status is _SKIPPED else "")
    place = next((match for row in more if (match := _QTS_PLACE.match(row))), None)
    if not test.failure or not place:
        return test
    message = "\n".join([why, *(row for row in more if not _QTS_PLACE.match(row))]).strip()
    at = msgspec.structs.replace(test.failure, message=message, file=place[1], line=int(place[2]))
    return msgspec.structs.replace(test, failure=at, file=place[1])


_CUNIT = re.compile(r"^  Test: (.+?) \.\.\.\s?(passed|FAILED)$")
_CUNITS_SUITE = re.compile(r"^Suite: (.+)$")
_CUNITS_SUM = re.compile(r"^ +tests +\d+ +(\d+) +\d+ +\d+ +\d+$")
_CUNITS_PLACE = re.compile(r"^ +\d+\. (.+):(\d+) +- (.+)$")


def _cunit(rows: list[str]) -> Found:
    tests: list[TestResult] = []
    suite, count = "", None
    for at, row in enumerate(rows):
        if found := _CUNITS_SUITE.match(row):
            suite = found[1]
        elif found := _CUNIT.match(row):
            place = _CUNITS_PLACE.match(rows[at + 1]) if at + 1 < len(rows) else None
            tests.append(_cunits(f"{suite}::{found[1]}", found[2] == "passed", place))
        elif found := _CUNITS_SUM.match(row):
            count = (count or 0) + int(found[1])
    return tests, count


def _cunits(name: str, passed: bool, place: re.Match[str] | None) -> TestResult:
    if passed or not place:
        return _test(name, _PASSED if passed else _FAILED, [])
    failure = recover.failure(place[3], message=place[3], file=place[1], line=int(place[2]))
    return TestResult(id=name, name=name, status=_FAILED, file=place[1], failure=failure)


_LIBRARIES: list[tuple[str, Callable[[list[str]], Found]]] = [
    (" test(s).", _cmocka),
    (" Ignored", _unity),
    (" : ", _qt),
    ("CUnit", _cunit),
]
