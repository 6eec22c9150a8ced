"""Parses Bazel's build events (`--build_event_json_file`), one a line. A test is a target; its log has the details."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import BinaryIO

from ratchet.checks.formats import Parsed, compiler, lenient_json
from ratchet.checks.formats.text import lines, strip_control_characters
from ratchet.core.report import RED, Diagnostic, Failure, TestResult, TestStatus

SIGN = re.compile(rb'"test(?:Result|Summary)"|"aborted"')
_STATUS = {"PASSED": TestStatus.PASSED, "FLAKY": TestStatus.PASSED, "FAILED": TestStatus.FAILED}
_GRAVE = ("PASSED", "FLAKY", "FAILED")  # any other status is worse: a timeout or a failed build


def parse(stream: BinaryIO) -> Parsed:
    """Identify each target by its label. The stream ends with the event that says so."""
    reader = _Events()
    for line in lines(stream):
        row = lenient_json.row(line)
        if row:
            reader.feed(lenient_json.table(row, "id"), row)
    return reader.parsed()


class _Events:
    def __init__(self) -> None:
        self.tries: dict[str, dict[tuple[int, int], list[lenient_json.Table]]] = {}
        self.sums: dict[str, str] = {}
        self.broken: dict[str, Diagnostic] = {}
        self.scan = compiler.CompilerScan()
        self.over: lenient_json.Table | None = None
        self.ended = False

    def feed(self, name: lenient_json.Table, row: lenient_json.Table) -> None:
        if result := lenient_json.table(row, "testResult"):
            at = lenient_json.table(name, "testResult")
            key = lenient_json.whole(at, "run"), lenient_json.whole(at, "shard")
            self.tries.setdefault(lenient_json.text(at, "label"), {}).setdefault(key, []).append(result)
        elif summary := lenient_json.table(row, "testSummary"):
            label = lenient_json.text(lenient_json.table(name, "testSummary"), "label")
            self.sums[label] = lenient_json.text(summary, "overallStatus")
        elif "aborted" in row:
            self._abort(name, lenient_json.table(row, "aborted"))
        elif "progress" in row:
            for line in strip_control_characters(
                lenient_json.text(lenient_json.table(row, "progress"), "stderr")
            ).splitlines():
                self.scan.line(line.removeprefix("ERROR: "))
        elif "finished" in row:
            self.over = lenient_json.table(row, "finished")
        self.ended = self.ended or self.over is not None or row.get("lastMessage") is True

    def _abort(self, name: lenient_json.Table, why: lenient_json.Table) -> None:
        label = next((lenient_json.text(about, "label") for about in name.values() if isinstance(about, dict)), "")
        if label and lenient_json.text(why, "reason") not in ("SKIPPED", "NO_BUILD"):
            message = lenient_json.text(why, "description") or lenient_json.text(why, "reason")
            self.broken.setdefault(label, Diagnostic(file=label, message=message, tool="bazel"))

    def parsed(self) -> Parsed:
        tests = [self._test(label) for label in dict.fromkeys([*self.tries, *self.sums])]
        red = any(test.status in RED for test in tests) or self.broken or self.scan.found
        failed = self.over is not None and self.over.get("overallSuccess") is False
        code = lenient_json.table(self.over or {}, "exitCode")
        failed = failed or lenient_json.text(code, "name") not in ("", "SUCCESS")
        known = bool(tests or self.broken)
        return Parsed(
            tests=tests,
            collection_errors=[error for label, error in self.broken.items() if label not in self.tries],
            compile_errors=self.scan.found if failed else [],
            ended=known and self.ended,
            partial=known and not self.ended,
            notes=["the build says that it failed, and names nothing that did"] if known and failed and not red else [],
        )

    def _test(self, label: str) -> TestResult:
        shards = self.tries.get(label, {})
        ends = [lenient_json.text(tries[-1], "status") for tries in shards.values()]
        word = _worst([*ends, *([self.sums[label]] if label in self.sums else [])])
        status = _STATUS.get(word, TestStatus.ERROR)
        every = [result for tries in shards.values() for result in tries]
        return TestResult(
            id=label,
            name=label.rpartition(":")[2],
            suite=[label.rpartition(":")[0]],
            status=status,
            duration_s=sum(lenient_json.number(result, "testAttemptDurationMillis") for result in every) / 1000,
            failure=_failure(word, every) if status in RED else None,
            attempts=max([len(tries) for tries in shards.values()], default=1),
        )


def _worst(words: Iterable[str]) -> str:
    return max(words, key=lambda word: _GRAVE.index(word) if word in _GRAVE else len(_GRAVE), default="NO_STATUS")


def _failure(word: str, results: list[lenient_json.Table]) -> Failure:
    outputs = [output for result in results for output in lenient_json.tables(result, "testActionOutput")]
    logs = [lenient_json.text(output, "uri") for output in outputs if lenient_json.text(output, "name") == "test.log"]
    details = next((text for result in results if (text := lenient_json.text(result, "statusDetails"))), "")
    message = "\n".join(filter(None, [details, *(f"see {log.removeprefix('file://')}" for log in logs[-1:])]))
    return Failure(type=word, message=message or f"its status is {word}")
