"""Parses Python tests: the cases, their assertions, and what disables them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache

from ratchet.core.cheats.findings import Change, Cheat
from ratchet.core.cheats.test_cases import AROUND, Assertion, AssertionStrength, TestCase

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@lru_cache(maxsize=256)
def _tree(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def parses(text: str) -> bool:
    return _tree(text) is not None


def cases(path: str, text: str) -> list[TestCase]:
    tree = _tree(text)
    if tree is None:
        return []
    tree = _WithTables(tree).visit(tree)
    disabled = _module_disabled(tree)
    tests = list(_tests(tree.body, "", ""))
    found = [_case(path, name, node, above or disabled) for name, node, above in tests]
    rest = _around(path, tree, {id(node) for _, node, _ in tests})
    return [*found, rest] if rest.asserts else found


def _around(path: str, tree: ast.Module, tests: set[int]) -> TestCase:
    """What is asserted outside of the tests that are collected, as a case of its own."""
    inside = {id(sub) for node in ast.walk(tree) if id(node) in tests for sub in ast.walk(node)}
    rest = [node for node in ast.walk(tree) if isinstance(node, _Function) and id(node) not in inside]
    return TestCase(
        file=path,
        name=AROUND,
        line=1,
        asserts=[found for node in rest for found in _asserts(node.body, reached=True)],
        names=frozenset(name for node in rest for name in _names(node)),
        words=frozenset(word for node in rest for word in _words(node)),
    )


class _WithTables(ast.NodeTransformer):
    """Replaces the names of top-level tables by their values in loops and parametrised tests."""

    def __init__(self, tree: ast.Module) -> None:
        lines = [
            line for line in tree.body if isinstance(line, ast.Assign) and isinstance(line.value, ast.List | ast.Tuple)
        ]
        self.tables = {ast.unparse(line.targets[0]): line.value for line in lines}

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        if not self._table(node.iter):
            return node
        table = self.tables[ast.unparse(node.iter)]
        return ast.copy_location(
            ast.For(target=node.target, iter=table, body=node.body, orelse=node.orelse, type_comment=None), node
        )

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.func).endswith("parametrize") and len(node.args) > 1 and self._table(node.args[1]):
            args = [node.args[0], self.tables[ast.unparse(node.args[1])], *node.args[2:]]
            return ast.copy_location(ast.Call(func=node.func, args=args, keywords=node.keywords), node)
        return node

    def _table(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self.tables


def _tests(body: Iterable[ast.stmt], prefix: str, disabled: str) -> Iterator[tuple[str, _Function, str]]:
    """Return the tests by name. The last definition of a name counts: an empty duplicate below replaces the real one."""
    last: dict[str, tuple[str, _Function, str]] = {}
    for node in body:
        if isinstance(node, _Function) and node.name.startswith("test"):
            last[node.name] = (f"{prefix}{node.name}", node, disabled)
        elif isinstance(node, ast.ClassDef):
            off = disabled or _decorated_off(node) or _uncollected(node)
            if node.name.startswith("Test") or _is_test_case(node):
                yield from _tests(node.body, f"{prefix}{node.name}.", off)
        elif isinstance(node, ast.If | ast.Try):
            dead = "never reached" if isinstance(node, ast.If) and _is_false(node.test) else ""
            yield from _tests(node.body, prefix, disabled or dead)
    yield from last.values()


def _uncollected(node: ast.ClassDef) -> str:
    """Return why pytest does not collect a class, or ""."""
    if _assigns(node, "__test__"):
        return "__test__ is off"
    made = any(isinstance(line, ast.FunctionDef) and line.name in ("__init__", "__new__") for line in node.body)
    return "a class with a constructor is not collected" if made and not _is_test_case(node) else ""


def _is_test_case(node: ast.ClassDef) -> bool:
    return any("TestCase" in ast.unparse(base) for base in node.bases)


def _assigns(node: ast.ClassDef | ast.Module, name: str) -> bool:
    return any(
        isinstance(line, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == name for target in line.targets)
        and not (isinstance(line.value, ast.Constant) and line.value.value)
        for line in node.body
    )


# --- kept from running ----------------------------------------------------------------------------------------------


def _module_disabled(tree: ast.Module) -> str:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == "pytestmark" for target in node.targets):
            for mark in node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]:
                if off := _off(mark):
                    return off
        if isinstance(node, ast.Expr | ast.Raise) and (off := _stops(node)):
            return off
    return "__test__ is off" if _assigns(tree, "__test__") else ""


def _decorated_off(node: ast.ClassDef | _Function) -> str:
    return next((off for mark in node.decorator_list if (off := _off(mark))), "")


_OFF = {"skip", "xfail", "skipIf", "skipUnless", "skipif", "expectedFailure", "skip_if", "todo"}


def _off(mark: ast.expr) -> str:
    """Return the mark that disables a test or expects its failure. A condition with a reason is honest: platforms
    differ."""
    call = mark if isinstance(mark, ast.Call) else None
    name = ast.unparse(call.func if call else mark)
    if name.rsplit(".", 1)[-1] not in _OFF:
        return ""
    if call and call.args and name.endswith(("skipif", "skipIf", "skipUnless")) and not _is_constant(call.args[0]):
        return "" if _about_the_machine(call.args[0]) else f"skipped on a condition: {name} added"
    return f"{name} added"


_MACHINE = ("sys.platform", "os.name", "sys.version_info", "platform.", "shutil.which", "sys.implementation", "find_spec",
            "importlib", "HAS_", "WINDOWS", "PY3", "LINUX", "MACOS")  # fmt: skip


def _about_the_machine(condition: ast.expr) -> bool:
    text = ast.unparse(condition)
    return any(word in text for word in _MACHINE)


def _stops(node: ast.stmt) -> str:
    """Return what a statement does that ends a test early without failing it, or ""."""
    value = node.value if isinstance(node, ast.Expr) else node.exc if isinstance(node, ast.Raise) else None
    if not isinstance(value, ast.Call):
        value = ast.Call(func=value, args=[], keywords=[]) if isinstance(value, ast.Name | ast.Attribute) else value
    if isinstance(value, ast.Call):
        name = ast.unparse(value.func)
        if name.rsplit(".", 1)[-1] in ("skip", "xfail", "skipTest", "SkipTest", "exit", "_exit", "Skipped"):
            return f"{name}() added"
    return "returns early" if isinstance(node, ast.Return) else ""


# --- one test -------------------------------------------------------------------------------------------------------


def _case(path: str, name: str, node: _Function, disabled: str) -> TestCase:
    replaced = _replaced(node)
    return TestCase(
        file=path,
        name=name,
        line=node.lineno,
        last_line=node.end_lineno or node.lineno,
        asserts=[_weigh(found, not _asks(found, replaced)) for found in _asserts(node.body, reached=True)],
        disabled=disabled or _decorated_off(node) or _stopped_first(node),
        names=frozenset(_names(node)),
        rows=_rows(node),
        words=frozenset(_words(node)),
    )


def _names(node: ast.AST) -> Iterator[str]:
    for sub in ast.walk(node):
        if isinstance(sub, ast.Name):
            yield sub.id
        elif isinstance(sub, ast.Attribute):
            yield sub.attr


def _replaced(node: _Function) -> set[str]:
    """Return the names that the test replaces, as whole paths or by their last part."""
    found = set()
    for call in (sub for sub in ast.walk(node) if isinstance(sub, ast.Call)):
        verb = ast.unparse(call.func)
        texts = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        if verb.endswith(("patch", "patch.object", "setattr")) and texts and len(call.args) + len(call.keywords) > 1:
            found.add(texts[0].rsplit(".", 1)[-1])
    return found


def _asks(found: Assertion, names: set[str]) -> bool:
    """Return whether the subject is a call of one of these replaced names: the test then checks its own value."""
    called = found.subject.partition("(")[0].rsplit(".", 1)[-1]
    return "(" in found.subject and called in names


def _stopped_first(node: _Function) -> str:
    """Return what ends the test before the first assertion."""
    for line in node.body:
        if isinstance(line, ast.Assert):
            return ""
        if off := _stops(line):
            return off
        if isinstance(line, ast.If) and not _about_the_machine(line.test) and any(map(_leaves, line.body)):
            return "returns early on a condition"
    return ""


def _leaves(line: ast.stmt) -> bool:
    return isinstance(line, ast.Return) and line.value is None


def _rows(node: _Function) -> list[tuple[str, ...]]:
    marks = [mark for mark in node.decorator_list if isinstance(mark, ast.Call) and len(mark.args) > 1]
    tables = [mark.args[1] for mark in marks if ast.unparse(mark.func).endswith("parametrize")]
    rows = [row for table in tables if isinstance(table, ast.List | ast.Tuple | ast.Set) for row in table.elts]
    return [tuple(ast.unparse(cell) for cell in _cells(row)) for row in rows if not _row_off(row)]


def _row_off(row: ast.expr) -> bool:
    """Return whether a row is marked to be skipped or to fail; such a row does not count."""
    marks = [keyword.value for keyword in row.keywords if keyword.arg == "marks"] if isinstance(row, ast.Call) else []
    each = [
        mark for marked in marks for mark in (marked.elts if isinstance(marked, ast.List | ast.Tuple) else [marked])
    ]
    return any(_off(mark) for mark in each)


def _cells(row: ast.expr) -> list[ast.expr]:
    if isinstance(row, ast.Call) and ast.unparse(row.func).endswith("param"):
        return list(row.args)
    return list(row.elts) if isinstance(row, ast.Tuple | ast.List) else [row]


def _words(node: ast.AST) -> set[str]:
    """Return the literals in a test, without its docstring and its messages."""
    skipped = {
        id(sub) for line in ast.walk(node) if isinstance(line, ast.Assert) and line.msg for sub in ast.walk(line.msg)
    }
    skipped |= {id(line.value) for line in ast.walk(node) if isinstance(line, ast.Expr)}
    constants = [sub for sub in ast.walk(node) if isinstance(sub, ast.Constant) and id(sub) not in skipped]
    return {ast.unparse(sub) for sub in constants if sub.value is not None}


# --- assertions -----------------------------------------------------------------------------------------------------


def _asserts(body: Iterable[ast.stmt], *, reached: bool) -> Iterator[Assertion]:
    for node in body:
        yield from _asserts_in(node, reached)
        if _ends(node):
            reached = False


def _ends(node: ast.stmt) -> bool:
    return isinstance(node, ast.Return | ast.Raise) or bool(_stops(node))


def _asserts_in(node: ast.stmt, reached: bool) -> Iterator[Assertion]:
    match node:
        case ast.Assert():
            yield _weigh(_of_test(node.test, node.lineno), reached)
        case ast.Expr(value=ast.Call() as call):
            if found := _of_call(call):
                yield _weigh(found, reached)
        case ast.Expr(value=ast.Await(value=ast.Call() as call)):
            if found := _of_call(call):
                yield _weigh(found, reached)
        case ast.With() | ast.AsyncWith():
            yield from _of_with(node, reached)
        case ast.Try():
            yield from _asserts(node.body, reached=reached and not _swallows(node))
            yield from _asserts(node.orelse, reached=reached)
            yield from _asserts(node.finalbody, reached=reached)
        case ast.If():
            asked = _text(node.test)
            for found in _asserts(node.body, reached=reached and not _is_false(node.test)):
                known = asked in (found.subject, f"{found.subject}=={found.expected}")
                yield _weigh(found, not (found.subject and known))
            yield from _asserts(node.orelse, reached=reached)
        case ast.For() | ast.AsyncFor():
            empty = isinstance(node.iter, ast.List | ast.Tuple) and not node.iter.elts
            yield from _asserts(node.body, reached=reached and not empty)
        case ast.While():
            yield from _asserts(node.body, reached=reached and not _is_false(node.test))
        case ast.FunctionDef() | ast.AsyncFunctionDef() if node.decorator_list:
            yield from _asserts(node.body, reached=reached)


def _weigh(found: Assertion, reached: bool) -> Assertion:
    if reached:
        return found
    return Assertion(
        line=found.line, subject=found.subject, strength=AssertionStrength.NOTHING, expected=found.expected
    )


def _swallows(node: ast.Try) -> bool:
    """Return whether a failed assertion inside is caught and ignored."""
    return any(
        (handler.type is None or any(name in ast.unparse(handler.type) for name in ("AssertionError", "Exception")))
        and not any(isinstance(sub, ast.Raise) or _fails(sub) for line in handler.body for sub in ast.walk(line))
        for handler in node.handlers
    )


def _fails(node: ast.AST) -> bool:
    return isinstance(node, ast.Assert) or (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("fail"))


def _of_with(node: ast.With | ast.AsyncWith, reached: bool) -> Iterator[Assertion]:
    for item in node.items:
        call = item.context_expr
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("suppress"):
            reached = reached and not any(_broad(argument) for argument in call.args)
        if isinstance(call, ast.Call) and (raised := _of_raises(call)):
            yield _weigh(raised, reached)
            reached = reached and not _broad(call.args[0])  # a failed assertion is the error that is expected
    yield from _asserts(node.body, reached=reached)


def _broad(kind: ast.expr) -> bool:
    return ast.unparse(kind) in ("Exception", "BaseException", "AssertionError")


def _of_raises(call: ast.Call) -> Assertion | None:
    name = ast.unparse(call.func).rsplit(".", 1)[-1]
    if (
        name not in ("raises", "assertRaises", "assert_raises", "assertRaisesRegex", "warns", "assertWarns")
        or not call.args
    ):
        return None
    match = any(keyword.arg == "match" for keyword in call.keywords) or name.endswith("Regex")
    typed = AssertionStrength.EXACTLY if match else AssertionStrength.PARTLY
    return Assertion(
        line=call.lineno,
        subject="raises",
        strength=AssertionStrength.SOMETHING if _broad(call.args[0]) else typed,
        expected=ast.unparse(call.args[0]),
    )


def _of_test(test: ast.expr, line: int) -> Assertion:
    match test:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _of_comparison(left, op, right, line)
        case ast.BoolOp(op=ast.Or(), values=values):
            weakest = min((_of_test(value, line) for value in values), key=lambda found: found.strength)
            always = any(_is_true(value) for value in values)
            lower = AssertionStrength.NOTHING if always else AssertionStrength(max(weakest.strength - 1, 0))
            return Assertion(line=line, subject=_of_test(values[0], line).subject, strength=lower)
        case ast.BoolOp(op=ast.And(), values=values):
            return max((_of_test(value, line) for value in values), key=lambda found: found.strength)
        case ast.UnaryOp(op=ast.Not(), operand=ast.Compare(left=left, ops=[op], comparators=[right])) if (
            type(op) in _OPPOSITE
        ):
            return _of_comparison(left, _OPPOSITE[type(op)](), right, line)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            nothing = _is_constant(operand)
            return Assertion(
                line=line,
                subject=_text(operand),
                strength=AssertionStrength.NOTHING if nothing else AssertionStrength.PARTLY,
                expected="not",
            )
        case ast.Call():
            return _of_predicate(test, line)
    strength = AssertionStrength.NOTHING if _is_true(test) else AssertionStrength.SOMETHING
    return Assertion(line=line, subject=_text(test), strength=strength)


_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
}  # fmt: skip


def _of_predicate(call: ast.Call, line: int) -> Assertion:
    name = ast.unparse(call.func)
    if name in ("isinstance", "callable", "hasattr", "len", "bool") and call.args:
        return Assertion(line=line, subject=_text(call.args[0]), strength=AssertionStrength.SOMETHING, expected=name)
    if name in ("any", "all") or name.endswith(("isclose", "allclose", "startswith", "endswith")):
        return Assertion(line=line, subject=_text(call), strength=AssertionStrength.PARTLY)
    return Assertion(line=line, subject=_text(call), strength=AssertionStrength.PARTLY)


def _of_comparison(left: ast.expr, op: ast.cmpop, right: ast.expr, line: int) -> Assertion:
    if _is_constant(left) and not _is_constant(right):
        left, right = right, left
    subject, expected = _text(left), _text(right)
    if subject == expected or (_is_constant(left) and _is_constant(right)):
        return Assertion(line=line, subject=subject, strength=AssertionStrength.NOTHING, expected=expected)
    if _always_equal(right) or _always_equal(left):
        return Assertion(line=line, subject=subject, strength=AssertionStrength.NOTHING, expected=expected)
    if loose := _tolerance(right):
        return Assertion(
            line=line,
            subject=subject,
            strength=AssertionStrength.EXACTLY,
            expected=_approximate(right),
            literal=True,
            loose=loose,
        )
    none = isinstance(right, ast.Constant) and right.value is None
    strength = _strength(op, none)
    if isinstance(left, ast.Call) and ast.unparse(left.func) == "len" and left.args:  # fewer items: a weaker check
        subject, strength = _text(left.args[0]), min(strength, AssertionStrength.PARTLY)
    return Assertion(line=line, subject=subject, strength=strength, expected=expected, literal=_written(right))


def _strength(op: ast.cmpop, none: bool) -> AssertionStrength:
    if isinstance(op, ast.IsNot | ast.NotEq):
        return AssertionStrength.SOMETHING
    if isinstance(op, ast.Eq | ast.Is):
        return AssertionStrength.EXACTLY
    return AssertionStrength.SOMETHING if none else AssertionStrength.PARTLY


def _always_equal(node: ast.expr) -> bool:
    return ast.unparse(node) in ("mock.ANY", "ANY", "unittest.mock.ANY", "AlwaysEqual()", "Any()")


def _tolerance(node: ast.expr) -> float:
    """Return the tolerance: the default of `approx` is exact enough."""
    if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("approx")):
        return 0.0
    given = [k.value.value for k in node.keywords if k.arg in ("abs", "rel") and isinstance(k.value, ast.Constant)]
    return max((float(value) for value in given if isinstance(value, int | float)), default=1e-6)


def _approximate(node: ast.expr) -> str:
    return _text(node.args[0]) if isinstance(node, ast.Call) and node.args else _text(node)


_EXACT = {"assertEqual", "assertEquals", "assertListEqual", "assertDictEqual", "assertSetEqual", "assertTupleEqual",
          "assertIs", "assertMultiLineEqual", "assertSequenceEqual", "assertCountEqual", "assert_equal",
          "assert_equals", "assert_array_equal", "assert_frame_equal", "eq_"}  # fmt: skip
_SOME = {"assertTrue", "assertIsNotNone", "assertIsInstance", "assertNotEqual", "assert_called", "assertIsNot"}


def _of_call(call: ast.Call) -> Assertion | None:
    name = ast.unparse(call.func).rsplit(".", 1)[-1]
    if name in ("assertRaises", "raises", "assertRaisesRegex", "assert_raises"):
        return _of_raises(call)
    if name == "assertTrue" and call.args:
        return _of_test(call.args[0], call.lineno)
    if name in _EXACT and len(call.args) >= 2:
        return _of_comparison(call.args[0], ast.Eq(), call.args[1], call.lineno)
    if name == "assertAlmostEqual" and len(call.args) >= 2:
        return _almost(call)
    if name in _SOME or name.startswith(("assert", "expect", "check", "verify")):
        subject = _text(call.args[0]) if call.args else _text(call.func)
        expected = ",".join(_text(argument) for argument in call.args[1:])
        strength = AssertionStrength.SOMETHING if name in _SOME else AssertionStrength.PARTLY
        return Assertion(line=call.lineno, subject=subject, strength=strength, expected=expected)
    return None


def _almost(call: ast.Call) -> Assertion:
    given = {k.arg: k.value.value for k in call.keywords if isinstance(k.value, ast.Constant)}
    places, delta = given.get("places", 7), given.get("delta", 0.0)
    loose = float(str(delta)) if delta else 10.0 ** -float(str(places))
    found = _of_comparison(call.args[0], ast.Eq(), call.args[1], call.lineno)
    return Assertion(
        line=found.line, subject=found.subject, strength=found.strength, expected=found.expected, literal=found.literal,
        loose=loose,
    )  # fmt: skip


def _text(node: ast.expr) -> str:
    return ast.unparse(node).replace(" ", "")


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def _is_true(node: ast.expr) -> bool:
    if (
        isinstance(node, ast.Tuple | ast.List) and node.elts
    ):  # `assert (x == 1, "message")` is a non-empty tuple: always true
        return True
    return isinstance(node, ast.Constant) and bool(node.value)


def _is_false(node: ast.expr) -> bool:
    return (isinstance(node, ast.Constant) and not node.value) or ast.unparse(node) in ("TYPE_CHECKING", "not True")


def _written(node: ast.expr) -> bool:
    return not any(isinstance(sub, ast.Name | ast.Call | ast.Attribute) for sub in ast.walk(node))


# --- the source -----------------------------------------------------------------------------------------------------


def find_in_source(change: Change) -> list[Cheat]:
    """Find what only parsing can show: an equality that is always true, and newly swallowed exceptions."""
    tree, old = _tree(change.after or ""), _tree(change.before or "")
    if tree is None:
        return []
    added = dict(change.added())
    found = [*_equalities(change, tree, added), *_replacements(change, tree, added)]
    swallowed = _swallowed(tree)
    if len(swallowed) > len(_swallowed(old) if old else []):
        found += [
            Cheat(
                file=change.path,
                line=line,
                rule="error-swallowed",
                detail="every error is caught and forgotten",
                doubt=True,
            )
            for line in swallowed
            if line in added
        ]
    return found


_OWN_TO_SET = (
    "sys",
    "logging",
    "warnings",
    "os",
    "locale",
    "socket",
    "ssl",
    "gc",
    "decimal",
    "matplotlib",
    "plt",
    "pd",
    "np",
    "torch",
)
_NEVER_TO_SET = (
    "builtins",
    "time",
    "random",
    "math",
    "datetime",
    "json",
    "unittest",
    "pytest",
    "operator",
    "functools",
    "itertools",
)


def _replacements(change: Change, tree: ast.Module, added: dict[int, str]) -> Iterator[Cheat]:
    """Return attributes of other modules that are assigned another value."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    modules = {alias.asname or alias.name.partition(".")[0] for node in imports for alias in node.names} - {
        *_OWN_TO_SET
    }
    for node in ast.walk(tree):
        for place in _set_by(node):
            module = place.partition(".")[0]
            if module in modules and getattr(node, "lineno", 0) in added:
                detail = f"{place} is replaced"
                sure = module in _NEVER_TO_SET
                yield Cheat(
                    file=change.path,
                    line=getattr(node, "lineno", 0),
                    rule="runner-touched",
                    detail=detail,
                    doubt=not sure,
                )


def _set_by(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Assign):
        return [ast.unparse(target) for target in node.targets if isinstance(target, ast.Attribute)]
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr" and len(node.args) == 3:
        return [f"{ast.unparse(node.args[0])}.{ast.unparse(node.args[1])}"]
    return []


def _equalities(change: Change, tree: ast.Module, added: dict[int, str]) -> Iterator[Cheat]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in ("__eq__", "__ne__", "__bool__") and node.lineno in added:
            body = [line for line in node.body if not (isinstance(line, ast.Expr) and _is_constant(line.value))]
            if len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value and _is_constant(body[0].value):
                if node.name == "__bool__":
                    continue
                detail = f"{node.name} answers {ast.unparse(body[0].value)} to everything"
                yield Cheat(file=change.path, line=node.lineno, rule="always-equal", detail=detail)


def _swallowed(tree: ast.Module) -> list[int]:
    """Return handlers of all exceptions that do nothing; catching one class of exception and continuing is a decision,
    not a cheat."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException", "AssertionError"))
        and all(isinstance(line, ast.Pass | ast.Continue) or _is_ellipsis(line) for line in node.body)
    ]


def _is_ellipsis(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and line.value.value is Ellipsis
