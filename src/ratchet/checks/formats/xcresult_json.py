"""Parses Xcode's results from `xcrun xcresulttool get test-results tests`: plans, bundles, suites, cases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO
from urllib.parse import unquote

from ratchet.checks.formats import Parsed, distinct, lenient_json, recover
from ratchet.core.report import RED, Failure, TestResult, TestStatus

_STATUS = {
    "Passed": TestStatus.PASSED,
    "Failed": TestStatus.FAILED,
    "Skipped": TestStatus.SKIPPED,
    "Expected Failure": TestStatus.XFAILED,
}
_EXCUSED = (TestStatus.SKIPPED, TestStatus.XFAILED)
_DEEPEST = 50
_PLACE = re.compile(r"^(?P<file>[^\s:]+\.\w+):(?P<line>\d{1,9})(?::\d+)?: (?P<message>.*)$", re.S)
_SECONDS = re.compile(r"^(?:(?P<m>\d{1,6})m ?)?(?P<s>[\d.]{1,9})s$")


def parse(stream: BinaryIO) -> Parsed:
    """Name each case as `-only-testing:` accepts it. Results with other arguments or devices are merged into it."""
    document, whole = lenient_json.document(stream, mark="testNodes")
    tests = [test for node in lenient_json.tables(document, "testNodes") for test in _cases(node, [])]
    return Parsed(tests=distinct(tests), ended=whole, partial=bool(document) and not whole)


def _cases(node: lenient_json.Table, above: list[str]) -> Iterator[TestResult]:
    kind, name = lenient_json.text(node, "nodeType"), lenient_json.text(node, "name")
    if kind == "Test Case":
        yield _case(node, above)
        return
    path = [*above, name] if name and kind.endswith(("bundle", "Suite")) else above
    for child in lenient_json.tables(node, "children") if len(above) < _DEEPEST else ():
        yield from _cases(child, path)


def _case(node: lenient_json.Table, above: list[str]) -> TestResult:
    name = lenient_json.text(node, "name")
    status = _STATUS.get(lenient_json.text(node, "result"), TestStatus.ERROR)
    # With one of its arguments, or on one of the devices.
    if status is TestStatus.PASSED and any(_is_red(child) for child in lenient_json.tables(node, "children")):
        status = TestStatus.FAILED
    messages = list(_of(node, "Failure Message"))
    runs = [lenient_json.text(run, "result") for run in _of(node, "Repetition")]
    failure = _failure(messages, lenient_json.text(node, "result")) if status in RED else None
    return TestResult(
        id=_id(lenient_json.text(node, "nodeIdentifier") or "/".join([*above[1:], name]), above),
        name=name or lenient_json.text(node, "nodeIdentifier").rpartition("/")[2],
        suite=above,
        status=status,
        file=failure.file if failure else "",
        duration_s=lenient_json.number(node, "durationInSeconds") or _seconds(lenient_json.text(node, "duration")),
        reason=next((lenient_json.text(row, "name") for row in messages), "") if status in _EXCUSED else "",
        failure=failure,
        attempts=max(1, len(runs)),
    )


def _id(name: str, above: list[str]) -> str:
    """Return the id with the bundle, which Xcode omits; it may have the name of a suite."""
    is_whole = not above or name.count("/") >= len(above)
    return name if is_whole else f"{above[0]}/{name}"


def _is_red(node: lenient_json.Table, depth: int = 0) -> bool:
    """Return whether a case failed; a failure that was retried successfully does not count."""
    if lenient_json.text(node, "nodeType") == "Repetition" or depth > _DEEPEST:
        return False
    return node.get("result") == "Failed" or any(
        _is_red(child, depth + 1) for child in lenient_json.tables(node, "children")
    )


def _of(node: lenient_json.Table, kind: str, depth: int = 0) -> Iterator[lenient_json.Table]:
    """Yield the nodes of a kind, at any depth."""
    for child in lenient_json.tables(node, "children") if depth < _DEEPEST else ():
        if lenient_json.text(child, "nodeType") == kind:
            yield child
        else:
            yield from _of(child, kind, depth + 1)


def _failure(messages: list[lenient_json.Table], result: str) -> Failure:
    first = messages[0] if messages else {}
    message = lenient_json.text(first, "name") or f"its result is {result or 'unknown'}"
    at = lenient_json.table(first, "documentLocationInCreatingWorkspace")
    file, line = (
        unquote(lenient_json.text(at, "url")).removeprefix("file://").partition("#")[0],
        lenient_json.whole(at, "lineNumber"),
    )
    if found := _PLACE.match(message):
        message, file, line = found["message"], file or found["file"], line or int(found["line"])
    more = [lenient_json.text(row, "name") for row in messages[1:]]
    return recover.failure("\n".join([message, *more]), message=message, file=file, line=line)


def _seconds(text: str) -> float:
    found = _SECONDS.match(text)
    try:
        return round(int(found["m"] or 0) * 60 + float(found["s"]), 6) if found else 0.0
    except ValueError:
        return 0.0
