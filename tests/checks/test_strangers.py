"""What other people's projects do that ours did not: each of these was found on one of them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ratchet.checks.detect import detect
from ratchet.checks.records import Reader
from ratchet.checks.runners import unskipped
from ratchet.checks.runners.javascript import unloaded
from ratchet.checks.scripts import commands, options_only, plain, start_of
from ratchet.core.report import ReportStatus, TestResult, TestStatus
from ratchet.surfaces.results import again
from tests.checks.support import NPM, chosen, needs, red, run, statuses
from tests.checks.test_detect import found, lay, package


def plainly(program: str, **scripts: str) -> list[str]:
    """The command of the runner that a package's scripts lead to."""
    for words in commands({"scripts": scripts}):
        if (at := start_of(words, [program])) is not None:
            return plain(words, at)
    return []


@pytest.mark.parametrize(
    ("script", "program", "command"),
    [
        ("xo && c8 ava && tsd", "ava", ["ava"]),
        ("pnpm lint && vitest run --typecheck", "vitest", ["vitest", "run", "--typecheck"]),
        ("cross-env NODE_ENV=test jest --coverage --ci", "jest", ["env", "NODE_ENV=test", "jest", "--ci"]),
        ("node --experimental-vm-modules node_modules/jest/bin/jest.js", "jest",
         ["node", "--experimental-vm-modules", "node_modules/jest/bin/jest.js"]),
        ("eslint --env mocha . ; mocha -t 5s | tee log", "mocha", ["mocha", "-t", "5s"]),
        ("mocha test/**/*.js 'lib/**/*.js' 2>&1", "mocha", ["mocha", "test/*/*.js", "lib/**/*.js"]),
        ("eslint --plugin jest .", "jest", []),
    ],
)  # fmt: skip
def test_a_script_is_read_as_a_shell_would(script: str, program: str, command: list[str]) -> None:
    assert plainly(program, test=script) == command


def test_scripts_run_others_by_pattern_with_arguments_and_without_going_round() -> None:
    assert plainly("mocha", test="run-s lint test:*", lint="xo", **{"test:unit": "mocha a"}) == ["mocha", "a"]
    assert plainly("jest", test="npm run unit -- --ci", unit="jest") == ["jest", "--ci"]
    assert plainly("tap", test="npm-run-posix-or-windows only", only="nyc tap 'test/*.js'") == ["tap", "test/*.js"]
    assert commands({"scripts": {"test": "yarn test"}}) == []
    assert commands({"scripts": {"test": "npm test --workspace=a"}}) == [["npm", "test", "--workspace=a"]]


@pytest.mark.parametrize(
    ("script", "command"),
    [
        ("mocha --exit a && mocha --exit b c", ["mocha", "--exit", "a", "b", "c"]),
        ("node --test --test-reporter=spec a.js && node --test --test-reporter=spec b.js",
         ["node", "--test", "--test-reporter=spec", "a.js", "b.js"]),
        ("cross-env TZ=UTC jest test/a && jest --ci", ["jest", "--ci"]),
        ("mocha -r a b && mocha -r c d", ["mocha", "-r", "a", "b"]),
        ("vitest run a && vitest run b", ["vitest", "run", "a", "b"]),
    ],
)  # fmt: skip
def test_all_that_a_script_starts_of_a_runner_is_run(script: str, command: list[str], tmp_path: Path) -> None:
    lay(tmp_path, {"package.json": package(scripts={"test": script})})
    assert detect(tmp_path)[0].command == command


BUILT = {"test/a.js": "import a from '../dist/a.js';\n"}


