"""Rewrites tests in Python so that they fail, under their own names."""

from __future__ import annotations

import ast

# A decorator of another kind may expect that the body fails.
_PLAIN_DECORATORS = frozenset(("pytest", "given", "settings", "example", "hypothesis", "unittest", "patch", "mock"))


def with_failing_bodies(path: str, text: str) -> str:
    """Return a Python test file in which every test fails at once, with the same names; '' for other files."""
    if not path.endswith(".py"):
        return ""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ""
    tests = [test for _, test in _tests(tree)]
    for test in tests:
        test.body.insert(0, _failing(test))
    return ast.unparse(tree) if tests else ""


def _failing(test: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.Assert:
    """Return an assertion that fails, with what the test itself asserts first behind it, which is never evaluated.

    So it names the same code in one row: a fake that looks whom a failure is about does not know it from the test's.
    """
    failed = ast.parse(f"{len(test.name)} == {len(test.body) + 1000}", mode="eval").body
    declares = any(isinstance(node, ast.Global | ast.Nonlocal) for node in ast.walk(test))  # not after a name's use
    own = [] if declares else [_asserted(statement) for statement in test.body]
    first = next((one for one in own if one and not any(map(_pauses, ast.walk(one)))), None)
    return ast.Assert(test=ast.BoolOp(op=ast.And(), values=[failed, first]) if first else failed)


def _asserted(statement: ast.stmt) -> ast.expr | None:
    """Return what an assertion tests, or the call of a test case's own assertion."""
    if isinstance(statement, ast.Assert):
        return statement.test
    is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    return statement.value if is_call and isinstance(statement, ast.Expr) else None


def _pauses(node: ast.AST) -> bool:
    """Whether it would make another kind of function of the test, or bind a name in it."""
    return isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr)


def names_of_tests(text: str) -> set[str]:
    """Return the tests that `with_failing_bodies` changes, those in a class as `Class::name`."""
    return {f"{above}::{test.name}" if above else test.name for above, test in _tests(ast.parse(text))}


def _tests(tree: ast.Module) -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return [
        (above, node)
        for above, body in [("", tree.body), *((each.name, each.body) for each in classes)]
        for node in body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test")
        and all(_root(decorator) in _PLAIN_DECORATORS for decorator in node.decorator_list)
    ]


def _root(node: ast.expr) -> str:
    """Return the first name of a decorator: `pytest` of `@pytest.mark.slow(1)`."""
    while isinstance(node, ast.Call | ast.Attribute):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
