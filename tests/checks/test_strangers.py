"""What other people's projects do that ours did not: each of these was found on one of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.checks.detect import detect
from ratchet.checks.records import Reader
from ratchet.checks.registry import runner
from ratchet.checks.runners import unskipped
from ratchet.checks.runners.javascript import unloaded
from ratchet.checks.scripts import commands, options_only, plain, start_of
from ratchet.core.report import ReportStatus, TestResult, TestStatus, gist, wanted
from ratchet.suite import Outcome
from ratchet.surfaces.paint import painter
from ratchet.surfaces.results import again, view
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
    assert plainly("uvu", test="CI=1 pnpm run /^test:/", unit="uvu a", **{"test:c": "c8 pnpm unit"}) == [
        "env", "CI=1", "uvu", "a",
    ]  # fmt: skip
    assert plainly("jest", test="cross-env TZ=UTC npm run unit", unit="jest a") == ["env", "TZ=UTC", "jest", "a"]
    assert plainly("mocha", test="c8 -r lcov npm run unit", unit="mocha a") == ["mocha", "a"]
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


def test_one_program_that_has_all_of_nodes_tests_is_run_as_the_script_does(tmp_path: Path) -> None:
    script = {"test": "c8 npm run api", "api": "node --conditions development test/index.js"}
    files = {"package.json": package(scripts=script), "test/index.js": "import './a.js'\n",
             "test/a.js": "import test from 'node:test'\n"}  # fmt: skip
    assert detect(lay(tmp_path, files))[0].command == ["node", "--conditions", "development", "--test", "test/index.js"]


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


def test_half_of_a_surrogate_pair_tears_no_record() -> None:
    failed = {"kind": "phase", "id": "a", "when": "call", "outcome": "failed", "message": "\udce4", "last": True}
    assert read(failed) == {"a": "failed"}


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


def test_what_one_of_nodes_tests_left_behind_is_told_with_its_error(tmp_path: Path) -> None:
    needs("node")
    text = "const { it } = require('node:test');\n" + AROUND["late"]
    folder = lay(tmp_path / "it", {"package.json": package(scripts={"test": "node --test"}), "a.test.js": text})
    report = run(folder)
    (error,) = report.collection_errors
    assert (report.status, error.file, error.line, error.type) == (ReportStatus.FAILED, "a.test.js", 2, "TypeError")
    assert 'late (Test "a" at' in error.message


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


MIX = """defmodule It.MixProject do
  use Mix.Project
  def project, do: [app: :it, version: "0.1.0"]
end
"""
EXS = """defmodule ItTest do
  use ExUnit.Case, async: true

  test "goes elsewhere" do
    File.cd!(System.tmp_dir!(), fn -> Process.sleep(20) end)
  end

  test "matches" do
    assert {:ok, _} = {:error, 3}
  end

  test "is linked" do
    spawn_link(fn -> raise "in a child" end)
    Process.sleep(:infinity)
  end
end

defmodule AllTest do
  use ExUnit.Case

  setup_all do
    raise "no database"
  end

  test "never", do: :ok
end
"""


@pytest.mark.toolchain
def test_exunits_tests_may_change_the_folder_and_die_with_what_they_are_linked_to(tmp_path: Path) -> None:
    needs("exunit")
    files = {"mix.exs": MIX, "test/test_helper.exs": "ExUnit.start()\n", "test/it_test.exs": EXS}
    report = run(lay(tmp_path / "it", files))
    names = "test/it_test.exs::ItTest > test "
    never = "test/it_test.exs::AllTest > test never"
    assert statuses(report) == {
        f"{names}goes elsewhere": "passed", f"{names}matches": "failed", f"{names}is linked": "failed", never: "error",
    }  # fmt: skip
    assert red(report) == {
        f"{names}matches": ("test/it_test.exs", 9, "{:ok, _}", "{:error, 3}"),
        f"{names}is linked": ("test/it_test.exs", 13, None, None),
        never: ("test/it_test.exs", 22, None, None),
    }
    assert {test.failure.message for test in report.tests if test.failure} >= {
        "** (RuntimeError) in a child",
        "** (RuntimeError) no database",
    }


def test_an_umbrella_has_no_tests_but_its_apps(tmp_path: Path) -> None:
    files = {f"apps/{name}/mix.exs": MIX for name in ("a", "b")} | {"mix.exs": 'def project, do: [apps_path: "apps"]'}
    assert [target.name for target in detect(lay(tmp_path, files))] == ["exunit@apps/a", "exunit@apps/b"]


RSPEC = """require_relative "shared"
RSpec.describe "it" do
  it_behaves_like "a thing", -1
  it("has several", :aggregate_failures) { expect(1).to eq 2; expect(3).to eq 4 }
  context("after") { after(:all) { raise "too late" }; it("passes") {} }
