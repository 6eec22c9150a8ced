"""XML of runners that nobody here starts, as others keep it. A root tells which it is.

Robot Framework's output, FPCUnit, MbUnit, GLib's gtester, and the results of Android's compatibility suite.
"""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, recover
from ratchet.checks.formats.trees import Dialect, Tree, read
from ratchet.core.report import RED, Failure, TestResult, TestStatus


def parse(stream: BinaryIO) -> Parsed:
    """Each test by the name that its runner takes or prints."""
    return read(stream, _dialects)


def _dialects(parsed: Parsed) -> dict[str, Dialect]:
    def robot(tree: Tree, around: list[Tree]) -> None:
        if tree.name == "test":
            parsed.tests.append(_robot(tree, [suite for suite in around if suite.name == "suite"]))
        elif around[-1].name == "total" and tree.text == "All Tests":
            words = {"pass": "passed", "fail": "failed", "skip": "skipped"}
            parsed.reported = {word: int(n) for key, word in words.items() if (n := tree.get(key)).isdecimal()}

    def fpcunit(tree: Tree, around: list[Tree]) -> None:
        parsed.tests.append(_fpcunit(tree, [name for suite in around if (name := suite.get("Name"))]))

    def mbunit(tree: Tree, around: list[Tree]) -> None:
        parsed.tests.append(_mbunit(tree, around[-2].get("type") if len(around) > 1 else ""))

    def android(tree: Tree, around: list[Tree]) -> None:
        parsed.tests.append(_android(tree, [level.get("name") for level in around[1:]]))

    def gtester(tree: Tree, around: list[Tree]) -> None:
        parsed.tests.append(_gtester(tree, around[-1].get("path")))

    return {
        "robot": Dialect(frozenset({"test", "stat"}), robot),
        "TestResults": Dialect(frozenset({"Test"}), fpcunit),
        "report-result": Dialect(frozenset({"run"}), mbunit),
        "Result": Dialect(frozenset({"Test"}), android),
        "gtester": Dialect(frozenset({"testcase"}), gtester),
    }


_ROBOT = {"PASS": TestStatus.PASSED, "SKIP": TestStatus.SKIPPED, "NOT RUN": TestStatus.SKIPPED}
_UNEQUAL = re.compile(r"^(?:.*: )?(?P<a>[^\n]+?) (?:\(\w+\) )?!= (?P<e>[^\n]+?)(?: \(\w+\))?$", re.M)


def _robot(test: Tree, suites: list[Tree]) -> TestResult:
    """By its long name; the library of keywords says that two values differ, the found one first."""
    told = next(iter(test.all("status")[-1:]), test)
    status = _ROBOT.get(told.get("status"), TestStatus.FAILED)
    above, name = [suite.get("name") for suite in suites], test.get("name")
    file = next((source for suite in reversed(suites) if (source := suite.get("source"))), "")
    line = _whole(test.get("line"))
    return TestResult(
        id=".".join([*above, name]),
        name=name,
        suite=above,
        status=status,
        file=file,
        line=line,
        duration_s=_seconds(told.get("elapsed")),
        reason=told.text if status is TestStatus.SKIPPED else "",
        failure=_keyword(told.text, file, line) if status in RED else None,
    )


def _keyword(message: str, file: str, line: int) -> Failure:
    found = _UNEQUAL.match(message)
    return recover.failure(
        message,
        message=message or "failed",
        file=file,
        line=line,
        expected=found["e"] if found else None,
        actual=found["a"] if found else None,
    )


_WORDS = {
    "ok": TestStatus.PASSED,
    "pass": TestStatus.PASSED,
    "success": TestStatus.PASSED,
    "failed": TestStatus.FAILED,
    "fail": TestStatus.FAILED,
    "failure": TestStatus.FAILED,
    "ignored": TestStatus.SKIPPED,
    "ignore": TestStatus.SKIPPED,
    "skip": TestStatus.SKIPPED,
    "skipped": TestStatus.SKIPPED,
    "not_executed": TestStatus.SKIPPED,
    "assumption_failure": TestStatus.SKIPPED,
}


def _word(text: str) -> TestStatus:
    return _WORDS.get(text.lower(), TestStatus.ERROR)


def _fpcunit(test: Tree, above: list[str]) -> TestResult:
    status = _word(test.get("Result"))
    failure = recover.failure(
        "",
        message=test.said("ExceptionMessage") or test.said("Message") or "failed",
        type=test.said("ExceptionClass"),
        file=test.said("SourceUnitName"),
        line=_whole(test.said("LineNumber")),
    )
    return _result(".".join([*above, test.get("Name")]), test.get("Name"), above, status, failure)


def _mbunit(run: Tree, fixture: str) -> TestResult:
    bad, name = run.first("exception"), run.get("name")
    failure = None
    if bad:
        stack = re.sub(r"\s*\n\s*(?=at )", "\n", re.sub(r" in\s*\n\s*", " in ", bad.said("stack-trace")))
        failure = recover.failure(stack, message=bad.said("message"), type=bad.get("type"))
    group = fixture.rpartition(".")[0]
    return _result(f"{group}.{name}" if group else name, name, [fixture], _word(run.get("result")), failure)


def _android(test: Tree, above: list[str]) -> TestResult:
    bad, name = test.first("Failure"), test.get("name")
    message = bad.get("message") if bad else ""
    failure = recover.failure(bad.said("StackTrace"), message=message) if bad else None
    group = above[-1] if above else ""
    return _result(f"{group}#{name}", name, above, _word(test.get("result")), failure)


def _gtester(case: Tree, binary: str) -> TestResult:
    told, name = case.first("status"), case.get("path")
    status = TestStatus.SKIPPED if case.get("skipped") == "1" else _word(told.get("result") if told else "")
    said = case.said("error")
    failure = recover.failure(said, message=said or f"exit status {told.get('exit-status') if told else '?'}")
    return _result(f"{binary}:{name}", name, [binary], status, failure)


def _result(key: str, name: str, above: list[str], status: TestStatus, failure: Failure | None) -> TestResult:
    red = status in RED
    failure = (failure or Failure(message="failed")) if red else None
    return TestResult(
        id=key,
        name=name,
        suite=above,
        status=status,
        file=failure.file if failure else "",
        failure=failure,
    )


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _seconds(text: str) -> float:
    try:
        value = float(text or 0)
    except ValueError:
        return 0.0
    return round(value, 6) if 0 <= value < 1e9 else 0.0
