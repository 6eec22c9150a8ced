"""Parses the own XML formats of C and C++ test libraries (and AUnit).

Boost.Test's log and results, QtTest, CppUnit, CUnit, UnitTest++, Check, and ctest's Test.xml. The root element decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from ratchet.checks.formats import Parsed, recover
from ratchet.checks.formats.text import clip
from ratchet.checks.formats.trees import Tree, TreeDialect, read
from ratchet.core.report import RED, Diagnostic, Failure, TestResult, TestStatus

_PLACED = re.compile(r"^(?P<file>.+?)[(:](?P<line>\d{1,9})\)? ?: (?P<message>.*)$", re.S)


def parse(stream: BinaryIO) -> Parsed:
    """Identify each test by the name that its library prints."""
    return read(stream, lambda parsed: _Libraries(parsed).dialects())


class _Libraries:
    """Handles the elements of each library's document."""

    def __init__(self, parsed: Parsed) -> None:
        self.parsed = parsed

    def dialects(self) -> dict[str, TreeDialect]:
        return {
            "TestLog": TreeDialect(frozenset({"TestCase", *_BOOST_RED}), self.boost),
            "TestResult": TreeDialect(frozenset({"TestCase"}), self.boosts_results),
            "TestCase": TreeDialect(frozenset({"TestFunction"}), self.qt),
            "TestRun": TreeDialect(frozenset({"FailedTest", "Test", "Statistics"}), self.cppunit),
            "testsuites": TreeDialect(frozenset({"title", "test"}), self.check),
            "CUNIT_TEST_RUN_REPORT": TreeDialect(
                frozenset({"SUITE_NAME", "CUNIT_RUN_TEST_RECORD", "FAILURE_REASON"}), self.cunit
            ),
            "unittest-results": TreeDialect(frozenset({"test"}), self.unittestpp),
            "Site": TreeDialect(frozenset({"Test"}), self.ctest),
        }

    def added(self, test: TestResult) -> None:
        self.parsed.tests.append(test)

    def boost(self, tree: Tree, around: list[Tree]) -> None:
        if tree.name == "TestCase":
            self.added(_boost(tree, _suites(around)))
        else:  # of a fixture, or a log that names no cases
            self.parsed.collection_errors.append(_beside(tree))

    def boosts_results(self, case: Tree, around: list[Tree]) -> None:
        self.parsed.reported = _boosts_counts(around[1]) if len(around) > 1 else {}
        self.added(_boosts_result(case, _suites(around)))

    def qt(self, function: Tree, around: list[Tree]) -> None:
        self.parsed.tests += _qt(function, around[0].get("name"))

    def cppunit(self, tree: Tree, around: list[Tree]) -> None:
        if tree.name == "Statistics":
            self.parsed.reported = _counts(tree)
        elif around[-1].name in _CPPUNIT:
            self.added(_cppunit(tree, _CPPUNIT[around[-1].name]))

    def check(self, tree: Tree, around: list[Tree]) -> None:
        if tree.name == "title":
            around[-1].words.add(tree.text)
        elif around[-1].name == "suite":
            self.added(_check(tree, around[-1].text))

    def cunit(self, tree: Tree, around: list[Tree]) -> None:
        if tree.name == "SUITE_NAME":
            around[-1].words.add(tree.text)
        elif (test := _cunit(tree, around[-1].text)).id not in {other.id for other in self.parsed.tests[-1:]}:
            # It reports every failed assertion in sequence.
            self.added(test)

    def unittestpp(self, tree: Tree, around: list[Tree]) -> None:
        root = around[0].attributes
        words = {"tests": "tests", "failedtests": "failed"}
        self.parsed.reported = {words[key]: _whole(root[key]) for key in words if key in root}
        self.added(_unittestpp(tree))

    def ctest(self, tree: Tree, around: list[Tree]) -> None:
        if around[-1].name == "Testing":
            self.added(_ctest(tree))


_BOOST_RED = ("Error", "FatalError", "Exception")


def _suites(around: list[Tree]) -> list[str]:
    return [tree.get("name") for tree in around if tree.name == "TestSuite"]


def _boost(case: Tree, suites: list[str]) -> TestResult:
    """Identify a test by its path below the module, as `--run_test` accepts it."""
    bad = case.first(*_BOOST_RED)
    status = TestStatus.ERROR if bad and bad.name == "Exception" else TestStatus.FAILED if bad else TestStatus.PASSED
    return TestResult(
        id="/".join([*suites[1:], case.get("name")]),
        name=case.get("name"),
        suite=suites[1:],
        file=case.get("file"),
        line=_whole(case.get("line")),
        status=TestStatus.SKIPPED if case.get("skipped") == "yes" else status,
        duration_s=_seconds(case.text_at("TestingTime"), 1e-6),
        reason=case.get("reason"),
        failure=_boost_failure(bad) if bad else None,
    )


