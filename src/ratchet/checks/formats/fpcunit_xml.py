"""Parses the XML report of FPCUnit (Free Pascal)."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, recover
from ratchet.checks.formats.trees import Tree, TreeDialect, count, read, result_of, to_status
from ratchet.core.report import TestResult

SIGN = re.compile(rb"<TestResults[\s/>]")


def parse(stream: BinaryIO) -> Parsed:
    return read(stream, _dialects)


def _dialects(parsed: Parsed) -> dict[str, TreeDialect]:
    def take(tree: Tree, around: list[Tree]) -> None:
        parsed.tests.append(_test(tree, [name for suite in around if (name := suite.get("Name"))]))

    return {"TestResults": TreeDialect(frozenset({"Test"}), take)}


def _test(test: Tree, above: list[str]) -> TestResult:
    status = to_status(test.get("Result"))
    failure = recover.failure(
        "",
        message=test.text_at("ExceptionMessage") or test.text_at("Message") or "failed",
        type=test.text_at("ExceptionClass"),
        file=test.text_at("SourceUnitName"),
        line=count(test.text_at("LineNumber")),
    )
    return result_of(".".join([*above, test.get("Name")]), test.get("Name"), above, status, failure)
