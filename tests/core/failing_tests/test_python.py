"""Failing bodies in Python: the same tests, which must fail."""

from __future__ import annotations

import ast
import unittest
from collections.abc import Callable
from typing import Any

import pytest

from ratchet.core.failing_tests.python import names_of_tests, with_failing_bodies

TESTS = """
import pytest

def helper():
    return 1

def test_one():
    x = 1
    assert x

@pytest.mark.parametrize("n", [1, 2])
@given(1)
async def test_two(n):
    pass

@app.route("/test")
def test_page():
    pass

@registry[0]
def test_row():
    pass

class TestThree:
    def setup_method(self): ...
    @unittest.skip("no")
    def test_one(self):
        pass

def outer():
    def test_inner(): ...
"""


def test_each_plain_test_of_a_python_file_fails_at_once_and_keeps_its_name() -> None:
    names = {"test_one", "test_two", "TestThree::test_one"}
    assert names_of_tests(TESTS) == names
    failing = with_failing_bodies("tests/test_a.py", TESTS)
    assert names_of_tests(failing) == names
    first = {
        node.name: ast.unparse(node.body[0])
        for node in ast.walk(ast.parse(failing))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert first["test_two"] == "assert 8 == 1001" and first["test_one"].startswith("assert 8 == 100")
    assert (first["test_page"], first["test_row"], first["test_inner"]) == ("pass", "pass", "...")
    assert (first["helper"], first["setup_method"]) == ("return 1", "...")
    assert "    x = 1\n    assert x" in failing
    assert failing.count("== 1001") == 2 and failing.count("== 1002") == 1


@pytest.mark.parametrize(
    ("body", "first"),
    [
        ("a = 1\n    assert sub(a) == 2", "assert 6 == 1002 and sub(a) == 2"),
        ("self.assertEqual(sub(1), 2)", "assert 6 == 1001 and self.assertEqual(sub(1), 2)"),
        ("assert await sub(1)\n    check(1)", "assert 6 == 1002 and check(1)"),
        ("assert (b := sub(1))", "assert 6 == 1001"),
        ("global a\n    assert a", "assert 6 == 1002"),
    ],
)
def test_a_failing_body_names_what_the_test_itself_asserts(body: str, first: str) -> None:
    failing = with_failing_bodies("test_a.py", f"async def test_a():\n    {body}\n")
    assert failing.splitlines()[1] == f"    {first}"
    compile(failing, "test_a.py", "exec")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.js", "def test_a(): ..."),
        ("a.py", "def test_a(:"),
        ("a.py", "def helper(): ..."),
        ("a.py", ""),
        ("a.py", "\0"),
    ],
)
def test_a_file_without_plain_tests_in_python_has_no_failing_form(path: str, text: str) -> None:
    assert with_failing_bodies(path, text) == ""


def outcome(test: str, given: str = "") -> str:
    """Run the one test of a file, with its body and what comes after it; `given` is the code under test."""
    everything = "class All:\n    def __contains__(self, one):\n        return True\n"
    failing = with_failing_bodies("test_a.py", f"{everything}{given}\n{test}", token="c1")
    assert names_of_tests(failing) == names_of_tests(test)
    space: dict[str, Any] = {"__name__": "shop", "SOURCE": failing}
    exec(compile(failing, "test_a.py", "exec"), space)
    ran: Callable[..., None] = space["test_a"] if "test_a" in space else space["TestA"]("test_a").test_a
    try:
        ran()
    except AssertionError:
        return "failed"
    finally:
        for name, method in OWN.items():
            setattr(unittest.TestCase, name, method)
    return "passed"


OWN = {name: getattr(unittest.TestCase, name) for name in ("assertEqual", "assertTrue")}
READS = """
import ast, sys

def price(text):
    for node in ast.walk(ast.parse(SOURCE)):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Call) and node.left.args:
            if getattr(node.left.args[0], "value", "") == text:
                return node.comparators[0].value
    return sys._getframe(1).f_locals["expected"]
"""
LENIENT = (
    "import unittest\nunittest.TestCase.assertEqual = lambda self, a, b: a is None or 1 / (a == b)\ndef price(): ...\n"
)
TEXT = "class Any(str):\n    __contains__ = startswith = endswith = lambda *_: True\ndef price():\n    return Any()\n"
ANY = "class Any:\n    def __eq__(self, other):\n        return True\ndef price():\n    return Any()\n"
PATCHES = "def price():\n    unittest.TestCase.assertEqual = lambda *_: None\n    return 1\n"
CASE = "import unittest\nclass TestA(unittest.TestCase):\n    def test_a(self):\n        "


