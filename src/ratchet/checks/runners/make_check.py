"""Automake's `make check`: the log of each test beside it, and the tests inside a program whose library tells them."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import msgspec

from ratchet.checks import Results, Session
from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project
from ratchet.checks.runners import inside
from ratchet.core.report import RED, TestResult

_LIBRARIES = ("boost", "check", "gtest")
_OWN = re.compile(r"(?m)^\s*TESTS_ENVIRONMENT\s*[+:?]?=")
# The folder and the log of a test, as the rule that runs it knows them, in one word.
_WHICH = '$$(printf %s "$(abs_builddir)/$${log:-$$tst}" | tr / %)'


def environment(session: Session) -> list[str]:
    """What has each program write a file of its own. A project that uses this variable itself keeps it."""
    project = Project(session.folder)
    if any(_OWN.search(project.text(path)) for path in project.named("**/Makefile.am", "**/*.mk", "**/Makefile.in")):
        return []
    files = session.private / "inside"
    files.mkdir()
    every = [inside.variables(library, f"{files}/{library}-WHICH").items() for library in _LIBRARIES]
    words = [f"{name}={_quoted(value)}" for given in every for name, value in given]
    return [f"TESTS_ENVIRONMENT={' '.join(words)}"]


def _quoted(value: str) -> str:
    return shlex.quote(value).replace("WHICH", _WHICH) if shlex.quote(value) == value else ""


def script(test: TestResult) -> tuple[str, str]:
    """The folder and the script of a test; points of one in TAP have a number and a name behind it."""
    folder, _, name = test.id.partition("::")[0].partition(" ")[0].rpartition("/")
    return folder or ".", name


def chosen(tests: list[TestResult]) -> str:
    return f"TESTS={' '.join(dict.fromkeys(script(test)[1] for test in tests))}"


def filters(tests: list[TestResult]) -> dict[str, str]:
    """For one test inside one program; several programs would all be given what is meant for one."""
    return inside.filters(tests[0]) if len(tests) == 1 else {}


def logged(whole: Parsed, results: Results) -> Parsed:
    """Every test with what its log says of a failure, named from the project."""
    top = f"{results.folder}{os.sep}"
    logs = [_log(test) for test in whole.tests]
    whole.tests = [_logged(test, log, top) for test, log in zip(whole.tests, logs, strict=True)]
    known: dict[str, inside.Program] = {}
    ends: dict[str, inside.Ends] = {}
    for test, log in zip(whole.tests, logs, strict=True):
        if log:
            ends[test.id] = inside.ends("", _text(log))
            if program := _program(results.private / "inside", log):
                known[test.id] = program
    refined = inside.refined(whole, known, ends)
    refined.tests = [_from_project(test, results.folder) for test in refined.tests]
    return refined


def _from_project(test: TestResult, folder: Path) -> TestResult:
    """The compiler was started where the program is."""
    if not inside.is_inside(test) or not (folder / (file := f"{script(test)[0]}/{test.file}")).is_file():
        return test
    return msgspec.structs.replace(test, file=file.removeprefix("./"))


def _program(files: Path, log: Path) -> inside.Program | None:
    which = str(log).replace("/", "%")
    found = [library for library in _LIBRARIES if (files / f"{library}-{which}").exists()]
    return inside.Program(found[0], str(files / f"{found[0]}-{which}")) if len(found) == 1 else None


def _log(test: TestResult) -> Path | None:
    place = Path("".join(test.suite), test.name.partition(" ")[0])
    return next(
        (path for path in (place.with_suffix(".log"), place.with_name(f"{place.name}.log")) if path.is_file()), None
    )


def _text(log: Path | None) -> str:
    return log.read_text("utf-8", "replace") if log else ""


def _logged(test: TestResult, log: Path | None, top: str) -> TestResult:
    name = test.id.removeprefix(top)
    if not test.failure or test.status not in RED:
        return msgspec.structs.replace(test, id=name, suite=[])
    from ratchet.checks.formats import recover  # noqa: PLC0415 — many patterns, seldom needed

    said = _text(log)[-20_000:]
    failure = recover.sanitizer(said) or recover.failure(said or test.failure.message)
    return msgspec.structs.replace(test, id=name, suite=[], failure=failure, file=failure.file, stdout=said[-8000:])
