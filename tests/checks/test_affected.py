"""A change runs every test that can see it: who imports whom is followed in all the ways there are to import."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.checks.detect.targets import detect
from ratchet.checks.select.affected import affected

TEST = "def test_it():\n    pass\n"
PACKAGE = (
    '{"name": "shop", "main": "lib/main.js", "scripts": {"test": "mocha"}, '
    '"devDependencies": {"mocha": "1", "chai": "1"}}'
)


def reached(folder: Path, files: dict[str, str], changed: str) -> list[str] | None:
    """The test files that the change reaches: empty for all of them, nothing for none."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    found = affected(folder, detect(folder), [changed])
    return next(([test.file for test in tests] for tests in found.values()), None)


@pytest.mark.parametrize(
    ("files", "imported"),
    [
        ({"shop/cart.py": "", "shop/__init__.py": ""}, "from shop import cart as c"),
        ({"shop/cart.py": "", "shop/__init__.py": ""}, "from shop import (\n    cart,  # the cart\n)"),
        ({"shop/cart.py": "", "shop/__init__.py": ""}, "import os, shop.cart as c"),
        ({"python/shop/cart.py": "", "python/shop/__init__.py": ""}, "from shop.cart import total"),
        ({"lib/cart.py": ""}, "import cart"),
    ],
)
def test_a_python_module_is_found_however_it_is_imported(files: dict[str, str], imported: str, tmp_path: Path) -> None:
    changed = next(name for name in files if name.endswith("cart.py"))
    tests = {"pytest.ini": "", "tests/test_cart.py": f"{imported}\n\n\n{TEST}", "tests/test_other.py": TEST}
    assert reached(tmp_path, files | tests, changed) == ["tests/test_cart.py"]


@pytest.mark.parametrize("through", ["from app import make", 'pytest_plugins = ["fixtures"]'])
def test_what_a_conftest_imports_reaches_every_test_below_it(through: str, tmp_path: Path) -> None:
    files = {"app.py": "", "fixtures.py": "import app\n", "pytest.ini": "", "tests/conftest.py": f"{through}\n"}
    tests = {"tests/test_a.py": TEST, "tests/deep/test_b.py": TEST, "other/test_c.py": TEST}
    assert reached(tmp_path, files | tests, "app.py") == ["tests/deep/test_b.py", "tests/test_a.py"]


@pytest.mark.parametrize("option", ["python_files = check_*.py", "addopts = --doctest-modules"])
def test_where_any_file_may_be_a_test_all_are_run(option: str, tmp_path: Path) -> None:
    files = {"pytest.ini": f"[pytest]\n{option}\n", "shop.py": "", "check_shop.py": TEST}
    assert reached(tmp_path, files, "shop.py") == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pytest.ini", "[pytest]\ntestpaths =\n    pack*/checks\n    more\nnorecursedirs = bench .git\n"),
        ("tox.ini", "[pytest]\ntestpaths = packages/checks more\nnorecursedirs = b*h\n"),
        ("pyproject.toml", '[tool.pytest.ini_options]\ntestpaths = ["packages", "more"]\nnorecursedirs = ["bench"]\n'),
    ],
)
def test_files_that_the_pytest_configuration_excludes_are_not_run(file: str, text: str, tmp_path: Path) -> None:
    files = {file: text, "conftest.py": "", "shop.py": ""}
    places = ("packages/checks/test_a.py", "more/test_b.py", "more/bench/test_c.py", "other/test_d.py")
    tests = dict.fromkeys(places, f"import shop\n\n\n{TEST}")
    assert reached(tmp_path, files | tests, "shop.py") == ["more/test_b.py", "packages/checks/test_a.py"]


def test_a_file_named_in_the_pytest_configuration_is_a_test_file(tmp_path: Path) -> None:
    files = {"pytest.ini": "[pytest]\ntestpaths = ./test.py\n", "shop.py": "", "test.py": f"import shop\n\n\n{TEST}"}
    assert reached(tmp_path, files, "shop.py") == ["test.py"]


