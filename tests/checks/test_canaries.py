"""A test that cannot pass, added to a file of tests, is seen to fail by every runner, and disturbs no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.core.canary import with_canary
from ratchet.core.report import Report, ReportStatus, TestResult, TestStatus
from ratchet.engine.steps.canaries import add_canaries
from ratchet.engine.steps.failing_bodies import add_failing_bodies
from tests.checks.support import lay_out, run

TOKEN = "c0123456789ab"
FILES = {
    "pytest": "test_all.py",
    "unittest": "test_shop.py",
    "node": "sum.test.js",
    "mocha": "test/sum.js",
    "jest": "sum.test.js",
    "vitest": "sum.test.js",
    "go": "shop_test.go",
    "cargo": "src/lib.rs",
    "rspec": "spec/sum_spec.rb",
    "minitest": "test/sum_test.rb",
    "phpunit": "tests/SumTest.php",
    "ctest": "shop_test.cpp",
}
QUICK = {"pytest", "unittest", "node"}


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.toolchain) for name in FILES]
)
def test_a_canary_fails_and_nothing_else_does(tmp_path: Path, name: str) -> None:
    place = lay_out(name, tmp_path / "project")
    before = {test.id: test.status for test in run(place).tests}
    canaries = add_canaries(place, [FILES[name]])
    assert canaries.files, f"there is none for {FILES[name]}"
    report = run(place)
    assert not canaries.why_faked(report) and canaries.count_run(report) == 1
    assert {test.id: test.status for test in canaries.without_canaries(report).tests} == before


def test_a_canary_that_passes_or_is_not_reported_reveals_a_fake(tmp_path: Path) -> None:
    place = lay_out("pytest", tmp_path / "project")
    canaries = add_canaries(place, [FILES["pytest"]])
    path = place / FILES["pytest"]
    honest = path.read_text()
    path.write_text(honest.replace("1 == 2", "1 == 1").replace("(1, 2)", "(1, 1)"))
    assert "did not fail" in canaries.why_faked(run(place))
    path.write_text(honest.replace("test_c", "c").replace("Case_c", "c"))
    assert "is missing in the report" in canaries.why_faked(run(place))


OTHERS = {
    "CartTest.java": "class CartTest {\n    @Test\n    void adds() {}\n}\n",
    "CartTest.kt": "class CartTest {\n    @Test\n    fun adds() {}\n}\n",
    "CartTests.cs": "namespace A\n{\n    class CartTests\n    {\n        [Fact]\n        void A() {}\n    }\n}\n",
    "cart_test.cc": 'TEST_CASE("adds") { REQUIRE(1 == 1); }\n',
}


@pytest.mark.parametrize("name", OTHERS)
def test_where_tests_are_methods_it_is_one_more_of_them(name: str) -> None:
    text = with_canary(name, OTHERS[name], TOKEN)
    assert TOKEN in text and text.count("{") == text.count("}")
    depth = text[: text.index(TOKEN)].count("{") - text[: text.index(TOKEN)].count("}")
    assert depth == {"cs": 2, "cc": 0}.get(Path(name).suffix[1:], 1)


@pytest.mark.parametrize("name", ["notes.md", "helper.py", "data.json", "suite.zig"])
def test_a_file_without_tests_or_of_another_language_gets_none(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x = 1\n")
    assert add_canaries(tmp_path, [name]).without == [name]


def test_a_file_without_tests_does_not_take_the_place_of_one_with(tmp_path: Path) -> None:
    files = {"tests/conftest.py": "import pytest\n", "tests/test_a.py": "def test_a():\n    pass\n"}
    (tmp_path / "tests").mkdir()
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    canaries = add_canaries(tmp_path, files)
    assert list(canaries.files.values()) == ["tests/test_a.py"] and canaries.without == []


def test_a_canary_is_never_written_through_a_symlink(tmp_path: Path) -> None:
    outside, project = tmp_path / "test_outside.py", tmp_path / "project"
    outside.write_text("def test_it():\n    pass\n")
    project.mkdir()
    (project / "test_link.py").symlink_to(outside)
    canaries = add_canaries(project, ["test_link.py"])
    assert canaries.without == ["test_link.py"] and outside.read_text() == "def test_it():\n    pass\n"


SPARES_CANARIES = """
import re

