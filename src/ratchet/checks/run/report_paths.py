"""Makes paths in results relative to the target's folder, in whatever form the runner printed them."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ratchet.checks.detect.project import Project
from ratchet.checks.formats import Parsed
from ratchet.core.report import Diagnostic, Failure, Frame, TestResult

_FOREIGN = ("node_modules/", "site-packages/", "/rustc/", ".cargo/registry", "vendor/bundle", "node:")


def relative_paths(parsed: Parsed, folder: Path) -> Parsed:
    """Make file names relative to the folder and drop stack frames outside the project."""
    finder = _Finder(folder)
    tops = list(dict.fromkeys((f"{folder}{os.sep}", f"{folder.resolve()}{os.sep}")))
    return msgspec.structs.replace(
        parsed,
        tests=[finder.test(_test(test, tops)) for test in parsed.tests],
        collection_errors=[_error(error, tops) for error in parsed.collection_errors],
        compile_errors=[_error(error, tops) for error in parsed.compile_errors],
        running=[_relative(name, tops) for name in parsed.running],
    )


class _Finder:
    """Finds the one project file that ends with a given path, as Java stack traces name files."""

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


def _relative(path: str, tops: list[str]) -> str:
    for top in tops:
        if path.startswith(top):
            return path[len(top) :]
    return path.removeprefix("./")


def _test(test: TestResult, tops: list[str]) -> TestResult:
    # Most runs already use relative paths: their results are not copied.
    name = _id(test, tops)
    if test.failure is None and _relative(test.file, tops) == test.file and name == test.id:
        return test
    failure = _failure(test.failure, test, tops) if test.failure else None
    return msgspec.structs.replace(test, id=name, file=_relative(test.file, tops), failure=failure)


def _id(test: TestResult, tops: list[str]) -> str:
    """Make an id relative only if it begins with a file; otherwise it is not a path, even if it looks like one."""
    name = _relative(test.id, tops)
    begins = "::" in name or (test.file and name.startswith(_relative(test.file, tops)))
    return name if begins or not test.id.startswith("./") else test.id


def _failure(failure: Failure, test: TestResult, tops: list[str]) -> Failure:
    frames = [msgspec.structs.replace(frame, file=_relative(frame.file, tops)) for frame in failure.frames]
    frames = [frame for frame in frames if _is_project(frame)]
    file, line = _relative(failure.file, tops), failure.line
    if (not file or file.startswith(os.sep)) and frames:
        file, line = frames[-1].file, frames[-1].line
    if not file:
        file, line = _relative(test.file, tops), test.line
    return msgspec.structs.replace(failure, file=file, line=line, frames=frames)


def _is_project(frame: Frame) -> bool:
    return not frame.file.startswith(os.sep) and not any(part in frame.file for part in _FOREIGN)


def _error(error: Diagnostic, tops: list[str]) -> Diagnostic:
    return msgspec.structs.replace(error, file=_relative(error.file, tops))
