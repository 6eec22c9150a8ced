"""JSON of runners and reporters that nobody here starts, as others keep it: one function for each.

Ginkgo, Karma, TestCafe, mochawesome, elm-test, pytest-json-report and pytest-reportlog. A key tells which it is.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, distinct, loose, recover
from ratchet.checks.formats.text import clip, first_line, lines
from ratchet.core.report import Diagnostic, Failure, TestResult, TestStatus

PASSED, FAILED, SKIPPED = TestStatus.PASSED, TestStatus.FAILED, TestStatus.SKIPPED


def parse(stream: BinaryIO) -> Parsed:
    """The first kind that finds a test, else the first that is sure that it is its own."""
    data = stream.read(loose.DOCUMENT_LIMIT)
    read = [reader(io.BytesIO(data)) for mark, reader in _READERS.items() if f'"{mark}"'.encode() in data]
    found = next((parsed for parsed in read if parsed.tests or parsed.collection_errors), None)
    parsed = found or next((parsed for parsed in read if parsed.ended), Parsed())
    parsed.tests = distinct(parsed.tests)
    return parsed


# --- Ginkgo


_GINKGO = {"passed": PASSED, "failed": FAILED, "skipped": SKIPPED, "pending": SKIPPED}


def _ginkgo(stream: BinaryIO) -> Parsed:
    suites, whole = loose.rows(stream, mark="SpecReports")
    suites = [suite for suite in suites if "SuitePath" in suite]
    nodes = [(suite, row) for suite in suites for row in loose.tables(suite, "SpecReports")]
    reasons = [(suite, why) for suite in suites for why in loose.texts(suite, "SpecialSuiteFailureReasons")]
    around = [
        Diagnostic(file=loose.text(suite, "SuitePath"), message=why, tool="ginkgo")
        for suite, why in reasons
        # What it says of a suite whose specs failed is only that.
        if loose.text(suite, "SuitePath") and not _has_failed(suite)
    ]
    tests = [_spec(suite, row) for suite, row in nodes if row.get("LeafNodeType") == "It"]
    hooks = [_spec(suite, row) for suite, row in nodes if row.get("LeafNodeType") != "It" and "Failure" in row]
    return Parsed(tests=[*tests, *hooks], collection_errors=around, ended=whole and bool(suites), partial=not whole)


def _has_failed(suite: loose.Table) -> bool:
    return any("Failure" in row and row.get("State") != "skipped" for row in loose.tables(suite, "SpecReports"))


def _spec(suite: loose.Table, row: loose.Table) -> TestResult:
    above = [text for text in loose.texts(row, "ContainerHierarchyTexts") if text]
    name = loose.text(row, "LeafNodeText") or f"[{loose.text(row, 'LeafNodeType')}]"
    status = _GINKGO.get(loose.text(row, "State"), TestStatus.ERROR)
    told, place = loose.table(row, "Failure"), loose.table(row, "LeafNodeLocation")
    return TestResult(
        id=" ".join([loose.text(suite, "SuiteDescription"), *above, name]).strip(),
        name=name,
        suite=[loose.text(suite, "SuiteDescription"), *above],
        status=status,
        file=loose.text(place, "FileName"),
        line=loose.whole(place, "LineNumber"),
        duration_s=round(loose.whole(row, "RunTime") / 1e9, 6),
        reason=loose.text(told, "Message") if status is SKIPPED else "",
        failure=_unmet(told) if status in (FAILED, TestStatus.ERROR) else None,
        attempts=max(1, loose.whole(row, "NumAttempts")),
    )


def _unmet(told: loose.Table) -> Failure:
    at, panic = loose.table(told, "Location"), loose.text(told, "ForwardedPanic")
    return recover.failure(
        loose.text(at, "FullStackTrace"),
        message="\n".join(part for part in (loose.text(told, "Message"), panic) if part),
        type="panic" if panic else "",
        file=loose.text(at, "FileName"),
        line=loose.whole(at, "LineNumber"),
    )


# --- Karma


def _karma(stream: BinaryIO) -> Parsed:
    document, whole = loose.document(stream, mark="browsers")
    browsers, results = loose.table(document, "browsers"), loose.table(document, "result")
    several = len(results) > 1
    tests = [
        _in_browser(loose.text(loose.table(browsers, key), "name") if several else "", row)
        for key in results
        for row in loose.tables(results, key)
    ]
    summary = loose.table(document, "summary")
    words = {"success": "passed", "failed": "failed", "skipped": "skipped"}
    return Parsed(
        tests=tests,
        collection_errors=[] if tests else _unloaded(browsers),
        reported={word: loose.whole(summary, key) for key, word in words.items() if key in summary},
        ended=whole and bool(results),
        partial=bool(document) and not whole,
    )


def _in_browser(browser: str, row: loose.Table) -> TestResult:
    above, name = loose.texts(row, "suite"), loose.text(row, "description")
    is_skipped = bool(row.get("skipped") or row.get("pending") or row.get("disabled"))
    status = SKIPPED if is_skipped else PASSED if row.get("success") else FAILED
    said = "\n".join(loose.texts(row, "log"))
    return TestResult(
        id=" ".join([*([f"[{browser}]"] if browser else []), *above, name]),
        name=name,
        suite=above,
        status=status,
        duration_s=loose.number(row, "time") / 1000,
        failure=recover.failure(_served(said), message=said.partition("\n    at ")[0]) if status is FAILED else None,
    )


def _served(text: str) -> str:
    """Files come from Karma's server, with the time of their last change behind them."""
    return _SERVED.sub(r"\1\2", text)


