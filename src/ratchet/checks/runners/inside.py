"""The single tests inside a program that is one test to its build system, where the program's library tells them.

The build system's verdict stands: what the library wrote only takes the program's place where both say the same.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import msgspec

from ratchet.checks.formats import Parsed
from ratchet.checks.runners import SHIMS, junit, parser, read
from ratchet.core.report import RED, Failure, TestResult, TestStatus

_PARSERS = {
    "boost": parser("cpp_xml"),
    "check": parser("cpp_xml"),
    "catch2": junit,
    "gtest": parser("gtest_json"),
}
_SIGNALLED = re.compile(r"\bSIG[A-Z]{2,5}\b|Received signal|^was running when its program ended")
_SAYS = re.compile(r"(?m)^\d+%: Checks: (\d+),")  # Check's, in any case


class Program(msgspec.Struct, frozen=True):
    """What a test's program was given: the library it is built with, where that writes, and whether the test is a part
    of the program only."""

    library: str
    file: str
    part: bool = False


def started(private: Path, how: str, command: list[str], asked: list[str]) -> list[str]:
    """The command, started by what finds the programs once they are built."""
    if asked:
        (private / "asked.json").write_bytes(msgspec.json.encode(asked))
    return [sys.executable, "-I", str(SHIMS / "_ratchet_programs.py"), str(private), how, *command]


def variables(library: str, file: str) -> dict[str, str]:
    """What has a program of this library write there, beside all that it prints anyway."""
    found: dict[str, str] = _shim().variables(library, file, [])
    return found


def programs(private: Path) -> dict[str, Program]:
    """By the id of the test, as far as the run came to find them."""
    try:
        return msgspec.json.decode((private / "inside.json").read_bytes(), type=dict[str, Program])
    except (OSError, msgspec.DecodeError):
        return {}


_PRINTS = Program("text", "")


class Ends(msgspec.Struct, frozen=True):
    """What is known of a program beside its library's file: how it ended, where the build system says more than that it
    failed; how many tests Check says there were; and the tests that were printed, of a library without a file."""

    how: str = ""
    checks: int = 0
    printed: Parsed | None = None


def ends(how: str, output: str) -> Ends:
    return Ends(how, sum(map(int, _SAYS.findall(output))), _printed(output))


def refined(whole: Parsed, known: dict[str, Program], ended: dict[str, Ends]) -> Parsed:
    """With the tests inside in place of those of these programs."""
    tests: list[TestResult] = []
    for test in whole.tests:
        program, end = known.get(test.id), ended.get(test.id, Ends())
        parsed = read(Path(program.file), _PARSERS[program.library]) if program else end.printed or Parsed()
        inner = _told(test, program or _PRINTS, parsed, end)
        if program and test.status is TestStatus.PASSED and _left_early(program, parsed):
            tests.append(_beside(test, "its program ended before its tests had"))
        else:
            tests += _instead(test, inner, end.how if parsed.ended else "torn") if inner else [test]
    reported = whole.reported if len(tests) == len(whole.tests) else {}
    return msgspec.structs.replace(whole, tests=tests, reported=reported)


def _left_early(program: Program, parsed: Parsed) -> bool:
    """Whether it left in the midst of its tests, and as if all were well. One of Catch2's that lists them only writes a
    file too."""
    if parsed.ended or not (file := Path(program.file)).exists():
        return False
    return program.library == "boost" or b"<testsuites" in file.read_bytes()[:200]


def _told(test: TestResult, program: Program, parsed: Parsed, end: Ends) -> list[TestResult]:
    """What its library wrote, under the program's name, where the build system's verdict agrees.

    Catch2 names no test case that has no assertion, so those are not there."""
    library = program.library
    found = _cases(parsed.tests) if library == "catch2" else parsed.tests
    # Boost tells those that were not chosen, as it tells those that are switched off.
    found = [each for each in found if not program.part or each.reason != "disabled"]
    red = any(each.status in RED for each in found) or bool(parsed.collection_errors)
    if not found or (test.status not in RED and (red or test.status is not TestStatus.PASSED or not parsed.ended)):
        return []
    # In several parts, it writes each over the one before.
    cut = library == "check" and end.checks > len(found)
    if program.part and len(found) == 1:
        return [msgspec.structs.replace(found[0], id=test.id, name=test.name, suite=test.suite)]
    return [] if cut else [_below(test.id, library, each) for each in found]


def _below(program: str, library: str, test: TestResult) -> TestResult:
    suites = test.id.split("::")[:-1] if library == "check" else test.suite
    return msgspec.structs.replace(test, id=f"{program}::{test.id}", suite=[program, *suites])


_SKIPPED = re.compile(r"^SKIPPED\s+|\s*^at \S+:\d+\s*$", re.M)


def _cases(rows: list[TestResult]) -> list[TestResult]:
    """Catch2 writes a row for a test case and one for each section of it: they are one test, as they run."""
    cases: list[TestResult] = []
    for row in rows:
        if cases and row.name.startswith(f"{cases[-1].name}/"):
            cases[-1] = _with(cases[-1], row)
        else:
            cases.append(msgspec.structs.replace(row, id=row.name, reason=_SKIPPED.sub("", row.reason)))
    return cases


def _with(case: TestResult, section: TestResult) -> TestResult:
    worse = section.status in RED and case.status not in RED
    status, failure = (section.status, section.failure) if worse else (case.status, case.failure)
    return msgspec.structs.replace(
        case, status=status, failure=failure, duration_s=round(case.duration_s + section.duration_s, 6)
    )


def _instead(test: TestResult, inner: list[TestResult], how: str) -> Iterator[TestResult]:
    """Its tests, and the program itself where they do not say why it failed."""
    red = [each for each in inner if each.status in RED]
    told = any(each.failure and _SIGNALLED.search(each.failure.message) for each in red)
    for each in inner:
        alone = each in red and len(red) == 1 and not each.stdout
        yield msgspec.structs.replace(each, stdout=test.stdout) if alone else each
    if test.status not in RED:
        return
    if not red:
        yield _beside(test, "the program failed, and none of the tests that it told of did")
    elif how not in ("", "Failed") and not told:
        lost = Failure(type="Crashed", message="the program ended before it had told of all its tests")
        yield _beside(msgspec.structs.replace(test, failure=_sanitized(test) or lost), "")


def _sanitized(test: TestResult) -> Failure | None:
    """What a sanitizer said, which is more than what the tests before it did."""
    from ratchet.checks.formats import recover  # noqa: PLC0415 — many patterns, seldom needed

    return recover.sanitizer(test.stdout)


def _beside(test: TestResult, why: str) -> TestResult:
    said = test.failure or Failure()
    failure = msgspec.structs.replace(said, message=said.message or why)
    return msgspec.structs.replace(test, status=TestStatus.ERROR, failure=failure)


def filters(test: TestResult) -> dict[str, str]:
    """What has a program run this one of its tests, or as few as its library can be asked for."""
    if not (name := library(test)):
        return {}
    found: dict[str, str] = _shim().filters(name, [test.id[len(test.suite[0]) + 2 :]])
    return found


def _shim() -> Any:
    spec = spec_from_file_location("_ratchet_programs", SHIMS / "_ratchet_programs.py")
    assert spec and spec.loader
    shim = module_from_spec(spec)
    spec.loader.exec_module(shim)
    return shim


def _printed(text: str) -> Parsed | None:
    """The tests that a program of a library without another channel printed."""
    if not _PRINTED.search(text):
        return None
    from ratchet.checks.formats import c_text  # noqa: PLC0415 — seldom needed

    return c_text.printed(text)


# One line that each of them prints: cmocka, Unity, QtTest, CUnit.
_PRINTED = re.compile(
    r"(?m)^\[=+\] .*\btest\(s\)|^\d+ Tests \d+ Failures|^\*+ Start testing of |^ +CUnit - A unit testing framework"
)


def library(test: TestResult) -> str:
    """Of a test inside a program the library, which is in how it is named."""
    if not is_inside(test):
        return ""
    below = test.id[len(test.suite[0]) + 2 :]
    if len(test.suite) == 3 and below == "::".join([*test.suite[1:], test.name]):
        return "check"
    if test.line and below == "/".join([*test.suite[1:], test.name]):
        return "boost"
    if len(test.suite) == 2 and below in (test.name, f"{test.suite[1]}.{test.name}"):
        return "catch2" if below == test.name else "gtest"
    return ""


def is_inside(test: TestResult) -> bool:
    return bool(test.suite) and test.id.startswith(f"{test.suite[0]}::")