@pytest.mark.parametrize(
    ("scripts", "files", "builds"),
    [
        ({"test": "tsc && mocha dist/test"}, {}, [["tsc"]]),
        ({"test": "npm run lint && npm run build && mocha", "lint": "eslint .", "build": "rm -r dist && tsc -b"}, BUILT,
         [["npm", "run", "--silent", "build"]]),
        ({"pretest": "npm run compile -- -p a.json", "compile": "tsc", "test": "c8 mocha"}, BUILT,
         [["npm", "run", "--silent", "compile", "--", "-p", "a.json"]]),
        ({"test": "yarn test:unit", "test:unit": "yarn build && mocha", "build": "rollup -c"}, BUILT,
         [["npm", "run", "--silent", "build"]]),
        ({"test": "tsc && mocha"}, {"test/a.js": "import a from '../src/a.js';\n"}, []),
        ({"test": "tsc --noEmit && mocha"}, BUILT, []),
        ({"test": "tsc && mocha"}, {**BUILT, "tsconfig.json": '{"compilerOptions": {"noEmit": true}}'}, []),
        ({"test": "mocha && tsc"}, BUILT, []),
        ({"test": "eslint . && mocha"}, BUILT, []),
    ],
)  # fmt: skip
def test_what_the_tests_use_is_built_first_as_the_script_does(
    scripts: dict[str, str], files: dict[str, str], builds: list[list[str]], tmp_path: Path
) -> None:
    lay(tmp_path, {"package.json": package(scripts=scripts), **files})
    assert [target.builds for target in detect(tmp_path)] == [builds]


@pytest.mark.parametrize(
    ("compiler", "status", "errors"),
    [
        ("mkdir -p dist && cp src/a.js dist/", ReportStatus.FAILED, []),
        ("echo \"src/a.ts(3,5): error TS1005: ';' expected.\"; exit 2", ReportStatus.FAILED, [("src/a.ts", 3, 5)]),
        ("echo out of memory; exit 134", ReportStatus.ERROR, []),
    ],
)
def test_tests_run_on_what_was_built_now_or_not_at_all(
    compiler: str, status: ReportStatus, errors: list[tuple[str, int, int]], tmp_path: Path
) -> None:
    needs("node")
    test = (
        "const a = require('../dist/a.js'); require('node:test')('a', () => { if (a !== 1) throw new Error('old'); });"
    )
    folder = lay(tmp_path / "it", {
        "package.json": package(scripts={"test": "tsc && node --test test/"}), "test/a.test.js": test,
        "src/a.js": "module.exports = 2;\n", "dist/a.js": "module.exports = 1;\n",
        "node_modules/.bin/tsc": f"#!/bin/sh\n{compiler}\n",
    })  # fmt: skip
    (folder / "node_modules/.bin/tsc").chmod(0o755)
    report = run(folder)
    assert (report.status, [(error.file, error.line, error.column) for error in report.compile_errors]) == (
        status,
        errors,
    )
    assert bool(report.tests) == (not errors and status is ReportStatus.FAILED)


def test_a_runner_that_finds_no_files_has_no_tests(tmp_path: Path) -> None:
    needs("node")
    folder = lay(tmp_path / "it", {"package.json": package(scripts={"test": "node --test nowhere.js"})})
    assert run(folder).status is ReportStatus.NO_TESTS


@pytest.mark.toolchain
def test_mocha_that_finds_no_files_has_no_tests(tmp_path: Path) -> None:
    needs("mocha")
    folder = lay(tmp_path / "it", {"package.json": package(scripts={"test": "mocha --color"})})
    installed(folder)
    assert run(folder).status is ReportStatus.NO_TESTS


def test_a_pattern_without_files_stays_as_it_is_written_as_in_a_shell(tmp_path: Path) -> None:
    lay(tmp_path, {"package.json": package(scripts={"test": "tap run tests/**/*.js lib/**/*.js"}), "lib/a/b.js": ""})
    assert detect(tmp_path)[0].command == ["tap", "run", "tests/**/*.js", "lib/*/*.js"]