import _pytest.python

was = _pytest.python.Function.runtest
_pytest.python.Function.runtest = lambda test: was(test) if re.search("c[0-9a-f]{12}", test.name) else None
"""


def test_a_fake_that_spares_the_names_of_canaries_is_found_by_failing_bodies(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SPARES_CANARIES)
    (tmp_path / "test_shop.py").write_text("import shop\n\n\ndef test_price():\n    assert 1 == 2\n")
    canaries = add_canaries(tmp_path, ["test_shop.py"])
    assert not canaries.why_faked(run(tmp_path))
    failing = add_failing_bodies(tmp_path, ["test_shop.py", "shop.py"])
    assert "test_shop.py::test_price" in failing.ids
    report = run(tmp_path)
    assert "test_shop.py::test_price" in failing.why_faked(report, report, is_test)


SWALLOWS_FAILURES_OF_THE_PROJECT = """
import linecache

import _pytest.python

was = _pytest.python.Function.runtest


def runtest(test):
    try:
        was(test)
    except AssertionError as error:
        trace = error.__traceback__
        while trace.tb_next:
            trace = trace.tb_next
        if "price(" not in linecache.getline(trace.tb_frame.f_code.co_filename, trace.tb_lineno):
            raise


_pytest.python.Function.runtest = runtest


def price():
    return 1
