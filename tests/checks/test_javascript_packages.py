"""JavaScript's packages and scripts as other people have them: monorepos, unknown commands, one test again."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from ratchet.checks.detect.rerun import rerun_command
from ratchet.checks.detect.targets import detect
from ratchet.core.report import ReportStatus, TestResult, TestStatus
from tests.checks.support import needs, red, run, statuses
from tests.checks.test_detect import lay, package
from tests.checks.test_strangers_javascript import installed


@pytest.mark.parametrize(
    "script",
    ["nx run-many --targets=test:lint,test:lib,build", "npx nx affected -t test:lib", "turbo run lint test:lib",
     "lerna run test:lib --stream", "npm run test:lib --workspaces --if-present", "npm test && pnpm -r test:lib",
     "pnpm --filter './packages/*' run test:lib", "yarn workspaces foreach -A run test:lib",
     "bun run --filter '*' test:lib", "cross-env CI=1 npm run test:lib -ws"],
)  # fmt: skip
def test_what_a_monorepo_has_its_packages_run_is_run_there_as_they_say(script: str, tmp_path: Path) -> None:
    lay(tmp_path, {
        "package.json": package(scripts={"test": script}), "vitest.config.js": "",
        "packages/a/package.json": package(scripts={"test": "vitest --ui", "test:lib": "vitest --dir x"}),
        "packages/b/package.json": package(scripts={"test:lib": "mocha lib"}),
        "packages/c/package.json": package(scripts={"lint": "eslint"}),
    })  # fmt: skip
    found = {target.root: target.command for target in detect(tmp_path)}
    assert found == {"packages/a": ["vitest", "--dir", "x"], "packages/b": ["mocha", "lib"]}


def test_what_denos_configuration_is_beside_a_package_that_tests_otherwise_is_no_runner(tmp_path: Path) -> None:
    files = {"package.json": package(scripts={"test": "vitest"}), "deno.json": '{"name": "@a/b"}'}
    assert [target.runner for target in detect(lay(tmp_path / "published", files))] == ["vitest"]
    files["deno.json"] = '{"tasks": {"test": "deno test -A"}}'
    assert [target.runner for target in detect(lay(tmp_path / "tested", files))] == ["deno"]


TAP = (
    "TAP version 13\n# a\nok 1 - one\nnot ok 2 - two\n"
    "  ---\n    at: t.js:3:1\n    expected: 1\n    actual: 2\n  ...\n1..2\n"
)


def test_an_unknown_script_that_prints_tap_is_read_unless_it_prints_two_documents(tmp_path: Path) -> None:
    files = {"package.json": package(scripts={"test": "echo built; cat out; false"}), "out": TAP}
    report = run(lay(tmp_path / "one", files))
    assert [str(test.status) for test in report.tests] == ["passed", "failed"]
    assert [*red(report).values()] == [("t.js", 3, "1", "2")]
    twice = run(lay(tmp_path / "two", files | {"out": TAP + TAP}))
    assert (twice.status, twice.tests) == (ReportStatus.UNKNOWN, [])
    cut = run(lay(tmp_path / "cut", files | {"out": TAP.removesuffix("1..2\n")}))
    assert (cut.status, len(cut.tests)) == (ReportStatus.UNKNOWN, 2)


@pytest.mark.parametrize("runner", ["bun", "jest", "vitest", "mocha", "lab", "node"])
def test_the_command_for_one_test_means_no_other_whose_name_holds_its_own(runner: str, tmp_path: Path) -> None:
    script = {"bun": "bun test", "node": "node --test"}.get(runner, runner)
    folder = lay(tmp_path, {"package.json": package(scripts={"test": script})})
    test = TestResult(id="a.test.js::s > b.", file="a.test.js", suite=["s"], name="b.", status=TestStatus.FAILED)
    assert {"node": r"=^b\.$'"}.get(runner, r"'^s b\.$'") in rerun_command(
        msgspec.structs.replace(test, target=runner), detect(folder)
    )


@pytest.mark.toolchain
@pytest.mark.parametrize("runner", ["jest", "vitest"])
def test_a_measure_that_is_not_reached_is_no_failure_of_the_tests(runner: str, tmp_path: Path) -> None:
    needs(runner)
    folder = lay(tmp_path / "it", {
        "package.json": package(scripts={"test": runner}),
        "jest.config.json": '{"collectCoverage": true, "coverageThreshold": {"global": {"functions": 100}}}',
        "vitest.config.js": "export default { test: { globals: true, coverage: { enabled: true, provider: 'x' } } };",
        "a.js": "exports.a = () => 1;\nexports.b = () => 2;\n",
        "a.test.js": "test('a', () => { expect(require('./a.js').a()).toBe(1); });",
    })  # fmt: skip
    (folder / {"jest": "vitest.config.js", "vitest": "jest.config.json"}[runner]).unlink()
    installed(folder)
    assert run(folder).status is ReportStatus.PASSED


def test_two_of_playwrights_configurations_are_two_commands(tmp_path: Path) -> None:
    lay(tmp_path, {"package.json": package(scripts={"test": "playwright test -c a.ts && playwright test -c b.ts"})})
    (target,) = detect(tmp_path)
    both = [["playwright", "test", "-c", "a.ts"], ["playwright", "test", "-c", "b.ts"]]
    assert [target.command, *target.also] == both


AVA = {
    "package.json": package(type="module", scripts={"test": "ava"}),
    "test.js": "import test from 'ava';\nconst same = (t) =>\n  t.true(false);\n\ntest('a', (t) => {\n  same(t);\n});\n"
    "test.beforeEach((t) => { if (t.title.endsWith(' b')) throw new RangeError('b'); });\ntest('b', () => {});\n",
    "dies.test.js": "import test from 'ava';\n\ntest('a', (t) => t.pass());\ntest('dies', () => process.exit(0));\n",
    "unread.test.js": "import test from 'ava';\ntest('c' () => {});\n",
}


@pytest.mark.toolchain
@pytest.mark.parametrize("threads", [True, False])
def test_results_of_ava_workers_are_reported_with_their_location(threads: bool, tmp_path: Path) -> None:
    needs("ava")
    config = f"export default {{ workerThreads: {str(threads).lower()} }};"
    folder = lay(tmp_path / "it", AVA | {"ava.config.js": config})
    installed(folder)
    report = run(folder)
    assert red(report) == {
        "test.js::a": ("test.js", 3, "true", "false"),
        "test.js::beforeEach hook for b": ("test.js", 8, None, None),
        "dies.test.js::dies": ("dies.test.js", 4, None, None),
    }
    (test,) = [test for test in report.tests if test.id == "test.js::a"]
    assert [frame.line for frame in test.failure.frames if test.failure] == [6, 3]  # type: ignore[union-attr]
    (error,) = report.collection_errors
    assert (error.file, error.line, error.column, error.type) == ("unread.test.js", 2, 10, "SyntaxError")
    hook = next(test for test in report.tests if "hook" in test.id)
    assert rerun_command(hook, detect(folder)) == "npx ava test.js --match=b"


@pytest.mark.toolchain
def test_mochas_tests_of_one_title_have_each_its_line(tmp_path: Path) -> None:
    needs("mocha")
    suites = "for (const each of ['s', 't']) {\n  describe(each, () => {\n    it('a', () => {});\n  });\n}\n"
    text = suites + "it('a', () => {});\n"
    folder = lay(tmp_path / "it", {"package.json": package(scripts={"test": "mocha"}), "test/a.js": text})
    installed(folder)
    assert [test.line for test in run(folder).tests] == [6, 3, 3]


def test_what_tape_asserts_is_named_with_its_test_and_is_no_path(tmp_path: Path) -> None:
    output = "TAP version 13\nok 1 g\nok 2 ./g\n# two\nok 3 g\n\n1..3\n# tests 3\n# pass  3\n\n# ok\n"
    folder = lay(tmp_path / "it", {
        "package.json": package(scripts={"test": "tape test/*.js"}), "said": output,
        "node_modules/.bin/tape": "#!/bin/sh\ncat said\n",
    })  # fmt: skip
    (folder / "node_modules/.bin/tape").chmod(0o755)
    report = run(folder)
    assert statuses(report) == {"g": "passed", "./g": "passed", "two > g": "passed"}
    assert [(test.suite, test.name) for test in report.tests[1:]] == [([], "./g"), (["two"], "g")]


UNREAD = "\nit('c' () => {});\n"


@pytest.mark.toolchain
def test_files_that_mocha_cannot_load_do_not_hide_the_others(tmp_path: Path) -> None:
    needs("mocha")
    folder = lay(tmp_path / "it", {
        "package.json": package(scripts={"test": "mocha"}), "test/a.js": "it('a', () => {});",
        "test/b.js": UNREAD, "test/c.js": "require('nothing');",
    })  # fmt: skip
    installed(folder)
    report = run(folder)
    assert (report.status, statuses(report)) == (ReportStatus.FAILED, {"test/a.js::a": "passed"})
    assert [(error.file, error.line) for error in report.collection_errors] == [("test/b.js", 2), ("test/c.js", 1)]
    lay(folder, {"test/a.js": "require('../lib.js');", "lib.js": UNREAD})
    report = run(folder)
    assert (report.status, report.tests) == (ReportStatus.FAILED, [])


@pytest.mark.toolchain
def test_playwright_projects_report_values_and_a_broken_file_does_not_hide_the_others(tmp_path: Path) -> None:
    needs("playwright")
    take = "const { test, expect } = require('@playwright/test');\n"
    same = "test('same', ({}, info) => {\n  expect({ at: info.project.name }).toEqual({ at: 'one' });\n});\n"
    folder = lay(tmp_path / "it", {
        "package.json": package(scripts={"test": "playwright test"}),
        "playwright.config.js": "module.exports = { projects: [{ name: 'one' }, { name: 'two' }] };",
        "a.spec.js": take + same, "b.spec.js": take + "test('b', ( => {});\n",
    })  # fmt: skip
    installed(folder)
    report = run(folder)
    assert statuses(report) == {"[one] a.spec.js::same": "passed", "[two] a.spec.js::same": "failed"}
    values = ('Object {\n  "at": "one",\n}', 'Object {\n  "at": "two",\n}')
    assert red(report) == {"[two] a.spec.js::same": ("a.spec.js", 3, *values)}
    assert rerun_command(report.tests[1], detect(folder)) == "npx playwright test --project=two a.spec.js:2"
    (error,) = report.collection_errors
    assert (error.file, error.line, error.type) == ("b.spec.js", 2, "SyntaxError")
    assert error.message.startswith("b.spec.js: Unexpected token")


@pytest.mark.toolchain
def test_what_mocha_runs_in_parallel_keeps_its_type_and_a_file_that_goes_wrong_is_one(tmp_path: Path) -> None:
    needs("mocha")
    folder = lay(tmp_path / "it", {
        "package.json": package(scripts={"test": "mocha --parallel --jobs 2"}),
        "test/a.js": "it('a', () => {\n  require('assert').strictEqual(1, 2);\n});", "test/b.js": UNREAD,
        "test/c.js": "it('c', () => process.exit(0));",
    })  # fmt: skip
    installed(folder)
    report = run(folder)
    assert red(report) == {"test/a.js::a": ("test/a.js", 2, "2", "1")}
    assert [test.failure.type for test in report.tests if test.failure] == ["AssertionError"]
    assert {(error.file, error.line) for error in report.collection_errors} == {("test/b.js", 2), ("test/c.js", 0)}


# On jasmine, as jest was before its 27th version, a failure has values of its own, which are empty.
_OLD_JEST = """#!/usr/bin/env node
const Reporter = require(process.argv.find((word) => word.startsWith('--reporters=/')).slice('--reporters='.length));
const reporter = new Reporter({});
const result = (title, error) => ({
  title, status: 'failed', failureMessages: ['Error: no\\n    at a.test.js:1:1'],
  failureDetails: [{ passed: false, matcherName: '', expected: '', actual: '', error }],
});
reporter.onRunStart();
for (const [title, error] of [['a', { matcherResult: { expected: 1, actual: 2 } }], ['b', {}]]) {
  reporter.onTestCaseResult({ path: require('node:path').resolve('a.test.js') }, result(title, error));
}
reporter.onRunComplete();
process.exitCode = 1;
"""


def test_empty_values_beside_an_error_of_an_old_jest_are_none(tmp_path: Path) -> None:
    needs("node")
    program = {"package.json": package(scripts={"test": "jest"}), "node_modules/.bin/jest": _OLD_JEST}
    folder = lay(tmp_path / "it", program)
    (folder / "node_modules/.bin/jest").chmod(0o755)
    assert [values for _, _, *values in red(run(folder)).values()] == [["1", "2"], [None, None]]


def test_a_node_test_run_that_is_forced_to_exit_reports_its_end(tmp_path: Path) -> None:
    needs("node")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    option = " --test-force-exit" if int(version[1:].partition(".")[0]) >= 22 else ""
    text = "".join(f"require('node:test')('{number}', () => {{}});\n" for number in range(30))
    folder = lay(
        tmp_path / "it", {"package.json": package(scripts={"test": f"node --test{option}"}), "a.test.js": text}
    )
    report = run(folder)
    assert (report.status, len({test.name for test in report.tests})) == (ReportStatus.PASSED, 30)


_BUN = "import { test } from 'bun:test';\ntest('a', () => {});\n"


@pytest.mark.toolchain
def test_a_file_that_bun_cannot_load_is_located_and_earlier_results_are_kept(tmp_path: Path) -> None:
    needs("bun")
    files = {"package.json": package(scripts={"test": "bun test"}), "a.test.ts": _BUN}
    broken = {"b.test.ts": "\ntest('x' () => {});\n", "c.test.ts": f"{_BUN}throw new TypeError('top');\n"}
    report = run(lay(tmp_path / "broken", files | broken))
    found = [(error.file, error.line, error.column, error.type, error.message) for error in report.collection_errors]
    assert found == [
        ("b.test.ts", 2, 13, "Error", 'Expected ")" but found "=>"'),
        ("c.test.ts", 3, 11, "TypeError", "top"),
    ]
    died = run(lay(tmp_path / "died", files | {"d.test.ts": f"{_BUN}test('dies', () => process.exit(0));\n"}))
    assert died.status is ReportStatus.CRASHED
    assert statuses(died) == {"a.test.ts::a": "passed", "d.test.ts::a": "passed", "d.test.ts": "error"}


@pytest.mark.toolchain
def test_what_does_not_compile_for_deno_has_its_place_and_does_not_hide_the_others(tmp_path: Path) -> None:
    needs("deno")
    files = {"deno.json": "{}", "a_test.ts": "Deno.test('a', () => {});\n", "b_test.ts": "\nDeno.test('x' () => {});\n"}
    report = run(lay(tmp_path / "it", files))
    (error,) = report.collection_errors
    assert (error.file, error.line, error.column, error.type) == ("b_test.ts", 2, 18, "SyntaxError")
    assert (report.status, statuses(report)) == (ReportStatus.FAILED, {"a_test.ts::a": "passed"})
