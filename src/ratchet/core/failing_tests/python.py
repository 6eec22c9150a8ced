"""Rewrites tests in Python so that they fail, under their own names: at once, or after their own bodies have run."""

from __future__ import annotations

import ast

# A decorator of another kind may expect that the body fails.
_PLAIN_DECORATORS = frozenset(("pytest", "given", "settings", "example", "hypothesis", "unittest", "patch", "mock"))


def with_failing_bodies(path: str, text: str, *, token: str = "") -> str:
    """Return a Python test file in which every test fails, with the same names; '' for other files.

    They fail at once. With a `token`, which makes the added names unforeseeable, they run their bodies first, and
    literals that these expect are replaced by others. Such a test passes where its failure is swallowed by what its
    body has called, where code under test reads its answers from the test, where a value equals anything, or where
    an assertion of its test case accepts what is false.
    """
    if not path.endswith(".py"):
        return ""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ""
    tests = [test for _, test in _tests(tree)]
    for test in tests:
        if token and _may_run(test):
            test.body = _run_and_fail(test, token)
        else:
            test.body.insert(0, _failing(test))
    if tests and token:
        tree.body += ast.parse(_EQUALS_ANYTHING.format(name=f"_equals_{token}")).body
    return ast.unparse(ast.fix_missing_locations(tree)) if tests else ""


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


def _may_run(test: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    is_repeated = any(_root(decorator) in _REPEATING for decorator in test.decorator_list)
    return not is_repeated and not any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(test))


def _run_and_fail(test: ast.FunctionDef | ast.AsyncFunctionDef, token: str) -> list[ast.stmt]:
    """Return a body that runs the test's own and then fails, unless something in it held that is false."""
    count, failing = f"_count_{token}", _failing(test)
    failing.test = ast.BoolOp(op=ast.Or(), values=[failing.test, ast.Name(count)])
    used = {node.attr for node in ast.walk(test) if isinstance(node, ast.Attribute) and _root(node) == "self"}
    refused = "".join(
        f"try:\n    self.{name}({arguments})\nexcept Exception:\n    pass\nelse:\n    {count} += 1\n"
        for name, arguments in _REFUSED.items()
        if name in used
    )
    observed = _Observed(token, _alter_tables(test))
    own = [observed.visit(statement) for statement in test.body]
    body = [each for one in own for each in (one if isinstance(one, list) else [one])]
    after = [*ast.parse(refused).body, failing]
    return [*ast.parse(f"{count} = 0").body, ast.Try(body=body, handlers=[], orelse=[], finalbody=after)]


class _Observed(ast.NodeTransformer):
    """Has a test expect other values than it did, and look at those that it compares; `altered` are expected names."""

    def __init__(self, token: str, altered: set[str]) -> None:
        self.token, self.altered = token, altered

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:  # its variables are not the test's
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST | list[ast.stmt]:
        if looks := _look_for_text(node.test, f"_whole_{self.token}"):
            looks.value = looks.value + b"~" if isinstance(looks.value, bytes) else f"{looks.value!s}~"
            # An honest container may hold nearly everything: only what says that it is a text counts.
            return self._counted(node, f"isinstance(_whole_{self.token}, (str, bytes))")
        if not (sides := _equal_sides(node)):
            return node
        compared = node.test
        assert isinstance(compared, ast.Compare)
        if altered := self._altered(node, sides):
            compared.left, compared.comparators[0] = sides
            return altered
        before, (compared.left, compared.comparators[0]) = self._looked_at(*sides)
        return [*before, node]

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        if not (sides := _equal_sides(node)):
            return node
        call = node.value
        assert isinstance(call, ast.Call)
        if altered := self._altered(node, sides):
            call.args[:2] = sides
            return altered
        before, call.args[:2] = self._looked_at(*sides)
        return [*before, node]

    def _altered(self, node: ast.stmt, sides: list[ast.expr]) -> list[ast.stmt]:
        """Return the assertion with another expected value, which counts when it is true; nothing without a literal.

        Its form stays: code that reads its answer from the calling test finds it where it was.
        """
        asked = [side for side in sides if _literal(side) is None and not self._is_altered(side)]
        if len(asked) != 1 or _makes_value(asked[0]):
            return []
        sides[:] = [side if side is asked[0] or self._is_altered(side) else _other(side) for side in sides]
        return self._counted(node)

    def _counted(self, node: ast.stmt, number: str = "1") -> list[ast.stmt]:
        """Return an assertion that is false, which counts when it is true."""
        counts = ast.parse(f"_count_{self.token} += {number}").body
        swallowed = ast.ExceptHandler(type=ast.Name("Exception"), name=None, body=[ast.Pass()])
        return [ast.Try(body=[node], handlers=[swallowed], orelse=counts, finalbody=[])]

    def _is_altered(self, side: ast.expr) -> bool:
        return isinstance(side, ast.Name) and side.id in self.altered

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


