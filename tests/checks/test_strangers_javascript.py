"""What other people's JavaScript projects do that ours did not: each of these was found on one of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ratchet.checks.detect.package_scripts import index_of_program, options_only, plain, script_commands
from ratchet.checks.detect.rerun import rerun_command
from ratchet.checks.detect.targets import detect
from ratchet.checks.runners import drop_unselected_skips
from ratchet.checks.runners.javascript.console_errors import before_first_test, load_error_in
from ratchet.core.report import ReportStatus, TestResult, TestStatus
from tests.checks.support import NPM, chosen, needs, red, run, statuses
from tests.checks.test_detect import lay, package


def plainly(program: str, **scripts: str) -> list[str]:
    """The command of the runner that a package's scripts lead to."""
    for words in script_commands({"scripts": scripts}):
        if (at := index_of_program(words, [program])) is not None:
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
        (r'uvu test "\.test\.(ts|js)$"', "uvu", ["uvu", "test", r"\.test\.(ts|js)$"]),
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
    assert script_commands({"scripts": {"test": "yarn test"}}) == []
    assert script_commands({"scripts": {"test": "npm test --workspace=a"}}) == [["npm", "test", "--workspace=a"]]


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


def test_what_a_script_starts_with_other_options_is_another_command_of_the_same_target(tmp_path: Path) -> None:
    script = "mocha -r a b && mocha -r c d && mocha -r a e && mocha -r c"
    lay(tmp_path, {"package.json": package(scripts={"test": script})})
    (target,) = detect(tmp_path)
    assert [target.command, *target.also] == [["mocha", "-r", "c"], ["mocha", "-r", "a", "b", "e"]]


_MODE = """
const { test } = require('node:test');
const assert = require('node:assert');
test('one', () => {});
test('two', () => assert.equal(process.env.MODE, 'b'));
"""


def test_a_script_that_starts_its_runner_twice_has_passed_when_both_have(tmp_path: Path) -> None:
    needs("node")
    script = "MODE=a node --test a.test.js && MODE=b node --test a.test.js b.test.js"
    files = dict.fromkeys(("a.test.js", "b.test.js"), _MODE)
    folder = lay(tmp_path / "it", {"package.json": package(scripts={"test": script}), **files})
    report = run(folder)
    assert statuses(report) == {
        "a.test.js::one": "passed", "a.test.js::two": "failed", "a.test.js::one (2)": "passed",
        "a.test.js::two (2)": "passed", "b.test.js::one": "passed", "b.test.js::two": "passed",
    }  # fmt: skip
    assert (report.status, report.totals.failed, report.exit_code) == (ReportStatus.FAILED, 1, 1)
    alone = run(folder, only=chosen(report, "b.test.js::two"))
    assert statuses(alone) == {"b.test.js::two": "passed"}
    second = run(folder, only=chosen(report, "a.test.js::two (2)"))
    assert statuses(second) == {"a.test.js::two (2)": "passed"}
    tests = {test.id: test for test in report.tests}
    assert rerun_command(tests["b.test.js::two"], detect(folder)).startswith("env MODE=b node --test ")
    assert rerun_command(tests["a.test.js::one"], detect(folder)).startswith("env MODE=a node --test ")
    assert rerun_command(tests["a.test.js::one (2)"], detect(folder)).startswith("env MODE=b node --test ")


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
        ({"test": "tsc -w && mocha"}, BUILT, []),
        ({"test": "vite && mocha"}, BUILT, []),
        ({"test": "vite build && mocha"}, BUILT, [["vite", "build"]]),
        ({"test": "npx tsc && mocha"}, BUILT, [["npx", "tsc"]]),
        ({"test": "tsc -p a.json && mocha"}, {**BUILT, "a.json": '{"compilerOptions": {"noEmit": true}}'}, []),
        ({"test": "tsc && mocha"}, {"test/a.js": "require('../index.js')\n", "index.js": "require('./dist/a')\n"},
         [["tsc"]]),
        ({"test": "tsc && mocha"}, {"test/a.js": "require('../made/a')\n", ".gitignore": "/made/\n"}, [["tsc"]]),
        ({"test": "tsc && mocha"}, {"test/a.js": "require('../coverage/a')\n", ".gitignore": "coverage\n"}, []),
    ],
)  # fmt: skip
def test_what_the_tests_use_is_built_first_as_the_script_does(
    scripts: dict[str, str], files: dict[str, str], builds: list[list[str]], tmp_path: Path
) -> None:
    lay(tmp_path, {"package.json": package(scripts=scripts), **files})
    assert [target.builds for target in detect(tmp_path)] == [builds]