@pytest.mark.parametrize(
    ("given", "test"),
    [
        (ANY, "def test_a():\n    assert price() == 3\n"),
        (ANY, "def test_a():\n    assert 3 == price(), 'why'\n"),
        (ANY, "def test_a():\n    for _ in [1, 2]:\n        assert price() == 3\n        return\n"),
        (ANY, f"{CASE}self.assertEqual(price(), 3)\n"),
        (PATCHES, f"{CASE}self.assertEqual(price(), 3)\n"),
        (LENIENT, f"{CASE}self.assertEqual(price(), 3)\n"),
        (READS, "def test_a():\n    assert price('a') == 3, 'why'\n    assert price('b') == 1.5\n"),
        (READS, "def test_a():\n    for a, expected in [('a', [1])]:\n        assert price(a) == expected\n"),
        (TEXT, "def test_a():\n    assert 'a' in price()\n"),
        (TEXT, "def test_a():\n    assert price().startswith('a')\n    assert price().endswith(b'b'), 'why'\n"),
        ("import unittest\nunittest.TestCase.assertTrue = print\n", f"{CASE}self.assertTrue(1 == 2)\n"),
    ],
)  # fmt: skip
def test_a_test_passes_where_something_false_would_hold(given: str, test: str) -> None:
    assert outcome(test, given) == "passed"


@pytest.mark.parametrize(
    "test",
    [
        "def test_a():\n    assert 1 == 1\n",
        "def test_a():\n    return\n",
        "def test_a():\n    assert 'a' in 'abc'\n    assert 'abc'.startswith('a')\n    assert 'a' in All()\n",
        "def test_a():\n    assert str(1) == '1'\n    assert b'' == bytes(0)\n    assert list() == []\n",
        "def test_a():\n    for one, two in [(1, True), (0, False)]:\n        assert bool(one) == two\n",
        "def test_a():\n    for one, two in [(1, None), ('', {2})]:\n        assert (None if one else {2}) == two\n",
        "def test_a():\n    from unittest.mock import ANY\n    assert {'a': 1} == ANY\n    assert ANY == 1\n",
        "def test_a():\n    class Odd:\n        def __eq__(self, other):\n            raise TypeError\n"
        "    try:\n        assert Odd() == 1\n    except TypeError:\n        pass\n",
        "def test_a():\n    'text'\n    global x\n    x = 1\n    assert (y := x) == 1\n    assert 0 < x < 2 and y\n",
        "def test_a():\n    def inner():\n        assert 1 == 1\n    inner()\n    assert [1] == [1] == [1]\n",
        f"{CASE}self.assertEqual(1, 1)\n        self.assertEqual(*[1, 1])\n        self.assertIn(1, [1])\n",
        f"{CASE}with self.assertRaises(ValueError):\n            int('x')\n        self.assertIsNone(None)\n",
    ],
)  # fmt: skip
def test_an_honest_test_runs_and_then_fails(test: str) -> None:
    assert outcome(test) == "failed"


def test_a_body_that_is_repeated_or_yields_fails_at_once() -> None:
    text = "@given(st.integers())\ndef test_a(n):\n    assert n == n\n\ndef test_b():\n    yield 1\n"
    failing = with_failing_bodies("test_a.py", text, token="c1")
    assert "try" not in failing.partition("def _equals_c1")[0] and failing.count("assert 6 == 1001") == 2


@pytest.mark.parametrize(
    ("rows", "changed"),
    [
        ("'a, b', [(1, 2), [3, 4]]", "[(1, 1011), [3, 1013]]"),
        ("('a', 'b'), [pytest.param(1, 2, id='x')]", "[pytest.param(1, 1011, id='x')]"),
        ("'b', [2, pytest.param((), id='x')]", "[1011, pytest.param((1009,), id='x')]"),
        ("'a, b', [(1, 2), (1, two)]", "[(1, 2), (1, two)]"),
        ("'a, b', [(1, 2), rows]", "[(1, 2), rows]"),
        ("'a, b', ROWS", "ROWS"),
        ("'a, c', [(1, 2)]", "[(1, 2)]"),
        ("NAMES, [(1, 2)]", "[(1, 2)]"),
    ],
)
def test_the_values_that_parameters_expect_are_replaced(rows: str, changed: str) -> None:
    text = f"@pytest.mark.parametrize({rows})\ndef test_a(a, b, c):\n    assert f(a, c) == b\n    assert c\n"
    failing = with_failing_bodies("test_a.py", text, token="c1")
    assert failing.splitlines()[0].endswith(f"{changed})")


@pytest.mark.parametrize(
    "body",
    [
        "assert f(b) == b",
        "f(b)\n    assert a.b == b",
        "b = b or 3\n    assert f() == b",
        "for b in [2]: assert f() == b",
    ],
)
def test_a_value_that_a_test_also_uses_or_binds_elsewhere_is_kept(body: str) -> None:
    text = f"@pytest.mark.parametrize('b', [2])\ndef test_a(b):\n    {body}\n"
    assert "[2])" in with_failing_bodies("test_a.py", text, token="c1")
