"""Programs that are one test to ctest, meson or Automake, and have tests of their own inside."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ratchet.checks.detect.registry import runner
from ratchet.checks.detect.targets import detect
from ratchet.checks.formats import Parsed, c_text
from ratchet.checks.runners import c_subtests
from ratchet.core.report import Failure, Report, ReportStatus, TestResult, TestStatus
from tests.checks.support import chosen, needs, red, run, statuses
from tests.checks.test_compiled import typed
from tests.checks.test_detect import lay

BOOST = """#define BOOST_TEST_MODULE shop
#define BOOST_TEST_DYN_LINK
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <stdexcept>
BOOST_AUTO_TEST_SUITE(sums)
BOOST_AUTO_TEST_CASE(passes) { BOOST_TEST(1 + 2 == 3); }
BOOST_AUTO_TEST_CASE(fails) {
  int sum = 1 + 2;
  BOOST_TEST(sum == 4);
}
BOOST_AUTO_TEST_CASE(errors) { throw std::runtime_error("boom"); }
BOOST_AUTO_TEST_CASE(is_skipped, *boost::unit_test::disabled()) { BOOST_TEST(false); }
BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_CASE(last) {
  if (std::getenv("LEAVE")) std::_Exit(std::atoi(std::getenv("LEAVE")));
  if (std::getenv("ABORT")) std::abort();
}
"""
CHECK = """#include <check.h>
#include <stdlib.h>
START_TEST(passes) { ck_assert_int_eq(1 + 2, 3); } END_TEST
START_TEST(fails) {
  int sum = 1 + 2;
  ck_assert_int_eq(sum, 4);
} END_TEST
START_TEST(crashes) { abort(); } END_TEST
static int run(const char *name) {
  Suite *suite = suite_create(name);
  TCase *sums = tcase_create("sums"), *more = tcase_create("more");
  tcase_add_test(sums, passes);
  if (!getenv("CALM")) tcase_add_test(sums, fails);
  if (!getenv("CALM")) tcase_add_test(more, crashes);
  suite_add_tcase(suite, sums);
  suite_add_tcase(suite, more);
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_NORMAL);
  int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed;
}
int main(void) { return (run("Shop") + (getenv("TWICE") ? run("Again") : 0)) != 0; }
"""
# Catch2 3 cannot be installed from everywhere: this writes what 3.7 wrote, where and when 3.7 writes it.
CATCH = r"""#include <cstdio>
#include <cstdlib>
#include <cstring>
int main(int, char **argv) {
  const char *path = std::getenv("BAZEL_TEST") ? std::getenv("XML_OUTPUT_FILE") : nullptr;
  const char *only = std::getenv("TESTBRIDGE_TEST_ONLY");
  if (!std::getenv("TEST_SHARD_INDEX")) std::puts("Warning: Bazel shard configuration is missing");
  if (path) {
    std::FILE *file = std::fopen(path, "w");
    std::fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n <testsuite name=\"it\">\n", file);
    if (!only) std::fputs("  <testcase classname=\"it.global\" name=\"sums pass\" time=\"0.1\"/>\n", file);
    if (!only || !std::strcmp(only, "sums fail\\, all of them"))
      std::fputs("  <testcase classname=\"it.global\" name=\"sums fail, all of them\" time=\"0.1\" status=\"run\"/>\n"
                 "  <testcase classname=\"it.global\" name=\"sums fail, all of them/here\" time=\"0.1\">\n"
                 "   <failure message=\"sum == 4\" type=\"CHECK\">\nFAILED:\n  CHECK( sum == 4 )\nwith expansion:\n"
                 "  3 == 4\nat it.cpp:8\n   </failure>\n  </testcase>\n", file);
    if (!only) std::fputs("  <testcase classname=\"it.global\" name=\"is skipped\" time=\"0.1\" status=\"run\">\n"
                 "   <skipped type=\"SKIP\">\nSKIPPED\nnot today\nat it.cpp:11\n   </skipped>\n  </testcase>\n", file);
    std::fputs(" </testsuite>\n</testsuites>\n", file);
    std::fclose(file);
  }
  return 42;
}
"""
CMAKE = """cmake_minimum_required(VERSION 3.16)
project(shop C CXX)
include(CTest)
find_package(PkgConfig REQUIRED)
pkg_check_modules(CHECK REQUIRED IMPORTED_TARGET check)
add_executable(check_test check_test.c)
target_link_libraries(check_test PkgConfig::CHECK)
add_executable(boost_test boost_test.cpp)
target_link_libraries(boost_test boost_unit_test_framework)
add_executable(catch_test catch_test.cpp)
add_test(NAME unit::check COMMAND check_test)
add_test(NAME twice COMMAND check_test)
set_tests_properties(twice PROPERTIES ENVIRONMENT "TWICE=1;CALM=1")
add_test(NAME boost COMMAND boost_test)
add_test(NAME aborts COMMAND ${CMAKE_COMMAND} -E env ABORT=1 $<TARGET_FILE:boost_test> --run_test=last)
add_test(NAME dies COMMAND boost_test --catch_system_errors=no --run_test=last)
set_tests_properties(dies PROPERTIES ENVIRONMENT ABORT=1)
add_test(NAME leaves COMMAND boost_test)
set_tests_properties(leaves PROPERTIES ENVIRONMENT LEAVE=0)
add_test(NAME inverted COMMAND boost_test)
set_tests_properties(inverted PROPERTIES WILL_FAIL 1)
add_test(NAME loud COMMAND boost_test --log_level=test_suite --run_test=sums/passes)
set_tests_properties(loud PROPERTIES PASS_REGULAR_EXPRESSION "Entering test case")
add_test(NAME own.log COMMAND boost_test --logger=HRF,all,stdout --run_test=sums/passes)
add_test(NAME catch COMMAND catch_test)
file(WRITE ${CMAKE_BINARY_DIR}/CTestCustom.cmake [[set(CTEST_CUSTOM_PRE_TEST "echo {it}")]])
add_test(NAME other COMMAND sh -c "env | grep -E 'CK_|BOOST_TEST_LOGGER|BAZEL' && exit 1; exit 0")
"""
PROGRAMS = {"boost_test.cpp": BOOST, "check_test.c": CHECK}
INSIDE_CHECK = {"Shop::sums::passes": "passed", "Shop::sums::fails": "failed", "Shop::more::crashes": "error"}
INSIDE_BOOST = {
    "sums/passes": "passed",
    "sums/fails": "failed",
    "sums/errors": "error",
    "sums/is_skipped": "skipped",
    "last": "passed",
}


def below(program: str, tests: dict[str, str]) -> dict[str, str]:
    return {f"{program}::{name}": status for name, status in tests.items()}


def has_libraries() -> None:
    places = ("boost/test/unit_test.hpp", "check.h")
    if not all(Path("/usr/include", place).exists() for place in places):
        pytest.skip("Boost.Test or Check is not installed: scripts/toolchains gets them")


def again(report: Report, name: str, folder: Path) -> list[str]:
    (target,) = detect(folder)
    (test,) = chosen(report, name)[target.name]
    return runner(target.runner).rerun_command(target, test)


@pytest.mark.toolchain
@pytest.mark.parametrize("command", ["ctest", "ctest -j4"])
def test_tests_inside_a_ctest_program_are_reported_and_its_verdict_stands(tmp_path: Path, command: str) -> None:
    needs("ctest")
    has_libraries()
    folder = lay(tmp_path / "it", PROGRAMS | {"CMakeLists.txt": CMAKE, "catch_test.cpp": CATCH})
    targets = detect(folder, command=command)
    report = run(folder, targets, timeout_s=300)
    assert statuses(report) == below("unit::check", INSIDE_CHECK) | below("boost", INSIDE_BOOST) | {
        "twice": "passed",  # Check writes the second part over the first
        "aborts": "error",  # one test of the program, under ctest's name for it
        "dies": "failed",  # with nothing written
        "leaves": "error",  # ctest says that it passed
        "inverted": "passed",
        "loud": "passed",
        "own.log": "passed",
        "catch::sums pass": "passed",
        "catch::sums fail, all of them": "failed",
        "catch::is skipped": "skipped",
        "other": "passed",
    }
    assert report.status is ReportStatus.FAILED
    found = red(report)
    assert found["unit::check::Shop::sums::fails"] == ("check_test.c", 6, "4", "3")
    assert found["boost::sums/fails"] == ("boost_test.cpp", 10, "4", "3")
    assert found["boost::sums/errors"][:2] == ("boost_test.cpp", 12)
    assert found["catch::sums fail, all of them"] == ("it.cpp", 8, "4", "3")
    assert [test.reason for test in report.tests if test.id == "catch::is skipped"] == ["not today"]
    if command != "ctest":
        return
    for name in ("boost::sums/fails", "catch::sums fail, all of them"):
        assert statuses(run(folder, targets, only=chosen(report, name))) == {name: "failed"}
        assert statuses(run(folder, targets, only={"ctest": [typed(name)]})) == {name: "failed"}
    case = {"unit::check::Shop::more::crashes": "error"}
    assert statuses(run(folder, targets, only=chosen(report, *case))) == case
    both = run(folder, targets, only={"ctest": [typed("unit::check::Shop::sums"), typed("loud")]})
    assert set(statuses(both)) == {"unit::check::Shop::sums::passes", "unit::check::Shop::sums::fails", "loud"}
    assert (
        "env BOOST_TEST_RUN_FILTERS=sums/fails ctest --test-dir build -R '^boost$'"
        in again(report, "boost::sums/fails", folder)[-1]
    )


MESON = """project('shop', 'c', 'cpp')
boost = executable('boost_test', 'boost_test.cpp', dependencies: dependency('boost', modules: ['unit_test_framework']))
test('boost', boost)
test('one', boost, args: ['--run_test=sums/fails'])
test('check', executable('check_test', 'check_test.c', dependencies: dependency('check')), suite: 'slow')
test('plain', find_program('true'))
test('dies', find_program('sh'), args: ['-c', 'echo error: none; kill -SEGV $$'])
test('hangs', find_program('tail'), args: ['-f', '/dev/null'], timeout: 1)
test('points', find_program('sh'), args: ['-c', 'echo 1..2; echo ok 1 - a; echo not ok 2 - b'], protocol: 'tap')
test('expected', find_program('false'), should_fail: true)
test('unexpected', find_program('true'), should_fail: true)
test('is skipped', find_program('sh'), args: ['-c', 'exit 77'])
"""


@pytest.mark.toolchain
@pytest.mark.skipif(not shutil.which("meson"), reason="meson is not installed")
def test_tests_inside_a_meson_program_are_reported_and_how_the_others_ended(tmp_path: Path) -> None:
    has_libraries()
    folder = lay(tmp_path / "it", PROGRAMS | {"meson.build": MESON})
    report = run(folder, timeout_s=300)
    assert statuses(report) == below("shop / boost", INSIDE_BOOST) | below("shop:slow / check", INSIDE_CHECK) | {
        "shop / one": "failed",
        "shop / plain": "passed",
        "shop / dies": "failed",
        "shop / hangs": "failed",  # of which JUnit's file says that it passed
        "shop / points::1 - a": "passed",
        "shop / points::2 - b": "failed",
        "shop / expected": "xfailed",
        "shop / unexpected": "failed",
        "shop / is skipped": "skipped",
    }
    assert report.status is ReportStatus.FAILED
    assert red(report)["shop / boost::sums/fails"] == ("boost_test.cpp", 10, "4", "3")
    assert red(report)["shop:slow / check::Shop::sums::fails"] == ("check_test.c", 6, "4", "3")
    output = {test.id: test.failure.message for test in report.tests if test.failure}
    assert (output["shop / hangs"], output["shop / dies"]) == ("meson says: Timeout", "meson says: Failed (SIGSEGV)")
    for name in ("shop / boost::sums/fails", "shop / dies", "shop:slow / check::Shop::more::crashes"):
        assert statuses(run(folder, only=chosen(report, name))) == {name: statuses(report)[name]}
        assert statuses(run(folder, only={"meson": [typed(name)]})) == {name: statuses(report)[name]}
    assert "2 - b" not in again(report, "shop / points::2 - b", folder)[-1]
    (folder / "check_test.c").write_text("int main(void) { return x; }\n")
    assert [(error.file, error.line) for error in run(folder).compile_errors] == [("check_test.c", 1)]


MAKE = {
    "configure.ac": "AC_INIT([shop],[1.0])\nAM_INIT_AUTOMAKE([foreign])\nAC_PROG_CC\nAC_PROG_CXX\n"
    "AC_CONFIG_FILES([Makefile t/Makefile])\nAC_OUTPUT\n",
    "Makefile.am": "SUBDIRS = t\n",
    "t/Makefile.am": "check_PROGRAMS = check_test boost_test\nTESTS = $(check_PROGRAMS) script.sh\n"
    "check_test_SOURCES = check_test.c\ncheck_test_LDADD = -lcheck -lsubunit -lm -lrt -lpthread\n"
    "boost_test_SOURCES = boost_test.cpp\nboost_test_LDADD = -lboost_unit_test_framework\n",
    "t/script.sh": "#!/bin/sh\nCALM=1 ./check_test\nCALM=1 ./check_test\n",
}


@pytest.mark.toolchain
@pytest.mark.skipif(not shutil.which("automake"), reason="Automake is not installed")
def test_tests_inside_an_automake_program_are_reported_unless_the_project_uses_the_channel_itself(
    tmp_path: Path,
) -> None:
    has_libraries()
    folder = lay(tmp_path / "it", MAKE | {f"t/{name}": text for name, text in PROGRAMS.items()})
    (folder / "t" / "script.sh").chmod(0o755)
    subprocess.run("autoreconf -i && ./configure", shell=True, cwd=folder, check=True, capture_output=True)
    report = run(folder, timeout_s=300)
    assert statuses(report) == below("t/check_test", INSIDE_CHECK) | below("t/boost_test", INSIDE_BOOST) | {
        "t/script.sh": "passed"
    }
    assert red(report)["t/boost_test::sums/fails"] == ("t/boost_test.cpp", 10, "4", "3")
    one = "t/boost_test::sums/fails"
    assert statuses(run(folder, only=chosen(report, one))) == {one: "failed"}
    assert statuses(run(shutil.copytree(folder, tmp_path / "copy", symlinks=True))) == statuses(report)
    makefile = folder / "t" / "Makefile.am"
    makefile.write_text(makefile.read_text() + "TESTS_ENVIRONMENT = CALM=1\n")
    assert statuses(run(folder)) == {"t/check_test": "passed", "t/boost_test": "failed", "t/script.sh": "passed"}


TWO = """#include <gtest/gtest.h>
#include <unistd.h>
#include <fstream>
void meet(const char *mine, const char *other) {
  alarm(60);
  std::ofstream(mine).put('x');
  while (access(other, F_OK)) usleep(1000);
}
TEST(Two, A) { meet("a", "b"); }
TEST(Two, B) { meet("b", "a"); }
"""
DISCOVERED = """cmake_minimum_required(VERSION 3.16)
project(two CXX)
enable_testing()
find_package(GTest REQUIRED)
include(GoogleTest)
add_executable(two two.cpp)
target_link_libraries(two GTest::gtest_main)
gtest_discover_tests(two)
"""


@pytest.mark.toolchain
def test_two_tests_of_one_googletest_program_at_once_both_leave_their_results(tmp_path: Path) -> None:
    needs("ctest")
    folder = lay(tmp_path / "it", {"CMakeLists.txt": DISCOVERED, "two.cpp": TWO})
    report = run(folder, detect(folder, command="ctest -j2"), timeout_s=300)
    assert statuses(report) == {"Two.A": "passed", "Two.B": "passed"}


CMOCKA = """[==========] Running 4 test(s).
[ RUN      ] passes
[       OK ] passes
[ RUN      ] fails
[  ERROR   ] --- 0x3 != 0x4
[   LINE   ] --- /w/cm.c:9: error: Failure!
[  FAILED  ] fails
[ RUN      ] is_skipped
[  SKIPPED ] is_skipped
[ RUN      ] passes
Could not run test: Test setup failed
[  ERROR   ] passes
[==========] 4 test(s) run.
[  PASSED  ] 1 test(s).
[  FAILED  ] 1 test(s), listed below:
[  FAILED  ] fails
"""
UNITY = """un.c:8:test_passes:PASS
un.c:5:test_fails:FAIL: Expected 4 Was 3:sums
un.c:6:test_is_skipped:IGNORE: not today