@pytest.mark.parametrize(("main", "builds"), [("./dist/a.js", [["tsc"]]), ("src/a.js", [])])
def test_an_import_of_the_package_itself_uses_build_results_if_its_entry_is_there(
    main: str, builds: list[list[str]], tmp_path: Path
) -> None:
    table = package(name="it", main=main, scripts={"test": "tsc && mocha"})
    lay(tmp_path, {"package.json": table, "test/a.js": "import a from 'it';\n"})
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
@pytest.mark.parametrize("script", ["mocha --color", "ava"])
def test_a_runner_from_a_package_that_finds_no_files_has_no_tests(script: str, tmp_path: Path) -> None:
    needs(script.partition(" ")[0])
    folder = lay(tmp_path / "it", {"package.json": package(scripts={"test": script})})
    installed(folder)
    assert run(folder).status is ReportStatus.NO_TESTS


def test_a_pattern_without_files_stays_as_it_is_written_as_in_a_shell(tmp_path: Path) -> None:
    lay(tmp_path, {"package.json": package(scripts={"test": "tap run tests/**/*.js lib/**/*.js"}), "lib/a/b.js": ""})
    assert detect(tmp_path)[0].command == ["tap", "run", "tests/**/*.js", "lib/*/*.js"]


def test_values_of_options_are_no_files() -> None:
    words = ["--require", "test/env", "--check-leaks", "test/", "test/acceptance/"]
    assert options_only(words, ["--require"]) == ["--require", "test/env", "--check-leaks"]


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


def test_a_reporter_in_the_script_of_nodes_tests_is_replaced_by_ours(tmp_path: Path) -> None:
    needs("node")
    script = "node --test --test-reporter dot --test-reporter-destination=stdout --test-reporter=tap a.test.js"
    test = "require('node:test')('a', () => {});\n"
    folder = lay(tmp_path / "it", {"package.json": package(scripts={"test": script}), "a.test.js": test})
    assert statuses(run(folder)) == {"a.test.js::a": "passed"}


# What tsx does: the text that is run is another one, with its lines put together.
_LOADER = """
import { register } from 'node:module';
const source = `import test from 'node:test';test('a', () => {});`;
const load = `export const load = (url, context, next) => url.endsWith('.test.ts')
  ? { format: 'module', shortCircuit: true, source: ${JSON.stringify(source)} } : next(url, context);`;
register('data:text/javascript,' + encodeURIComponent(load));
"""


def test_a_test_in_typescript_has_the_line_that_was_written(tmp_path: Path) -> None:
    needs("node")
    folder = lay(tmp_path / "it", {
        "package.json": package(scripts={"test": "node --import ./load.mjs --test a.test.ts"}), "load.mjs": _LOADER,
        "a.test.ts": "import test from 'node:test';\n\ntype A = 1;\ntest('a', () => {});\n",
    })  # fmt: skip
    assert [(test.id, test.line) for test in run(folder).tests] == [("a.test.ts::a", 4)]


def test_a_runner_that_is_not_installed_is_not_a_crash(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"test_a.py": "def test_a(): pass\n"})
    targets = detect(folder, command="python3 -S -m pytest", runner_name="pytest")
    report = run(folder, targets, PYTHONPATH="")
    assert (report.status, report.notes[0].partition(";")[0]) == (ReportStatus.ERROR, "No module named pytest")