def test_values_of_options_are_no_files() -> None:
    words = ["--require", "test/env", "--check-leaks", "test/", "test/acceptance/"]
    assert options_only(words, ["--require"]) == ["--require", "test/env", "--check-leaks"]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"Cargo.toml": "[package]\n", "fuzz/Cargo.toml": "[workspace]\n"}, {"cargo"}),
        ({"CMakeLists.txt": "project(a)\n", "tests/CMakeLists.txt": "add_test(a b)\n"}, {"ctest"}),
        ({"CMakeLists.txt": "project(a)\nenable_testing()\n", "book/CMakeLists.txt": "project(b)\nenable_testing()\n"},
         {"ctest"}),
        ({"CMakeLists.txt": "project(a)\nenable_testing()\n", "support/build.gradle": ""}, {"ctest"}),
        ({"pytest.ini": "", "recipes/pytest.toml": "[git]\n"}, {"pytest"}),
        ({"runtests.py": "execute_from_command_line([*sys.argv, 'test'])\n",
          "tests/test_a.py": "import unittest\n"}, {"django"}),
        ({"test/a_spec.rb": "require 'minitest/autorun'\n", "Rakefile": "task :test\n"}, {"minitest"}),
        ({"tox.ini": "commands =\n  coverage run -m django test --settings=tests.settings {posargs}\n",
          "tests/test_a.py": "import pytest\n", "sample_it/manage.py": "import django\n"}, {"django"}),
        ({"tests/test_a.py": "from unittest import TestCase\nclass TestA(TestCase): pass\n"}, {"unittest"}),
        ({"package.json": package(scripts={"test": "vitest"}), "bun/a.test.ts": "import 'bun:test'\n"}, {"vitest"}),
        ({"package.json": package(scripts={"test": "node test"}), "playwright.config.js": ""},
         {"command", "playwright"}),
        ({"package.json": package(scripts={"test": "playwright test"}), "playwright.config.js": ""}, {"playwright"}),
        ({"package.json": package(scripts={"test": "pnpm -r test"}, devDependencies={"vitest": "*"}),
          "a/package.json": package(scripts={"test": "vitest run"}), "b/vitest.config.ts": ""},
         {"vitest@a", "vitest@b"}),
        ({"package.json": package(scripts={"test": "vitest"}), "a/vitest.config.ts": ""}, {"vitest"}),
        ({"package.json": package(scripts={"test": "turbo test"}), "a/package.json": package(scripts={"test": "uvu"}),
          "b/package.json": package(scripts={"test": "jest"})}, {"command@a", "jest@b"}),
        ({"meson.build": "project('a')\nsubdir('t')\n", "t/meson.build": "test('a', exe)\n"}, {"meson"}),
        ({".busted": "return {}\n", "spec/a_spec.lua": ""}, {"busted"}),
        ({"a.nimble": "", "tests/t1.nim": ""}, {"nim"}),
        ({".taprc": "", "package.json": package(scripts={"test": "tap"})}, {"tap"}),
        ({"spec/support/jasmine.json": "{}", "package.json": package(scripts={"test": "jasmine"})}, {"jasmine"}),
    ],
)  # fmt: skip
def test_what_lies_beside_a_project_is_not_taken_for_it(
    files: dict[str, str], expected: set[str], tmp_path: Path
) -> None:
    assert set(found(lay(tmp_path, files))) == expected


def read(*rows: dict[str, object]) -> dict[str, str]:
    reader = Reader("n")
    for row in rows:
        reader.take(json.dumps(row).encode())
    return {test.id: str(test.status) for test in reader.parsed(exit_code=0, stopped=False).tests}


def test_two_tests_of_one_name_are_two_unless_the_runner_collected_one() -> None:
    phase = {"kind": "phase", "id": "a", "when": "call", "last": True, "outcome": "passed"}
    assert read(phase, phase, phase) == {"a": "passed", "a (2)": "passed", "a (3)": "passed"}
    assert read({"kind": "collected", "ids": ["a"]}, phase, phase) == {"a": "passed"}
    assert read({"kind": "collected", "ids": ["a", "a"]}, phase, phase) == {"a": "passed", "a (2)": "passed"}