-----------------------
3 Tests 1 Failures 1 Ignored
FAIL
"""
QT = """********* Start testing of Shop *********
PASS   : Shop::initTestCase()
FAIL!  : Shop::fails() Compared values are not the same
   Actual   (1 + 2): 3
   Expected (4)    : 4
   Loc: [qt.cpp(5)]
FAIL!  : Shop::rows(two: more) 'n < 2' returned FALSE. ()
   Loc: [qt.cpp(7)]
SKIP   : Shop::isSkipped() not today
   Loc: [qt.cpp(8)]
XFAIL  : Shop::expected() known
   Loc: [qt.cpp(9)]
PASS   : Shop::expected()
QDEBUG : Shop::last() said
PASS   : Shop::last()
Totals: 3 passed, 2 failed, 1 skipped, 0 blacklisted, 8ms
********* Finished testing of Shop *********
"""
CUNIT = """     CUnit - A unit testing framework for C - Version 2.1-3

Suite: sums
  Test: passes ...passed
  Test: fails ...FAILED
    1. cu.c:3  - CU_ASSERT_EQUAL(1 + 2,4)

Run Summary:    Type  Total    Ran Passed Failed Inactive
              suites      1      1    n/a      0        0
               tests      2      2      1      1        0
"""
PRINTED = {
    CMOCKA: ["passes passed", "fails failed cm.c:9 0x4 0x3", "is_skipped skipped", "passes #2 error"],
    UNITY: ["test_passes passed", "test_fails failed un.c:5 4 3", "test_is_skipped skipped"],
    QT: [
        "Shop::initTestCase() passed",
        "Shop::fails() failed qt.cpp:5 4 3",
        "Shop::rows(two: more) failed qt.cpp:7",
        "Shop::isSkipped() skipped",
        "Shop::expected() xfailed",
        "Shop::last() passed",
    ],
    CUNIT: ["sums::passes passed", "sums::fails failed cu.c:3"],
}


def reported(test: TestResult) -> str:
    failure = test.failure or Failure()
    place = f"{Path(failure.file).name}:{failure.line}" if failure.line else ""
    return " ".join(filter(None, [test.id, test.status, place, failure.expected, failure.actual]))


@pytest.mark.parametrize(("text", "tests"), PRINTED.items(), ids=["cmocka", "unity", "qt", "cunit"])
def test_what_a_library_without_a_channel_prints_is_read_if_its_own_sum_agrees(text: str, tests: list[str]) -> None:
    parsed = c_text.parse_printed(text)
    assert ([reported(test) for test in parsed.tests], parsed.ended) == (tests, True)
    without = "\n".join(row for row in text.splitlines() if "fails" not in row)
    assert not c_text.parse_printed(without).tests


def test_cmockas_test_that_ends_its_program_is_named() -> None:
    parsed = c_text.parse_printed(CMOCKA[: CMOCKA.index("[  SKIPPED ]")])
    assert reported(parsed.tests[-1]) == "is_skipped error"
    assert parsed.ended


def test_googletests_output_is_not_taken_for_cmockas() -> None:
    text = "[==========] Running 1 test from 1 test suite.\n[ RUN      ] A.B\n[       OK ] A.B (0 ms)\n"
    assert not c_text.parse_printed(text).tests


PRINTS = """cmake_minimum_required(VERSION 3.16)
project(it NONE)
enable_testing()
add_test(NAME cmocka COMMAND sh -c "cat ${CMAKE_SOURCE_DIR}/cmocka.txt; exit 2")
add_test(NAME unity COMMAND sh -c "cat ${CMAKE_SOURCE_DIR}/unity.txt; exit 1")
add_test(NAME dies COMMAND sh -c "echo error: none; kill -SEGV $$")
add_test(NAME torn COMMAND sh -c "head -n 7 ${CMAKE_SOURCE_DIR}/qt.txt; kill -SEGV $$")
add_test(NAME calm COMMAND sh -c "cat ${CMAKE_SOURCE_DIR}/qt.txt")
"""


@pytest.mark.toolchain
def test_tests_printed_by_a_ctest_program_are_reported_with_their_location(tmp_path: Path) -> None:
    needs("ctest")
    texts = {"cmocka.txt": CMOCKA, "unity.txt": UNITY, "qt.txt": QT, "CMakeLists.txt": PRINTS}
    report = run(lay(tmp_path / "it", texts))
    assert statuses(report) == {
        "cmocka::passes": "passed",
        "cmocka::fails": "failed",
        "cmocka::is_skipped": "skipped",
        "cmocka::passes #2": "error",
        "unity::test_passes": "passed",
        "unity::test_fails": "failed",
        "unity::test_is_skipped": "skipped",
        "dies": "failed",
        "torn::Shop::initTestCase()": "passed",
        "torn::Shop::fails()": "failed",
        "torn::Shop::rows(two: more)": "failed",
        "torn": "error",
        "calm": "passed",  # by what it prints it has failed, and ctest says that it has not
    }
    output = {test.id: test.failure for test in report.tests if test.failure}
    assert output["dies"].message == "ctest says: Exception: SegFault"
    assert output["torn"].message == "the program ended before it had reported all its tests"
    assert (output["unity::test_fails"].expected, output["unity::test_fails"].actual) == ("4", "3")


HANGING = """cmake_minimum_required(VERSION 3.16)
project(shop CXX)
enable_testing()
add_executable(boost_test boost_test.cpp)
target_link_libraries(boost_test boost_unit_test_framework)
add_test(NAME boost COMMAND boost_test)
add_test(NAME dies COMMAND sh -c "kill -ABRT $$")
add_test(NAME hangs COMMAND tail -f /dev/null)
add_test(NAME after COMMAND boost_test)
"""


@pytest.mark.toolchain
def test_an_interrupted_ctest_run_reports_finished_and_running_tests(tmp_path: Path) -> None:
    needs("ctest")
    has_libraries()
    folder = lay(tmp_path / "it", {"CMakeLists.txt": HANGING, "boost_test.cpp": BOOST})
    run(folder, only={"ctest": [typed("dies")]}, timeout_s=300)  # so that it is built
    report = run(folder, timeout_s=8)
    assert report.status is ReportStatus.TIMEOUT
    assert statuses(report) == below("boost", INSIDE_BOOST) | {"dies": "error", "hangs": "error"}
    assert report.running == ["hangs"]


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("", "error"),
        ('<TestLog><TestSuite name="a"><TestCase name="b">', "error"),
        ('<TestLog><TestSuite name="a"></TestSuite></TestLog>ase name="b">', "passed"),
    ],
)
def test_a_program_that_passed_left_early_unless_a_child_of_it_wrote_over_its_file(
    tmp_path: Path, text: str, status: str
) -> None:
    (tmp_path / "it").write_text(text)
    whole = Parsed(tests=[TestResult(id="it", name="it", status=TestStatus.PASSED)], ended=True)
    found = c_subtests.with_subtests(whole, {"it": c_subtests.SubtestProgram("boost", str(tmp_path / "it"))}, {})
    assert [test.status for test in found.tests] == [status]