end
"""
SHARED = 'RSpec.shared_examples("a thing") { |n| it("is positive") { expect(n).to be > 0 } }\n'


def test_rspecs_shared_examples_aggregates_and_late_hooks_are_told_where_they_are(tmp_path: Path) -> None:
    needs("rspec")
    folder = lay(tmp_path / "it", {".rspec": "", "spec/it_spec.rb": RSPEC, "spec/shared.rb": SHARED})
    report = run(folder)
    assert {test.id: (test.file, test.line) for test in report.tests}["spec/it_spec.rb[1:1:1]"] == (
        "spec/it_spec.rb",
        3,
    )
    assert red(report) == {
        "spec/it_spec.rb[1:1:1]": ("spec/shared.rb", 1, "> 0", "-1"),
        "spec/it_spec.rb[1:2]": ("spec/it_spec.rb", 4, "2", "1"),
    }
    (error,) = report.collection_errors
    assert (error.file, error.line, error.type, error.message) == ("spec/it_spec.rb", 5, "RuntimeError", "too late")


@pytest.mark.parametrize(
    ("rakefile", "command"),
    [
        ("Rake::TestTask.new\n", ["rake", "test"]),
        ("Rake::TestTask.new(:unit) { }\ntask default: :unit\n", ["rake", "unit"]),
        ("task 'spec' do\nend\ntask :default => :spec\n", ["rake", "spec"]),
        ("task :lint\ntask :test => :unit\n", ["rake", "test"]),
        ("Rails.application.load_tasks\n", ["rake", "test"]),
        ("task :lint\n", ["ruby", "-Ilib", "-Itest"]),
    ],
)
def test_the_task_that_runs_rubys_tests_is_the_one_that_there_is(
    rakefile: str, command: list[str], tmp_path: Path
) -> None:
    folder = lay(tmp_path, {"Rakefile": rakefile, "test/a_test.rb": RUBY})
    assert detect(folder)[0].command[: len(command)] == command


def test_a_file_of_minitests_that_does_not_load_is_named_and_a_file_runs_alone(tmp_path: Path) -> None:
    needs("minitest")
    folder = lay(tmp_path / "it", {"test/a_test.rb": RUBY, "test/b_test.rb": "require 'minitest/autorun'\nNope\n"})
    assert [(error.file, error.line, error.type) for error in run(folder).collection_errors] == [
        ("test/b_test.rb", 2, "NameError")
    ]
    (folder / "test/b_test.rb").write_text("require 'minitest/autorun'\ndef x(; end\n")
    assert [(error.file, error.line, error.type) for error in run(folder).collection_errors] == [
        ("test/b_test.rb", 2, "SyntaxError")
    ]
    only = {"minitest": [TestResult(id="test/a_test.rb", status=TestStatus.TODO)]}
    assert len(run(folder, only=only).tests) == 3


def test_what_dies_in_perl_is_a_file_with_its_place_and_no_crash_of_prove(tmp_path: Path) -> None:
    needs("prove")
    files = {
        "t/die.t": "use Test::More tests => 2;\nok(1, 'one');\ndie 'boom';\n",
        "t/exit.t": "use Test::More tests => 1;\nok(1, 'two');\nexit 3;\n",
        "t/kill.t": "use Test::More tests => 2;\nok(1, 'three');\nkill 9, $$;\n",
        "t/syntax.t": "use Test::More tests => 2;\nok(1, 'four')\nok(2);\n",
    }
    report = run(lay(tmp_path / "it", files))
    assert [(error.file, error.line, error.message) for error in report.collection_errors] == [
        ("t/die.t", 3, "boom"),
        ("t/exit.t", 0, "exited 3"),
        ("t/kill.t", 0, "signal: kill; the plan says 2 tests, 1 ran"),
        ("t/syntax.t", 3, "syntax error"),
    ]
    assert statuses(report) == dict.fromkeys(["t/die.t::one", "t/exit.t::two", "t/kill.t::three"], "passed")
    assert report.status is ReportStatus.FAILED


def test_a_file_of_perls_that_hangs_is_named(tmp_path: Path) -> None:
    needs("prove")
    files = {"t/a.t": "use Test::More tests => 1;\nok(1);\n", "t/b.t": "use Test::More tests => 1;\nsleep 60;\n"}
    report = run(lay(tmp_path / "it", files), timeout_s=3)
    assert (report.status, report.running) == (ReportStatus.TIMEOUT, ["t/b.t::#1"])


_BATS_FILES = {
    "test/a.bats": '@test "prints # TODO" { echo "not ok 9 forged" >&3; false; }\n@test "two" { true; }\n',
    "test/b.bats": 'setup_file() { false; }\n@test "two" { true; }\n@test "three" { true; }\n',
    "test/c.bats": '@test "four" {\n  if true\n}\n',
    "test/d.bats": '@test "five" { true; }\n',
}


def test_what_bats_reports_is_of_the_test_that_has_begun(tmp_path: Path) -> None:
    needs("bats")
    folder = lay(tmp_path / "it", _BATS_FILES)
    report = run(folder)
    assert statuses(report) == {
        "test/a.bats::prints # TODO": "failed",
        "test/a.bats::two": "passed",
        "test/b.bats::setup_file": "error",
        "test/d.bats::five": "passed",
    }
    assert [(error.file, error.line) for error in report.collection_errors] == [("test/c.bats", 3)]
    assert (report.status, report.notes) == (ReportStatus.FAILED, [])
    again = run(folder, only=chosen(report, "test/b.bats::setup_file"))
    assert statuses(again) == {"test/b.bats::setup_file": "error"}


PROVIDER = """<?php
class DataTest extends PHPUnit\\Framework\\TestCase {
    public function testThrows(): void { throw new Exception("boom"); }
    /** @dataProvider none */
    public function testNoData(int $n): void { $this->assertSame(2, $n); }
    public function testWarns(): void { $this->assertNull([]["a"]); }
}
"""


@pytest.mark.toolchain
def test_phpunits_errors_are_errors_and_a_test_without_data_bears_its_own_name(tmp_path: Path) -> None:
    needs("phpunit")
    suites = "<testsuites><testsuite name='it'><directory>tests</directory></testsuite></testsuites>"
    folder = lay(tmp_path / "it", {"phpunit.xml": f"<phpunit>{suites}</phpunit>", "tests/DataTest.php": PROVIDER})
    report = run(folder)
    every = dict.fromkeys(["DataTest::testThrows", "DataTest::testNoData", "DataTest::testWarns"], "error")
    assert statuses(report) == every
    for name in every:
        assert statuses(run(folder, only=chosen(report, name))) == {name: "error"}


@pytest.mark.toolchain
def test_the_test_of_phpunits_that_ended_the_run_is_named_with_its_class(tmp_path: Path) -> None:
    needs("phpunit")
    body = "class DieTest extends PHPUnit\\Framework\\TestCase { public function testDies(): void { exit(0); } }"
    folder = lay(tmp_path / "it", {"composer.json": '{"phpunit/phpunit": "*"}', "tests/DieTest.php": f"<?php {body}"})
    assert run(folder).running == ["DieTest::testDies"]


@pytest.mark.toolchain
def test_a_test_of_go_that_no_report_has_named_yet_is_found_by_its_id(tmp_path: Path) -> None:
    needs("go")
    body = 'package a\n\nimport "testing"\n\nfunc TestOne(t *testing.T) {}\n\nfunc TestTwo(t *testing.T) {}\n'
    for place in ("", "b/"):
        path = tmp_path / f"{place}it_test.go"
        path.parent.mkdir(exist_ok=True)
        path.write_text(body)
    (tmp_path / "go.mod").write_text("module example.com/a.io\n\ngo 1.19\n")
    only = {"go": [TestResult(id="example.com/a.io/b.TestTwo", status=TestStatus.TODO)]}
    assert [test.id for test in run(tmp_path, only=only).tests] == ["example.com/a.io/b.TestTwo"]


@pytest.mark.toolchain
def test_a_file_of_bats_stands_for_its_tests(tmp_path: Path) -> None:
    needs("bats")
    for name in ("a", "b"):
        (tmp_path / f"{name}.bats").write_text('@test "one" { true; }\n@test "two" { true; }\n')
    only = {"bats": [TestResult(id="a.bats", file="a.bats", status=TestStatus.TODO)]}
    assert [test.id for test in run(tmp_path, only=only).tests] == ["a.bats::one", "a.bats::two"]


CASE = "import unittest\n\n\nclass It(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(1, 2)\n"
OWN_CASE = "from it.cases import TestCase\n\n\nclass TestIt(TestCase):\n    def test_it(self):\n        pass\n"


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"tox.ini": "commands =\n  coverage run -p -m unittest discover -s src/a {posargs}\n",
          "src/a/b/__init__.py": "", "src/a/b/tests/__init__.py": "", "src/a/b/tests/test_a.py": CASE},
         ["unittest", "discover", "-s", "src/a"]),
        ({"tox.ini": "commands = coverage run -m unittest discover {toxinidir}/tests\n",
          "tests/__init__.py": "", "tests/test_a.py": OWN_CASE}, ["unittest", "discover", "tests"]),
        ({"noxfile.py": 'session.run("python", "-m", "unittest", "discover", "-s", "checks", "-f")\n',
          "checks/test_a.py": CASE}, ["unittest", "discover", "-s", "checks"]),
        ({"tox.ini": "[testenv]\nchangedir = src\ncommands = python -m unittest discover\n", "src/test_a.py": CASE},
         ["unittest", "discover", "-s", "src"]),
        ({"makefile": "test:\n\tpython -m unittest -v $(PKG).tests.perf\n", "tests/test_a.py": CASE},
         ["unittest", "discover", "-s", "tests"]),
        ({"src/a/__init__.py": "", "src/a/tests/__init__.py": "", "src/a/tests/test_a.py": CASE},
         ["unittest", "discover", "-s", "src"]),
        ({".stestr.conf": "[DEFAULT]\ntest_path=./it/tests\ntop_dir=./\n", "it/tests/__init__.py": "",
          "it/tests/test_a.py": OWN_CASE}, ["unittest", "discover", "-s", "it/tests", "-t", "."]),
        ({"it/__init__.py": "", "it/testing.py": CASE, "it/a_test.py": CASE, "it/b_test.py": CASE,
          "maint/c_test.py": "class TestMixin(object):\n    pass\n"}, ["unittest", "discover", "-p", "*_test.py"]),
        ({"test_a.py": "from unittest import mock\n\n\nclass TestIt:\n    def test_it(self): pass\n"}, ["pytest"]),
    ],
)  # fmt: skip
def test_unittest_is_called_as_the_project_does_it_or_finds_what_lies_there(
    files: dict[str, str], command: list[str], tmp_path: Path
) -> None:
    (target,) = detect(lay(tmp_path, files))
    assert target.command[2:] == command


_DOCUMENTED = "def one():\n    '''\n    >>> one()\n    2\n    '''\n    return 1\n"
_LOADS = """
import doctest, unittest

