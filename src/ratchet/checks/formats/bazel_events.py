"""Bazel's build events (`--build_event_json_file`), one a line. A test is a target; its log says what is in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import BinaryIO

from ratchet.checks.formats import Parsed, compiler, loose
from ratchet.checks.formats.text import lines, plain
from ratchet.core.report import RED, Diagnostic, Failure, TestResult, TestStatus

SIGN = re.compile(rb'"test(?:Result|Summary)"|"aborted"')
_STATUS = {"PASSED": TestStatus.PASSED, "FLAKY": TestStatus.PASSED, "FAILED": TestStatus.FAILED}
_GRAVE = ("PASSED", "FLAKY", "FAILED")  # any other is graver: it ran out of time, or was not built


def parse(stream: BinaryIO) -> Parsed:
    """Each target by its label. The build is over with the event that says so."""
    reader = _Events()
    for line in lines(stream):
        row = loose.row(line)
        if row:
            reader.hear(loose.table(row, "id"), row)
    return reader.parsed()


class _Events:
    def __init__(self) -> None:
        self.tries: dict[str, dict[tuple[int, int], list[loose.Table]]] = {}
        self.sums: dict[str, str] = {}
        self.broken: dict[str, Diagnostic] = {}
        self.scan = compiler.Scan()
        self.over: loose.Table | None = None
        self.ended = False

    def hear(self, name: loose.Table, row: loose.Table) -> None:
        if result := loose.table(row, "testResult"):
            at = loose.table(name, "testResult")
            key = loose.whole(at, "run"), loose.whole(at, "shard")
            self.tries.setdefault(loose.text(at, "label"), {}).setdefault(key, []).append(result)
        elif summary := loose.table(row, "testSummary"):
            label = loose.text(loose.table(name, "testSummary"), "label")
            self.sums[label] = loose.text(summary, "overallStatus")
        elif "aborted" in row:
            self._abort(name, loose.table(row, "aborted"))
        elif "progress" in row:
            for line in plain(loose.text(loose.table(row, "progress"), "stderr")).splitlines():
                self.scan.line(line.removeprefix("ERROR: "))
        elif "finished" in row:
            self.over = loose.table(row, "finished")
        self.ended = self.ended or self.over is not None or row.get("lastMessage") is True

    def _abort(self, name: loose.Table, why: loose.Table) -> None:
        label = next((loose.text(about, "label") for about in name.values() if isinstance(about, dict)), "")
        if label and loose.text(why, "reason") not in ("SKIPPED", "NO_BUILD"):
            message = loose.text(why, "description") or loose.text(why, "reason")
            self.broken.setdefault(label, Diagnostic(file=label, message=message, tool="bazel"))

    def parsed(self) -> Parsed:
        tests = [self._test(label) for label in dict.fromkeys([*self.tries, *self.sums])]
        red = any(test.status in RED for test in tests) or self.broken or self.scan.found
        failed = self.over is not None and self.over.get("overallSuccess") is False
        code = loose.table(self.over or {}, "exitCode")
        failed = failed or loose.text(code, "name") not in ("", "SUCCESS")
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
        ends = [loose.text(tries[-1], "status") for tries in shards.values()]
        word = _worst([*ends, *([self.sums[label]] if label in self.sums else [])])
        status = _STATUS.get(word, TestStatus.ERROR)
        every = [result for tries in shards.values() for result in tries]
        return TestResult(
            id=label,
            name=label.rpartition(":")[2],
            suite=[label.rpartition(":")[0]],
            status=status,
            duration_s=sum(loose.number(result, "testAttemptDurationMillis") for result in every) / 1000,
            failure=_failure(word, every) if status in RED else None,
            attempts=max([len(tries) for tries in shards.values()], default=1),
        )


def _worst(words: Iterable[str]) -> str:
    return max(words, key=lambda word: _GRAVE.index(word) if word in _GRAVE else len(_GRAVE), default="NO_STATUS")


def _failure(word: str, results: list[loose.Table]) -> Failure:
    outputs = [output for result in results for output in loose.tables(result, "testActionOutput")]
    logs = [loose.text(output, "uri") for output in outputs if loose.text(output, "name") == "test.log"]
    details = next((text for result in results if (text := loose.text(result, "statusDetails"))), "")
    said = "\n".join(filter(None, [details, *(f"see {log.removeprefix('file://')}" for log in logs[-1:])]))
    return Failure(type=word, message=said or f"its status is {word}")
