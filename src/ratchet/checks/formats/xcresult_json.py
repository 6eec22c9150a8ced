"""Xcode's results, as `xcrun xcresulttool get test-results tests` tells them: plans, bundles, suites, cases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO
from urllib.parse import unquote

from ratchet.checks.formats import Parsed, distinct, loose, recover
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
    """Each case as `-only-testing:` takes it. What it came to with other arguments or devices is told of it alone."""
    document, whole = loose.document(stream, mark="testNodes")
    tests = [test for node in loose.tables(document, "testNodes") for test in _cases(node, [])]
    return Parsed(tests=distinct(tests), ended=whole, partial=bool(document) and not whole)


def _cases(node: loose.Table, above: list[str]) -> Iterator[TestResult]:
    kind, name = loose.text(node, "nodeType"), loose.text(node, "name")
    if kind == "Test Case":
        yield _case(node, above)
        return
    path = [*above, name] if name and kind.endswith(("bundle", "Suite")) else above
    for child in loose.tables(node, "children") if len(above) < _DEEPEST else ():
        yield from _cases(child, path)


def _case(node: loose.Table, above: list[str]) -> TestResult:
    name = loose.text(node, "name")
    status = _STATUS.get(loose.text(node, "result"), TestStatus.ERROR)
    # With one of its arguments, or on one of the devices.
    if status is TestStatus.PASSED and any(_is_red(child) for child in loose.tables(node, "children")):
        status = TestStatus.FAILED
    told = list(_of(node, "Failure Message"))
    runs = [loose.text(run, "result") for run in _of(node, "Repetition")]
    failure = _failure(told, loose.text(node, "result")) if status in RED else None
    return TestResult(
        id=_id(loose.text(node, "nodeIdentifier") or "/".join([*above[1:], name]), above),
        name=name or loose.text(node, "nodeIdentifier").rpartition("/")[2],
        suite=above,
        status=status,
        file=failure.file if failure else "",
        duration_s=loose.number(node, "durationInSeconds") or _seconds(loose.text(node, "duration")),
        reason=next((loose.text(row, "name") for row in told), "") if status in _EXCUSED else "",
        failure=failure,
        attempts=max(1, len(runs)),
    )


def _id(name: str, above: list[str]) -> str:
    """Xcode leaves out the bundle, which may well have the name of a suite."""
    is_whole = not above or name.count("/") >= len(above)
    return name if is_whole else f"{above[0]}/{name}"


def _is_red(node: loose.Table, depth: int = 0) -> bool:
    """What failed once and was tried again is not."""
    if loose.text(node, "nodeType") == "Repetition" or depth > _DEEPEST:
        return False
    return node.get("result") == "Failed" or any(_is_red(child, depth + 1) for child in loose.tables(node, "children"))


def _of(node: loose.Table, kind: str, depth: int = 0) -> Iterator[loose.Table]:
    """The nodes of a kind, wherever below."""
    for child in loose.tables(node, "children") if depth < _DEEPEST else ():
        if loose.text(child, "nodeType") == kind:
            yield child
        else:
            yield from _of(child, kind, depth + 1)


def _failure(told: list[loose.Table], result: str) -> Failure:
    first = told[0] if told else {}
    message = loose.text(first, "name") or f"its result is {result or 'not told'}"
    at = loose.table(first, "documentLocationInCreatingWorkspace")
    file, line = unquote(loose.text(at, "url")).removeprefix("file://").partition("#")[0], loose.whole(at, "lineNumber")
    if found := _PLACE.match(message):
        message, file, line = found["message"], file or found["file"], line or int(found["line"])
    more = [loose.text(row, "name") for row in told[1:]]
    return recover.failure("\n".join([message, *more]), message=message, file=file, line=line)


def _seconds(text: str) -> float:
    found = _SECONDS.match(text)
    try:
        return round(int(found["m"] or 0) * 60 + float(found["s"]), 6) if found else 0.0
    except ValueError:
        return 0.0
