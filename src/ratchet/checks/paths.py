"""Paths as the project knows them: relative to the target's folder, whatever the runner printed."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project
from ratchet.core.report import Diagnostic, Failure, Frame, TestResult

_FOREIGN = ("node_modules/", "site-packages/", "/rustc/", ".cargo/registry", "vendor/bundle", "node:")


def relative(parsed: Parsed, folder: Path) -> Parsed:
    """The same results with files below the folder named from it, and without frames of what is not the project's."""
    finder = _Finder(folder)
    tops = list(dict.fromkeys((f"{folder}{os.sep}", f"{folder.resolve()}{os.sep}")))
    return msgspec.structs.replace(
        parsed,
        tests=[finder.test(_test(test, tops)) for test in parsed.tests],
        collection_errors=[_error(error, tops) for error in parsed.collection_errors],
        compile_errors=[_error(error, tops) for error in parsed.compile_errors],
        running=[_own(name, tops) for name in parsed.running],
    )


class _Finder:
    """Finds the one file of the project that a runner meant by the end of its path, as a Java stack names them."""

    def __init__(self, folder: Path) -> None:
        self.project = Project(folder)
        self.found: dict[str, str] = {}

    def path(self, name: str) -> str:
        if not name or name.startswith(os.sep):
            return name
        if name not in self.found:
            self.found[name] = name if self.project.has(name) else self._search(name)
        return self.found[name]

    def _search(self, name: str) -> str:
        hits = [path for path in self.project.files if path.endswith(f"/{name}")]
        return hits[0] if len(hits) == 1 else name

    def test(self, test: TestResult) -> TestResult:
        if test.failure is None:
            return test
        frames = [msgspec.structs.replace(frame, file=self.path(frame.file)) for frame in test.failure.frames]
        failure = msgspec.structs.replace(test.failure, file=self.path(test.failure.file), frames=frames)
        return msgspec.structs.replace(test, failure=failure)


def _own(path: str, tops: list[str]) -> str:
    for top in tops:
        if path.startswith(top):
            return path[len(top) :]
    return path.removeprefix("./")


def _test(test: TestResult, tops: list[str]) -> TestResult:
    # Most runs name every file from the folder already: nothing is built anew for them.
    name = _id(test, tops)
    if test.failure is None and _own(test.file, tops) == test.file and name == test.id:
        return test
    failure = _failure(test.failure, test, tops) if test.failure else None
    return msgspec.structs.replace(test, id=name, file=_own(test.file, tops), failure=failure)


def _id(test: TestResult, tops: list[str]) -> str:
    """A name that does not begin with a file is no path, however much it looks like one."""
    name = _own(test.id, tops)
    begins = "::" in name or (test.file and name.startswith(_own(test.file, tops)))
    return name if begins or not test.id.startswith("./") else test.id


def _failure(failure: Failure, test: TestResult, tops: list[str]) -> Failure:
    frames = [msgspec.structs.replace(frame, file=_own(frame.file, tops)) for frame in failure.frames]
    frames = [frame for frame in frames if _is_project(frame)]
    file, line = _own(failure.file, tops), failure.line
    if (not file or file.startswith(os.sep)) and frames:
        file, line = frames[-1].file, frames[-1].line
    if not file:
        file, line = _own(test.file, tops), test.line
    return msgspec.structs.replace(failure, file=file, line=line, frames=frames)


def _is_project(frame: Frame) -> bool:
    return not frame.file.startswith(os.sep) and not any(part in frame.file for part in _FOREIGN)


def _error(error: Diagnostic, tops: list[str]) -> Diagnostic:
    return msgspec.structs.replace(error, file=_own(error.file, tops))