_INNER = """
import os, subprocess, sys

pytest_plugins = ["pytester"]


def test_inside(pytester):
    pytester.makepyfile("def test_inner(): assert 0")
    pytester.runpytest_inprocess().assert_outcomes(failed=1)


def test_below(pytester):
    pytester.makepyfile("def test_inner(): assert 0")
    done = subprocess.run([sys.executable, "-m", "pytest"], capture_output=True, text=True)
    assert "1 failed" in done.stdout
    assert "PYTEST_ADDOPTS" not in os.environ


def test_afterwards():
    pass
"""


def test_sessions_that_a_plugins_tests_start_are_not_the_projects(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"test_plugin.py": _INNER})
    report = run(folder, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    names = ("test_inside", "test_below", "test_afterwards")
    assert statuses(report) == {f"test_plugin.py::{name}": "passed" for name in names}
    assert report.status is ReportStatus.PASSED


def test_unittests_files_may_be_named_by_their_ends(tmp_path: Path) -> None:
    text = "from unittest import TestCase\n\n\nclass A(TestCase):\n    def test_a(self):\n        pass\n"
    folder = lay(tmp_path / "it", {"it/__init__.py": "", "it/tests/__init__.py": "", "it/tests/a_test.py": text})
    report = run(folder)
    assert statuses(report) == {"it.tests.a_test.A.test_a": "passed"}
    assert statuses(run(folder, only=chosen(report, "it.tests.a_test.A.test_a"))) == statuses(report)


_MANY = """
import pytest

@pytest.mark.parametrize("n", range(1100), ids=lambda n: f"{n:04000d}")
def test_many(n):
    pass
"""


def test_the_terminal_is_the_callers_for_colours_are_others_on_a_dumb_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = "import os\ndef test_a(): assert os.environ['TERM'] == 'xterm'\n"
    folder = lay(tmp_path / "it", {"pytest.ini": "[pytest]\n", "test_a.py": text})
    assert run(folder).status is ReportStatus.PASSED


def test_names_may_be_so_long_that_all_of_them_fit_in_no_line(tmp_path: Path) -> None:
    report = run(lay(tmp_path / "it", {"test_many.py": _MANY}))
    assert (report.status, report.totals.passed, report.notes) == (ReportStatus.PASSED, 1100, [])


_SUITES = """
import test, { describe, it } from 'node:test';
describe('a suite', () => { it('one', () => {}); it('two', () => {}); });
test('a test', async (t) => { await t.test('one', () => {}); await t.test('other', () => {}); });
"""


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
def test_one_of_nodes_tests_runs_without_the_rest_of_its_suite(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"a.test.mjs": _SUITES})
    whole = run(folder)
    inner = run(folder, only=chosen(whole, "a.test.mjs::a suite > two"))
    assert statuses(inner) == {"a.test.mjs::a suite > two": "passed"}
    nested = run(folder, only=chosen(whole, "a.test.mjs::a test > other"))
    assert statuses(nested)["a.test.mjs::a test > other"] == "passed"
    assert "a.test.mjs::a suite > one" not in statuses(nested)


_PERL = """use Test::More tests => 2;
ok(1, 'alone');
subtest 'sub' => sub { plan tests => 3; ok(1, 'one'); is(1, 2, 'two'); ok(1, 'three'); };
"""


@pytest.mark.skipif(not shutil.which("prove"), reason="prove is not installed")
def test_a_subtest_of_perls_is_one_test_as_prove_counts(tmp_path: Path) -> None:
    report = run(lay(tmp_path / "it", {"t/a.t": _PERL}))
    assert statuses(report) == {"t/a.t::alone": "passed", "t/a.t::sub": "failed"}
    assert red(report) == {"t/a.t::sub": ("t/a.t", 3, "'2'", "'1'")}


_CHILD = """
import test from 'node:test';
import assert from 'node:assert';
import { execFileSync } from 'node:child_process';
test('a program says only its own', () => {
  assert.equal(execFileSync(process.execPath, ['-e', 'console.log(1)'], { encoding: 'utf8' }), '1\\n');
});
test('colours are as they would be', () => assert.equal(process.env.NO_COLOR, undefined));
"""


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
def test_programs_that_nodes_tests_start_are_left_alone(tmp_path: Path) -> None:
    report = run(lay(tmp_path / "it", {"a.test.mjs": _CHILD}))
    assert report.status is ReportStatus.PASSED, report.tests


