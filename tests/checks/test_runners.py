"""Real runners on real projects: counts, names, statuses, places and values are exact."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ratchet.checks.detect.targets import detect
from ratchet.core.report import GREEN, ReportStatus, load_errors
from tests.checks.support import chosen, lay_out, red, run, statuses

Values = tuple[str, int, str | None, str | None]


class Expected(msgspec.Struct, kw_only=True):
    """What a project's run must say. `red` has the place and the values of each failure."""

    statuses: dict[str, str]
    red: dict[str, Values]
    broken: list[tuple[str, int]] = []


def _all(prefix: str, **by_status: list[str]) -> dict[str, str]:
    return {f"{prefix}{name}": status for status, names in by_status.items() for name in names}


T = "test_all.py::"
S = "sum.test.js::"
EXPECTED: dict[str, Expected] = {
    "pytest": Expected(
        statuses=_all(
            T,
            passed=["test_passes", "test_each[1]", "test_each[3]"],
            failed=["test_fails", "test_errors_in_the_code_under_test", "test_each[2]", "TestGroup::test_inside",
                    "Old::test_old", "Old::test_subtests"],
            error=["test_set_up_fails", "test_teardown_fails"],
            skipped=["test_skipped"],
            xfailed=["test_expected_to_fail"],
            xpassed=["test_unexpectedly_passes"],
        ),
        red={
            T + "test_fails": ("test_all.py", 15, "4", "3"),
            T + "test_errors_in_the_code_under_test": ("shop.py", 14, None, None),
            T + "test_set_up_fails": ("test_all.py", 24, None, None),
            T + "test_teardown_fails": ("test_all.py", 30, None, None),
            T + "test_each[2]": ("test_all.py", 58, "2", "2"),
            T + "TestGroup::test_inside": ("test_all.py", 64, "[1, {'a': 3}]", "[1, {'a': 2}]"),
            T + "Old::test_old": ("test_all.py", 69, "3", "2"),
            T + "Old::test_subtests": ("test_all.py", 74, "1", "1"),
        },
        broken=[("test_broken.py", 1)],
    ),
    "unittest": Expected(
        statuses=_all(
            "test_shop.",
            passed=["Shop.test_passes", "Later.test_async"],
            failed=["Shop.test_fails", "Shop.test_subtests"],
            error=["Shop.test_errors", "NoSetUp.test_never_run"],
            skipped=["Shop.test_skipped"],
            xfailed=["Shop.test_expected_to_fail"],
        ),
        red={
            "test_shop.Shop.test_fails": ("test_shop.py", 11, "4", "3"),
            "test_shop.Shop.test_subtests": ("test_shop.py", 27, "1", "1"),
            "test_shop.Shop.test_errors": ("test_shop.py", 14, None, None),
            "test_shop.NoSetUp.test_never_run": ("test_shop.py", 33, None, None),
        },
        broken=[("test_broken.py", 2)],
    ),
    "node": Expected(
        statuses=_all(
            S,
            passed=["passes", "has subtests > one", "a suite > inside"],
            failed=["fails", "errors in the code under test", "has subtests > two", "has subtests",
                    "a suite > nested > deep"],
            skipped=["is skipped"],
            todo=["is to do"],
        ),
        red={
            S + "fails": ("sum.test.js", 7, "4", "3"),
            S + "errors in the code under test": ("sum.js", 3, None, None),
            S + "has subtests > two": ("sum.test.js", 14, "{ a: 2 }", "{ a: 1 }"),
            S + "has subtests": ("sum.test.js", 12, None, None),
            S + "a suite > nested > deep": ("sum.test.js", 19, "true", "false"),
        },
        broken=[("broken.test.js", 3)],
    ),
    "mocha": Expected(
        statuses=_all(
            "test/sum.js::",
            passed=["sum > passes"],
            failed=["sum > fails", "sum > errors in the code under test", "sum > nested > deep"],
            error=['a broken hook > "before all" hook for "is never run"'],
            skipped=["sum > is skipped", "sum > is to do"],
        ),
        red={
            "test/sum.js::sum > fails": ("test/sum.js", 7, "4", "3"),
            "test/sum.js::sum > errors in the code under test": ("sum.js", 3, None, None),
            "test/sum.js::sum > nested > deep": ("test/sum.js", 15, "{ a: 2 }", "{ a: 1 }"),
            'test/sum.js::a broken hook > "before all" hook for "is never run"': ("test/sum.js", 21, None, None),
        },
    ),
    "jest": Expected(
        statuses=_all(
            S,
            passed=["passes", "a suite > each 1"],
            failed=["fails", "errors in the code under test", "a suite > each 2", "a suite > nested > deep"],
            skipped=["is skipped"],
            todo=["is to do"],
        ),
        red={
            S + "fails": ("sum.test.js", 7, "4", "3"),
            S + "errors in the code under test": ("sum.js", 3, None, None),
            S + "a suite > each 2": ("sum.test.js", 16, "2", "2"),
            S + "a suite > nested > deep": ("sum.test.js", 20, "{ a: 2, b: [ 1 ] }", "{ a: 1, b: [ 1 ] }"),
        },
        broken=[("broken.test.js", 2)],
    ),
    "vitest": Expected(
        statuses=_all(
            S,
            passed=["passes", "a suite > each 1", "is expected to fail"],
            failed=["fails", "errors in the code under test", "a suite > each 2", "a suite > nested > deep"],
            skipped=["is skipped"],
            todo=["is to do"],
        ),
        red={
            S + "fails": ("sum.test.js", 8, "4", "3"),
            S + "errors in the code under test": ("sum.js", 3, None, None),
            S + "a suite > each 2": ("sum.test.js", 20, "2", "2"),
            S + "a suite > nested > deep": (
                "sum.test.js", 24, '{\n  "a": 2,\n  "b": [\n    1,\n  ],\n}', '{\n  "a": 1,\n  "b": [\n    1,\n  ],\n}',
            ),
        },
        broken=[("broken.test.js", 1)],
    ),
    "go": Expected(
        statuses=_all(
            "example.com/shop.",
            passed=["TestPasses", "TestTable/b"],
            failed=["TestFails", "TestTable/c", "TestTable"],
            skipped=["TestSkipped"],
        ),
        red={
            "example.com/shop.TestFails": ("shop_test.go", 13, "4", "3"),
            "example.com/shop.TestTable/c": ("shop_test.go", 23, None, None),
            "example.com/shop.TestTable": ("shop_test.go", 19, None, None),
        },
        broken=[("broken/broken_test.go", 5)],
    ),
    "cargo": Expected(
        statuses={
            "tests::passes": "passed", "tests::fails": "failed", "tests::is_skipped": "skipped",
            "tests::panics_as_it_should": "passed", "errors": "failed", "src/lib.rs - sum (line 3)": "passed",
        },
        red={"tests::fails": ("src/lib.rs", 21, "4", "3"), "errors": ("tests/whole.rs", 4, None, None)},
    ),
    "bats": Expected(
        statuses=_all("test/sum.bats::", passed=["passes"], failed=["fails", "errors"], skipped=["is skipped"]),
        red={
            "test/sum.bats::fails": ("test/sum.bats", 6, "4", None),
            "test/sum.bats::errors": ("test/sum.bats", 10, None, None),
        },
    ),
    "rspec": Expected(
        statuses=_all(
            "spec/sum_spec.rb",
            passed=["[1:1]"], failed=["[1:2]", "[1:3]", "[1:6:1]"], skipped=["[1:4]"], xfailed=["[1:5]"],
        ),
        red={
            "spec/sum_spec.rb[1:2]": ("spec/sum_spec.rb", 7, "4", "3"),
            "spec/sum_spec.rb[1:3]": ("spec/sum_spec.rb", 11, None, None),
            "spec/sum_spec.rb[1:6:1]": ("spec/sum_spec.rb", 23, None, None),
        },
    ),
    "minitest": Expected(
        statuses=_all(
            "SumTest#",
            passed=["test_passes"], failed=["test_fails"], error=["test_errors"], skipped=["test_is_skipped"],
        ),
        red={
            "SumTest#test_fails": ("test/sum_test.rb", 9, "4", "3"),
            "SumTest#test_errors": ("test/sum_test.rb", 13, None, None),
        },
    ),
    "phpunit": Expected(
        statuses=_all(
            "SumTest::",
            passed=["testPasses", 'testEach with data set "one"'],
            failed=["testFails", "testEqualArrays", 'testEach with data set "two"'],
            error=["testErrors"],
            skipped=["testIsSkipped"],
        ),
        red={
            "SumTest::testFails": ("tests/SumTest.php", 14, "4", "3"),
            "SumTest::testEqualArrays": (
                "tests/SumTest.php", 19, "Array (\n    'a' => 2\n)", "Array (\n    'a' => 1\n)",
            ),
            "SumTest::testErrors": ("tests/SumTest.php", 24, None, None),
            'SumTest::testEach with data set "two"': ("tests/SumTest.php", 35, "2", "2"),
        },
    ),
    "prove": Expected(
        statuses={"t/sum.t::passes": "passed", "t/sum.t::fails": "failed", "t/sum.t::#3": "skipped"},
        red={"t/sum.t::fails": ("t/sum.t", 6, "'4'", "'3'")},
    ),
    "bun": Expected(
        statuses=_all(
            S,
            passed=["passes", "a suite > inside"], failed=["fails", "errors"],
            skipped=["is skipped"], todo=["is to do"],
        ),
        red={S + "fails": ("sum.test.js", 7, "4", "3"), S + "errors": ("sum.test.js", 10, None, None)},
        broken=[("broken.test.js", 0)],
    ),
    "deno": Expected(
        statuses=_all("sum_test.ts::", passed=["passes"], failed=["fails", "errors"], skipped=["is skipped"]),
        red={
            "sum_test.ts::fails": ("sum_test.ts", 5, "4", "3"),
            "sum_test.ts::errors": ("sum_test.ts", 8, None, None),
        },
    ),
    "playwright": Expected(
        statuses=_all(
            "sum.spec.js::",
            passed=["passes", "a suite > inside"],
            failed=["fails", "errors"],
            skipped=["is skipped"],
            xfailed=["is expected to fail"],
        ),
        red={
            "sum.spec.js::fails": ("sum.spec.js", 5, "4", "3"),
            "sum.spec.js::errors": ("sum.spec.js", 8, None, None),
        },
    ),
    "ctest": Expected(
        statuses={
            "plain_passes": "passed", "plain_fails": "failed", "dies": "failed", "hangs": "failed",
            "Sum.Passes": "passed", "Sum.Fails": "failed", "Sum.Errors": "failed", "Sum.IsSkipped": "skipped",
        },
        red={
            "plain_fails": ("", 0, None, None),
            "dies": ("", 0, None, None),
            "hangs": ("", 0, None, None),
            "Sum.Fails": ("shop_test.cpp", 8, "4", "3"),
            "Sum.Errors": ("shop_test.cpp", 11, None, None),
        },
    ),
    "exunit": Expected(
        statuses=_all(
            "test/shop_test.exs::ShopTest > ", passed=["test passes"], failed=["test fails", "test errors"],
            skipped=["test is skipped"],
        ),
        red={
            "test/shop_test.exs::ShopTest > test fails": ("test/shop_test.exs", 9, "4", "3"),
            "test/shop_test.exs::ShopTest > test errors": ("test/shop_test.exs", 13, None, None),
        },
    ),
    "maven": Expected(
        statuses=_all(
            "example.SumTest#", passed=["passes"], failed=["fails"], error=["errors"], skipped=["isSkipped"]
        ),
        red={
            "example.SumTest#fails": ("src/test/java/example/SumTest.java", 16, "4", "3"),
            "example.SumTest#errors": ("src/test/java/example/SumTest.java", 21, None, None),
        },
    ),
    "ava": Expected(
        statuses=_all(
            "test/sum.js::",
            passed=["passes", "logs"],
            failed=["fails", "errors in the code under test", "deep"],
            skipped=["is skipped"],
            todo=["is to do"],
            xfailed=["is expected to fail"],
        ),
        red={
            "test/sum.js::fails": ("test/sum.js", 9, "4", "3"),
            "test/sum.js::errors in the code under test": ("sum.js", 3, None, None),
            "test/sum.js::deep": ("test/sum.js", 17, "{\n  a: 2,\n}", "{\n  a: 1,\n}"),
        },
        broken=[("test/broken.js", 0)],
    ),
    "jasmine": Expected(
        statuses=_all(
            "spec/sum.js::sum > ",
            passed=["passes", "nested > passes"],
            failed=["fails", "errors in the code under test"],
            skipped=["is skipped", "is to do"],
        ),
        red={
            "spec/sum.js::sum > fails": ("spec/sum.js", 6, "4", "3"),
            "spec/sum.js::sum > errors in the code under test": ("sum.js", 3, None, None),
        },
    ),
    "busted": Expected(
        statuses=_all(
            "spec/sum_spec.lua::sum ", passed=["passes"], failed=["fails"], error=["errors"], skipped=["is skipped"]
        ),
        red={
            "spec/sum_spec.lua::sum fails": ("spec/sum_spec.lua", 8, "4", "3"),
            "spec/sum_spec.lua::sum errors": ("sum.lua", 2, None, None),
        },
    ),
    "eunit": Expected(
        statuses=_all(
            "shop_tests:",
            passed=["passes_test", "group_test_#1"],
            failed=["fails_test", "matches_test", "group_test_/named#1", "group_test_#2"],
            error=["errors_test", "set_up_test_#1"],
        ),
        red={
            "shop_tests:fails_test": ("test/shop_tests.erl", 7, "4", "3"),
            "shop_tests:errors_test": ("src/shop.erl", 6, None, None),
            "shop_tests:matches_test": ("test/shop_tests.erl", 11, "{ ok , _ }", "{error,3}"),
            "shop_tests:group_test_/named#1": ("test/shop_tests.erl", 15, "true", "false"),
            "shop_tests:group_test_#2": ("test/shop_tests.erl", 16, "{ error , badarg , [...] }", None),
            "shop_tests:set_up_test_#1": ("test/shop_tests.erl", 19, None, None),
        },
    ),
    "cabal": Expected(
        statuses={
            "spec:/add/passes/": "passed", "spec:/add/fails/": "failed", "spec:/add/nested/errors/": "failed",
            "spec:/add/nested/is pending/": "skipped", "spec:/add/is skipped/": "skipped",
            "tasty:add.passes": "passed", "tasty:add.fails": "failed", "tasty:add.nested.errors": "failed",
        },
        red={
            "spec:/add/fails/": ("test/Spec.hs", 11, "4", "3"),
            "spec:/add/nested/errors/": ("src/Shop.hs", 7, None, None),
            "tasty:add.fails": ("test/Tasty.hs", 11, "4", "3"),
            "tasty:add.nested.errors": ("src/Shop.hs", 7, None, None),
        },
    ),
    "testthat": Expected(
        statuses=_all(
            "tests/testthat/test-shop.R::",
            passed=["it passes", "it warns"],
            failed=["it fails", "a suite: inside"],
            error=["it errors"],
            skipped=["it is skipped", "it is empty"],
        ),
        red={
            "tests/testthat/test-shop.R::it fails": ("tests/testthat/test-shop.R", 6, "4", "3"),
            "tests/testthat/test-shop.R::a suite: inside": ("tests/testthat/test-shop.R", 21, "TRUE", "FALSE"),
            "tests/testthat/test-shop.R::it errors": ("tests/testthat/test-shop.R", 10, None, None),
        },
        broken=[("tests/testthat/test-broken.R", 2)],
    ),
    "dune": Expected(
        statuses={
            "shop::add > passes": "passed", "shop::add > fails": "failed", "shop::other > errors": "failed",
            "shop::other > is quick": "passed", "shop:0:passes": "passed", "shop:1:fails": "failed",
            "shop:2:errors": "error", "shop:3:skipped": "skipped", "shop:4:todo": "failed",
            "shop:5:group:0:inside": "passed", "test_plain": "failed",
        },
        red={
            "shop::add > fails": ("test/test_alco.ml", 0, "4", "3"),
            "shop::other > errors": ("test/test_alco.ml", 0, None, None),
            "shop:1:fails": ("test/test_ounit.ml", 0, "4", "3"),
            "shop:2:errors": ("test/test_ounit.ml", 7, None, None),
            "shop:4:todo": ("test/test_ounit.ml", 0, None, None),
            "test_plain": ("test/test_plain.ml", 1, None, None),
        },
    ),
    "common_test": Expected(
        statuses=_all(
            "shop_SUITE:",
            passed=["passes", "g/inside"], failed=["fails", "errors", "matches"], error=["no_setup"],
            skipped=["is_skipped"],
        ),
        red={
            "shop_SUITE:fails": ("test/shop_SUITE.erl", 16, "4", "3"),
            "shop_SUITE:errors": ("src/shop.erl", 6, None, None),
            "shop_SUITE:matches": ("test/shop_SUITE.erl", 19, None, None),
            "shop_SUITE:no_setup": ("test/shop_SUITE.erl", 10, None, None),
        },
    ),
}  # fmt: skip
# The same tests, by another tool, to which every exception is a failure.
EXPECTED["gradle"] = msgspec.structs.replace(
    EXPECTED["maven"], statuses=EXPECTED["maven"].statuses | {"example.SumTest#errors": "failed"}
)

