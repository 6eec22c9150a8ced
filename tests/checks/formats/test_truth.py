"""The recorded projects were written on purpose: what each holds is known from its source, not from our parsers.

Every project has a test that fails because 2 + 2 came out as 5; its name and line stand here by hand.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.checks.formats.golden import FIXTURES, parsed

COUNTS = {
    "junit/pytest_xunit1.xml": "2 passed, 4 failed, 2 error, 1 skipped, 1 xfailed, 1 broken",
    "junit/pytest_xunit2.xml": "2 passed, 4 failed, 2 error, 1 skipped, 1 xfailed, 1 broken",
    "junit/bun.xml": "1 passed, 2 failed, 1 skipped, 1 todo",
    "junit/deno.xml": "2 passed, 3 failed, 1 skipped",
    "junit/phpunit.xml": "2 passed, 3 failed, 1 error, 2 skipped",
    "junit/bats.xml": "1 passed, 1 failed, 1 skipped",
    "junit/busted.xml": "1 passed, 1 failed, 1 error, 1 skipped",
    "junit/gtest.xml": "2 passed, 4 failed, 2 skipped",
    "junit/ctest.xml": "1 passed, 2 failed, 1 error, 1 skipped",
    "junit/surefire.xml": "1 passed, 2 failed, 1 error, 1 skipped",
    "tap/node.tap": "4 passed, 3 failed, 1 skipped, 1 todo, 1 broken",
    "tap/bats.tap": "1 passed, 1 failed, 1 skipped",
    "tap/bats13.tap": "1 passed, 1 failed, 1 skipped",
    "tap/prove.tap": "2 passed, 3 failed, 2 skipped, 1 todo",
    "tap/ava.tap": "2 passed, 2 failed, 1 skipped, 1 todo",
    "tap/tape.tap": "1 passed, 1 failed",
    "tap/vitest.tap": "1 passed, 2 failed, 1 skipped, 1 todo, 1 broken",
    "tap/vitest_flat.tap": "1 passed, 2 failed, 1 skipped, 1 todo, 1 broken",
    "go_json/go_new.jsonl": "3 passed, 4 failed, 1 skipped, 1 broken",
    "go_json/go_old.jsonl": "3 passed, 4 failed, 1 skipped, 1 broken",
    "cargo/cargo_text.txt": "2 passed, 5 failed, 1 skipped",
    "cargo/libtest.jsonl": "1 passed, 5 failed, 1 skipped",
    "cargo/cargo_build.jsonl": "2 broken",
    "cargo/cargo_build.txt": "2 broken",
    "jest_json/jest.json": "3 passed, 4 failed, 1 skipped, 1 todo, 1 broken",
    "jest_json/vitest.json": "1 passed, 2 failed, 1 skipped, 1 todo, 1 broken",
    "mocha_json/mocha.json": "1 passed, 3 failed, 1 error, 1 skipped",
    "playwright_json/playwright.json": "2 passed, 1 failed, 1 skipped, 1 xfailed",
    "rspec_json/rspec.json": "1 passed, 2 failed, 2 skipped, 1 todo",
    "rspec_json/rspec_broken.json": "1 broken",
    "gtest_json/gtest.json": "2 passed, 4 failed, 2 skipped",
    "catch2_xml/catch2.xml": "1 passed, 3 failed, 1 xfailed",
    "doctest_xml/doctest.xml": "1 passed, 2 failed, 1 skipped, 1 xfailed",
    "teamcity/phpunit.teamcity": "2 passed, 3 failed, 1 error, 2 skipped",
    "exunit/exunit_trace.txt": "1 passed, 3 failed, 1 skipped",
    "minitest/minitest_verbose.txt": "1 passed, 1 failed, 1 error, 1 skipped",
    "zig/zig.txt": "1 passed, 2 failed, 1 skipped",
    "nim/nim.txt": "1 passed, 2 failed, 1 skipped",
}

FIVE_FOR_FOUR = [
    ("junit/pytest_xunit1.xml", "tests/test_calc.py::test_fail", "tests/test_calc.py", 17),
    ("junit/pytest_xunit2.xml", "tests/test_calc.py::test_fail", "tests/test_calc.py", 17),
    ("junit/jest_junit.xml", "calc fails", "/project/calc.test.js", 7),
    ("junit/vitest_junit.xml", "calc.test.js::calc > fails", "calc.test.js", 7),
    ("junit/node_junit.xml", "fails", "/project/calc.test.mjs", 7),
    ("junit/bun.xml", "calc.test.js::calc > fails", "calc.test.js", 7),
    ("junit/deno.xml", "calc_test.js::fails", "/project/calc_test.js", 5),
    ("junit/phpunit.xml", "CalcTest::testFail", "/project/CalcTest.php", 10),
    ("junit/busted.xml", "spec/a_spec.lua::calc fails", "spec/a_spec.lua", 3),
    ("junit/gtest.xml", "Calc.Fails", "g.cc", 6),
    ("junit/catch2_junit.xml", "fails/inner", "c.cc", 7),
    ("junit/doctest_junit.xml", "fails/inner", "d.cc", 8),
    ("junit/ctest.xml", "gtest", "g.cc", 6),
    ("junit/surefire.xml", "com.acme.CalcTest#fails", "com/acme/CalcTest.java", 10),
    ("tap/node.tap", "fails", "/project/calc.test.mjs", 7),
    ("tap/busted.tap", "calc fails", "spec/a_spec.lua", 3),
    ("tap/tape.tap", "fails", "/project/tape.cjs", 4),
    ("tap/vitest.tap", "calc.test.js > calc > fails", "/project/calc.test.js", 7),
    ("tap/vitest_flat.tap", "calc.test.js > calc > fails", "/project/calc.test.js", 7),
    ("go_json/go_new.jsonl", "example.com/fx/calc.TestFail", "calc_test.go", 9),
    ("go_json/go_old.jsonl", "example.com/fx/calc.TestFail", "calc_test.go", 9),
    ("cargo/cargo_text.txt", "tests::fails", "src/lib.rs", 17),
    ("cargo/libtest.jsonl", "tests::fails", "src/lib.rs", 17),
    ("jest_json/jest.json", "/project/calc.test.js::calc fails", "/project/calc.test.js", 7),
    ("jest_json/vitest.json", "/project/calc.test.js::calc fails", "/project/calc.test.js", 7),
    ("mocha_json/mocha.json", "/project/calc.js::calc fails", "calc.js", 7),
    ("playwright_json/playwright.json", "calc.spec.js::calc > fails", "/project/calc.spec.js", 7),
    ("rspec_json/rspec.json", "./spec/calc_spec.rb[1:2]", "/project/spec/calc_spec.rb", 6),
    ("gtest_json/gtest.json", "Calc.Fails", "g.cc", 6),
    ("catch2_xml/catch2.xml", "fails", "c.cc", 7),
    ("doctest_xml/doctest.xml", "fails", "d.cc", 8),
    ("teamcity/phpunit.teamcity", "CalcTest::testFail", "/project/CalcTest.php", 10),
    ("exunit/exunit.txt", "FxTest: test fails", "test/fx_test.exs", 7),
    ("exunit/exunit_trace.txt", "FxTest: test fails", "test/fx_test.exs", 7),
    ("minitest/minitest.txt", "CalcTest#test_fail", "test/calc_test.rb", 7),
    ("zig/zig.txt", "a.test.fails", "/project/a.zig", 7),
    ("nim/nim.txt", "calc::fails", "/project/tcalc.nim", 8),
]


@pytest.mark.parametrize(("name", "wanted"), COUNTS.items(), ids=list(COUNTS))
def test_a_run_holds_what_its_project_holds(name: str, wanted: str) -> None:
    result = parsed(FIXTURES / name)
    found = Counter(test.status.value for test in result.tests)
    found["broken"] += len(result.collection_errors) + len(result.compile_errors)
    expected = Counter({word: int(count) for count, word in (part.split() for part in wanted.split(", "))})
    assert +found == expected


@pytest.mark.parametrize(("name", "test_id", "file", "line"), FIVE_FOR_FOUR, ids=[row[0] for row in FIVE_FOR_FOUR])
def test_five_for_four_is_found_with_its_name_place_and_values(name: str, test_id: str, file: str, line: int) -> None:
    failure = next(test.failure for test in parsed(FIXTURES / name).tests if test.id == test_id)
    assert failure is not None
    assert (failure.file, failure.line, failure.expected, failure.actual) == (file, line, "4", "5")


@pytest.mark.parametrize(
    ("name", "running"),
    [
        ("go_json/go_timeout.jsonl", "example.com/fx/calc.TestHang"),
        ("go_json/go_exit.jsonl", "example.com/fx/calc.TestExit"),
    ],
)
def test_the_test_that_hung_or_killed_the_runner_is_named(name: str, running: str) -> None:
    assert parsed(FIXTURES / name).running == [running]
