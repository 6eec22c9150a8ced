"""Parses the XML report of MbUnit (.NET)."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, recover
from ratchet.checks.formats.trees import Tree, TreeDialect, read, result_of, to_status
from ratchet.core.report import TestResult

SIGN = re.compile(rb"<report-result[\s/>]")


def parse(stream: BinaryIO) -> Parsed:
    return read(stream, _dialects)


def _dialects(parsed: Parsed) -> dict[str, TreeDialect]:
    def take(tree: Tree, around: list[Tree]) -> None:
        parsed.tests.append(_test(tree, around[-2].get("type") if len(around) > 1 else ""))

    return {"report-result": TreeDialect(frozenset({"run"}), take)}


def _test(run: Tree, fixture: str) -> TestResult:
    bad, name = run.first("exception"), run.get("name")
    failure = None
    if bad:
        stack = re.sub(r"\s*\n\s*(?=at )", "\n", re.sub(r" in\s*\n\s*", " in ", bad.text_at("stack-trace")))
        failure = recover.failure(stack, message=bad.text_at("message"), type=bad.get("type"))
    group = fixture.rpartition(".")[0]
    return result_of(f"{group}.{name}" if group else name, name, [fixture], to_status(run.get("result")), failure)
