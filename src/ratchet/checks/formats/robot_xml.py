"""Parses `output.xml` of Robot Framework."""

from __future__ import annotations

import re
from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, recover
from ratchet.checks.formats.trees import Tree, TreeDialect, count, read, seconds
from ratchet.core.report import RED, Failure, TestResult, TestStatus

SIGN = re.compile(rb"<robot[\s/>]")
_STATUSES = {"PASS": TestStatus.PASSED, "SKIP": TestStatus.SKIPPED, "NOT RUN": TestStatus.SKIPPED}
_UNEQUAL = re.compile(r"^(?:.*: )?(?P<a>[^\n]+?) (?:\(\w+\) )?!= (?P<e>[^\n]+?)(?: \(\w+\))?$", re.M)
_FIRST = " first"  # index of a suite's first test; the space keeps it apart from real attribute names


def parse(stream: BinaryIO) -> Parsed:
    return read(stream, _dialects)


def _dialects(parsed: Parsed) -> dict[str, TreeDialect]:
    def take(tree: Tree, around: list[Tree]) -> None:
        suites = [suite for suite in around if suite.name == "suite"]
        if tree.name == "test":
            _mark_first(suites, len(parsed.tests))
            parsed.tests.append(_test(tree, suites))
        elif tree.name == "kw" and suites:
            _fail_by_teardown(tree, suites[-1], parsed.tests)
        elif around[-1].name == "total" and tree.text == "All Tests":
            words = {"pass": "passed", "fail": "failed", "skip": "skipped"}
            parsed.reported = {word: int(n) for key, word in words.items() if (n := tree.get(key)).isdecimal()}

    return {"robot": TreeDialect(frozenset({"test", "stat", "kw"}), take)}


def _test(test: Tree, suites: list[Tree]) -> TestResult:
    """Identify a test by its long name."""
    ending = next(iter(test.all("status")[-1:]), test)
    status = _STATUSES.get(ending.get("status"), TestStatus.FAILED)
    above, name = [suite.get("name") for suite in suites], test.get("name")
    file = next((source for suite in reversed(suites) if (source := suite.get("source"))), "")
    line = count(test.get("line"))
    return TestResult(
        id=".".join([*above, name]),
        name=name,
        suite=above,
        status=status,
        file=file,
        line=line,
        duration_s=seconds(ending.get("elapsed")),
        reason=ending.text if status is TestStatus.SKIPPED else "",
        failure=_failure(ending.text, file, line) if status in RED else None,
    )


def _mark_first(suites: list[Tree], first: int) -> None:
    for suite in reversed(suites):
        if _FIRST in suite.attributes:
            break
        suite.attributes[_FIRST] = str(first)


def _fail_by_teardown(keyword: Tree, suite: Tree, tests: list[TestResult]) -> None:
    """Fail the tests of a suite whose teardown failed: Robot reports the teardown after the tests."""
    ending = next(iter(keyword.all("status")[-1:]), keyword)
    if keyword.get("type").upper() != "TEARDOWN" or ending.get("status") != "FAIL":
        return
    message = f"the teardown of the suite failed: {ending.text}".removesuffix(": ")
    for index in range(int(suite.attributes.pop(_FIRST, len(tests))), len(tests)):
        test = tests[index]
        if test.status is TestStatus.PASSED:
            failure = Failure(message=message, file=test.file, line=test.line)
            tests[index] = msgspec.structs.replace(test, status=TestStatus.ERROR, phase="teardown", failure=failure)


def _failure(message: str, file: str, line: int) -> Failure:
    found = _UNEQUAL.match(message)  # the built-in keywords name the actual value first
    return recover.failure(
        message,
        message=message or "failed",
        file=file,
        line=line,
        expected=found["e"] if found else None,
        actual=found["a"] if found else None,
    )