def test_a_runner_that_is_not_installed_is_not_a_crash(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"test_a.py": "def test_a(): pass\n"})
    targets = detect(folder, command="python3 -S -m pytest", runner_name="pytest")
    report = run(folder, targets, PYTHONPATH="")
    assert (report.status, report.notes[0].partition(";")[0]) == (ReportStatus.ERROR, "No module named pytest")


_MESON = "project('a', 'c')\ntest('one', find_program('true'))\ntest('two', find_program('true'))\n"


@pytest.mark.toolchain
@pytest.mark.skipif(not shutil.which("meson"), reason="meson is not installed")
def test_mesons_results_are_this_runs_and_one_test_is_asked_for_by_its_name(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"meson.build": _MESON})
    assert statuses(run(folder)) == {"a.one": "passed", "a.two": "passed"}
    unknown = {"meson": [TestResult(id="a.none", status=TestStatus.TODO)]}
    assert run(folder, only=unknown).status is ReportStatus.NO_TESTS
    typed = {"meson": [TestResult(id="a.two", status=TestStatus.TODO)]}
    assert statuses(run(folder, only=typed)) == {"a.two": "passed"}


@pytest.mark.toolchain
@pytest.mark.skipif(not shutil.which("meson"), reason="meson is not installed")
def test_a_build_of_a_folder_that_is_gone_goes_too(tmp_path: Path) -> None:
    gone = lay(tmp_path / "gone", {"meson.build": _MESON})
    run(gone)
    shutil.rmtree(gone)
    run(lay(tmp_path / "here", {"meson.build": _MESON}))
    (marker,) = (tmp_path / "cache" / "ratchet" / "build").glob("*/ratchet-source")
    assert marker.read_text() == str(tmp_path / "here")


def test_data_of_batss_own_tests_is_not_run(tmp_path: Path) -> None:
    names = ("test/a.bats", "test/fixtures/b.bats", "test/unit/c.bats", "docs/examples/d.bats")
    folder = lay(tmp_path, dict.fromkeys(names, "@test 'a' { true; }\n"))
    assert detect(folder)[0].command == ["bats", "test", "test/unit"]


def test_a_module_that_mocha_does_not_find_is_a_file_that_does_not_load() -> None:
    said = "ERROR: Error [ERR_MODULE_NOT_FOUND]: Cannot find module '/w/index.js' imported from /w/test/a.js\n"
    error = unloaded(f"\n{said}    at x (node:a:1:2)\n")
    assert error
    assert (error.file, error.type, error.code) == ("/w/test/a.js", "Error", "ERR_MODULE_NOT_FOUND")


def test_of_a_file_that_mocha_cannot_load_the_kind_of_error_is_said_once() -> None:
    error = unloaded("\nError: Cannot find module './b'\nRequire stack:\n- /w/a.js\n    at f (/w/a.js:3:1)\n")
    assert error
    assert (error.type, error.message) == ("Error", "Cannot find module './b'")


ODD = """'a (b) [c] "q" $1 + 2?'"""


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("runner", "file", "text"),
    [
        ("mocha", "test/a.js", f"describe('s', () => {{ it({ODD}, () => {{ throw 1; }}); it('b', () => {{}}); }});"),
        ("mocha", "test/a.js", "describe('s', () => { before(() => { throw 1; }); it('b', () => {}); });"),
        ("mocha", "test/a.js", "before(() => { throw 1; }); it('b', () => {});"),
        ("jest", "a.test.js", f"describe('s', () => {{ it({ODD}, () => {{ throw 1; }}); it('b', () => {{}}); }});"),
        ("node", "a.test.js", f"require('node:test')({ODD}, () => {{ throw 1; }});"),
        ("jasmine", "spec/a.js", f"describe('s', () => {{ it({ODD}, () => {{ throw 1; }}); it('b', () => {{}}); }});"),
    ],
)
def test_what_failed_fails_again_when_it_is_asked_for_as_the_report_says(
    runner: str, file: str, text: str, tmp_path: Path
) -> None:
    needs(runner)
    folder = lay(tmp_path / "it", {"package.json": package(scripts={"test": STARTS.get(runner, runner)}), file: text})
    installed(folder)
    report = run(folder)
    (failed,) = [test for test in report.tests if test.failure]
    assert statuses(run(folder, only=chosen(report, failed.id))) == {failed.id: str(failed.status)}
    said = subprocess.run(again(failed, detect(folder)), shell=True, cwd=folder, capture_output=True, check=False)
    assert said.returncode, said.stdout


