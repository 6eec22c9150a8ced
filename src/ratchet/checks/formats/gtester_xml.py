"""Parses the XML report of GLib's gtester."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, recover
from ratchet.checks.formats.trees import Tree, TreeDialect, read, result_of, to_status
from ratchet.core.report import TestResult, TestStatus

SIGN = re.compile(rb"<gtester[\s/>]")


def parse(stream: BinaryIO) -> Parsed:
    return read(stream, _dialects)


def _dialects(parsed: Parsed) -> dict[str, TreeDialect]:
    def take(tree: Tree, around: list[Tree]) -> None:
        parsed.tests.append(_test(tree, around[-1].get("path")))

    return {"gtester": TreeDialect(frozenset({"testcase"}), take)}


def _test(case: Tree, binary: str) -> TestResult:
    ending, name = case.first("status"), case.get("path")
    status = TestStatus.SKIPPED if case.get("skipped") == "1" else to_status(ending.get("result") if ending else "")
    error = case.text_at("error")
    failure = recover.failure(error, message=error or f"exit status {ending.get('exit-status') if ending else '?'}")
    return result_of(f"{binary}:{name}", name, [binary], status, failure)
