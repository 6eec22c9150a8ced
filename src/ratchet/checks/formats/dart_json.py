"""Parses the JSON reporter of Dart and Flutter (`--file-reporter json:F`, `flutter test --machine`)."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, compiler, lenient_json, recover
from ratchet.checks.formats.text import Tail, clip, lines
from ratchet.core.report import Diagnostic, Failure, TestResult, TestStatus

SIGN = re.compile(rb'"testDone"|"testStart"|"done"')


def parse(stream: BinaryIO) -> Parsed:
    """Return the tests as `file::group name`. A file that fails to load is a collection error. `done` is the end."""
    reader = _Dart()
    for line in lines(stream):
        for row in _rows(line):
            reader.event(row)
    return reader.parsed()


def _rows(line: str) -> list[lenient_json.Table]:
    """Unwrap events: `--machine` wraps some in an array of one."""
    row = lenient_json.row(line[1:-1] if line.startswith("[{") and line.endswith("]") else line)
    return [row] if row else []


class _Running:
    def __init__(self, test: lenient_json.Table, began_ms: float) -> None:
        self.test = test
        self.began_ms = began_ms
        self.errors: list[lenient_json.Table] = []
        self.output = Tail()


class _Dart:
    def __init__(self) -> None:
        self.tests: list[TestResult] = []
        self.broken: list[Diagnostic] = []
        self.paths: dict[object, str] = {}
        self.open: dict[int, _Running] = {}
        self.done: bool | None = None
        self.ended = False

    def event(self, row: lenient_json.Table) -> None:
        match row.get("type"):
            case "suite":
                suite = lenient_json.table(row, "suite")
                self.paths[lenient_json.whole(suite, "id")] = lenient_json.text(suite, "path")
            case "testStart":
                test = lenient_json.table(row, "test")
                self.open[lenient_json.whole(test, "id")] = _Running(test, lenient_json.number(row, "time"))
            case "error" if running := self.open.get(lenient_json.whole(row, "testID")):
                running.errors = [*running.errors, row][:3]
            case "print" if running := self.open.get(lenient_json.whole(row, "testID")):
                running.output.add(lenient_json.text(row, "message") + "\n")
            case "testDone":
                self._finish(row)
            case "done":
                self.ended = True

    def _finish(self, row: lenient_json.Table) -> None:
        running = self.open.pop(lenient_json.whole(row, "testID"), None)
        if running is None:
            return
        path = self.paths.get(lenient_json.whole(running.test, "suiteID"), "")
        if lenient_json.text(running.test, "name").startswith("loading ") and running.errors:
            self.broken.append(_load_error(path, running.errors[0]))
        elif row.get("hidden") is not True:
            self.tests.append(_test(row, running, path))

    def parsed(self) -> Parsed:
        names = [lenient_json.text(running.test, "name") for running in self.open.values()]
        return Parsed(
            tests=self.tests,
            collection_errors=self.broken,
            ended=self.ended,
            partial=not self.ended,
            running=[name for name in names if not name.startswith("loading ")],
        )


def _test(row: lenient_json.Table, running: _Running, path: str) -> TestResult:
    test = running.test
    name = lenient_json.text(test, "name")
    status = _status(row)
    failure = _failure(running.errors) if status in {TestStatus.FAILED, TestStatus.ERROR} else None
    return TestResult(
        id=f"{path}::{name}" if path else name,
        name=name,
        file=path,
        line=lenient_json.whole(test, "root_line") or lenient_json.whole(test, "line"),
        status=status,
        duration_s=round(max(0.0, lenient_json.number(row, "time") - running.began_ms) / 1000, 6),
        reason=lenient_json.text(lenient_json.table(test, "metadata"), "skipReason"),
        failure=failure,
        stdout=running.output.text() if failure else "",
    )


def _status(row: lenient_json.Table) -> TestStatus:
    if row.get("skipped") is True:
        return TestStatus.SKIPPED
    return {"success": TestStatus.PASSED, "failure": TestStatus.FAILED}.get(
        lenient_json.text(row, "result"), TestStatus.ERROR
    )


def _failure(errors: list[lenient_json.Table]) -> Failure:
    first = errors[0] if errors else {}
    type_ = "TestFailure" if first.get("isFailure") is True else ""
    return recover.failure(
        lenient_json.text(first, "stackTrace"), message=lenient_json.text(first, "error"), type=type_
    )


def _load_error(path: str, row: lenient_json.Table) -> Diagnostic:
    text = lenient_json.text(row, "error")
    found = next(iter(compiler.diagnostics(text)), None)
    return Diagnostic(
        file=found.file if found else path,
        line=found.line if found else 0,
        column=found.column if found else 0,
        message=found.message if found else clip(text.strip(), 4000),
        tool="dart",
    )