@pytest.mark.parametrize(
    "imported",
    [
        "require('..')",
        "require('../')",
        "require('../lib')",
        "require('../lib/main')",
        "import x from '../lib/main.js'",
        "require('shop')",
        "import x from 'shop/lib/cart'",
        "import x from '@/cart'",
        "jest.mock('../lib/cart')",
        "await import(`../lib/${name}.js`)",
        "require(path.join(root, 'lib/cart'))",
        "require('../dist/shop.js')",
    ],
)
def test_a_script_is_reached_however_it_is_imported(imported: str, tmp_path: Path) -> None:
    files = {"package.json": PACKAGE, "lib/main.js": "module.exports = require('./cart')\n", "lib/cart.js": ""}
    tests = {"test/cart.js": f"{imported}\n", "test/other.js": "const chai = require('chai')\nrequire('fs')\n"}
    index = {"lib/index.js": "export * from './main.js'\n"}
    assert reached(tmp_path, files | index | tests, "lib/cart.js") == ["test/cart.js"]


@pytest.mark.parametrize("script", ["mocha --require test/support/env", "mocha -r ./test/support/env.js test"])
def test_what_is_loaded_before_every_test_reaches_all_of_them(script: str, tmp_path: Path) -> None:
    package = f'{{"name": "shop", "scripts": {{"test": "{script}"}}, "devDependencies": {{"mocha": "1"}}}}'
    files = {
        "package.json": package,
        "lib/a.js": "",
        "test/support/env.js": "require('../../lib/a')\n",
        "test/a.js": "",
    }
    assert reached(tmp_path, files, "lib/a.js") == []


def test_what_the_script_does_not_name_is_not_run_though_it_lies_beside_the_tests(tmp_path: Path) -> None:
    package = PACKAGE.replace('"mocha"}', '"mocha ./test/*.test.js"}')
    uses = "require('../lib/cart')\n"
    files = {"package.json": package, "lib/cart.js": "", "test/cart.test.js": uses, "test/server.js": uses}
    assert reached(tmp_path, files, "lib/cart.js") == ["test/cart.test.js"]


def test_a_change_that_no_test_imports_reaches_none(tmp_path: Path) -> None:
    files = {"package.json": PACKAGE, "lib/main.js": "", "lib/cart.js": "", "test/main.js": "require('../lib/main')\n"}
    assert reached(tmp_path, files, "lib/cart.js") is None


def of_package(name: str, runner: str) -> str:
    return f'{{"name": "{name}", "scripts": {{"test": "{runner}"}}, "devDependencies": {{"jest": "1", "mocha": "1"}}}}'


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("packages/base/lib/deep.js", {"mocha@packages/base": ["test/all.js"], "jest@packages/user": ["mid.test.js"]}),
        ("packages/base/data.json", {"mocha@packages/base": [], "jest@packages/user": ["mid.test.js"]}),
        ("packages/base/test/all.js", {"mocha@packages/base": ["test/all.js"]}),
        ("packages/user/own.js", {"jest@packages/user": ["own.test.js"]}),
        ("package-lock.json", {"mocha@packages/base": [], "jest@packages/user": [], "jest@packages/lone": []}),
        ("README.md", {}),
    ],
)
def test_a_package_reaches_the_tests_of_those_that_import_it(
    changed: str, expected: dict[str, list[str]], tmp_path: Path
) -> None:
    files = {
        "package.json": '{"name": "all", "scripts": {"test": "npm test -ws"}}', "package-lock.json": "",
        "README.md": "",
        "packages/base/package.json": of_package("@shop/base", "mocha"), "packages/base/data.json": "",
        "packages/base/lib/deep.js": "", "packages/base/test/all.js": "require('@shop/base')\n",
        "packages/middle/package.json": '{"name": "@shop/middle"}',
        "packages/middle/index.js": "export * from '@shop/base/lib/x.js'\n",
        "packages/user/package.json": of_package("@shop/user", "jest"), "packages/user/own.js": "",
        "packages/user/mid.test.js": "import '@shop/middle'\n", "packages/user/own.test.js": "import './own'\n",
        "packages/lone/package.json": of_package("@shop/lone", "jest"), "packages/lone/a.test.js": "",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = affected(tmp_path, detect(tmp_path), [changed])
    assert {name: [test.file for test in tests] for name, tests in found.items()} == expected