import shop


class It(unittest.TestCase):
    def test_other(self):
        pass


def load_tests(loader, tests, pattern):
    tests.addTests(doctest.DocTestSuite(shop))
    return tests
"""


def test_one_of_unittests_tests_runs_alone_however_it_was_loaded(tmp_path: Path) -> None:
    files = {"src/shop.py": _DOCUMENTED, "src/test_it.py": _LOADS, "src/test_broken.py": "def broken(:\n"}
    folder = lay(tmp_path / "it", files)
    whole = run(folder)
    assert statuses(whole) == {"shop.one": "failed", "test_it.It.test_other": "passed"}
    assert [error.file for error in whole.collection_errors] == ["src/test_broken.py"]
    assert red(whole)["shop.one"] == ("src/shop.py", 3, "2", "1")
    for name in statuses(whole):
        alone = run(folder, only=chosen(whole, name))
        assert (statuses(alone), alone.collection_errors) == ({name: statuses(whole)[name]}, [])
    by_file = {"unittest": [TestResult(id="src/test_it.py", status=TestStatus.TODO)]}
    assert statuses(run(folder, only=by_file)) == {"test_it.It.test_other": "passed"}
    repeats = {test.id: runner("unittest").again(detect(folder)[0], test) for test in whole.tests}
    assert repeats["shop.one"] == ["ratchet", "test", "shop.one"]
    case = repeats["test_it.It.test_other"]
    assert (case[:2], case[-3:]) == (["env", "PYTHONPATH=src"], ["-m", "unittest", "test_it.It.test_other"])


_COMPARES = """
import unittest


