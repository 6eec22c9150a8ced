"""Parses swift-testing's event stream (`--event-stream-output-path`): one JSON record a line."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, lenient_json, recover
from ratchet.checks.formats.text import lines
from ratchet.core.report import Failure, TestResult, TestStatus

SIGN = re.compile(rb'"(?:testEnded|testSkipped|runEnded)"')


def parse(stream: BinaryIO) -> Parsed:
    """Name each test function as `--filter` accepts it. `runEnded` is the end."""
    reader = _Swift()
    for line in lines(stream):
        row = lenient_json.row(line)
        payload = lenient_json.table(row, "payload")
        if row.get("kind") == "test":
            reader.known[lenient_json.text(payload, "id")] = payload
        elif row.get("kind") == "event":
            reader.event(payload)
    return reader.parsed()


class _Swift:
    def __init__(self) -> None:
        self.known: dict[str, lenient_json.Table] = {}
        self.tests: list[TestResult] = []
        self.began: dict[str, float] = {}
        self.issues: dict[str, list[lenient_json.Table]] = {}
        self.ended = False

    def event(self, event: lenient_json.Table) -> None:
        name = lenient_json.text(event, "testID")
        match event.get("kind"):
            case "testStarted" if self._is_test(name):
                self.began[name] = _instant(event)
            case "issueRecorded" if name:
                self.issues[name] = [*self.issues.get(name, []), event][:20]
            case "testEnded" if self._is_test(name):
                self._finish(name, _instant(event) - self.began.pop(name, _instant(event)))
            case "testSkipped" if self._is_test(name):
                self.tests.append(self._test(name, TestStatus.SKIPPED, reason=_message(event)))
            case "runEnded":
                self.ended = True

    def _is_test(self, name: str) -> bool:
        return bool(name) and self.known.get(name, {}).get("kind") != "suite"

    def _finish(self, name: str, duration_s: float) -> None:
        issues = self.issues.pop(name, [])
        real = [event for event in issues if _is_failure(event)]
        status = TestStatus.FAILED if real else TestStatus.XFAILED if issues else TestStatus.PASSED
        failure = _failure(real[0]) if real else None
        self.tests.append(self._test(name, status, duration_s=duration_s, failure=failure))

    def _test(
        self,
        name: str,
        status: TestStatus,
        *,
        duration_s: float = 0.0,
        reason: str = "",
        failure: Failure | None = None,
    ) -> TestResult:
        test = self.known.get(name, {})
        at = lenient_json.table(test, "sourceLocation")
        path = re.sub(r"/[^/]+\.swift:\d+:\d+$", "", name)
        return TestResult(
            id=path,
            name=lenient_json.text(test, "displayName") or lenient_json.text(test, "name") or path.rpartition("/")[2],
            suite=path.split("/")[:-1],
            file=lenient_json.text(at, "_filePath")
            or lenient_json.text(at, "filePath")
            or lenient_json.text(at, "fileID"),
            line=lenient_json.whole(at, "line"),
            status=status,
            duration_s=round(max(0.0, duration_s), 6),
            reason=reason,
            failure=failure,
        )

    def parsed(self) -> Parsed:
        return Parsed(
            tests=self.tests,
            ended=self.ended,
            partial=not self.ended,
            running=[re.sub(r"/[^/]+\.swift:\d+:\d+$", "", name) for name in self.began],
        )


def _instant(event: lenient_json.Table) -> float:
    return lenient_json.number(lenient_json.table(event, "instant"), "absolute")


def _is_failure(event: lenient_json.Table) -> bool:
    """Return whether an issue is a failure: known issues are expected, and newer versions also record warnings."""
    issue = lenient_json.table(event, "issue")
    return issue.get("isKnown") is not True and issue.get("isFailure") is not False


def _message(event: lenient_json.Table) -> str:
    return "\n".join(
        text for message in lenient_json.tables(event, "messages") if (text := lenient_json.text(message, "text"))
    )


def _failure(event: lenient_json.Table) -> Failure:
    at = lenient_json.table(lenient_json.table(event, "issue"), "sourceLocation")
    return recover.failure(
        "",
        message=_message(event),
        file=lenient_json.text(at, "_filePath") or lenient_json.text(at, "filePath") or lenient_json.text(at, "fileID"),
        line=lenient_json.whole(at, "line"),
    )