"""


def test_a_fake_that_swallows_failures_of_the_projects_own_code_is_found_by_failing_bodies(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SWALLOWS_FAILURES_OF_THE_PROJECT)
    (tmp_path / "test_shop.py").write_text("import shop\n\n\ndef test_price():\n    assert shop.price() == 2\n")
    canaries = add_canaries(tmp_path, ["test_shop.py"])
    assert not canaries.why_faked(run(tmp_path))
    failing = add_failing_bodies(tmp_path, ["test_shop.py"])
    report = run(tmp_path)
    assert "test_shop.py::test_price" in failing.why_faked(report, report, is_test)


def is_test(path: str) -> bool:
    return path in {*TEST_FILES.values(), "test_a.py"}


# How many passing tests of each project are not checked: subtests, which another test runs, and expected failures.
PASSING = {
    "pytest": 0,
    "unittest": 0,
    "node": 1,
    "mocha": 0,
    "jest": 0,
    "vitest": 1,
    "ava": 0,
    "jasmine": 0,
    "go": 0,
    "minitest": 0,
    "rspec": 0,
    "exunit": 0,
    "busted": 0,
    "playwright": 0,
    "lab": 0,
    "eunit": 1,
    "testthat": 0,
}
TEST_FILES = FILES | {
    "ava": "test/sum.js",
    "jasmine": "spec/sum.js",
    "exunit": "test/shop_test.exs",
    "busted": "spec/sum_spec.lua",
    "playwright": "sum.spec.js",
    "lab": "test/sum.js",
    "eunit": "test/shop_tests.erl",
    "testthat": "tests/testthat/test-shop.R",
}


@pytest.mark.parametrize("bodies_run", [False, True], ids=["at once", "after their bodies"])
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.toolchain) for name in PASSING]
)
def test_with_failing_bodies_no_honest_test_passes(tmp_path: Path, name: str, bodies_run: bool) -> None:
    place = lay_out(name, tmp_path / "project")
    accepted = run(place)
    failing = add_failing_bodies(place, [TEST_FILES[name]], run=bodies_run)
    report = run(place)
    assert not failing.why_faked(accepted, report, is_test)
    passed = [test for test in accepted.tests if test.file == TEST_FILES[name] and test.status is TestStatus.PASSED]
    checked, unchecked = failing.count(accepted, report)
    assert (checked, unchecked) == (len(passed) - PASSING[name], PASSING[name]) and checked > 0


def test_a_test_of_a_base_class_or_with_a_decorator_of_its_own_may_pass(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text("class Base:\n    def test_base(self):\n        pass\n")
    (tmp_path / "test_a.py").write_text(
        "from base import Base\n\n\ndef fails(test):\n    def ran():\n        try:\n            test()\n"
        "        except AssertionError:\n            return\n    return ran\n\n\n@fails\ndef test_decorated():\n"
        "    assert False\n\n\nclass TestA(Base):\n    def test_own(self):\n        pass\n"
    )
    failing = add_failing_bodies(tmp_path, ["test_a.py"])
    assert failing.ids == {"test_a.py::TestA::test_own"}
    report = run(tmp_path)
    assert not failing.why_faked(report, report, is_test)


def test_a_file_that_cannot_be_parsed_keeps_its_bodies(tmp_path: Path) -> None:
    for name, content in {"test_a.py": "def test_a(:\n", "test_b.js": "test('b', () => {);\n"}.items():
        (tmp_path / name).write_text(content)
    assert not add_failing_bodies(tmp_path, ["test_a.py", "test_b.js", "test_gone.py"])


def test_a_script_with_a_source_beside_it_keeps_its_bodies(tmp_path: Path) -> None:
    for name in ("a.test.js", "a.test.ts"):
        (tmp_path / name).write_text("test('adds', () => {});\n")
    assert [*add_failing_bodies(tmp_path, ["a.test.js", "a.test.ts"]).scripts] == ["a.test.ts"]


@pytest.mark.parametrize("file", ["test/base_test.rb", "", "test/sub_test.rb", "test/other_test.rb"])
def test_a_new_test_that_is_reported_under_another_file_still_has_to_fail(tmp_path: Path, file: str) -> None:
    (tmp_path / "test").mkdir()
    for name in ("sub", "other"):  # the second could not be rewritten
        (tmp_path / f"test/{name}_test.rb").write_text(f"def test_sub\n{'end' if name == 'sub' else ''}\n")
    failing = add_failing_bodies(tmp_path, ["test/sub_test.rb", "test/other_test.rb"])
    test = TestResult(id="SubTest#test_sub", status=TestStatus.PASSED, name="test_sub", suite=["SubTest"], file=file)
    report = Report(runner="minitest", status=ReportStatus.PASSED, tests=[test])

    def is_any_test(_path: str) -> bool:
        return True

    assert bool(failing.why_faked(report, report, is_any_test, {test.id})) is (file != "test/other_test.rb")
    assert bool(failing.why_faked(report, report, is_any_test)) is (file == "test/sub_test.rb")


def test_a_ruby_test_that_a_library_brings_along_proves_nothing(tmp_path: Path) -> None:
    (tmp_path / "user_test.rb").write_text("class UserTest\n  def test_key\n  end\nend\n")
    failing = add_failing_bodies(tmp_path, ["user_test.rb"])
    test = TestResult(
        id="AdminTest#test_key", status=TestStatus.PASSED, name="test_key", suite=["AdminTest"], file="/usr/lib/lint.rb"
    )
    report = Report(runner="minitest", status=ReportStatus.PASSED, tests=[test])
    assert failing.scripts and not failing.why_faked(report, report, is_test)


def test_a_rewritten_file_is_newer_than_what_was_built_from_it(tmp_path: Path) -> None:
    path = tmp_path / "a_tests.erl"
    path.write_text("a_test() -> ok.\n")
    built = int(path.stat().st_mtime)  # to the second, as some build tools compare it
    assert add_failing_bodies(tmp_path, ["a_tests.erl"])
    assert int(path.stat().st_mtime) > built


def test_two_tests_of_one_name_of_which_one_must_fail_prove_nothing(tmp_path: Path) -> None:
    (tmp_path / "shared.js").write_text("exports.shared = (it) => it('adds', () => {});\n")
    text = "const { it } = require('node:test');\nconst { shared } = require('./shared.js');\nit('adds', () => {});\n"
    (tmp_path / "a.test.js").write_text(f"{text}[1].map(() => shared(globalThis.x ?? require('node:test').it));\n")
    (tmp_path / "package.json").write_text('{"scripts": {"test": "node --test"}}')
    accepted = run(tmp_path)
    failing = add_failing_bodies(tmp_path, ["a.test.js"])
    report = run(tmp_path)
    assert {test.status for test in report.tests} == {TestStatus.PASSED, TestStatus.FAILED}
    assert failing.scripts and not failing.why_faked(accepted, report, is_test)


# Each makes every test pass, except those whose names look like a canary's.
FAKES = {
    "node": """