_SERVED = re.compile(r"https?://[^/\s]+/(?:base/|absolute)?([^\s?()]+?)(?:\?\w*)?(:\d+:\d+)")


def _unloaded(browsers: loose.Table) -> list[Diagnostic]:
    errors = [loose.text(loose.table(browsers, key), "error") for key in browsers]
    return [Diagnostic(message=error, tool="karma") for error in errors if error]


# --- TestCafe


def _testcafe(stream: BinaryIO) -> Parsed:
    document, whole = loose.document(stream, mark="fixtures")
    rows = [(fixture, row) for fixture in loose.tables(document, "fixtures") for row in loose.tables(fixture, "tests")]
    words = {"total": "tests", "passed": "passed", "skipped": "skipped"}
    return Parsed(
        tests=[_cafe(fixture, row) for fixture, row in rows if "errs" in row],
        reported={word: loose.whole(document, key) for key, word in words.items() if key in document},
        ended=whole and "userAgents" in document,
        partial=bool(document) and not whole,
    )


def _cafe(fixture: loose.Table, row: loose.Table) -> TestResult:
    errors = loose.texts(row, "errs")
    file, above, name = (
        loose.text(fixture, "path").removeprefix("./"),
        loose.text(fixture, "name"),
        loose.text(row, "name"),
    )
    status = SKIPPED if row.get("skipped") else FAILED if errors else PASSED
    return TestResult(
        id=f"{file}::{above} {name}" if file else f"{above} {name}",
        name=name,
        suite=[above],
        status=status,
        file=file,
        duration_s=loose.number(row, "durationMs") / 1000,
        failure=recover.failure("\n\n".join(errors), message=errors[0].partition("\n\n")[0]) if errors else None,
        attempts=2 if row.get("unstable") and not errors else 1,
    )


# --- mochawesome


def _mochawesome(stream: BinaryIO) -> Parsed:
    document, whole = loose.document(stream, mark="results")
    stats = loose.table(document, "stats")
    tests = [test for root in loose.tables(document, "results") for test in _awesome(root, [], "")]
    words = {"tests": "tests", "passes": "passed", "failures": "failed"}
    return Parsed(
        tests=tests,
        reported={word: loose.whole(stats, key) for key, word in words.items() if key in stats},
        ended=whole and "testsRegistered" in stats,
        partial=bool(document) and not whole,
    )


_DEEPEST = 100