# These take many seconds each, or a compiler.
_HEAVY = {
    "maven",
    "gradle",
    "ctest",
    "exunit",
    "playwright",
    "deno",
    "bun",
    "ava",
    "jasmine",
    "busted",
    "eunit",
    "common_test",
}
# Debian's Maven and Gradle have an option to work without a network.
_OFFLINE = {"maven": "mvn -o -s /etc/maven/settings-debian.xml test", "gradle": "gradle --offline test"}


def _marked(names: list[str]) -> list[object]:
    return [pytest.param(name, marks=pytest.mark.toolchain) if name in _HEAVY else name for name in names]


@pytest.mark.parametrize("name", _marked(list(EXPECTED)))
def test_a_report_names_every_test_its_end_its_place_and_its_values(name: str, tmp_path: Path) -> None:
    folder, expected = lay_out(name, tmp_path / name), EXPECTED[name]
    targets = detect(folder, command=_OFFLINE.get(name, ""))
    assert [target.runner for target in targets] == [name]
    report = run(folder, targets)
    assert statuses(report) == expected.statuses
    assert red(report) == expected.red
    assert [(error.file, error.line) for error in load_errors(report)] == expected.broken
    assert report.status is ReportStatus.FAILED
    assert report.notes == []


_ALONE = {
    "pytest": T + "test_passes",
    "unittest": "test_shop.Shop.test_passes",
    "node": S + "passes",
    "mocha": "test/sum.js::sum > passes",
    "jest": S + "a suite > each 1",
    "vitest": S + "a suite > each 1",
    "go": "example.com/shop.TestPasses",
    "cargo": "tests::passes",
    "bats": "test/sum.bats::passes",
    "rspec": "spec/sum_spec.rb[1:1]",
    "minitest": "SumTest#test_passes",
    "phpunit": "SumTest::testPasses",
    "bun": S + "passes",
    "playwright": "sum.spec.js::passes",
    "exunit": "test/shop_test.exs::ShopTest > test passes",
    "ctest": "plain_passes",
    "ava": "test/sum.js::passes",
    "jasmine": "spec/sum.js::sum > nested > passes",
    "busted": "spec/sum_spec.lua::sum passes",
    "eunit": "shop_tests:passes_test",
    "common_test": "shop_SUITE:g/inside",
    "cabal": "tasty:add.passes",
}


