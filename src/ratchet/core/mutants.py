"""Mutants of Python source: small wrong changes, which a good test suite detects."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    line: int
    what: str
    source: str


_SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.Mult,    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def mutants(path: str, source: str, lines: set[int], *, at_most: int) -> list[Mutant]:
    """Return mutants spread over the lines, deterministically: one per line first, then a second one."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    places = [(node, field) for node, field in _mutable_nodes(tree) if getattr(node, "lineno", 0) in lines]
    seen: dict[int, int] = {}
    ranked = []
    for order, (node, field) in enumerate(places):
        line = node.lineno  # type: ignore[attr-defined]  # only nodes with a line are places
        seen[line] = seen.get(line, 0) + 1
        ranked.append((seen[line], order, node, field))
    ranked.sort(key=lambda place: place[:2])
    return [_mutant(path, tree, node, field) for _, _, node, field in ranked[:at_most]]


def rewritten(source: str, lines: set[int]) -> str:
    """Return other code that does the same, written anew at each place that a mutant changes.

    Tests that fail on it notice that the source was touched, by a checksum say, and not what it does.
    """
    tree = ast.parse(source)
    nodes = {id(node) for node, _ in _mutable_nodes(tree) if getattr(node, "lineno", 0) in lines}
    return ast.unparse(_Rewriting(nodes).visit(tree))


class _Rewriting(ast.NodeTransformer):
    """Replaces each of the expressions `x`, also one that is returned, by `[x][0]`."""

    def __init__(self, nodes: set[int]) -> None:
        self.nodes = nodes

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.pattern):  # of `case`: not an expression
            return node
        asked = id(node) in self.nodes
        self.generic_visit(node)
        if asked and isinstance(node, ast.Return) and node.value:
            node.value = _same(node.value)
        return _same(node) if asked and isinstance(node, ast.expr) else node


def _same(node: ast.expr) -> ast.expr:
    return ast.Subscript(value=ast.List(elts=[node], ctx=ast.Load()), slice=ast.Constant(value=0), ctx=ast.Load())


def _mutable_nodes(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPPED:
            yield node, "ops"
        elif (isinstance(node, ast.BinOp) and type(node.op) in _SWAPPED and not _is_text(node)) or isinstance(
            node, ast.BoolOp
        ):
            yield node, "op"
        elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
            yield node, "value"


def _is_text(node: ast.BinOp) -> bool:
    """Whether an operand is text: mutating `"a" % b` would only raise a TypeError, which any test notices."""
    sides = (node.left, node.right)
    return any(isinstance(side, ast.JoinedStr | ast.Constant) and not _is_number(side) for side in sides)


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _mutant(path: str, tree: ast.Module, node: ast.AST, field: str) -> Mutant:
    """Mutate the tree in place, unparse it and restore it."""
    before = getattr(node, field)
    after = _mutate(before)
    text = ast.unparse(node)
    setattr(node, field, after)
    try:
        source, now = ast.unparse(tree), ast.unparse(node)
    finally:
        setattr(node, field, before)
    line: int = node.lineno  # type: ignore[attr-defined]  # only nodes with a line are places
    return Mutant(path=path, line=line, what=f"`{text[:80]}` became `{now[:80]}`", source=source)


def _mutate(before: object) -> object:
    if isinstance(before, list):
        return [_SWAPPED[type(before[0])](), *before[1:]]
    if isinstance(before, ast.expr):
        return ast.Constant(value=None)
    return _SWAPPED[type(before)]()  # type: ignore[index]  # an operator
