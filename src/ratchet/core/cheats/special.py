"""Sources that answer a test's inputs by heart: the input written out in a condition, its answer written out behind it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ratchet.core.cheats.found import Change, Cheat

Pair = tuple[str, str]
_TRIVIAL = {"0", "1", "-1", "2", "", "''", '""', "None", "True", "False", "[]", "{}", "()", "null", "nil", "true", "false",
            "0.0", "1.0", "' '"}  # fmt: skip


def special_cases(change: Change, tests: Iterable[tuple[str, str]]) -> list[Cheat]:
    """Only pairs that stand together in a test and together in added source, and that are no natural base case."""
    if change.after is None:
        return []
    asked = {pair for path, text in tests for pair in _asked(path, text)}
    answered = list(_answered_python(change.after) if change.path.endswith(".py") else _answered_text(change.after))
    named = sum(_is_text(answer.pair[1]) for answer in answered)
    added = {line for line, _ in change.added()}
    return [
        Cheat(
            file=change.path,
            line=answer.line,
            rule="answer-by-heart",
            detail=f"the answer {answer.pair[1]} to the test's input {answer.pair[0]} is written out",
        )
        for answer in answered
        if answer.line in added and answer.pair in asked and _by_heart(answer, named)
    ]


class _Answer(NamedTuple):
    line: int
    pair: Pair
    branch: bool  # an `if`, not a row of a table


def _by_heart(answer: _Answer, named: int) -> bool:
    """Names for things are tables, however they are written; a result that could be computed is not."""
    given, said = answer.pair
    if given in _TRIVIAL:
        return False
    if not _is_text(said):
        return not _is_text(given) or said not in _TRIVIAL
    if _is_text(given):
        return _made_of(given, said)
    return answer.branch and named <= 2


def _is_text(literal: str) -> bool:
    return literal[:1] in "\"'"


def _made_of(given: str, said: str) -> bool:
    """Whether the answer looks worked out from the input: it holds it, or has the same letters."""
    one, two = given.strip("\"'").lower(), said.strip("\"'").lower()
    return len(one) > 2 and (one in two or sorted(one) == sorted(two))


# --- what the tests ask ---------------------------------------------------------------------------------------------

_LITERAL = r"""-?\d+(?:\.\d+)?|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`\n]*`"""
_CALL_EQUALS = re.compile(
    rf"\(\s*(?P<input>{_LITERAL})\s*\)\s*(?:\)\s*\.\s*(?:to\w*\.?)+\(|==|,|\)\.isEqualTo\()\s*(?P<answer>{_LITERAL})"
)
_ANSWER_FIRST = re.compile(
    rf"(?:assert\w*|is|equal)!?\(\s*(?:t\s*,\s*)?(?P<answer>{_LITERAL})\s*,\s*[\w.:]+\(\s*(?P<input>{_LITERAL})\s*\)"
)
_COMPARED = re.compile(rf"[\w.:]+\(\s*(?P<input>{_LITERAL})\s*\)\s*;?\s*[\w.]+\s*!=\s*(?P<answer>{_LITERAL})")
_ROW = re.compile(rf"[{{(\[]\s*(?:\w+:\s*)?(?P<input>{_LITERAL})\s*,\s*(?:\w+:\s*)?(?P<answer>{_LITERAL})\s*[}})\]]")


def _asked(path: str, text: str) -> Iterator[Pair]:
    if path.endswith(".py"):
        yield from _asked_python(text)
        return
    for pattern in (_CALL_EQUALS, _ANSWER_FIRST, _COMPARED, _ROW):
        for found in pattern.finditer(text):
            yield _plain(found["input"]), _plain(found["answer"])


def _asked_python(text: str) -> Iterator[Pair]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
            yield from _paired(node.left, node.comparators[0])
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Equal") and len(node.args) >= 2:
            yield from _paired(node.args[0], node.args[1])
        elif isinstance(node, ast.Tuple) and len(node.elts) >= 2:
            yield _value(ast.Tuple(elts=node.elts[:-1]) if len(node.elts) > 2 else node.elts[0]), _value(node.elts[-1])


def _paired(left: ast.expr, right: ast.expr) -> Iterator[Pair]:
    call, answer = (left, right) if isinstance(left, ast.Call) else (right, left)
    if isinstance(call, ast.Call) and call.args:
        inputs = call.args[0] if len(call.args) == 1 else ast.Tuple(elts=list(call.args))
        yield _value(inputs), _value(answer)
        for argument in call.args:
            yield _value(argument), _value(answer)


# --- what the source answers ----------------------------------------------------------------------------------------


def _answered_python(text: str) -> Iterator[_Answer]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.If):
            for given in _compared(node.test):
                for answer in _returned(node.body):
                    yield _Answer(node.lineno, (given, answer), True)
        elif isinstance(node, ast.IfExp):
            for given in _compared(node.test):
                yield _Answer(node.lineno, (given, _value(node.body)), True)
        elif isinstance(node, ast.match_case) and isinstance(node.pattern, ast.MatchValue):
            for answer in _returned(node.body):
                yield _Answer(node.pattern.lineno, (_value(node.pattern.value), answer), False)
        elif isinstance(node, ast.Subscript | ast.Call):
            yield from _looked_up(node)


def _compared(test: ast.expr) -> Iterator[str]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        yield "(" + ", ".join(value for part in test.values for value in _compared(part)) + ")"
    if isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _compared(part)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        for side in (test.left, test.comparators[0]):
            if _is_literal(side):
                yield _value(side)


def _returned(body: list[ast.stmt]) -> Iterator[str]:
    for line in body:
        if isinstance(line, ast.Return | ast.Assign) and line.value is not None and _is_literal(line.value):
            yield _value(line.value)


def _looked_up(node: ast.Subscript | ast.Call) -> Iterator[_Answer]:
    """A table written where it is asked; one with a name of its own is data."""
    table = node.value if isinstance(node, ast.Subscript) else getattr(node.func, "value", None)
    if isinstance(table, ast.Dict):
        for key, value in zip(table.keys, table.values, strict=True):
            if key is not None and _is_literal(key) and _is_literal(value):
                yield _Answer(key.lineno, (_value(key), _value(value)), False)


def _is_literal(node: ast.expr) -> bool:
    return not any(isinstance(sub, ast.Name | ast.Call | ast.Attribute | ast.BinOp) for sub in ast.walk(node))


_BRANCH = re.compile(
    rf"(?:={{2,3}}|\.equals\()\s*(?P<input>{_LITERAL})\s*\)*\s*(?:[{{:?]|->|=>)?\s*(?:return\s+)?(?P<answer>{_LITERAL})"
)
_ROW_OF_SWITCH = re.compile(
    rf"^\s*(?:case\s+)?(?P<input>{_LITERAL})\s*(?:=>|->|:)\s*(?:return\s+)?(?P<answer>{_LITERAL})", re.MULTILINE
)


def _answered_text(text: str) -> Iterator[_Answer]:
    for pattern, branch in ((_BRANCH, True), (_ROW_OF_SWITCH, False)):
        for found in pattern.finditer(text):
            line = text.count("\n", 0, found.start("input")) + 1
            yield _Answer(line, (_plain(found["input"]), _plain(found["answer"])), branch)


def _value(node: ast.expr) -> str:
    return ast.unparse(node)


def _plain(literal: str) -> str:
    return repr(literal[1:-1]) if literal[0] in "\"'`" else literal