@pytest.mark.parametrize("name", _marked(list(_ALONE)))
def test_one_test_of_a_report_can_be_run_alone_by_its_id(name: str, tmp_path: Path) -> None:
    folder = lay_out(name, tmp_path / name)
    alone = _ALONE[name]
    first = run(folder)
    report = run(folder, only=chosen(first, alone))
    assert report.status is ReportStatus.PASSED, report
    assert list(statuses(report)) == [alone]


_DIES = {
    "pytest": ("test_it.py::test_dies", ["test_it.py::test_before"]),
    "unittest": ("test_it.It.test_dies", ["test_it.It.test_a_before"]),
    "node": ("it.test.js::dies", ["it.test.js::before"]),
    "mocha": ("test/it.js::dies", ["test/it.js::before"]),
    "jest": ("it.test.js::dies", ["it.test.js::before"]),
}


@pytest.mark.parametrize("name", list(_DIES))
def test_a_run_that_dies_with_exit_0_is_crashed_and_names_the_test(name: str, tmp_path: Path) -> None:
    folder = lay_out(f"{name}.crash", tmp_path / name)
    report = run(folder)
    dead, before = _DIES[name]
    assert report.status is ReportStatus.CRASHED
    assert report.running == [dead]
    assert [test.id for test in report.tests if test.status in GREEN] == before