def installed(folder: Path) -> None:
    """With the runners' packages. Node's own stumbles over a link to nothing."""
    if NPM.exists():
        (folder / "node_modules").symlink_to(NPM)


STARTS = {"node": "node --test", "jasmine": "jasmine spec/*.js"}
# Each is one test that passes, and something that goes wrong around it.
AROUND = {
    "late": "it('a', () => { setTimeout(() => { throw new TypeError('late'); }, 1); });\n"
            "it('b', () => new Promise((done) => setTimeout(done, 100)));\n",
    "each": "describe('s', () => { beforeEach(() => { throw new TypeError('each'); }); it('a', () => {}); });\n",
    "abort": "it('a', () => { process.abort(); });\n",
}  # fmt: skip


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("runner", "file", "around", "status", "expected"),
    [
        ("mocha", "test/a.js", "each", "failed", {'test/a.js::s > "before each" hook for "a"': "TypeError"}),
        ("mocha", "test/a.js", "abort", "crashed", {"test/a.js::a": "Crashed"}),
        ("jest", "a.test.js", "late", "failed", {"a.test.js::a": "TypeError"}),
    ],
)
def test_what_goes_wrong_around_a_test_is_told_of_it(
    runner: str, file: str, around: str, status: str, expected: dict[str, str], tmp_path: Path
) -> None:
    needs(runner)
    folder = lay(tmp_path / "it", {"package.json": package(scripts={"test": runner}), file: AROUND[around]})
    installed(folder)
    report = run(folder)
    assert {test.id: test.failure.type for test in report.tests if test.failure} == expected
    assert (report.status, report.collection_errors) == (status, [])


@pytest.mark.toolchain
def test_an_error_after_all_of_jests_tests_is_told_as_what_it_is_and_twins_are_two(tmp_path: Path) -> None:
    needs("jest")
    text = "test('a', () => {});\ntest('a', () => {});\nafterAll(() => { throw new TypeError('b'); });\n"
    folder = lay(tmp_path / "it", {"package.json": package(scripts={"test": "jest"}), "a.test.js": text})
    installed(folder)
    report = run(folder)
    (error,) = report.collection_errors
    assert (error.file, error.line, error.type, error.message) == ("a.test.js", 3, "TypeError", "b")
    assert statuses(report) == {"a.test.js::a": "passed", "a.test.js::a (2)": "passed"}


def test_what_fails_after_it_passed_has_failed() -> None:
    phase = {"kind": "phase", "id": "a", "when": "call", "last": True, "outcome": "passed"}
    assert read(phase, {**phase, "when": "teardown", "last": False, "outcome": "failed"}) == {"a": "error"}


def test_a_missing_program_says_what_to_install(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"pubspec.yaml": "name: a\n", "test/a_test.dart": ""})
    report = run(folder, PATH=str(tmp_path))
    assert report.status is ReportStatus.ERROR
    assert "dart" in report.notes[0]
    assert "dart pub get" in report.notes[0]


PHP = """<?php
use PHPUnit\\Framework\\TestCase;
class CalcTest extends TestCase {
    public function testAdds(): void { $this->assertSame(2, 1 + 1); }
    public function testAsksNothing(): void { }
    /** @dataProvider rows */
    public function testRows(int $n): void { $this->assertNotSame(2, $n); }
    public static function rows(): array { return ["one (1)" => [1], "two [2] + a/b" => [2], "two" => [2]]; }
}
"""
OTHER = """<?php
class OtherTest extends PHPUnit\\Framework\\TestCase {
    public function testAdds(): void { $this->fail(); }
}
"""