def _boost_failure(bad: Tree) -> Failure:
    at = bad if _whole(bad.get("line")) else bad.first("LastCheckpoint") or bad
    frames = [frame.text for context in bad.all("Context") for frame in context.all("Frame")]
    message = "\n".join([bad.text, *frames])
    file = at.get("file")
    return recover.failure(
        message, message=message, file="" if file == "unknown location" else file, line=_whole(at.get("line"))
    )


def _beside(bad: Tree) -> Diagnostic:
    found = _boost_failure(bad)
    return Diagnostic(file=found.file, line=found.line, type=bad.name, message=found.message, tool="boost")


_BOOST = {"passed": TestStatus.PASSED, "failed": TestStatus.FAILED, "skipped": TestStatus.SKIPPED}


def _boosts_result(case: Tree, suites: list[str]) -> TestResult:
    status = _BOOST.get(case.get("result"), TestStatus.ERROR)
    return TestResult(
        id="/".join([*suites[1:], case.get("name")]),
        name=case.get("name"),
        suite=suites[1:],
        status=status,
        failure=Failure(message=case.get("result") or "failed") if status in RED else None,
    )


def _boosts_counts(module: Tree) -> dict[str, int]:
    counts = {word: _whole(module.get(f"test_cases_{word}")) for word in ("passed", "failed", "skipped")}
    counts["failed"] += _whole(module.get("test_cases_aborted"))
    return counts if "test_cases_passed" in module.attributes else {}


_QT_RED = ("fail", "xpass")
_QT_TAMED = ("bfail", "bxpass", "xfail", "bxfail")  # listed as allowed or expected to fail


def _qt(function: Tree, suite: str) -> Iterator[TestResult]:
    """Return one test for each data row: a row may report an expected failure before it passes."""
    rows: dict[str, list[Tree]] = {}
    for incident in function.all("Incident", "Message"):
        if incident.name == "Incident" or incident.get("type") == "skip":
            rows.setdefault(incident.text_at("DataTag"), []).append(incident)
    duration = function.first("Duration")
    for tag, incidents in rows.items():
        name = f"{function.get('name')}({tag})"
        took_s = _seconds(duration.get("msecs"), 1e-3) if duration and len(rows) == 1 else 0.0
        yield _qt_row(name, suite, incidents, took_s)


def _qt_row(name: str, suite: str, incidents: list[Tree], took_s: float) -> TestResult:
    by_type = {incident.get("type"): incident for incident in reversed(incidents)}
    bad = next((by_type[word] for word in _QT_RED if word in by_type), None)
    tamed = next((by_type[word] for word in _QT_TAMED if word in by_type), None)
    other = tamed or by_type.get("skip")
    status = TestStatus.XFAILED if tamed else TestStatus.SKIPPED if "skip" in by_type else TestStatus.PASSED
    return TestResult(
        id=f"{suite}::{name}",
        name=name,
        suite=[suite],
        status=TestStatus.FAILED if bad else status,
        duration_s=took_s,
        reason=other.text_at("Description") if other and not bad else "",
        failure=_at(bad.text_at("Description"), bad.get("file"), bad.get("line")) if bad else None,
    )


_CPPUNIT = {
    "SuccessfulTests": TestStatus.PASSED,
    "FailedTests": TestStatus.FAILED,
    "SkippedTests": TestStatus.SKIPPED,
    "IgnoredTests": TestStatus.SKIPPED,
}


def _cppunit(tree: Tree, status: TestStatus) -> TestResult:
    name, kind = tree.text_at("Name"), tree.text_at("FailureType")
    at = (tree.text_at("Location", "File"), tree.text_at("Location", "Line"))
    return TestResult(
        id=name,
        name=name,
        status=TestStatus.ERROR if kind == "Error" else TestStatus.FAILED if kind else status,
        duration_s=_seconds(tree.get("elapsed"), 1),
        failure=_at(tree.text_at("Message"), *at) if kind or status is TestStatus.FAILED else None,
    )


def _counts(statistics: Tree) -> dict[str, int]:
    words = {"Tests": "tests", "Failures": "failed", "Errors": "errors", "Skipped": "skipped"}
    return {word: _whole(statistics.text_at(name)) for name, word in words.items() if statistics.first(name)}


