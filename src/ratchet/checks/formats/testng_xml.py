"""Parses `testng-results.xml` of TestNG."""

from __future__ import annotations

import re
from collections import Counter
from typing import BinaryIO

from ratchet.checks.formats import Parsed, recover
from ratchet.checks.formats.trees import Tree, TreeDialect, count, read, seconds
from ratchet.core.report import RED, Failure, TestResult, TestStatus

SIGN = re.compile(rb"<testng-results[\s/>]")
_STATUSES = {"PASS": TestStatus.PASSED, "FAIL": TestStatus.FAILED, "SKIP": TestStatus.SKIPPED}
_AFTER = re.compile(r"(?i)after|tear_?down|clean")


def parse(stream: BinaryIO) -> Parsed:
    return read(stream, _dialects)


def _dialects(parsed: Parsed) -> dict[str, TreeDialect]:
    retries: Counter[str] = Counter()

    def take(method: Tree, around: list[Tree]) -> None:
        parsed.reported = _counts(around[0])
        test = _test(method, around[-1].get("name"), attempts=1 + retries[_signature(method, around[-1].get("name"))])
        if method.get("retried") == "true":
            retries[test.id] += 1
        elif method.get("is-config") != "true" or test.status in RED:
            parsed.tests.append(test)

    return {"testng-results": TreeDialect(frozenset({"test-method"}), take)}


def _counts(root: Tree) -> dict[str, int]:
    words = ("passed", "failed", "skipped")  # `total` also counts disabled tests
    return {word: count(root.get(word)) for word in words if root.get(word)}


def _signature(method: Tree, group: str) -> str:
    params = method.first("params")
    values = [value for param in params.all("param") for value in param.all("value")] if params else []
    texts = ["null" if value.get("is-null") == "true" else value.text for value in values]
    arguments = f"({', '.join(texts)})" if texts else ""
    return f"{group}.{method.get('name')}{arguments}"


def _test(method: Tree, group: str, *, attempts: int) -> TestResult:
    """Identify a test by its name and arguments. Configuration methods are reported only if they failed."""
    key, bad = _signature(method, group), method.first("exception")
    status, is_config = _STATUSES.get(method.get("status"), TestStatus.ERROR), method.get("is-config") == "true"
    status = TestStatus.ERROR if is_config and status is TestStatus.FAILED else status
    why = bad.text_at("message") if bad else ""
    failure = _failure(bad, why) if status in RED else None
    return TestResult(
        id=key,
        name=key.removeprefix(f"{group}."),
        suite=[group],
        status=status,
        phase=("teardown" if _AFTER.match(method.get("name")) else "setup") if is_config else "call",
        file=failure.file if failure else "",
        duration_s=seconds(method.get("duration-ms")) / 1000,
        attempts=attempts,
        reason=why if status is TestStatus.SKIPPED else "",
        failure=failure,
    )


def _failure(bad: Tree | None, why: str) -> Failure:
    if not bad:
        return Failure(message="failed")
    stack = bad.text_at("full-stacktrace") or bad.text_at("short-stacktrace")
    return recover.failure(stack, message=why or bad.get("class"), type=bad.get("class"))