@pytest.mark.toolchain
def test_phpunit_runs_the_tests_asked_for_and_no_others_of_their_names(tmp_path: Path) -> None:
    needs("phpunit")
    suites = "<testsuites><testsuite name='it'><directory>tests</directory></testsuite></testsuites>"
    files = {"phpunit.xml": f"<phpunit>{suites}</phpunit>", "tests/CalcTest.php": PHP, "tests/OtherTest.php": OTHER}
    folder = lay(tmp_path / "it", files)
    every = statuses(run(folder))
    assert every == {
        "CalcTest::testAdds": "passed",
        "CalcTest::testAsksNothing": "passed",  # PHPUnit calls it risky, and is content
        'CalcTest::testRows with data set "one (1)"': "passed",
        'CalcTest::testRows with data set "two [2] + a/b"': "failed",
        'CalcTest::testRows with data set "two"': "failed",
        "OtherTest::testAdds": "failed",
    }
    for name in every:
        only = {"phpunit": [TestResult(id=name, status=TestStatus.TODO)]}
        assert statuses(run(folder, only=only)) == {name: every[name]}


@pytest.mark.toolchain
def test_what_fails_in_a_package_of_go_is_found_there_and_run_again(tmp_path: Path) -> None:
    needs("go")
    body = 'func TestIt(t *testing.T) {\n\tt.Run("a.b", func(t *testing.T) { t.Fatalf("got %d, want %d", 1, 2) })\n}\n'
    files = {f"deep/{name}/it_test.go": f'package {name}\n\nimport "testing"\n\n{body}' for name in ("one", "two")}
    folder = lay(tmp_path / "it", {"go.mod": "module example.com/it\n\ngo 1.18\n"} | files)
    report = run(folder)
    name = "example.com/it/deep/one.TestIt/a.b"
    assert red(report)[name] == ("deep/one/it_test.go", 6, "2", "1")
    assert name in statuses(run(folder, only=chosen(report, name)))


def test_of_what_was_skipped_for_the_sake_of_others_only_what_was_asked_for_is_told() -> None:
    ids = ["a.js::s > t", "a.js::s > t u", "a.js::s", "b.js::v"]
    tests = [TestResult(id=name, status=TestStatus.SKIPPED) for name in ids]
    asked = {
        name: [test.id for test in unskipped(tests, [TestResult(id=name, status=TestStatus.TODO)])] for name in ids
    }
    assert asked["a.js::s > t"] == ["a.js::s > t"]
    assert asked["a.js::s"] == ids[:3]
    assert [test.id for test in unskipped(tests, [])] == ids


RUBY = """require "minitest/autorun"
class ATest < Minitest::Test
  def test_one; assert true; end
  define_method("test_a (b) [c]+ | d's") { assert_equal 1, 2 }
end
class BTest < Minitest::Test
  def test_one; assert true; end
end
"""
RAKE = "require 'rake/testtask'\nRake::TestTask.new(:test) { |t| t.pattern = 'test/test_*.rb' }\n"
BATS = '@test "one" { true; }\n@test "one more" { true; }\n@test "a (b) [c]+ | d\'s \\"q\\" \\$x" { false; }\n'


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("runner", "files"),
    [
        ("minitest", {"Rakefile": RAKE, "test/test_a.rb": RUBY}),
        ("bats", {"test/a.bats": BATS, "test/b.bats": BATS}),
    ],
)
def test_each_test_runs_alone_whatever_signs_are_in_its_name(
    runner: str, files: dict[str, str], tmp_path: Path
) -> None:
    needs(runner)
    folder = lay(tmp_path / "it", files)
    report = run(folder)
    for name, status in statuses(report).items():
        assert statuses(run(folder, only=chosen(report, name))) == {name: status}