def test_a_module_that_mocha_does_not_find_is_a_file_that_does_not_load() -> None:
    output = "ERROR: Error [ERR_MODULE_NOT_FOUND]: Cannot find module '/w/index.js' imported from /w/test/a.js\n"
    error = load_error_in(f"\n{output}    at x (node:a:1:2)\n", "mocha")
    assert error
    assert (error.file, error.type, error.code) == ("/w/test/a.js", "Error", "ERR_MODULE_NOT_FOUND")


def test_of_a_file_that_mocha_cannot_load_the_error_type_is_named_once() -> None:
    error = load_error_in(
        "\nError: Cannot find module './b'\nRequire stack:\n- /w/a.js\n    at f (/w/a.js:3:1)\n", "mocha"
    )
    assert error
    assert (error.type, error.message) == ("Error", "Cannot find module './b'")


@pytest.mark.parametrize(
    ("output", "reported"),
    [
        ("Error: While loading /w/b.js: SyntaxError: Unexpected token ';'\n    at f (/w/node_modules/b/a.js:1:2)\n",
         ("/w/b.js", 0, "SyntaxError", "Unexpected token ';'")),
        ("\n Exception during run: SyntaxError[ @/w/b.js ]: Unexpected token ';'\n    at f (node:internal/a:1:2)\n",
         ("/w/b.js", 0, "SyntaxError", "Unexpected token ';'")),
        ("\n Exception during run: TypeError: top\n    at file:///w/b.js:2:8\n", ("/w/b.js", 2, "TypeError", "top")),
        ("\n Exception during run: SyntaxError: The module './a' has no 'b'\n    at f (node:internal/a:1:2)\n",
         ("", 0, "SyntaxError", "The module './a' has no 'b'")),
    ],
)  # fmt: skip
def test_how_runners_that_load_all_files_first_say_that_one_does_not(
    output: str, reported: tuple[str, int, str, str]
) -> None:
    error = load_error_in(output, "mocha")
    assert error
    assert (error.file, error.line, error.type, error.message) == reported


def test_a_file_that_does_not_compile_before_it_is_loaded_is_a_compile_error() -> None:
    output = (
        "\n Exception during run: test/b.ts(1,7): error TS2322: Type 'string' is not assignable to type 'number'.\n"
    )
    parsed = before_first_test(output, "mocha")
    assert parsed
    assert [(error.file, error.line, error.column, error.code) for error in parsed.compile_errors] == [
        ("test/b.ts", 1, 7, "TS2322")
    ]


@pytest.mark.toolchain
def test_of_mochas_configuration_only_the_files_are_left_out_when_some_are_asked_for(tmp_path: Path) -> None:
    needs("mocha")
    files = {f"t/{name}.js": "it('one', () => { if (!globalThis.set) throw 1; });" for name in "abc"}
    config = '{"spec": ["t/*.js"], "require": ["./set.js"]}'
    folder = lay(tmp_path / "it", {
        "package.json": package(scripts={"test": "mocha"}), ".mocharc.json": config, "set.js": "globalThis.set = 1;",
        **files,
    })  # fmt: skip
    installed(folder)
    assert len(run(folder).tests) == 3
    alone = run(folder, only={"mocha": [TestResult(id="t/b.js", file="t/b.js", status=TestStatus.TODO)]})
    assert statuses(alone) == {"t/b.js::one": "passed"}
    assert alone.tests[0].line == 1