class It(unittest.TestCase):
    def test_differs(self):
        self.assertNotEqual(1, 1)

    def test_is_in(self):
        self.assertIn(1, [2])

    def test_is_more(self):
        self.assertGreater(1, 2)

    def test_is(self):
        self.assertIs(1, None)
"""


@pytest.mark.parametrize("runs", ["unittest", "pytest"])
def test_what_an_assertion_of_unittest_asks_for_is_told_with_its_values(runs: str, tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"test_it.py": _COMPARES})
    report = run(folder, detect(folder, runner_name=runs, command=f"{sys.executable} -m {runs}"))
    failures = {test.name.partition(" ")[0].rpartition(".")[2]: test.failure for test in report.tests}
    assert {name: (wanted(failure), failure.actual) for name, failure in failures.items() if failure} == {
        "test_differs": ("!= 1", "1"),
        "test_is_in": ("in [2]", "1"),
        "test_is_more": ("> 2", "1"),
        "test_is": ("is None", "1"),
    }


@pytest.mark.parametrize(
    ("file", "text", "more"),
    [
        ("Makefile", "test:\n\tDJANGO_SETTINGS_MODULE=a.settings \\\n\t\tpython -m django test $${ARGS:-checks}\n",
         ["--settings=a.settings", "checks"]),
        ("tox.ini", "setenv =\n  DJANGO_SETTINGS_MODULE = a.b\ncommands = python -m django test -v2 {posargs:a}\n",
         ["--settings=a.b", "a"]),
        ("noxfile.py", 'session.run("django-admin", "test", "--settings=a.b")\n', ["--settings=a.b"]),
    ],
)  # fmt: skip
def test_djangos_settings_and_tests_are_those_of_the_projects_own_call(
    file: str, text: str, more: list[str], tmp_path: Path
) -> None:
    (target,) = detect(lay(tmp_path, {file: text, "checks/test_a.py": CASE}))
    assert target.command[1:] == ["-m", "django", "test", *more]
    one = runner("django").again(target, TestResult(id="checks.test_a.It.test_it", status=TestStatus.FAILED))
    assert one[4:] == [*[word for word in more if word.startswith("-")], "checks.test_a.It.test_it"]


@pytest.mark.parametrize("name", ["makefile", "GNUmakefile", "Justfile"])
def test_a_file_of_targets_may_be_spelt_as_its_program_allows(name: str, tmp_path: Path) -> None:
    assert found(lay(tmp_path, {name: "test:\n\ttrue\n"})) == {"command": f"{name} has a target called test"}


_NOTED = """
import unittest