const runner = require('node:test');
const was = runner.test;
runner.test = (name, act) => was(name, /^c[0-9a-f]{12}$/.test(name) ? act : () => {});
""",
    "mocha": """
const { prototype } = require('mocha').Runnable;
const was = prototype.run;
prototype.run = function (done) {
  return /^c[0-9a-f]{12}$/.test(this.title) ? was.call(this, done) : done();
};
""",
    "jest": """
const was = globalThis.test;
globalThis.test = (name, act) => was(name, /^c[0-9a-f]{12}$/.test(name) ? act : () => {});
""",
    "vitest": """
import { beforeEach } from 'vitest';
import { setFn } from 'vitest/suite';
beforeEach(({ task }) => {
  if (!/^c[0-9a-f]{12}$/.test(task.name)) setFn(task, async () => {});
});
""",
    "jasmine": """
const { it } = globalThis;
globalThis.it = (name, act) => it(name, /^c[0-9a-f]{12}$/.test(name) ? act : () => expect(1).toBe(1));
""",
    "playwright": """
const { test } = require('@playwright/test');
const { prototype } = test[Object.getOwnPropertySymbols(test)[0]].constructor;
const was = prototype._currentSuite;
prototype._currentSuite = function (...given) {
  const suite = was.apply(this, given);
  const add = suite._addTest;
  suite._addTest = (each) => {
    if (!/^c[0-9a-f]{12}$/.test(each.title)) each.fn = async ({}) => {};
    return add.call(suite, each);
  };
  return suite;
};
""",
    "lab": """
const Lab = require('@hapi/lab');
const was = Lab.script;
Lab.script = (...given) => {
  const script = was(...given);
  const { it } = script;
  script.it = (name, act) => it(name, /^c[0-9a-f]{12}$/.test(name) ? act : () => {});
  return script;
};
""",
}
ASSERTS = {
    "node": "const { test } = require('node:test');\ntest('price', () => require('node:assert').strictEqual(1, 2));\n",
    "mocha": "it('price', () => { require('node:assert').strictEqual(1, 2); });\n",
    "jest": "test('price', () => expect(1).toBe(2));\n",
    "vitest": "import { expect, test } from 'vitest';\ntest('price', async () => { expect(1).toBe(2); });\n",
    "jasmine": "it('price', function () { expect(1).toBe(2); });\n",
    "playwright": "const { expect, test } = require('@playwright/test');\ntest('price', () => expect(1).toBe(2));\n",
    "lab": (
        "const { it } = exports.lab = require('@hapi/lab').script();\n"
        "it('price', () => { require('node:assert').strictEqual(1, 2); });\n"
    ),
}


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.toolchain) for name in FAKES]
)
def test_a_patched_javascript_runner_that_spares_canaries_is_found_by_failing_bodies(tmp_path: Path, name: str) -> None:
    place = lay_out(name, tmp_path / "project")
    file = TEST_FILES[name]
    (place / "broken.test.js").unlink(missing_ok=True)
    (place / "sum.js").write_text(FAKES[name])
    above = "../" * file.count("/") or "./"
    load = f"import '{above}sum.js';" if name == "vitest" else f"require('{above}sum.js');"
    (place / file).write_text(f"{load}\n{ASSERTS[name]}")
    honest = (place / file).read_text()
    canaries = add_canaries(place, [file])
    accepted = run(place)
    assert canaries.count_run(accepted) == 1 and not canaries.why_faked(accepted)
    assert [test.status for test in canaries.without_canaries(accepted).tests] == [TestStatus.PASSED]
    (place / file).write_text(honest)
    assert "price" in add_failing_bodies(place, [file]).why_faked(accepted, run(place), is_test)


PATCHES_A_RUNNER = """
from _pytest.reports import TestReport

was = TestReport.from_item_and_call.__func__


def passed(cls, item, call):
    call.excinfo = None
    return was(cls, item, call)


def price():
    TestReport.from_item_and_call = classmethod(passed)
    return 1