@pytest.mark.toolchain
def test_a_file_in_two_jest_projects_is_reported_for_each_and_rerun_in_the_one_that_failed(tmp_path: Path) -> None:
    needs("jest")
    projects = [{"displayName": name, "testMatch": [f"<rootDir>/{{a,{name}}}.test.js"], "globals": {"at": name}}
                for name in ("one", "two")]  # fmt: skip
    folder = lay(tmp_path / "it", {
        "package.json": package(scripts={"test": "jest"}, jest={"projects": projects}),
        "a.test.js": "test('a', () => { expect(at).toBe('one'); });", "two.test.js": "test('b', () => {});",
    })  # fmt: skip
    installed(folder)
    report = run(folder)
    assert statuses(report) == {
        "a.test.js::a [one]": "passed", "a.test.js::a [two]": "failed", "two.test.js::b": "passed",
    }  # fmt: skip
    (failed,) = [test for test in report.tests if test.failure]
    assert rerun_command(failed, detect(folder)) == "npx jest a.test.js --selectProjects two -t '^a$'"
    assert statuses(run(folder, only=chosen(report, failed.id)))[failed.id] == "failed"


@pytest.mark.toolchain
def test_one_of_denos_tests_runs_alone_and_a_step_with_its_test(tmp_path: Path) -> None:
    needs("deno")
    steps = "Deno.test('s', async (t) => { await t.step('two', () => { throw new Error('b'); }); });\n"
    files = {"deno.json": "{}", "a_test.ts": "Deno.test('a', () => { throw new Error('a'); });\n" + steps}
    folder = lay(tmp_path / "it", files)
    report = run(folder)
    whole = {"a_test.ts::a": "failed", "a_test.ts::s": "failed", "a_test.ts::s > two": "failed"}
    assert statuses(report) == whole
    assert statuses(run(folder, only=chosen(report, "a_test.ts::a"))) == {"a_test.ts::a": "failed"}
    assert statuses(run(folder, only=chosen(report, "a_test.ts::s > two"))).get("a_test.ts::s > two") == "failed"
    assert statuses(run(folder, only=chosen(report, *whole))) == whole


@pytest.mark.toolchain
def test_a_file_in_two_of_vitests_projects_has_ended_in_both(tmp_path: Path) -> None:
    needs("vitest")
    projects = [{"test": {"name": name, "include": ["*.test.js"]}} for name in ("one", "two")]
    folder = lay(tmp_path / "it", {
        "package.json": package(scripts={"test": "vitest run"}),
        "vitest.config.js": f"export default {{ test: {{ projects: {projects} }} }};",
        "a.test.js": "import { test } from 'vitest'; test('a', () => {});",
    })  # fmt: skip
    installed(folder)
    report = run(folder)
    assert (report.status, statuses(report)) == (
        ReportStatus.PASSED,
        {"a.test.js::a [one]": "passed", "a.test.js::a [two]": "passed"},
    )
    commands = [rerun_command(test, detect(folder)) for test in report.tests]
    assert commands == [f"npx vitest run --project={name} a.test.js -t '^a$'" for name in ("one", "two")]


def test_tap_before_version_18_gets_its_own_option_to_measure_nothing(tmp_path: Path) -> None:
    for version, word in (("16.3.10", "--no-coverage"), ("21.0.1", "--disable-coverage")):
        program = f"#!/bin/sh\ncase \"$*\" in *{word}*) printf 'ok 1 - a\\n1..1\\n';; *) exit 1;; esac\n"
        folder = lay(tmp_path / version, {
            "package.json": package(scripts={"test": "tap"}), "node_modules/.bin/tap": program,
            "node_modules/tap/package.json": package(version=version),
        })  # fmt: skip
        (folder / "node_modules/.bin/tap").chmod(0o755)
        assert run(folder).status is ReportStatus.PASSED


@pytest.mark.toolchain
def test_what_does_not_compile_for_jest_has_its_place(tmp_path: Path) -> None:
    needs("jest")
    thrown = "exports.process = () => { throw new Error('a.test.ts:2:7 - error TS2322: Type string is not'); };"
    folder = lay(tmp_path / "it", {
        "package.json": package(scripts={"test": "jest"}, jest={"transform": {"test.ts$": "<rootDir>/compile.js"}}),
        "a.test.ts": "test('a', () => {});", "compile.js": thrown,
    })  # fmt: skip
    installed(folder)
    (error,) = run(folder).collection_errors
    assert (error.file, error.line, error.column) == ("a.test.ts", 2, 7)


