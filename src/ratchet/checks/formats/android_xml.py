"""Parses the result file of Android's compatibility test suite (CTS)."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, recover
from ratchet.checks.formats.trees import Tree, TreeDialect, read, result_of, to_status
from ratchet.core.report import TestResult

SIGN = re.compile(rb"<Result[\s/>]")


def parse(stream: BinaryIO) -> Parsed:
    return read(stream, _dialects)


def _dialects(parsed: Parsed) -> dict[str, TreeDialect]:
    def take(tree: Tree, around: list[Tree]) -> None:
        parsed.tests.append(_test(tree, [level.get("name") for level in around[1:]]))

    return {"Result": TreeDialect(frozenset({"Test"}), take)}


def _test(test: Tree, above: list[str]) -> TestResult:
    bad, name = test.first("Failure"), test.get("name")
    message = bad.get("message") if bad else ""
    failure = recover.failure(bad.text_at("StackTrace"), message=message) if bad else None
    group = above[-1] if above else ""
    return result_of(f"{group}#{name}", name, above, to_status(test.get("result")), failure)