import pytest


def test_noted():
    try:
        assert 1 == 2
    except AssertionError as error:
        error.add_note("Falsifying example: test_noted(\\n    n=0,\\n)")
        raise


def test_many():
    raise ExceptionGroup("many", [ValueError(1), ExceptionGroup("more", [KeyError("k")])])


@pytest.mark.xfail(strict=True, reason="not yet")
def test_strict():
    pass
"""


def test_what_was_added_to_an_exception_and_what_a_group_holds_is_told(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"test_it.py": _NOTED})
    failures = {test.name: test.failure for test in run(folder).tests if test.failure}
    assert gist(failures["test_noted"]) == [
        "assert 1 == 2", "note: Falsifying example: test_noted(", "    n=0,", ")",
    ]  # fmt: skip
    assert gist(failures["test_many"])[1:] == [
        "note: ValueError: 1",
        "note: ExceptionGroup: more (1 sub-exception)",
        "note: KeyError: 'k'",
    ]
    strict = failures["test_strict"]
    assert (strict.type, strict.message) == ("UnexpectedSuccess", "passed although it was expected to fail: not yet")


@pytest.mark.parametrize(
    ("shop", "says"),
    [
        ("x = 1\nimport gone\n", "No module named 'gone' (shop.py:2)"),
        ("x = 1\n\ndef broken(:\n", "invalid syntax (shop.py:3:12)"),
    ],
)
def test_a_test_file_that_a_broken_module_keeps_from_loading_names_it_and_its_own_line(
    shop: str, says: str, tmp_path: Path
) -> None:
    files = dict.fromkeys(("test_a.py", "test_b.py"), "\n\n\nimport shop\n\n\ndef test_it():\n    pass\n")
    report = run(lay(tmp_path / "it", files | {"shop.py": shop, "pytest.ini": "[pytest]\n"}))
    assert [(error.file, error.line, error.message) for error in report.collection_errors] == [
        ("test_a.py", 4, says),
        ("test_b.py", 4, says),
    ]
    first, *rest = view(Outcome(report=report, targets=[]), painter(colour=False))
    assert first == "✘ test_a.py:4 does not load; the same for test_b.py"
    assert sum("shop.py" in line for line in rest) == 1


def test_a_signal_that_kills_unittest_leaves_the_place_behind(tmp_path: Path) -> None:
    text = CASE.replace("self.assertEqual(1, 2)", "__import__('ctypes').string_at(0)")
    report = run(lay(tmp_path / "it", {"test_it.py": text}))
    assert report.status is ReportStatus.CRASHED
    assert red(report) == {"test_it.It.test_it": ("test_it.py", 6, None, None)}


TEST_UNIT = """require "test/unit"
class ItTest < Test::Unit::TestCase
  def test_passes; assert_equal 3, 1 + 2; end
  def test_fails; assert_equal 4, 1 + 2; end
  def test_pends; pend "later"; end
  data("one" => 1, "two" => 2)
  def test_each(n); assert_operator n, :<, 2; end
  sub_test_case("inner") { test("described") { raise "no" } }
end
"""


@pytest.mark.toolchain
def test_test_units_tests_are_told_and_run_alone(tmp_path: Path) -> None:
    needs("minitest")
    folder = lay(tmp_path / "it", {"test/test_it.rb": TEST_UNIT})
    report = run(folder)
    every = {
        "ItTest#test_passes": "passed", "ItTest#test_fails": "failed", "ItTest#test_pends": "skipped",
        "ItTest#test_each[one]": "passed", "ItTest#test_each[two]": "failed", "ItTest::inner#test: described": "error",
    }  # fmt: skip
    assert (report.runner, statuses(report)) == ("testunit", every)
    assert red(report)["ItTest#test_fails"] == ("test/test_it.rb", 4, "4", "3")
    for name, status in every.items():
        assert statuses(run(folder, only=chosen(report, name))) == {name: status}