_HANGS = {
    "pytest": ("test_it.py::test_hangs", ["test_it.py::test_before"]),
    "unittest": ("test_it.It.test_hangs", ["test_it.It.test_a_before"]),
    "bats": ("test/it.bats::hangs", ["test/it.bats::before"]),
    "node": ("it.test.js::hangs", ["it.test.js::before"]),
    "mocha": ("test/it.js::hangs", ["test/it.js::before"]),
    "jest": ("it.test.js::hangs", ["it.test.js::before"]),
    "vitest": ("it.test.js::hangs", ["it.test.js::before"]),
    "go": ("example.com/it.TestHangs", ["example.com/it.TestBefore"]),
    "cargo": ("hangs", ["before"]),
}
_QUICK = ("pytest", "unittest", "bats")


@pytest.mark.parametrize(
    "name", [name if name in _QUICK else pytest.param(name, marks=pytest.mark.toolchain) for name in _HANGS]
)
def test_a_run_out_of_time_keeps_what_it_has_and_names_the_hung_test(name: str, tmp_path: Path) -> None:
    folder = lay_out(f"{name}.hang", tmp_path / name)
    report = run(folder, timeout_s=4 if name in _QUICK else 12)
    hung, before = _HANGS[name]
    assert report.status is ReportStatus.TIMEOUT
    assert report.running == [hung]
    assert [test.id for test in report.tests if test.status in GREEN] == before


def test_a_silent_run_is_stopped_before_its_deadline(tmp_path: Path) -> None:
    folder = lay_out("pytest.hang", tmp_path / "it")
    report = run(folder, timeout_s=300, silence_s=3)
    assert report.status is ReportStatus.TIMEOUT
    assert report.duration_s < 100
    assert "no output for too long" in report.notes[0]


def test_a_missing_program_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "it").mkdir()
    report = run(tmp_path / "it", detect(tmp_path / "it", command="no-such-program --test"))
    assert report.status is ReportStatus.ERROR
    assert "no-such-program" in report.notes[0]