@pytest.mark.toolchain
@pytest.mark.parametrize("runner", ["mocha", "jasmine"])
def test_a_module_that_is_not_there_is_an_error_of_the_file_that_imports_it(runner: str, tmp_path: Path) -> None:
    needs(runner)
    files = {"spec/a.mjs": "it('a', () => {});", "spec/b.mjs": "import './gone.mjs';\nit('b', () => {});"}
    folder = lay(tmp_path / "it", {"package.json": package(scripts={"test": f"{runner} spec/*.mjs"}), **files})
    installed(folder)
    report = run(folder)
    (error,) = report.collection_errors
    assert (report.status, error.file, error.tool) == (ReportStatus.FAILED, "spec/b.mjs", runner)


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
    output = subprocess.run(
        rerun_command(failed, detect(folder)), shell=True, cwd=folder, capture_output=True, check=False
    )
    assert output.returncode, output.stdout


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
def test_errors_in_setup_and_teardown_are_reported_for_their_test(
    runner: str, file: str, around: str, status: str, expected: dict[str, str], tmp_path: Path
) -> None:
    needs(runner)
    folder = lay(tmp_path / "it", {"package.json": package(scripts={"test": runner}), file: AROUND[around]})
    installed(folder)
    report = run(folder)
    assert {test.id: test.failure.type for test in report.tests if test.failure} == expected
    assert (report.status, report.collection_errors) == (status, [])


@pytest.mark.toolchain
def test_an_error_after_all_jest_tests_is_reported_and_tests_of_one_name_are_two(tmp_path: Path) -> None:
    needs("jest")
    text = "test('a', () => {});\ntest('a', () => {});\nafterAll(() => { throw new TypeError('b'); });\n"
    folder = lay(tmp_path / "it", {"package.json": package(scripts={"test": "jest"}), "a.test.js": text})
    installed(folder)
    report = run(folder)
    (error,) = report.collection_errors
    assert (error.file, error.line, error.type, error.message) == ("a.test.js", 3, "TypeError", "b")
    assert statuses(report) == {"a.test.js::a": "passed", "a.test.js::a (2)": "passed"}


def test_an_error_after_a_node_test_is_reported_with_it(tmp_path: Path) -> None:
    needs("node")
    text = "const { it } = require('node:test');\n" + AROUND["late"]
    folder = lay(tmp_path / "it", {"package.json": package(scripts={"test": "node --test"}), "a.test.js": text})
    report = run(folder)
    (error,) = report.collection_errors
    assert (report.status, error.file, error.line, error.type) == (ReportStatus.FAILED, "a.test.js", 2, "TypeError")
    assert 'late (Test "a" at' in error.message


