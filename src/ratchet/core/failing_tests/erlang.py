"""Rewrites tests of EUnit: functions without parameters that are named as it wants them.

Generators keep their bodies: one that fails ends the tests of other modules too.
"""

from __future__ import annotations

import re

from ratchet.core.failing_tests.result import Name, Rewriting, Unclear, failing_tests

_TEST = re.compile(r"^(?P<name>[a-z]\w*_test)[ \t]*\([ \t]*\)[ \t]*->", re.MULTILINE)
_LITERAL = re.compile(r"""%[^\n]*|\$(?:\\.|.)|"(?:[^"\\]|\\.)*("?)|'(?:[^'\\\n]|\\.)*('?)""", re.DOTALL)


def rewrite(_path: str, text: str) -> Rewriting:
    """Put a failure first into the body of each test."""
    additions = dict[int, str]()
    sure = list[list[Name]]()
    for found in _TEST.finditer(_LITERAL.sub(_blank, text)):
        at = found.end()
        additions[at] = f" _ = length([{at}]) > 0 andalso error({{expected, {at}, got, {at + 1}}}),"
        sure.append([[found["name"]]])
    return Rewriting(additions, failing_tests(sure, []))


def _blank(literal: re.Match[str]) -> str:
    if "" in literal.groups():
        raise Unclear
    return re.sub(r"[^\n]", " ", literal[0])
