"""Exports reports as JUnit XML, CTRF and GitHub annotations."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from ratchet.core.report import (
    RED,
    Diagnostic,
    Failure,
    Frame,
    Report,
    TestResult,
    TestStatus,
    error_summary,
    load_errors,
)

_SKIPPED = {TestStatus.SKIPPED, TestStatus.XFAILED, TestStatus.TODO}
# As pytest and node write them, and we read them.
_KINDS = {TestStatus.XFAILED: "pytest.xfail", TestStatus.TODO: "todo"}
# What XML 1.0 cannot hold at all, escaped or not.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Report) -> str:
    """Return JUnit XML with one suite per file; files that do not load become test cases with an error."""
    suites: dict[str, list[TestResult]] = {}
    for test in report.tests:
        suites.setdefault(test.file or report.runner, []).append(test)
    files = load_errors(report)
    totals = report.totals
    head = (
        f'<testsuites name={_attribute(report.runner)} tests="{totals.tests + len(files)}" '
        f'failures="{totals.failed}" errors="{totals.errors + len(files)}" '
        f'skipped="{sum(test.status in _SKIPPED for test in report.tests)}" time="{report.duration_s:.3f}">'
    )
    body = [line for name, tests in suites.items() for line in _suite(name, tests)]
    body += _broken_suite(files) if files else []
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *body, "</testsuites>", ""])


def _suite(name: str, tests: list[TestResult]) -> Iterator[str]:
    count = {status: sum(test.status is status for test in tests) for status in TestStatus}
    yield (
        f'  <testsuite name={_attribute(name)} tests="{len(tests)}" failures="{count[TestStatus.FAILED]}" '
        f'errors="{count[TestStatus.ERROR]}" skipped="{sum(count[status] for status in _SKIPPED)}" '
        f'time="{sum(test.duration_s for test in tests):.3f}">'
    )
    for test in tests:
        yield from _case(test)
    yield "  </testsuite>"


def _case(test: TestResult) -> Iterator[str]:
    place = f" file={_attribute(test.file)}" if test.file else ""
    place += f' line="{test.line}"' if test.line else ""
    name = test.name or test.id
    head = (
        f"    <testcase classname={_attribute(_class(test))} name={_attribute(name)}"
        f'{place} time="{test.duration_s:.3f}"'
    )
    inside = list(_case_body(test))
    yield f"{head}/>" if not inside else f"{head}>"
    yield from inside
    if inside:
        yield "    </testcase>"


def _class(test: TestResult) -> str:
    """Return the id without the name: two files may have a class of the same name."""
    if test.name and test.id.endswith(test.name):
        return test.id.removesuffix(test.name).rstrip(":>. ") or test.file
    return ".".join(test.suite) or test.file


def _case_body(test: TestResult) -> Iterator[str]:
    if test.status in _SKIPPED:
        kind = f' type="{_KINDS[test.status]}"' if test.status in _KINDS else ""
        yield f"      <skipped{kind} message={_attribute(test.reason)}/>"
    elif test.status in RED:
        failure = test.failure or Failure()
        tag = "failure" if test.status is TestStatus.FAILED else "error"
        detail = _text("\n".join(_detail(failure)))
        yield (f"      <{tag} type={_attribute(failure.type)} message={_attribute(failure.message)}>{detail}</{tag}>")
    for tag, text in (("system-out", test.stdout), ("system-err", test.stderr)):
        if text:
            yield f"      <{tag}>{_text(text)}</{tag}>"


def _detail(failure: Failure) -> Iterator[str]:
    yield f"{failure.type}: {failure.message}".strip(": ")
    if failure.expected is not None:
        yield f"expected: {failure.expected}"
    if failure.actual is not None:
        yield f"actual: {failure.actual}"
    for frame in failure.frames or ([Frame(file=failure.file, line=failure.line)] if failure.line else []):
        place = f"{frame.file}:{frame.line}"
        yield f"  at {frame.function} ({place})" if frame.function else f"  at {place}"


def _broken_suite(files: list[Diagnostic]) -> Iterator[str]:
    yield f'  <testsuite name="files that did not load" tests="{len(files)}" failures="0" errors="{len(files)}">'
    for error in files:
        yield f"    <testcase classname={_attribute(error.file)} name={_attribute(error.file)}>"
        yield f"      <error type={_attribute(error.type)} message={_attribute(error.message)}/>"
        yield "    </testcase>"
    yield "  </testsuite>"


def _attribute(text: str) -> str:
    return quoteattr(_FORBIDDEN.sub("�", text))


def _text(text: str) -> str:
    return escape(_FORBIDDEN.sub("�", text))


_CTRF = {
    TestStatus.PASSED: "passed",
    TestStatus.XPASSED: "passed",
    TestStatus.FAILED: "failed",
    TestStatus.ERROR: "failed",
    TestStatus.SKIPPED: "skipped",
    TestStatus.XFAILED: "skipped",
    TestStatus.TODO: "pending",
}


def ctrf(report: Report, *, start_ms: int, stop_ms: int) -> dict[str, Any]:
    """Return the report in the Common Test Report Format; fields that it lacks are under `extra`."""
    tests = [_ctrf_test(test) for test in report.tests]
    tests += [
        {"name": error.file, "status": "failed", "duration": 0, "message": f"{error.type}: {error.message}"}
        for error in load_errors(report)
    ]
    count = {name: sum(test["status"] == name for test in tests) for name in ("passed", "failed", "skipped", "pending")}
    return {
        "reportFormat": "CTRF",
        "specVersion": "0.0.0",
        "results": {
            "tool": {"name": report.runner},
            "summary": {"tests": len(tests), **count, "other": 0, "start": start_ms, "stop": stop_ms},
            "tests": tests,
            "extra": {"status": report.status, "notes": report.notes},
        },
    }


def _ctrf_test(test: TestResult) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": test.id,
        "status": _CTRF[test.status],
        "duration": round(test.duration_s * 1000),
        "rawStatus": test.status,
    }
    optional = {"filePath": test.file, "line": test.line, "suite": test.suite}
    row |= {name: value for name, value in optional.items() if value}
    if test.attempts > 1:
        row |= {"retries": test.attempts - 1, "flaky": test.status not in RED}
    if failure := test.failure:
        row |= {"message": failure.message, "trace": "\n".join(_detail(failure))}
        row["extra"] = {"type": failure.type, "expected": failure.expected, "actual": failure.actual}
    return row


def github(report: Report, *, inside: str = ".") -> Iterable[str]:
    """Yield GitHub workflow commands that annotate failures at their lines. `inside` is the tested folder."""
    for error in load_errors(report):
        yield _annotation(
            _join_path(inside, error.file),
            error.line,
            error.type or error_summary(error, report),
            error.message,
            column=error.column,
        )
    for test in report.tests:
        if test.status in RED:
            failure = test.failure or Failure()
            file, line = (failure.file, failure.line) if failure.file else (test.file, test.line)
            yield _annotation(_join_path(inside, file), line, test.id, "\n".join(_detail(failure)))


def _join_path(folder: str, file: str) -> str:
    return posixpath.normpath(f"{folder}/{file}") if file and not file.startswith("/") else file


def _annotation(file: str, line: int, title: str, message: str, *, column: int = 0) -> str:
    place = {"file": file, "line": line or "", "col": column or "", "title": title}
    fields = ",".join(f"{name}={_property(str(value))}" for name, value in place.items() if value)
    return f"::error {fields}::{_property(message, commas=False)}"


def _property(text: str, *, commas: bool = True) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if commas else text