# As vitest was before its third version: it tells plain tasks, and refuses options that came later.
_OLD_VITEST = """#!/usr/bin/env node
if (process.argv.includes('--includeTaskLocation')) throw new Error('Unknown option');
const path = process.argv.find((word) => word.startsWith('--reporter=/')).slice('--reporter='.length);
const at = (name) => require('node:path').resolve(name);
const file = (name, result) => ({ type: 'suite', filepath: at(name), name, result, tasks: [] });
const add = (suite, task) => suite.tasks.push({ suite, mode: 'run', ...task });
const good = file('a.test.js', { state: 'pass' });
const bad = file('b.test.js', { state: 'fail', errors: [new TypeError('no')] });
const dead = file('c.test.js');
const root = { type: 'suite', name: '', tasks: [] };
const inner = { type: 'suite', name: 's', tasks: [], suite: root };
good.tasks.push(root);
root.tasks.push(inner);
add(root, { type: 'test', name: 'one', result: { state: 'pass', retryCount: 1 }, location: { line: 7 } });
add(root, { type: 'test', name: 'later', mode: 'todo' });
const thrown = { name: 'AssertionError', message: 'm', expected: 'undefined', actual: 'undefined' };
add(inner, { type: 'test', name: 'two', result: { state: 'fail', errors: [thrown] } });
add(dead, { type: 'test', name: 'before', result: { state: 'pass' } });
add(dead, { type: 'test', name: 'never' });
const vitest = { version: '2.1.9', config: {}, state: { idMap: new Map([['1', good]]) } };
import(path).then(({ default: Reporter }) => {
  const reporter = new Reporter();
  reporter.onInit(vitest);
  reporter.onCollected([good, bad, ...(process.env.DIES ? [dead] : [])]);
  reporter.onTaskUpdate([['1', good.result]]);
  reporter.onFinished([good, bad, ...(process.env.DIES ? [dead] : [])], []);
  process.exitCode = vitest.config.includeTaskLocation ? 1 : 3;
});
"""
# The third says only at the end that a file has ended which could not be loaded; and that may never come.
_CUT_VITEST = """#!/usr/bin/env node
const path = process.argv.find((word) => word.startsWith('--reporter=/')).slice('--reporter='.length);
const file = {
  moduleId: require('node:path').resolve('b.test.js'), state: () => 'failed', errors: () => [new TypeError('no')],
  children: { allSuites: () => [] },
};
import(path).then(({ default: Reporter }) => {
  const reporter = new Reporter();
  reporter.onInit({ version: '3.2.4', config: {} });
  reporter.onTestModuleQueued(file);
  reporter.onTestModuleCollected(file);
  process.exit(1);
});
"""


def with_vitest(folder: Path, program: str) -> Path:
    lay(folder, {"package.json": package(scripts={"test": "vitest run"}), "node_modules/.bin/vitest": program})
    (folder / "node_modules/.bin/vitest").chmod(0o755)
    return folder


def test_vitest_before_version_3_reports_the_same(tmp_path: Path) -> None:
    needs("node")
    report = run(with_vitest(tmp_path / "it", _OLD_VITEST))
    assert statuses(report) == {"a.test.js::one": "passed", "a.test.js::later": "todo", "a.test.js::s > two": "failed"}
    assert (report.status, report.exit_code) == (ReportStatus.FAILED, 1)
    assert [(error.file, error.type, error.message) for error in report.collection_errors] == [
        ("b.test.js", "TypeError", "no")
    ]
    tests = {test.name: test for test in report.tests}
    assert (tests["one"].line, tests["one"].attempts, red(report)["a.test.js::s > two"][2:]) == (7, 2, (None, None))


def test_a_file_whose_worker_died_has_only_known_results(tmp_path: Path) -> None:
    needs("node")
    report = run(with_vitest(tmp_path / "it", _OLD_VITEST), DIES="1")
    assert report.status is ReportStatus.CRASHED
    assert statuses(report).get("c.test.js::before") == "passed"
    assert "c.test.js::never" not in statuses(report)


def test_a_file_that_vitest_could_not_load_is_reported_although_the_run_never_ended(tmp_path: Path) -> None:
    needs("node")
    report = run(with_vitest(tmp_path / "it", _CUT_VITEST))
    assert [(error.file, error.message) for error in report.collection_errors] == [("b.test.js", "no")]
    assert report.status is ReportStatus.CRASHED


def test_skips_caused_by_a_selection_are_reported_only_for_selected_tests() -> None:
    ids = ["a.js::s > t", "a.js::s > t u", "a.js::s", "a.js::s > t/u", "b.js::v"]
    tests = [TestResult(id=name, status=TestStatus.SKIPPED) for name in ids]
    asked = {
        name: [test.id for test in drop_unselected_skips(tests, [TestResult(id=name, status=TestStatus.TODO)])]
        for name in ids
    }
    assert asked["a.js::s > t"] == ["a.js::s > t"]
    assert asked["a.js::s"] == ids[:4]
    assert [test.id for test in drop_unselected_skips(tests, [])] == ids