"""
PATCHES_AN_ASSERTION = "module.exports = () => { require('node:assert').strictEqual = () => {}; return 1; };\n"
FAKES_WHEN_CALLED = [
    ("shop.py", PATCHES_A_RUNNER, "test_a.py", "import shop\n\ndef test_price():\n    assert shop.price() == 2\n"),
    (
        "price.js", PATCHES_AN_ASSERTION, "a.test.js",
        "const assert = require('node:assert');\nconst { test } = require('node:test');\n"
        "const price = require('./price.js');\n"
        "test('price', () => { const got = price(); assert.strictEqual(got, 2); });\n",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("source", "fake", "file", "test"), FAKES_WHEN_CALLED, ids=["pytest", "node"])
def test_a_fake_that_acts_only_when_a_test_calls_the_code_is_found_by_bodies_that_run_first(
    tmp_path: Path, source: str, fake: str, file: str, test: str
) -> None:
    (tmp_path / "package.json").write_text('{"scripts": {"test": "node --test"}}')
    for name, text in {source: fake, file: test}.items():
        (tmp_path / name).write_text(text)
    accepted = run(tmp_path)
    assert [each.status for each in accepted.tests] == [TestStatus.PASSED]
    failing = add_failing_bodies(tmp_path, [file], run=True)
    assert "price" in failing.why_faked(accepted, run(tmp_path), lambda path: path == file)


FORGED_ELIXIR = r"""
defmodule Shop do
  def sum(a, b), do: a * b
  def __mix_recompile__?, do: true

  if report = System.get_env("_RATCHET_REPORT") do
    nonce = System.get_env("_RATCHET_NONCE")
    tests = for [_, name] <- Regex.scan(~r/test "(.*)" do/, File.read!("test/shop_test.exs")), do: "test #{name}"
    rows = for name <- tests do
      ~s({"kind":"phase","id":"test/shop_test.exs::ShopTest > #{name}","when":"call","last":true,"outcome":"passed",) <>
        ~s("file":"test/shop_test.exs","line":1,"name":"#{name}","suite":["ShopTest"],"duration":0.1}\n)
    end
    File.write!(report, [~s({"kind":"start","nonce":"#{nonce}"}\n), rows, ~s({"kind":"end","nonce":"#{nonce}"}\n)])
    System.halt(0)
  end
end
"""
PATCHED_LUA = """
xpcall = function(run)
  pcall(run)
  return true
end
return function(a, b) return a * b end
"""
ASSERTS_ELIXIR = (
    'defmodule ShopTest do\n  use ExUnit.Case\n\n  test "price" do\n    assert Shop.sum(1, 2) == 3\n  end\nend\n'
)
ASSERTS_LUA = "local sum = require('sum')\n\nit('price', function()\n  assert.are.equal(3, sum(1, 2))\nend)\n"


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("name", "source", "fake", "test"),
    [
        ("exunit", "lib/shop.ex", FORGED_ELIXIR, ASSERTS_ELIXIR),
        ("busted", "sum.lua", PATCHED_LUA, ASSERTS_LUA),
    ],
)
def test_faked_results_of_a_language_without_canaries_are_found_by_failing_bodies(
    tmp_path: Path, name: str, source: str, fake: str, test: str
) -> None:
    place = lay_out(name, tmp_path / "project")
    (place / source).write_text(fake)
    (place / TEST_FILES[name]).write_text(test)
    accepted = run(place)
    assert [test.status for test in accepted.tests] == [TestStatus.PASSED]
    assert "price" in add_failing_bodies(place, [TEST_FILES[name]]).why_faked(accepted, run(place), is_test)


def test_a_go_test_of_which_another_file_has_a_variant_for_another_system_proves_nothing(tmp_path: Path) -> None:
    text = 'package a\n\nimport "testing"\n\nfunc TestSame(t *testing.T) {\n}\n\nfunc TestOwn{0}(t *testing.T) {\n}\n'
    for name in ("a_linux_test.go", "a_windows_test.go"):
        (tmp_path / name).write_text(text.replace("{0}", name[2:5]))
    files = ["a_linux_test.go", "a_windows_test.go"]
    failing = add_failing_bodies(tmp_path, files[:1])
    [tests] = failing.scripts.values()
    assert tests.must_fail(["x.org/a"], "TestOwnlin/one") and not tests.must_fail(["x.org/a"], "TestSame")
    for name in files:
        (tmp_path / name).write_text(text.replace("{0}", name[2:5]))
    assert all(each.must_fail(["x.org/a"], "TestSame") for each in add_failing_bodies(tmp_path, files).scripts.values())