def _awesome(suite: loose.Table, above: list[str], file: str) -> Iterator[TestResult]:
    path = [*above, title] if (title := loose.text(suite, "title")) else above
    own = loose.text(suite, "file").lstrip("/")
    file = own if own and own != "nofile" else file
    for row in loose.tables(suite, "tests"):
        yield _awesome_test(row, path, file)
    for inner in loose.tables(suite, "suites") if len(above) < _DEEPEST else ():
        yield from _awesome(inner, path, file)


def _awesome_test(row: loose.Table, path: list[str], file: str) -> TestResult:
    status = FAILED if row.get("fail") else PASSED if row.get("pass") else SKIPPED
    error, full = loose.table(row, "err"), loose.text(row, "fullTitle") or loose.text(row, "title")
    return TestResult(
        id=f"{file}::{full}" if file else full,
        name=loose.text(row, "title"),
        suite=path,
        status=status,
        file=file,
        duration_s=loose.number(row, "duration") / 1000,
        failure=recover.failure(
            "\n".join([loose.text(error, "estack"), _turned(loose.text(error, "diff"))]),
            message=loose.text(error, "message").strip(),
            type=recover.error_type(loose.text(error, "message")),
        )
        if status is FAILED
        else None,
    )


def _turned(diff: str) -> str:
    """Its difference has the signs of mocha's: plus is what was expected."""
    return f"+ expected - actual\n\n{diff}" if diff else ""


# --- elm-test


_ELM = {"pass": PASSED, "fail": FAILED, "todo": TestStatus.TODO}


def _elm(stream: BinaryIO) -> Parsed:
    tests: list[TestResult] = []
    reported: dict[str, int] = {}
    for line in lines(stream):
        row = loose.row(line)
        if row.get("event") == "testCompleted":
            tests.append(_elm_test(row))
        elif row.get("event") == "runComplete":
            counts = {"passed": row.get("passed"), "failed": row.get("failed")}
            reported = {word: int(n) for word, n in counts.items() if isinstance(n, str | int) and str(n).isdecimal()}
    return Parsed(tests=tests, reported=reported, ended=bool(reported), partial=bool(tests) and not reported)


def _elm_test(row: loose.Table) -> TestResult:
    labels = loose.texts(row, "labels")
    status = _ELM.get(loose.text(row, "status"), TestStatus.ERROR)
    first = next(iter(loose.tables(row, "failures")), {})
    reason = loose.table(first, "reason")
    data = loose.table(reason, "data")
    message = loose.text(first, "message") or loose.text(reason, "type")
    failure = recover.failure(
        "",
        message=message or "failed",
        expected=loose.shown_in(data, "expected"),
        actual=loose.shown_in(data, "actual"),
    )
    return TestResult(
        id=" > ".join(labels),
        name=labels[-1] if labels else "",
        suite=labels[:-1],
        status=status,
        failure=failure if status in (FAILED, TestStatus.ERROR) else None,
    )


# --- pytest


_PYTEST = {
    "passed": PASSED,
    "failed": FAILED,
    "error": TestStatus.ERROR,
    "skipped": SKIPPED,
    "xfailed": TestStatus.XFAILED,
    "xpassed": TestStatus.XPASSED,
}


def _json_report(stream: BinaryIO) -> Parsed:
    document, whole = loose.document(stream, mark="exitcode")
    rows = [row for row in loose.tables(document, "tests") if "nodeid" in row]
    broken = [
        Diagnostic(file=loose.text(row, "nodeid"), message=clip(loose.text(row, "longrepr"), 4000), tool="pytest")
        for row in loose.tables(document, "collectors")
        if row.get("outcome") == "failed"
    ]
    return Parsed(
        tests=[_reported_test(row) for row in rows],
        collection_errors=broken,
        ended=whole and "summary" in document and "created" in document,
        partial=bool(document) and not whole,
    )


