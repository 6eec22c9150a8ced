"""Reports the single tests inside a C or C++ program that is one test to its build system, if the test library reports
them.

The build system's verdict stands: the library's results replace the program only if both agree.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import msgspec

from ratchet.checks.formats import Parsed
from ratchet.checks.runners import REPORTERS, junit, parse_file, parser
from ratchet.core.foreign_json import MALFORMED
from ratchet.core.report import RED, Failure, TestResult, TestStatus
from ratchet.tree_files import is_source, read_source

_PARSERS = {
    "boost": parser("cpp_xml"),
    "check": parser("cpp_xml"),
    "catch2": junit,
    "gtest": parser("gtest_json"),
}
_SIGNALLED = re.compile(r"\bSIG[A-Z]{2,5}\b|Received signal|^was running when its program ended")
_CHECK_COUNT = re.compile(r"(?m)^\d+%: Checks: (\d+),")  # of the library Check


class SubtestProgram(msgspec.Struct, frozen=True):
    """The program of a test: its test library, the library's result file, and whether the test is only a part of the
    program."""

    library: str
    file: str
    part: bool = False


def wrap_command(private: Path, how: str, command: list[str], asked: list[str]) -> list[str]:
    """Wrap the command in a script that finds the test programs once they are built."""
    if asked:
        (private / "asked.json").write_bytes(msgspec.json.encode(asked))
    return [sys.executable, "-I", str(REPORTERS / "_ratchet_programs.py"), str(private), how, *command]


def variables(library: str, file: str) -> dict[str, str]:
    """Return the variables that make a program of this library write its results to the file."""
    found: dict[str, str] = _reporter().variables(library, file, [])
    return found


def programs(private: Path) -> dict[str, SubtestProgram]:
    """Return the programs by test id, as far as the run found them."""
    try:
        found = msgspec.json.decode(read_source(private, "inside.json"), type=dict[str, SubtestProgram])
    except MALFORMED:
        return {}
    # The tests may have written it: no other file is read, and no unknown library.
    inside = f"{private}{os.sep}"
    return {
        test: program
        for test, program in found.items()
        if program.library in _PARSERS and program.file.startswith(inside) and ".." not in program.file
    }


_PRINTS = SubtestProgram("text", "")


class ProgramEnd(msgspec.Struct, frozen=True):
    """What is known of a program besides its result file: how it ended, if the build system says more than "failed";
    the number of tests that Check printed; and the printed tests of a library without a result file."""

    how: str = ""
    checks: int = 0
    printed: Parsed | None = None


def program_end(how: str, output: str) -> ProgramEnd:
    return ProgramEnd(how, sum(map(int, _CHECK_COUNT.findall(output))), _printed(output))


def with_subtests(whole: Parsed, known: dict[str, SubtestProgram], ended: dict[str, ProgramEnd]) -> Parsed:
    """Replace the tests of these programs by the tests inside of them."""
    tests: list[TestResult] = []
    for test in whole.tests:
        program, end = known.get(test.id), ended.get(test.id, ProgramEnd())
        parsed = parse_file(Path(program.file), _PARSERS[program.library]) if program else end.printed or Parsed()
        inner = _subtests(test, program or _PRINTS, parsed, end)
        if program and test.status is TestStatus.PASSED and _left_early(program, parsed):
            tests.append(_as_error(test, "its program ended before its tests had"))
        else:
            tests += _replacement(test, inner, end.how if parsed.ended else "torn") if inner else [test]
    reported = whole.reported if len(tests) == len(whole.tests) else {}
    return msgspec.structs.replace(whole, tests=tests, reported=reported)


def _left_early(program: SubtestProgram, parsed: Parsed) -> bool:
    """Return whether the program left in the middle of its tests with success. A Catch2 program that only lists its
    tests writes a file too."""
    file = Path(program.file)
    if parsed.ended or not is_source(file.parent, file.name):
        return False
    text = read_source(file.parent, file.name)
    # If there is an end marker, a child of the program wrote to the same file.
    if "</TestLog>" in text or "</testsuites>" in text:
        return False
    return program.library == "boost" or "<testsuites" in text[:200]


def _subtests(test: TestResult, program: SubtestProgram, parsed: Parsed, end: ProgramEnd) -> list[TestResult]:
    """Return the library's results under the program's name, if the build system's verdict agrees.

    Catch2 omits test cases without assertions.
    """
    library = program.library
    found = _merge_sections(parsed.tests) if library == "catch2" else parsed.tests
    # Boost reports deselected tests like disabled ones.
    found = [each for each in found if not program.part or each.reason != "disabled"]
    red = any(each.status in RED for each in found) or bool(parsed.collection_errors)
    if not found or (test.status not in RED and (red or test.status is not TestStatus.PASSED or not parsed.ended)):
        return []
    # A program that runs in several parts overwrites the file each time.
    cut = library == "check" and end.checks > len(found)
    if program.part and len(found) == 1:
        return [msgspec.structs.replace(found[0], id=test.id, name=test.name, suite=test.suite)]
    return [] if cut else [_qualified(test.id, library, each) for each in found]


def _qualified(program: str, library: str, test: TestResult) -> TestResult:
    suites = test.id.split("::")[:-1] if library == "check" else test.suite
    return msgspec.structs.replace(test, id=f"{program}::{test.id}", suite=[program, *suites])


_SKIPPED = re.compile(r"^SKIPPED\s+|\s*^at \S+:\d+\s*$", re.M)


def _merge_sections(rows: list[TestResult]) -> list[TestResult]:
    """Merge the sections of a Catch2 test case, which it reports separately, into one test."""
    cases: list[TestResult] = []
    for row in rows:
        if cases and row.name.startswith(f"{cases[-1].name}/"):
            cases[-1] = _merge_section(cases[-1], row)
        else:
            cases.append(msgspec.structs.replace(row, id=row.name, reason=_SKIPPED.sub("", row.reason)))
    return cases


def _merge_section(case: TestResult, section: TestResult) -> TestResult:
    worse = section.status in RED and case.status not in RED
    status, failure = (section.status, section.failure) if worse else (case.status, case.failure)
    return msgspec.structs.replace(
        case, status=status, failure=failure, duration_s=round(case.duration_s + section.duration_s, 6)
    )


def _replacement(test: TestResult, inner: list[TestResult], how: str) -> Iterator[TestResult]:
    """Yield the tests inside, and the program itself if they do not explain its failure."""
    red = [each for each in inner if each.status in RED]
    explained = any(each.failure and _SIGNALLED.search(each.failure.message) for each in red)
    for each in inner:
        alone = each in red and len(red) == 1 and not each.stdout
        yield msgspec.structs.replace(each, stdout=test.stdout) if alone else each
    if test.status not in RED:
        return
    if not red:
        yield _as_error(test, "the program failed, but none of its reported tests did")
    elif how not in ("", "Failed") and not explained:
        lost = Failure(type="Crashed", message="the program ended before it had reported all its tests")
        yield _as_error(msgspec.structs.replace(test, failure=_sanitized(test) or lost), "")


def _sanitized(test: TestResult) -> Failure | None:
    """Return the report of a sanitizer, which explains more than the tests that ran before."""
    from ratchet.checks.formats import recover  # noqa: PLC0415 — many patterns, seldom needed

    return recover.sanitizer(test.stdout)


def _as_error(test: TestResult, why: str) -> TestResult:
    failure_inside = test.failure or Failure()
    failure = msgspec.structs.replace(failure_inside, message=failure_inside.message or why)
    return msgspec.structs.replace(test, status=TestStatus.ERROR, failure=failure)


def filters(test: TestResult) -> dict[str, str]:
    """Return the variables that make a program run only this test, or as few as its library can select."""
    if not (name := library(test)):
        return {}
    found: dict[str, str] = _reporter().filters(name, [test.id[len(test.suite[0]) + 2 :]])
    return found


def _reporter() -> Any:
    spec = spec_from_file_location("_ratchet_programs", REPORTERS / "_ratchet_programs.py")
    assert spec and spec.loader
    reporter = module_from_spec(spec)
    spec.loader.exec_module(reporter)
    return reporter


def _printed(text: str) -> Parsed | None:
    """Parse the printed tests of a library that has no result file."""
    if not _PRINTED.search(text):
        return None
    from ratchet.checks.formats import c_text  # noqa: PLC0415 — seldom needed

    return c_text.parse_printed(text)


# A characteristic line of each library: cmocka, Unity, QtTest, CUnit.
_PRINTED = re.compile(
    r"(?m)^\[=+\] .*\btest\(s\)|^\d+ Tests \d+ Failures|^\*+ Start testing of |^ +CUnit - A unit testing framework"
)


def library(test: TestResult) -> str:
    """Return the library of a test inside a program, which its name reveals."""
    if not is_subtest(test):
        return ""
    below = test.id[len(test.suite[0]) + 2 :]
    if len(test.suite) == 3 and below == "::".join([*test.suite[1:], test.name]):
        return "check"
    if test.line and below == "/".join([*test.suite[1:], test.name]):
        return "boost"
    if len(test.suite) == 2 and below in (test.name, f"{test.suite[1]}.{test.name}"):
        return "catch2" if below == test.name else "gtest"
    return ""


def is_subtest(test: TestResult) -> bool:
    return bool(test.suite) and test.id.startswith(f"{test.suite[0]}::")
