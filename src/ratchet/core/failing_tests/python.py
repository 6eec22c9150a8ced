"""Rewrites tests in Python so that they fail, under their own names: at once, or after their own bodies have run."""

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


# --- bodies that run first --------------------------------------------------------------------------------------------

# Assertions of unittest, with arguments that they must refuse.
_REFUSED = {
    "assertEqual": "1, 2", "assertNotEqual": "1, 1", "assertTrue": "0", "assertFalse": "1", "assertIs": "1, None",
    "assertIsNot": "None, None", "assertIsNone": "1", "assertIsNotNone": "None", "assertIn": "1, ()",
    "assertNotIn": "1, (1,)", "assertIsInstance": "1, str", "assertGreater": "1, 2", "assertGreaterEqual": "1, 2",
    "assertLess": "2, 1", "assertLessEqual": "2, 1", "assertAlmostEqual": "1, 2", "assertCountEqual": "[1], [2]",
    "assertListEqual": "[1], [2]", "assertTupleEqual": "(1,), (2,)", "assertSetEqual": "{1}, {2}",
    "assertDictEqual": "{1: 1}, {1: 2}", "assertSequenceEqual": "[1], [2]", "assertMultiLineEqual": "'1', '2'",
    "assertRegex": "'1', '2'", "assertNotRegex": "'1', '1'", "assertRaises": "ValueError, int",
    "assertRaisesRegex": "ValueError, '1', int",
}  # fmt: skip
_EQUALITIES = frozenset(
    ("assertEqual", "assertListEqual", "assertTupleEqual", "assertDictEqual", "assertSequenceEqual")
)
# Decorators that repeat a body until it fails in the simplest way.
_REPEATING = frozenset(("given", "settings", "example", "hypothesis"))
# A value that equals anything is honest if it comes from a library of matchers, or from the tests themselves.
_EQUALS_ANYTHING = """
def {name}(value):
    import re
    if re.search(r"(?:^|[._])(?:mock|dirty_equals|hamcrest|tests?|conftest)(?:[._]|$)", type(value).__module__):
        return False
    try:
        return bool(value == object())
    except Exception:
        return False
"""


def with_believing_bodies(path: str, text: str, token: str) -> str:
    """Return a Python test file in which every test runs its body and then fails; '' for other files.

    A test passes where its failure is swallowed by what its body has called, where a value equals anything, or
    where an assertion of its test case accepts what is false. `token` makes the added names unforeseeable.
    """
    if not path.endswith(".py"):
        return ""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ""
    tests = [test for _, test in _tests(tree)]
    for test in tests:
        if _may_run(test):
            test.body = _believing(test, token)
        else:
            test.body.insert(0, _failing(test))
    if tests:
        tree.body += ast.parse(_EQUALS_ANYTHING.format(name=f"_equals_{token}")).body
    return ast.unparse(tree) if tests else ""


def _may_run(test: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    is_repeated = any(_root(decorator) in _REPEATING for decorator in test.decorator_list)
    return not is_repeated and not any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(test))


def _believing(test: ast.FunctionDef | ast.AsyncFunctionDef, token: str) -> list[ast.stmt]:
    count, failing = f"_count_{token}", _failing(test)
    failing.test = ast.BoolOp(op=ast.Or(), values=[failing.test, ast.Name(count)])
    used = {node.attr for node in ast.walk(test) if isinstance(node, ast.Attribute) and _root(node) == "self"}
    refused = "".join(
        f"try:\n    self.{name}({arguments})\nexcept Exception:\n    pass\nelse:\n    {count} += 1\n"
        for name, arguments in _REFUSED.items()
        if name in used
    )
    own = [_Observed(token).visit(statement) for statement in test.body]
    body = [each for one in own for each in (one if isinstance(one, list) else [one])]
    after = [*ast.parse(refused).body, failing]
    return [*ast.parse(f"{count} = 0").body, ast.Try(body=body, handlers=[], orelse=[], finalbody=after)]


class _Observed(ast.NodeTransformer):
    """Has a test look at each value that it compares for equality."""

    def __init__(self, token: str) -> None:
        self.token = token

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:  # its variables are not the test's
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST | list[ast.stmt]:
        compared = node.test
        if not isinstance(compared, ast.Compare) or not isinstance(compared.ops[0], ast.Eq) or len(compared.ops) > 1:
            return node
        before, (compared.left, compared.comparators[0]) = self._looked_at(compared.left, compared.comparators[0])
        return [*before, node]

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        call = node.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or _root(call.func) != "self":
            return node
        is_plain = len(call.args) > 1 and not any(isinstance(one, ast.Starred) for one in call.args[:2])
        if call.func.attr not in _EQUALITIES or not is_plain:
            return node
        before, call.args[:2] = self._looked_at(*call.args[:2])
        return [*before, node]

    def _looked_at(self, *sides: ast.expr) -> tuple[list[ast.stmt], list[ast.expr]]:
        names = [f"_side{number}_{self.token}" for number in range(len(sides))]
        before: list[ast.stmt] = [
            ast.Assign([ast.Name(name)], side, lineno=0) for name, side in zip(names, sides, strict=True)
        ]
        looks = " + ".join(
            f"_equals_{self.token}({name})"
            for name, side in zip(names, sides, strict=True)
            if not isinstance(side, ast.Constant)
        )
        if looks:
            before += ast.parse(f"_count_{self.token} += {looks}").body
        return before, [ast.Name(name) for name in names]