def _reported_test(row: loose.Table) -> TestResult:
    steps = {phase: loose.table(row, phase) for phase in ("setup", "call", "teardown") if row.get(phase)}
    phase = next((phase for phase, step in steps.items() if step.get("outcome") == "failed"), "call")
    step, status = steps.get(phase, {}), _PYTEST.get(loose.text(row, "outcome"), TestStatus.ERROR)
    crash = loose.table(step, "crash")
    test = _pytest_test(loose.text(row, "nodeid"), status, loose.whole(row, "lineno"), phase)
    if status not in (FAILED, TestStatus.ERROR):
        return test
    failure = _pytest_failure(loose.text(step, "longrepr"), crash)
    return msgspec.structs.replace(test, failure=failure, duration_s=loose.number(step, "duration"))


def _pytest_test(node: str, status: TestStatus, line: int, phase: str = "call") -> TestResult:
    file, _, inside = node.partition("::")
    *classes, name = inside.split("::") if inside else [node]
    return TestResult(id=node, name=name, suite=[file, *classes], status=status, file=file, line=line + 1, phase=phase)


def _pytest_failure(text: str, crash: loose.Table) -> Failure:
    return recover.failure(
        text,
        message=loose.text(crash, "message") or first_line(text),
        file=loose.text(crash, "path"),
        line=loose.whole(crash, "lineno"),
    )


def _report_log(stream: BinaryIO) -> Parsed:
    """Three reports a test, one for each phase: the worst of them is the test's."""
    tests: dict[str, TestResult] = {}
    broken: list[Diagnostic] = []
    ended = False
    for line in lines(stream):
        row = loose.row(line)
        kind = row.get("$report_type")
        ended = ended or kind == "SessionFinish"
        if kind == "TestReport":
            _phase(row, tests)
        elif kind == "CollectReport" and row.get("outcome") == "failed":
            text = loose.text(row, "longrepr")
            broken.append(Diagnostic(file=loose.text(row, "nodeid"), message=clip(text, 4000), tool="pytest"))
    return Parsed(tests=list(tests.values()), collection_errors=broken, ended=ended, partial=not ended)


def _phase(row: loose.Table, tests: dict[str, TestResult]) -> None:
    node, phase, outcome = loose.text(row, "nodeid"), loose.text(row, "when"), loose.text(row, "outcome")
    known = tests.get(node)
    status = _phase_status(outcome, phase, expected="wasxfail" in row)
    if known and status in (PASSED, known.status):
        return
    place = row.get("location")
    line = place[1] if isinstance(place, list) and len(place) > 1 and isinstance(place[1], int) else 0
    test = _pytest_test(node, status, line, phase if outcome == "failed" else "call")
    if status in (FAILED, TestStatus.ERROR):
        longrepr = loose.table(row, "longrepr")
        failure = _pytest_failure(_rendered(row, longrepr), loose.table(longrepr, "reprcrash"))
        test = msgspec.structs.replace(test, failure=failure)
    tests[node] = test


def _phase_status(outcome: str, phase: str, *, expected: bool) -> TestStatus:
    if expected:
        return TestStatus.XFAILED if outcome == "skipped" else TestStatus.XPASSED
    status = _PYTEST.get(outcome, TestStatus.ERROR)
    return TestStatus.ERROR if status is FAILED and phase != "call" else status


def _rendered(row: loose.Table, longrepr: loose.Table) -> str:
    """What pytest would have printed: the lines of each entry, and its place."""
    rows: list[str] = []
    for entry in loose.tables(loose.table(longrepr, "reprtraceback"), "reprentries"):
        data = loose.table(entry, "data")
        place = loose.table(data, "reprfileloc")
        rows += loose.texts(data, "lines")
        rows.append(f"{loose.text(place, 'path')}:{loose.whole(place, 'lineno')}: {loose.text(place, 'message')}")
    return "\n".join(rows) or loose.text(row, "longrepr")


_READERS: dict[str, Callable[[BinaryIO], Parsed]] = {
    "SpecReports": _ginkgo,
    "browsers": _karma,
    "fixtures": _testcafe,
    "results": _mochawesome,
    "testCompleted": _elm,
    "exitcode": _json_report,
    "$report_type": _report_log,
}
