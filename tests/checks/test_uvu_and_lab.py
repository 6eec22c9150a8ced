"""Runners that tell people only: a guest of ours makes each of their tests a record."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.checks.detect.targets import detect
from ratchet.core.report import ReportStatus
from tests.checks.support import NPM, chosen, needs, red, run, statuses
from tests.checks.test_detect import lay, package

_UVU = """
import { test, suite } from 'uvu';
import * as assert from 'uvu/assert';
test('adds', () => assert.is(1 + 1, 2));
test('compares', () => {
  assert.equal({ a: 1 }, { a: 2 });
});
test.skip('later', () => {});
test.run();
const inner = suite('inner');
let calls = 0;
inner.before.each(() => { if (++calls === 2) throw new TypeError('each'); });
inner('one', () => {});
inner('two', () => {});
inner.run();
"""
_LAB = """
const { expect } = require('@hapi/code');
const { describe, it, before, after } = exports.lab = require('@hapi/lab').script();
it('adds', () => {});
it('compares', () => {
    expect({ a: 1 }).to.equal({ a: 2 });
});
it.skip('sometimes', () => {});
it('later');
describe('set up', () => { before(() => { throw new TypeError('before'); }); it('one', () => {}); });
describe('torn down', () => {
    after(() => { throw new TypeError('after'); });
    it('one', () => {});
});
"""


def laid(folder: Path, script: str, **files: str) -> Path:
    lay(folder, {"package.json": package(scripts={"test": script}), **files})
    (folder / "node_modules").symlink_to(NPM)
    return folder


@pytest.mark.toolchain
def test_uvu_reports_each_test_with_place_and_values(tmp_path: Path) -> None:
    needs("uvu")
    folder = laid(tmp_path / "it", "uvu -b test", **{"test/a.mjs": _UVU})
    report = run(folder)
    assert statuses(report) == {
        "test/a.mjs::adds": "passed", "test/a.mjs::compares": "failed", "test/a.mjs::inner > one": "passed",
        "test/a.mjs::inner > two": "failed", "test/a.mjs::(uvu does not name what it skips)": "skipped",
    }  # fmt: skip
    assert red(report)["test/a.mjs::compares"] == ("test/a.mjs", 6, "{ a: 2 }", "{ a: 1 }")
    assert red(report)["test/a.mjs::inner > two"][:2] == ("test/a.mjs", 12)
    assert statuses(run(folder, only=chosen(report, "test/a.mjs::adds"))) == {"test/a.mjs::adds": "passed"}


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("text", "status", "reported"),
    [
        ("const x = ;\n", ReportStatus.FAILED, [("test/b.js", 1, "SyntaxError")]),
        (
            "test.before(() => { throw new TypeError('b'); });",
            ReportStatus.INCONSISTENT,
            [("test/b.js", 1, "TypeError")],
        ),
        ("test('ends', () => process.exit(0));", ReportStatus.CRASHED, []),
    ],
)
def test_errors_that_uvu_swallows_are_reported(
    text: str, status: ReportStatus, reported: list[tuple[str, int, str]], tmp_path: Path
) -> None:
    needs("uvu")
    whole = f"const {{ test }} = require('uvu'); {text} test('a', () => {{}}); test.run();"
    report = run(laid(tmp_path / "it", "uvu test", **{"test/b.js": whole}))
    assert (report.status, [(error.file, error.line, error.type) for error in report.collection_errors]) == (
        status,
        reported,
    )


@pytest.mark.toolchain
def test_lab_reports_each_test_with_place_and_values_and_measures_nothing(tmp_path: Path) -> None:
    needs("lab")
    folder = laid(tmp_path / "it", "lab -a @hapi/code -t 100 -L", **{"test/a.js": _LAB, "lib.js": "if (0) { 1; }\n"})
    report = run(folder)
    assert statuses(report) == {
        "test/a.js::adds": "passed", "test/a.js::compares": "failed", "test/a.js::sometimes": "skipped",
        "test/a.js::later": "todo", "test/a.js::set up > one": "error", "test/a.js::torn down > one": "error",
    }  # fmt: skip
    assert red(report)["test/a.js::compares"] == ("test/a.js", 6, "{ a: 2 }", "{ a: 1 }")
    assert [(error.file, error.line, error.message) for error in report.collection_errors] == [
        ("test/a.js", 10, "before"), ("test/a.js", 12, "after"),
    ]  # fmt: skip
    alone = run(folder, only=chosen(report, "test/a.js::adds"))
    assert (alone.status, statuses(alone)) == (ReportStatus.PASSED, {"test/a.js::adds": "passed"})


def test_a_folder_that_is_called_like_a_runner_starts_none(tmp_path: Path) -> None:
    lay(tmp_path, {"package.json": package(scripts={"test": "mocha test/lab uvu"}), "test/lab/a.js": "it('a')"})
    assert [target.runner for target in detect(tmp_path)] == ["mocha"]
    assert detect(tmp_path, command="python3 -m pytest lab")[0].runner == "pytest"