def _check(tree: Tree, suite: str) -> TestResult:
    """Number the runs of a loop test, which appears once for each iteration."""
    word, turn = tree.get("result"), _whole(tree.text_at("iteration"))
    name = tree.text_at("id") + (f"[{turn}]" if turn else "")
    file, _, line = tree.text_at("fn").rpartition(":")
    if (folder := tree.text_at("path")) not in ("", "."):
        file = f"{folder}/{file}"
    return TestResult(
        id="::".join(part for part in (suite, tree.text_at("description"), name) if part),
        name=name,
        suite=[suite] if suite else [],
        file=file,
        status={"success": TestStatus.PASSED, "failure": TestStatus.FAILED}.get(word, TestStatus.ERROR),
        duration_s=_seconds(tree.text_at("duration"), 1),
        failure=_check_failure(tree.text_at("message"), file, line) if word != "success" else None,
    )


_COMPARED = re.compile(r"^Assertion '(?P<a>.+?) (?P<op>[=!]=|[<>]=?) (?P<b>.+?)' failed: (?P<values>.+)$", re.S)


def _check_failure(message: str, file: str, line: str) -> Failure:
    """Extract both values: Check writes each side's name and value, `a == 1, b == 2`."""
    found = _COMPARED.match(message)
    begin, middle = (f"{found['a']} == ", f", {found['b']} == ") if found else ("", "")
    if not found or not found["values"].startswith(begin) or middle not in found["values"]:
        return _at(message, file, line)
    actual, _, expected = found["values"].removeprefix(begin).partition(middle)
    return recover.failure(
        "", message=message, file=file, line=_whole(line), expected=expected, actual=actual, operator=found["op"]
    )


def _cunit(tree: Tree, suite: str) -> TestResult:
    """Return a test, or the reason why a suite could not be set up."""
    bad = tree.first("CUNIT_RUN_TEST_FAILURE")
    name = (bad or tree.first("CUNIT_RUN_TEST_SUCCESS") or tree).text_at("TEST_NAME")
    failure = _at(bad.text_at("CONDITION"), bad.text_at("FILE_NAME"), bad.text_at("LINE_NUMBER")) if bad else None
    if tree.name == "FAILURE_REASON":
        return TestResult(
            id=suite, name=suite, status=TestStatus.ERROR, phase="setup", failure=Failure(message=tree.text)
        )
    return TestResult(
        id=f"{suite}::{name}",
        name=name,
        suite=[suite],
        status=TestStatus.FAILED if bad else TestStatus.PASSED,
        failure=failure,
    )


def _unittestpp(tree: Tree) -> TestResult:
    bad, suite, name = tree.first("failure"), tree.get("suite"), tree.get("name")
    found = _PLACED.match(bad.get("message")) if bad else None
    failure = _at(found["message"], found["file"], found["line"]) if found else None
    return TestResult(
        id=f"{suite}::{name}",
        name=name,
        suite=[suite],
        status=TestStatus.FAILED if bad else TestStatus.PASSED,
        duration_s=_seconds(tree.get("time"), 1),
        failure=failure or (Failure(message=bad.get("message")) if bad else None),
    )


_UNFOUND = ("Unable to find executable", "Failed to start", "Missing Configuration", "Required Files Missing")


def _ctest(tree: Tree) -> TestResult:
    word, results = tree.get("Status"), tree.first("Results") or tree
    measured = {each.get("name"): each.text_at("Value") for each in results.all("NamedMeasurement")}
    output, end = results.text_at("Measurement", "Value"), measured.get("Completion Status", "")
    status = {"passed": TestStatus.PASSED, "notrun": TestStatus.SKIPPED}.get(word, TestStatus.FAILED)
    if status is TestStatus.SKIPPED and end.startswith(_UNFOUND):
        status = TestStatus.ERROR
    red = status in (TestStatus.FAILED, TestStatus.ERROR)
    why = measured.get("Exit Code", "") or end
    return TestResult(
        id=tree.text_at("Name"),
        name=tree.text_at("Name"),
        status=status,
        duration_s=_seconds(measured.get("Execution Time", ""), 1),
        reason=end if status is TestStatus.SKIPPED else "",
        failure=_printed(output, why) if red else None,
        stdout=clip(output, 8 << 10) if red else "",
    )


def _printed(output: str, why: str) -> Failure:
    """Build a failure from the output: ctest knows only how the program ended."""
    return recover.sanitizer(output) or recover.failure(output, message=output[-1000:].strip() or why or "failed")


def _at(message: str, file: str, line: str) -> Failure:
    return recover.failure(message, message=message or "failed", file=file, line=_whole(line))


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _seconds(text: str, unit: float) -> float:
    try:
        value = float(text) * unit
    except ValueError:
        return 0.0
    return round(value, 6) if 0 <= value < 1e9 else 0.0
