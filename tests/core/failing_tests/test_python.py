"""Failing bodies in Python: the same tests, which must fail."""

from __future__ import annotations

import ast

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
