"""Finds in the source which side of a comparison is the expected one, for tools that only report left and right."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path

import msgspec

from ratchet.core.cheats.masked_source import arguments, closing, mask
from ratchet.core.lines import split_lines
from ratchet.core.report import Failure, TestResult
from ratchet.tree_files import read_source

_STATEMENT_MAX = 12  # lines of an assertion
_FILE_MAX = 2_000_000
_EQUALITIES = frozenset(["", "==", "is", "!="])  # of a failed assertion that both sides are equal
_UNITTEST = re.compile(r"assert(?:\w*Equals?|Is)$")
_MACRO = re.compile(r"\b(?:assert_eq|assert_equal|pretty_assertions::assert_eq)!\s*\(")
_EXUNIT = re.compile(r"^\s*assert\s+(?P<left>.+?)\s+===?\s+(?P<right>.+)$")
_WANTED_NAME = re.compile(
    r"(?i)(?:^|[_.])(?:expect(?:ed|ation)?|want(?:ed)?|golden|desired|should_be)(?:$|[_.\d])|^exp$"
)
_LITERAL = re.compile(
    r"""^(?:-?[\d_.]+(?:e-?\d+)?(?:[iuf]\d+|usize|isize)?|true|false|nil|None|True|False|:\w+"""
    r"""|b?r?"[^"]*"(?:\.to_string\(\)|\.to_owned\(\)|\.into\(\))?|'[^']*'|Some\(.*\)|Ok\(.*\)|vec!\[.*\]|[\[{(%].*[\]})])$""",
    re.DOTALL,
)
_CALL = re.compile(r"[a-z_]\w*\(")


def with_sides(tests: list[TestResult], folder: Path) -> list[TestResult]:
    """Exchange expected and actual where the source has the wanted value on the left."""
    lines_of = lru_cache(maxsize=64)(lambda file: split_lines(read_source(folder, file, max_bytes=_FILE_MAX)))
    return [
        msgspec.structs.replace(test, failure=_exchanged(test.failure))
        if test.failure and _is_possible(test.failure) and _is_wanted_first(test.failure, lines_of(test.failure.file))
        else test
        for test in tests
    ]


def _is_possible(failure: Failure) -> bool:
    has_values = failure.expected is not None and failure.actual is not None
    return (
        has_values
        and failure.line > 0
        and failure.operator in _EQUALITIES
        and failure.file.endswith((".py", ".rs", ".exs"))
    )


def _exchanged(failure: Failure) -> Failure:
    return msgspec.structs.replace(failure, expected=failure.actual, actual=failure.expected)


def _is_wanted_first(failure: Failure, lines: list[str]) -> bool:
    rows = lines[failure.line - 1 : failure.line - 1 + _STATEMENT_MAX]
    sides = _python(rows) if failure.file.endswith(".py") else _other(rows, failure.file)
    return sides is not None and _is_wanted(sides[0]) and not _is_wanted(sides[1])


def _is_wanted(side: str) -> bool:
    if _WANTED_NAME.search(side.partition("(")[0]):
        return True
    return bool(_LITERAL.match(side)) and not _CALL.search(re.sub(r"\"[^\"]*\"|'[^']*'", "", side))


def _python(rows: list[str]) -> tuple[str, str] | None:
    """The two sides of an assertion that begins in the first row."""
    for last in range(1, len(rows) + 1):
        text = "\n".join(rows[:last]).strip()
        try:
            [statement] = ast.parse(text).body
        except (SyntaxError, ValueError):
            continue
        match statement:
            case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right])):
                return ast.unparse(left), ast.unparse(right)
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name), args=[left, right, *_])) if _UNITTEST.match(
                name
            ):
                return ast.unparse(left), ast.unparse(right)
        return None
    return None


def _other(rows: list[str], file: str) -> tuple[str, str] | None:
    text = "\n".join(rows)
    if file.endswith(".rs") and (found := _MACRO.match(text.lstrip())):
        text = text.lstrip()
        masked = mask(text, file)
        given = arguments(text, masked, found.end(), closing(masked, found.end() - 1))
        return (given[0], given[1]) if len(given) > 1 else None
    written = _EXUNIT.match(rows[0]) if rows and file.endswith(".exs") else None
    return (written["left"].strip(), written["right"].strip()) if written else None
