"""Reads Automake's `make check`: the log of each test, and the tests inside a program if its library reports them."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import msgspec

from ratchet.checks.detect.project import Project
from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import RunOutput, Session
from ratchet.checks.runners import c_subtests
from ratchet.core.report import RED, TestResult
from ratchet.tree_files import is_source, read_source

_LIBRARIES = ("boost", "check", "gtest")
_OWN = re.compile(r"(?m)^\s*TESTS_ENVIRONMENT\s*[+:?]?=")
# The folder and the log of a test in one word, as its make rule knows them. The folder recorded by configure is wrong
# in a copy.
_WHICH = '$$(printf %s "$(CURDIR)/$${log:-$$tst}" | tr / %)'


def environment(session: Session) -> list[str]:
    """Return the variables that make each program write its own file. A project that sets this variable keeps its
    value."""
    project = Project(session.folder)
    if any(_OWN.search(project.text(path)) for path in project.glob("**/Makefile.am", "**/*.mk", "**/Makefile.in")):
        return []
    files = session.private / "inside"
    files.mkdir()
    every = [c_subtests.variables(library, f"{files}/{library}-WHICH").items() for library in _LIBRARIES]
    words = [f"{name}={_quoted(value)}" for given in every for name, value in given]
    return [f"TESTS_ENVIRONMENT={' '.join(words)}"]


def _quoted(value: str) -> str:
    return shlex.quote(value).replace("WHICH", _WHICH) if shlex.quote(value) == value else ""


def script(test: TestResult) -> tuple[str, str]:
    """Return the folder and the script of a test; TAP points have a number and a name after it."""
    folder, _, name = test.id.partition("::")[0].partition(" ")[0].rpartition("/")
    return folder or ".", name


def selected_tests(tests: list[TestResult]) -> str:
    return f"TESTS={' '.join(dict.fromkeys(script(test)[1] for test in tests))}"


def filters(tests: list[TestResult]) -> dict[str, str]:
    """Return the filter for one test inside one program; several programs would all get it."""
    return c_subtests.filters(tests[0]) if len(tests) == 1 else {}


def parse_logs(whole: Parsed, results: RunOutput) -> Parsed:
    """Return every test with the failure from its log, named relative to the project."""
    top = f"{results.folder}{os.sep}"
    logs = [_log(test, results.folder) for test in whole.tests]
    whole.tests = [_logged(test, _text(log, results.folder), top) for test, log in zip(whole.tests, logs, strict=True)]
    known: dict[str, c_subtests.SubtestProgram] = {}
    ends: dict[str, c_subtests.ProgramEnd] = {}
    for test, log in zip(whole.tests, logs, strict=True):
        if log:
            ends[test.id] = c_subtests.program_end("", _text(log, results.folder))
            if program := _program(results.private / "inside", log):
                known[test.id] = program
    refined = c_subtests.with_subtests(whole, known, ends)
    refined.tests = [_from_project(test, results.folder) for test in refined.tests]
    return refined


def _from_project(test: TestResult, folder: Path) -> TestResult:
    """Make compiler paths relative to the project: the compiler ran in the program's folder."""
    if not c_subtests.is_subtest(test) or not is_source(folder, file := f"{script(test)[0]}/{test.file}"):
        return test
    return msgspec.structs.replace(test, file=file.removeprefix("./"))


def _program(files: Path, log: Path) -> c_subtests.SubtestProgram | None:
    which = str(log).replace("/", "%")
    found = [library for library in _LIBRARIES if (files / f"{library}-{which}").exists()]
    return c_subtests.SubtestProgram(found[0], str(files / f"{found[0]}-{which}")) if len(found) == 1 else None


def _log(test: TestResult, folder: Path) -> Path | None:
    place = Path(folder, "".join(test.suite), test.name.partition(" ")[0])
    names = (place.with_suffix(".log"), place.with_name(f"{place.name}.log"))
    return next((path for path in names if is_source(folder, str(path))), None)


def _text(log: Path | None, folder: Path) -> str:
    return read_source(folder, str(log)) if log else ""


def _logged(test: TestResult, text: str, top: str) -> TestResult:
    name = test.id.removeprefix(top)
    if not test.failure or test.status not in RED:
        return msgspec.structs.replace(test, id=name, suite=[])
    from ratchet.checks.formats import recover  # noqa: PLC0415 — many patterns, seldom needed

    output = text[-20_000:]
    failure = recover.sanitizer(output) or recover.failure(output or test.failure.message)
    return msgspec.structs.replace(test, id=name, suite=[], failure=failure, file=failure.file, stdout=output[-8000:])
