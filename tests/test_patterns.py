"""Patterns that Python 3.11.0 to 3.11.4 match wrongly must not appear in the source (CPython gh-101955, gh-106052).

These releases lose track of backtracking inside a repeated possessive group and inside an atomic group. A possessive
repetition of a single character is matched correctly everywhere.
"""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "ratchet"

# Walks every pattern that importing the whole package compiles: patterns are often put together from parts.
FIND_UNSAFE = """
import importlib, json, pkgutil, re, sys
from re import _compiler, _constants as c, _parser

unsafe = []
compile_code = _compiler._code


def is_unsafe(parsed):
    for operation, argument in parsed:
        if operation is c.ATOMIC_GROUP:
            return True
        if operation is c.POSSESSIVE_REPEAT and not _compiler._simple(argument[2]):
            return True
        for part in _parts(argument):
            if is_unsafe(part):
                return True
    return False


def _parts(argument):
    if isinstance(argument, _parser.SubPattern):
        yield argument
    elif isinstance(argument, (tuple, list)):
        for each in argument:
            yield from _parts(each)


def checked(parsed, flags):
    if is_unsafe(parsed):
        unsafe.append(parsed.state.str)
    return compile_code(parsed, flags)


_compiler._code = checked
patterns = json.load(sys.stdin)
for text in patterns:
    re.compile(text)
if not patterns:
    import ratchet
    for module in pkgutil.walk_packages(ratchet.__path__, "ratchet."):
        if "__main__" not in module.name and "._ratchet" not in module.name:
            importlib.import_module(module.name)
print(*unsafe, sep="\\n")
"""


def find_unsafe(*patterns: str) -> list[str]:
    command = [sys.executable, "-c", FIND_UNSAFE]
    done = subprocess.run(command, input=json.dumps(patterns), capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.split("\n")[:-1] if done.stdout.strip() else []


def test_no_pattern_repeats_a_group_possessively_or_uses_an_atomic_group() -> None:
    assert find_unsafe() == []


@pytest.mark.parametrize("pattern", ["(?:ab|c)*+d", "x(?:ab?)++", "(?>a|b)c", "(y(?:z+w)?+)"])
def test_the_search_finds_each_unsafe_construct(pattern: str) -> None:
    assert find_unsafe(pattern) == [pattern]


@pytest.mark.parametrize("pattern", ["a*+b", "[^x]++", r"\\d?+", "(?:a*+b)*"])
def test_the_search_accepts_possessive_single_characters(pattern: str) -> None:
    assert find_unsafe(pattern) == []


def test_patterns_inside_functions_are_safe_too() -> None:
    texts = sorted(set(_patterns_in_calls()))
    assert len(texts) > 20
    assert find_unsafe(*texts) == []


def _patterns_in_calls() -> list[str]:
    found: list[str] = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            if isinstance(node.func.value, ast.Name) and node.func.value.id == "re":
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    found.append(first.value)
    return found
