"""XML of runners that nobody here starts, as others keep it. A root tells which it is.

Robot Framework's output, TestNG's results, FPCUnit, MbUnit, GLib's gtester, and Android's compatibility suite.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, recover
from ratchet.checks.formats.trees import Dialect, Tree, read
from ratchet.core.report import RED, Failure, TestResult, TestStatus


def parse(stream: BinaryIO) -> Parsed:
    """Each test by the name that its runner takes or prints."""
    return read(stream, _dialects)


def _dialects(parsed: Parsed) -> dict[str, Dialect]:
    def robot(tree: Tree, around: list[Tree]) -> None:
        suites = [suite for suite in around if suite.name == "suite"]
        if tree.name == "test":
            _begin(suites, len(parsed.tests))
            parsed.tests.append(_robot(tree, suites))
        elif tree.name == "kw" and suites:
            _tear_down(tree, suites[-1], parsed.tests)
        elif around[-1].name == "total" and tree.text == "All Tests":
            words = {"pass": "passed", "fail": "failed", "skip": "skipped"}
            parsed.reported = {word: int(n) for key, word in words.items() if (n := tree.get(key)).isdecimal()}

    retries: Counter[str] = Counter()

    def testng(method: Tree, around: list[Tree]) -> None:
        parsed.reported = _testng_counts(around[0])
        test = _testng(method, around[-1].get("name"), attempts=1 + retries[_signed(method, around[-1].get("name"))])
        if method.get("retried") == "true":
            retries[test.id] += 1
        elif method.get("is-config") != "true" or test.status in RED:
            parsed.tests.append(test)

    def fpcunit(tree: Tree, around: list[Tree]) -> None:
        parsed.tests.append(_fpcunit(tree, [name for suite in around if (name := suite.get("Name"))]))

    def mbunit(tree: Tree, around: list[Tree]) -> None:
        parsed.tests.append(_mbunit(tree, around[-2].get("type") if len(around) > 1 else ""))

    def android(tree: Tree, around: list[Tree]) -> None:
        parsed.tests.append(_android(tree, [level.get("name") for level in around[1:]]))

    def gtester(tree: Tree, around: list[Tree]) -> None:
        parsed.tests.append(_gtester(tree, around[-1].get("path")))

    return {
        "robot": Dialect(frozenset({"test", "stat", "kw"}), robot),
        "testng-results": Dialect(frozenset({"test-method"}), testng),
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


_FIRST = " first"  # no attribute's name: which of the tests is a suite's first


def _begin(suites: list[Tree], first: int) -> None:
    for suite in reversed(suites):
        if _FIRST in suite.attributes:
            break
        suite.attributes[_FIRST] = str(first)


def _tear_down(keyword: Tree, suite: Tree, tests: list[TestResult]) -> None:
    """Robot tells it after the tests of the suite, which have failed with it."""
    told = next(iter(keyword.all("status")[-1:]), keyword)
    if keyword.get("type").upper() != "TEARDOWN" or told.get("status") != "FAIL":
        return
    message = f"the teardown of the suite failed: {told.text}".removesuffix(": ")
    for index in range(int(suite.attributes.pop(_FIRST, len(tests))), len(tests)):
        test = tests[index]
        if test.status is TestStatus.PASSED:
            failure = Failure(message=message, file=test.file, line=test.line)
            tests[index] = msgspec.structs.replace(test, status=TestStatus.ERROR, phase="teardown", failure=failure)


_TESTNG = {"PASS": TestStatus.PASSED, "FAIL": TestStatus.FAILED, "SKIP": TestStatus.SKIPPED}
_AFTER = re.compile(r"(?i)after|tear_?down|clean")


def _testng_counts(root: Tree) -> dict[str, int]:
    words = ("passed", "failed", "skipped")  # the total has those that are switched off too
    return {word: _whole(root.get(word)) for word in words if root.get(word)}


def _signed(method: Tree, group: str) -> str:
    params = method.first("params")
    values = [value for param in params.all("param") for value in param.all("value")] if params else []
    told = ["null" if value.get("is-null") == "true" else value.text for value in values]
    arguments = f"({', '.join(told)})" if told else ""
    return f"{group}.{method.get('name')}{arguments}"


def _testng(method: Tree, group: str, *, attempts: int) -> TestResult:
    """With its arguments. A configuration is told only if it failed."""
    key, bad = _signed(method, group), method.first("exception")
    status, is_config = _TESTNG.get(method.get("status"), TestStatus.ERROR), method.get("is-config") == "true"
    status = TestStatus.ERROR if is_config and status is TestStatus.FAILED else status
    why = bad.said("message") if bad else ""
    failure = _thrown(bad, why) if status in RED else None
    return TestResult(
        id=key,
        name=key.removeprefix(f"{group}."),
        suite=[group],
        status=status,
        phase=("teardown" if _AFTER.match(method.get("name")) else "setup") if is_config else "call",
        file=failure.file if failure else "",
        duration_s=_seconds(method.get("duration-ms")) / 1000,
        attempts=attempts,
        reason=why if status is TestStatus.SKIPPED else "",
        failure=failure,
    )


def _thrown(bad: Tree | None, why: str) -> Failure:
    if not bad:
        return Failure(message="failed")
    stack = bad.said("full-stacktrace") or bad.said("short-stacktrace")
    return recover.failure(stack, message=why or bad.get("class"), type=bad.get("class"))


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