def _equal_sides(node: ast.AST) -> list[ast.expr]:
    """Return both sides of an assertion that two values are equal; nothing for any other statement."""
    if isinstance(node, ast.Assert) and isinstance(compared := node.test, ast.Compare) and len(compared.ops) == 1:
        return [compared.left, *compared.comparators] if isinstance(compared.ops[0], ast.Eq) else []
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or _root(call.func) != "self":
        return []
    is_plain = len(call.args) > 1 and not any(isinstance(one, ast.Starred) for one in call.args[:2])
    return call.args[:2] if is_plain and call.func.attr in _EQUALITIES else []


def _look_for_text(asserted: ast.expr, name: str) -> ast.Constant | None:
    """Return the literal text that must be in the asserted value, or at an end of it; `name` will hold that value."""
    if isinstance(asserted, ast.Compare) and len(asserted.ops) == 1 and isinstance(asserted.ops[0], ast.In):
        part, whole = asserted.left, asserted.comparators[0]
        asserted.comparators[0] = ast.NamedExpr(ast.Name(name), whole) if _is_text(part) else whole
    elif isinstance(asserted, ast.Call) and isinstance(asserted.func, ast.Attribute) and len(asserted.args) == 1:
        part, whole = asserted.args[0], asserted.func.value
        if asserted.func.attr not in ("startswith", "endswith"):
            return None
        asserted.func.value = ast.NamedExpr(ast.Name(name), whole) if _is_text(part) else whole
    else:
        return None
    return part if isinstance(part, ast.Constant) and _is_text(part) else None


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and bool(node.value)


def _makes_value(side: ast.expr) -> bool:
    """Whether it names or calls a class or constant, which may equal many others, as matchers and `ANY` do."""
    return _last(side.func if isinstance(side, ast.Call) else side)[:1].isupper()


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _literal(node: ast.expr) -> ast.expr | None:
    """Return the node if it is a literal, of constants only."""
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return node


def _other(node: ast.expr) -> ast.expr:
    """Return another literal of the same kind."""
    return ast.parse(repr(_changed(ast.literal_eval(node))), mode="eval").body


def _changed(value: object) -> object:
    match value:
        case bool():
            return not value
        case int() | float() | complex():
            return value + 1009
        case str():
            return f"{value}~"
        case bytes():
            return value + b"~"
        case list() | tuple() if value:
            return type(value)((_changed(value[0]), *value[1:]))
        case dict() if value:
            first, *rest = value.items()
            return dict([(first[0], _changed(first[1])), *rest])
        case set() if value:
            return {_changed(one) for one in value}
        case list() | tuple():
            return type(value)([1009])
        case dict():
            return {1009: 1009}
        case _:
            return 1009


# --- tables of cases --------------------------------------------------------------------------------------------------


def _alter_tables(test: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Replace the literals that a test's parameters or loops expect; returns the names that hold them."""
    tables = [(each, 0) for decorator in test.decorator_list if (each := _parameters(decorator))]
    loops = [node for node in ast.walk(test) if isinstance(node, ast.For)]
    tables += [((_names(loop.target), loop.iter), 1) for loop in loops]
    return {
        name
        for (names, rows), bound in tables
        for number, name in enumerate(names)
        if _is_only_expected(test, name, bound) and _alter_column(rows, number if len(names) > 1 else -1)
    }


def _is_only_expected(test: ast.FunctionDef | ast.AsyncFunctionDef, name: str, bound: int) -> bool:
    """Whether a name is compared for equality and used for nothing else, and bound so often in the test's body."""
    named = [node for node in ast.walk(test) if isinstance(node, ast.Name) and node.id == name]
    compared = [side for node in ast.walk(test) for side in _equal_sides(node) if side in named]
    return bool(compared) and len(named) == len(compared) + bound


def _parameters(decorator: ast.expr) -> tuple[list[str], ast.expr] | None:
    """Return names and rows of `@pytest.mark.parametrize`."""
    if not isinstance(decorator, ast.Call) or _last(decorator.func) != "parametrize" or len(decorator.args) < 2:
        return None
    names = decorator.args[0]
    if isinstance(names, ast.Constant) and isinstance(names.value, str):
        return [name.strip() for name in names.value.split(",") if name.strip()], decorator.args[1]
    return (found, decorator.args[1]) if (found := _names(names)) else None


def _names(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Name):
        return [node.id]
    parts = node.elts if isinstance(node, ast.Tuple | ast.List) else []
    found = [str(one.value) if isinstance(one, ast.Constant) else _last(one) for one in parts]
    return found if all(found) else []


def _alter_column(rows: ast.expr, number: int) -> bool:
    """Replace the literals of a column; -1 is a row that is one value. False if one of them is no literal."""
    if not isinstance(rows, ast.List | ast.Tuple):
        return False
    cells: list[tuple[list[ast.expr], int]] = []
    for at, row in enumerate(rows.elts):
        values = row.args if isinstance(row, ast.Call) and _last(row.func) == "param" else None
        values = row.elts if isinstance(row, ast.Tuple | ast.List) and number >= 0 else values
        if values is None and number >= 0:
            return False
        cells.append((rows.elts, at) if values is None else (values, max(number, 0)))
    if not all(at < len(values) and _literal(values[at]) for values, at in cells):
        return False
    for values, at in cells:
        values[at] = _other(values[at])
    return True
