"""What other people's projects in compiled languages do that ours did not: each of these was found on one of them."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from ratchet.app.tests import TestOutcome
from ratchet.checks.detect.registry import runner
from ratchet.checks.detect.targets import detect
from ratchet.checks.protocol import Target
from ratchet.checks.run.environment import allowed_environment
from ratchet.checks.run.executor import TestRun
from ratchet.checks.runners.jvm import crash_of
from ratchet.core.report import Report, ReportStatus, TestResult, TestStatus
from ratchet.interfaces.terminal.colour import painter
from ratchet.interfaces.terminal.test_results import view
from tests.checks.support import chosen, environment, needs, red, run, statuses
from tests.checks.test_detect import lay

GO_MOD = {"go.mod": "module example.com/it\n\ngo 1.18\n"}


def output_of(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def typed(name: str) -> TestResult:
    """An id as a user types it, who has run nothing before."""
    return TestResult(id=name, status=TestStatus.TODO, file=name.partition("::")[0])


def shown(report: Report) -> str:
    return "\n".join(view(TestOutcome(report=report, targets=[]), painter(colour=False)))


def go_test(package: str, body: str) -> str:
    return f'package {package}\n\nimport "testing"\n\n{body}'


@pytest.mark.toolchain
def test_a_go_test_is_asked_for_by_its_id_before_anything_ran(tmp_path: Path) -> None:
    needs("go")
    body = "func TestA(t *testing.T) {}\nfunc TestB(t *testing.T) {}\n"
    folder = lay(tmp_path / "it", GO_MOD | {"deep/one/it_test.go": go_test("one", body)})
    name = "example.com/it/deep/one.TestA"
    assert statuses(run(folder, only={"go": [typed(name)]})) == {name: "passed"}
    assert statuses(run(folder, only={"go": [typed("TestA")]})) == {name: "passed"}


def test_options_behind_gos_packages_stay_options_when_one_test_is_run() -> None:
    command = ["go", "test", "./...", "-v", "-race"]
    target = Target(runner="go", command=command, tests=[], protected=[], why="")
    test = TestResult(id="a/b.TestC", status=TestStatus.TODO)
    assert runner("go").rerun_command(target, test) == ["go", "test", "-v", "-race", "-run", "^TestC$", "a/b"]


@pytest.mark.toolchain
def test_a_go_test_that_hangs_is_found_where_it_is_written_and_keeps_its_flags(tmp_path: Path) -> None:
    needs("go")
    text = "//go:build slow\n\n" + go_test(
        "one", 'func TestA(t *testing.T) {\n\tt.Run("b", func(t *testing.T) { select {} })\n}\n'
    )
    folder = lay(tmp_path / "it", GO_MOD | {"one/it_test.go": text})
    targets = detect(folder, command="go test -tags slow -timeout 1h ./...")
    report = run(folder, targets, timeout_s=20)
    (test,) = report.tests
    assert report.status is ReportStatus.TIMEOUT
    assert red(report) == {"example.com/it/one.TestA/b": ("one/it_test.go", 7, None, None)}
    words = ["go", "test", "-tags", "slow", "-timeout", "1h", "-run", "^TestA$/^b$", "./one"]
    assert runner("go").rerun_command(targets[0], test) == words


@pytest.mark.toolchain
def test_what_a_go_test_logs_is_not_why_it_failed(tmp_path: Path) -> None:
    needs("go")
    body = 'func TestA(t *testing.T) {\n\tt.Log("all is well")\n\tt.Error("got 1, want 2")\n}\n'
    folder = lay(tmp_path / "it", GO_MOD | {"one/it_test.go": go_test("one", body)})
    targets = detect(folder, command="go test -short ./...")
    report = run(folder, targets)
    assert red(report) == {"example.com/it/one.TestA": ("one/it_test.go", 7, "2", "1")}
    again = run(folder, targets, only=chosen(report, "example.com/it/one.TestA"))
    assert statuses(again) == {"example.com/it/one.TestA": "failed"}


@pytest.mark.toolchain
def test_output_of_testmain_after_the_tests_is_reported_for_its_folder(tmp_path: Path) -> None:
    needs("go")
    text = 'package one\n\nimport ("os"; "testing")\n\nfunc TestMain(m *testing.M) { m.Run(); os.Exit(3) }\n'
    folder = lay(tmp_path / "it", GO_MOD | {"one/it_test.go": text + "func TestA(t *testing.T) {}\n"})
    report = run(folder)
    (error,) = report.collection_errors
    assert (report.status, error.file) == (ReportStatus.FAILED, "one")
    assert error.message.startswith("the package failed after its tests")
    assert "one went wrong outside of its tests" in shown(report)


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("files", "place"),
    [
        ({"go.mod": "module example.com/it\n\nnonsense 1\n", "it_test.go": "package it\n"}, ("go.mod", 3)),
        (GO_MOD | {"it.go": 'package it\n\nimport _ "no/such"\n', "it_test.go": "package it\n"}, ("it.go", 3)),
    ],
)
def test_what_go_cannot_even_load_is_an_error_with_its_place_and_no_crash(
    files: dict[str, str], place: tuple[str, int], tmp_path: Path
) -> None:
    needs("go")
    report = run(lay(tmp_path / "it", files))
    assert report.status is ReportStatus.FAILED
    assert [(error.file, error.line) for error in report.compile_errors] == [place]


def test_modules_in_folders_that_go_passes_over_are_not_run(tmp_path: Path) -> None:
    names = ("_bench/go.mod", "testdata/it/go.mod", "vendor/x/go.mod", "tools/go.mod")
    lay(tmp_path, GO_MOD | dict.fromkeys(names, "module x\n"))
    assert [target.name for target in detect(tmp_path)] == ["go", "go@tools"]


SUBTESTS = """func TestA(t *testing.T) {
	for _, name := range []string{"x", "y", "z"} {
		t.Run(name, func(t *testing.T) { t.Run("deep", func(t *testing.T) {}) })
	}
}
func TestB(t *testing.T) { t.Run("x", func(t *testing.T) {}) }
func TestAB(t *testing.T) {}
"""


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("asked", "ran"),
    [
        (["one.TestA", "two.TestB"], "one.TestA/x/deep one.TestA/y/deep one.TestA/z/deep two.TestB/x"),
        (["one.TestA/x", "one.TestA/y/deep", "two.TestA/z"], "one.TestA/x/deep one.TestA/y/deep two.TestA/z/deep"),
        (["one.TestA/x", "one.TestB/x", "one.TestAB"], "one.TestA/x/deep one.TestAB one.TestB/x"),
        (["one.TestA/x", "one.TestA/z", "two.TestA/x", "two.TestA/z"],
         "one.TestA/x/deep one.TestA/z/deep two.TestA/x/deep two.TestA/z/deep"),
        (["two.TestB", "two.TestB/x"], "two.TestB/x"),
    ],
)  # fmt: skip
def test_of_gos_tests_those_that_are_chosen_are_run_and_no_others_of_their_names(
    asked: list[str], ran: str, tmp_path: Path
) -> None:
    needs("go")
    files = {f"{name}/it_test.go": go_test(name, SUBTESTS) for name in ("one", "two")}
    folder = lay(tmp_path / "it", GO_MOD | files)
    report = run(folder, only={"go": [typed(f"example.com/it/{name}") for name in asked]})
    names = [test.id.removeprefix("example.com/it/") for test in report.tests]
    assert report.status is ReportStatus.PASSED
    assert len(names) == len(set(names))
    assert sorted(name for name in names if not any(each.startswith(f"{name}/") for each in names)) == ran.split()


@pytest.mark.toolchain
def test_a_go_test_that_is_run_for_several_inside_it_has_failed_if_it_failed_once(tmp_path: Path) -> None:
    needs("go")
    body = """func TestA(t *testing.T) {
	t.Run("x", func(t *testing.T) { t.Run("one", func(t *testing.T) { t.Error("got 1, want 2") }) })
	t.Run("y", func(t *testing.T) { t.Run("one", func(t *testing.T) {}) })
}
"""
    folder = lay(tmp_path / "it", GO_MOD | {"it_test.go": go_test("it", body)})
    names = [f"example.com/it.TestA/{name}/one" for name in "xy"]
    report = run(folder, only={"go": [typed(name) for name in names]})
    assert statuses(report) == {
        "example.com/it.TestA": "failed",
        "example.com/it.TestA/x": "failed",
        "example.com/it.TestA/x/one": "failed",
        "example.com/it.TestA/y": "passed",
        "example.com/it.TestA/y/one": "passed",
    }


@pytest.mark.toolchain
def test_a_go_test_that_panics_in_another_package_is_run_again_in_its_own(tmp_path: Path) -> None:
    needs("go")
    files = {
        "lib/lib.go": 'package lib\n\nfunc Get() int { panic("no") }\n',
        "lib/lib_test.go": go_test("lib", "func TestA(t *testing.T) {}\n"),
        "app/it_test.go": 'package app\n\nimport ("testing"; "example.com/it/lib")\n\n'
        "func TestA(t *testing.T) { lib.Get() }\n",
    }
    folder = lay(tmp_path / "it", GO_MOD | files)
    report = run(folder)
    name = "example.com/it/app.TestA"
    assert red(report) == {name: ("lib/lib.go", 3, None, None)}
    assert {test.id: test.file for test in report.tests}[name] == "app/it_test.go"
    assert statuses(run(folder, only=chosen(report, name))) == {name: "failed"}
    assert runner("go").rerun_command(detect(folder)[0], chosen(report, name)["go"][0])[-1] == "./app"


def crate(name: str, more: str = "") -> str:
    return f'[package]\nname = "{name}"\nversion = "0.1.0"\nedition = "2021"\n{more}'


LIBRARY = """/// ```
/// assert_eq!(NAME::one(), 2);
/// ```
pub fn one() -> i32 { 1 }

#[cfg(test)]
mod tests {
    #[test]
    fn same() { assert_eq!(super::one(), 2); }
    #[test]
    fn errs() -> Result<(), String> { Err("bad".into()) }
    #[test]
    #[should_panic(expected = "boom")]
    fn panics() { panic!("other"); }
}

/// ```
/// assert_eq!(NAME::one(), 1);
/// ```
pub fn two() {}
"""
WORKSPACE = {
    "Cargo.toml": '[workspace]\nmembers = ["a", "b"]\nresolver = "2"\n',
    "a/Cargo.toml": crate("a"),
    "a/src/lib.rs": LIBRARY.replace("NAME", "a"),
    "b/Cargo.toml": crate("b", '[[test]]\nname = "own-one"\nharness = false\n'),
    "b/src/lib.rs": LIBRARY.replace("NAME", "b"),
    "b/tests/it.rs": "#[test]\nfn same() { assert_eq!(b::one(), 1); }\n#[test]\n"
    'fn errs() -> Result<(), String> { Err("bad".into()) }\n',
    "b/tests/own-one.rs": 'fn main() { assert_eq!(std::env::args().count(), 1); println!("fine"); }\n',
}


@pytest.mark.toolchain
def test_tests_of_a_cargo_workspace_are_distinguished_located_and_run_alone(tmp_path: Path) -> None:
    needs("cargo")
    folder = lay(tmp_path / "it", WORKSPACE)
    report = run(folder)
    places = {"tests::same": (9, "2", "1"), "tests::errs": (11, None, None), "tests::panics": (14, '"boom"', '"other"')}
    unit = {f"{name} {test}": (f"{name}/src/lib.rs", *at) for name in "ab" for test, at in places.items()}
    docs = {f"{name}/src/lib.rs - one (line 1)": (f"{name}/src/lib.rs", 1, "2", "1") for name in "ab"}
    assert red(report) == unit | docs | {"b::it errs": ("b/tests/it.rs", 4, None, None)}
    green = ["b::it same", "b::own-one", *(f"{name}/src/lib.rs - two (line 17)" for name in "ab")]
    assert statuses(report) == dict.fromkeys(red(report), "failed") | dict.fromkeys(green, "passed")
    assert not any("stack backtrace" in test.stdout for test in report.tests)
    for name in ("b tests::same", "b::it same", "b::own-one"):
        assert list(statuses(run(folder, only=chosen(report, name)))) == [name]
        assert list(statuses(run(folder, only={"cargo": [typed(name)]}))) == [name]
    again = runner("cargo").rerun_command(detect(folder)[0], chosen(report, "b::it same")["cargo"][0])
    assert again == ["cargo", "test", "--package", "b", "--test", "it", "same", "--", "--exact"]
    example = "a/src/lib.rs - one (line 1)"
    ran = statuses(run(folder, only={"cargo": [typed(example)]}))
    assert ran[example] == "failed"
    assert all(name.endswith("(line 1)") for name in ran)


@pytest.mark.toolchain
def test_a_rust_test_that_kills_a_program_is_named_also_when_others_run_after_it(tmp_path: Path) -> None:
    needs("cargo")
    aborts = "#[test]\nfn aborts() { std::process::abort(); }\n"
    files = {"Cargo.toml": crate("a"), "tests/it.rs": aborts, "tests/later.rs": "#[test]\nfn later() {}\n"}
    report = run(lay(tmp_path / "it", files | {"src/lib.rs": ""}))
    assert (report.status, report.running) == (ReportStatus.CRASHED, ["aborts"])
    assert red(report) == {"aborts": ("tests/it.rs", 2, None, None)}
    assert statuses(report)["later"] == "passed"


HOST = "x86_64-unknown-linux-gnu"
BY_ENVIRONMENT = {"CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER": "sh tools/wrap"}


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("settings", "env"),
    [
        ("[target.'cfg(unix)']\nrunner = 'tools/wrap'\n[target.'cfg(windows)']\nrunner = 'wine'\n", {}),
        ("[target.'cfg(unix)']\nrunner = ['tools/wrap']\n", {}),
        (f"[target.{HOST}]\nrunner = ['sh', 'tools/wrap']\n[target.'cfg(unix)']\nrunner = 'false'\n", {}),
        (f"[build]\ntarget = '{HOST}'\n[target.{HOST}]\nrunner = 'tools/wrap'\n", {}),
        ("", BY_ENVIRONMENT),
        (f"[target.{HOST}]\nrunner = 'false'\n", BY_ENVIRONMENT | {"CARGO_BUILD_TARGET": HOST}),
    ],
)
def test_what_the_project_has_its_rust_tests_started_with_still_starts_them(
    settings: str, env: dict[str, str], tmp_path: Path
) -> None:
    needs("cargo")
    if f"host: {HOST}\n" not in output_of("rustc", "-vV"):
        pytest.skip("it is written for another machine")
    wrap = '#!/bin/sh\necho started $* >> "$HERE/started"\nTOLD=yes exec "$@"\n'
    body = '#[test]\nfn told() { assert_eq!(std::env::var("TOLD").as_deref(), Ok("yes")); }\n'
    files = {"Cargo.toml": crate("a"), "src/lib.rs": body, ".cargo/config.toml": settings, "tools/wrap": wrap}
    folder = lay(tmp_path / "it", files)
    (folder / "tools/wrap").chmod(0o755)
    tests = TestRun(targets=detect(folder), timeout_s=120, env=environment(folder) | {"HERE": str(tmp_path)} | env)
    report = asyncio.run(tests.run(folder, log=tmp_path / "log"))
    assert (report.status, statuses(report)) == (ReportStatus.PASSED, {"told": "passed"})
    (row,) = (tmp_path / "started").read_text().splitlines()
    assert row.startswith("started /")


def test_settings_of_cargos_targets_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*BY_ENVIRONMENT, "CARGO_BUILD_TARGET", "CARGO_REGISTRY_TOKEN"):
        monkeypatch.setenv(name, "x")
    assert {*BY_ENVIRONMENT, "CARGO_BUILD_TARGET"} == {
        name for name, value in allowed_environment().items() if value == "x"
    }


def test_where_languages_look_for_what_tests_need_reaches_them(monkeypatch: pytest.MonkeyPatch) -> None:
    places = ("BATS_LIB_PATH", "LUA_PATH", "GOTOOLCHAIN", "RUSTUP_TOOLCHAIN", "RUBYOPT", "COMPOSER_HOME")
    for name in (*places, "GITHUB_TOKEN"):
        monkeypatch.setenv(name, "x")
    assert {name for name, value in allowed_environment().items() if value == "x"} == {*places}


CMAKE = """cmake_minimum_required(VERSION 3.16)
project(it CXX)
enable_testing()
find_package(GTest REQUIRED)
include(GoogleTest)
add_executable(each each.cpp)
target_link_libraries(each GTest::gtest_main)
gtest_discover_tests(each PROPERTIES SKIP_RETURN_CODE 77)
add_executable(long long.cpp)
target_link_libraries(long GTest::gtest_main)
add_test(NAME long COMMAND long)
add_executable(longer longer.cpp)
target_link_libraries(longer GTest::gtest_main)
add_test(NAME longer COMMAND longer)
add_test(NAME silent COMMAND sh -c "kill -SEGV $$")
add_executable(whole whole.cpp)
target_link_libraries(whole GTest::gtest_main)
add_test(NAME all.of.it COMMAND whole)
add_test(NAME plain.passes COMMAND sh -c "echo '[==========] Running 2 test(s).'; echo '[ RUN      ] adds'")
add_test(NAME doctest COMMAND sh -c "printf '%s\\\\n' '/w/a.cpp:4: ERROR: CHECK( x == 3 ) is NOT correct!' \
'  values: CHECK( 2 == 3 )' '[doctest] assertions: 2 | 1 passed | 1 failed |'; exit 1")
"""
EACH = """#include <gtest/gtest.h>
#include <cstdlib>
TEST(Each, Aborts) { abort(); }
TEST(Each, Leaves) { exit(0); }
TEST(Each, Skips) { exit(77); }
class P : public ::testing::TestWithParam<int> {};
TEST_P(P, Small) { EXPECT_LT(GetParam(), 8); }
INSTANTIATE_TEST_SUITE_P(All, P, ::testing::Values(1, 8));
"""
LONG = """#include <gtest/gtest.h>
#include <string>
TEST(NAME, First) { puts(std::string(COUNT, 'x').c_str()); }
TEST(NAME, Second) {}
"""
WHOLE = "#include <gtest/gtest.h>\nTEST(Whole, Ok) {}\nTEST(Whole, Bad) { EXPECT_EQ(1, 2); }\n"


@pytest.mark.toolchain
def test_what_ctest_and_googletest_say_of_one_test_is_joined_and_nothing_is_lost(tmp_path: Path) -> None:
    needs("ctest")
    long = {
        f"{name.lower()}.cpp": LONG.replace("NAME", name).replace("COUNT", count)
        for name, count in {"Long": "2000", "Longer": "400000"}.items()
    }
    folder = lay(tmp_path / "it", {"CMakeLists.txt": CMAKE, "each.cpp": EACH, "whole.cpp": WHOLE} | long)
    report = run(folder, timeout_s=300)
    assert statuses(report) == {
        "Each.Aborts": "error",
        "Each.Leaves": "error",  # ctest itself says that it passed
        "Each.Skips": "skipped",
        "Long.First": "passed",
        "Long.Second": "passed",
        "Longer.First": "passed",  # of its output ctest keeps too little to name it
        "Longer.Second": "passed",
        "silent": "failed",
        "All/P.Small/0": "passed",
        "All/P.Small/1": "failed",
        "Whole.Ok": "passed",
        "Whole.Bad": "failed",
        "plain.passes": "passed",
        "doctest": "failed",
    }
    assert red(report)["doctest"] == ("/w/a.cpp", 4, "3", "2")
    assert {test.failure.message for test in report.tests if test.failure and test.id == "silent"} == {
        "ctest says: Exception: SegFault"
    }
    for name in ("Whole.Bad", "All/P.Small/1", "Long.Second"):
        assert statuses(run(folder, only=chosen(report, name))) == {name: statuses(report)[name]}
    line = runner("ctest").rerun_command(detect(folder)[0], chosen(report, "Whole.Bad")["ctest"][0])[-1]
    one = "env GTEST_FILTER=Whole.Bad ctest --test-dir build -R '^all\\.of\\.it$' --output-on-failure"
    assert line == f"cmake -S . -B build && cmake --build build && {one}"


@pytest.mark.parametrize(
    ("name", "method", "words"),
    [
        ("x.CalcTest#adds", "adds", "x.CalcTest#adds"),
        ("x.CalcTest#adds", "", "x.CalcTest#adds"),
        ("x.CalcTest$Inner#deep", "deep", "x.CalcTest$Inner#deep"),
        ("x.CalcTest#small{int}[3]", "small{int}[3]", "x.CalcTest#small"),
        ("x.CalcTest#small(int)[3]", "", "x.CalcTest#small"),
        ("x.BeforeTest#x.BeforeTest", "x.BeforeTest", "x.BeforeTest"),
        ("x.BeforeTest", "", "x.BeforeTest"),
    ],
)
def test_javas_tests_are_asked_for_as_their_runners_can_be(name: str, method: str, words: str, tmp_path: Path) -> None:
    folder = lay(tmp_path, {"pom.xml": "<project/>", "build.gradle": "", "src/test/java/ATest.java": ""})
    targets = {target.runner: target for target in detect(folder)}
    test = TestResult(id=name, name=method, suite=["x.CalcTest"] if method else [], status=TestStatus.FAILED)
    none = ["-DfailIfNoTests=false", "-Dsurefire.failIfNoSpecifiedTests=false"]  # in the modules without it
    assert runner("maven").rerun_command(targets["maven"], test)[-3:] == [f"-Dtest={words}", *none]
    assert runner("gradle").rerun_command(targets["gradle"], test)[-2:] == ["--tests", words.replace("#", ".")]


def test_a_virtual_machine_that_leaves_in_the_midst_of_its_tests_is_a_crash_that_names_the_class() -> None:
    output = (
        "[ERROR] The forked VM terminated without properly saying goodbye. VM crash or System.exit called?\n"
        "[ERROR] Process Exit Code: 0\n[ERROR] Crashed tests:\n[ERROR] x.CalcTest\n[ERROR] \tat org.A.b(C:1)\n"
    )
    assert [(part.ended, part.running) for part in crash_of(output * 2)] == [(False, ["x.CalcTest"])]
    assert crash_of("[ERROR] There are test failures.\n") == []


def test_a_class_that_ended_its_virtual_machine_makes_a_run_a_crash_although_others_have_results(
    tmp_path: Path,
) -> None:
    output = "[ERROR] The forked VM terminated without properly ...\n[ERROR] Crashed tests:\n[ERROR] x.CalcTest\n"
    document = '<testsuite tests="1"><testcase classname="x.ATest" name="a"/></testsuite>'
    made = f"mkdir -p target/surefire-reports\necho '{document}' > target/surefire-reports/TEST-x.ATest.xml\n"
    files = {"pom.xml": "<project/>", "mvnw": f"#!/bin/sh\n{made}cat said\nexit 1\n", "said": output}
    folder = lay(tmp_path / "it", files | {"src/test/java/x/ATest.java": ""})
    (folder / "mvnw").chmod(0o755)
    report = run(folder)
    assert (report.status, report.running) == (ReportStatus.CRASHED, ["x.CalcTest"])
    assert statuses(report) == {"x.ATest#a": "passed", "x.CalcTest": "error"}


MAKEFILE = """TESTS = one two.sh three.tap
check:
\t@echo "make[1]: Entering directory '$(CURDIR)'"
\t@for name in $(TESTS); do case $$name in \\
\tone) echo "PASS: one" ;; \\
\ttwo.sh) echo "a.c:3: expected 3, got 2" > two.log; echo "FAIL: two.sh" ;; \\
\tthree.tap) echo "XFAIL: three.tap 1 - a"; echo "XPASS: three.tap 2 - b" ;; esac; done
\t@echo "# TOTAL: $(or $(N),4)"
\t@exit 1
"""


def test_what_automakes_check_says_is_read_and_one_test_is_made_alone(tmp_path: Path) -> None:
    files = {"configure.ac": "", "Makefile.am": "check_PROGRAMS = one\nTESTS = one two.sh\n", "Makefile": MAKEFILE}
    folder = lay(tmp_path / "it", files)
    report = run(folder)
    assert (report.runner, report.status) == ("automake", ReportStatus.FAILED)
    assert statuses(report) == {
        "one": "passed",
        "two.sh": "failed",
        "three.tap 1 - a": "xfailed",
        "three.tap 2 - b": "failed",
    }
    assert red(report)["two.sh"] == ("a.c", 3, "3", "2")
    assert statuses(run(folder, only=chosen(report, "two.sh"), MAKEFLAGS="N=1")) == {"two.sh": "failed"}
    (folder / "Makefile").unlink()
    unmade = run(folder)
    assert unmade.status is ReportStatus.ERROR
    assert "autoreconf -i && ./configure" in unmade.notes[0]


def test_a_makefiles_check_is_run_where_it_has_no_test(tmp_path: Path) -> None:
    assert detect(lay(tmp_path / "a", {"Makefile": "check:\n\ttrue\n"}))[0].command == ["make", "check"]
    assert detect(lay(tmp_path / "b", {"Makefile": "check: a\ntest:\n\ttrue\n"}))[0].command == ["make", "test"]


@pytest.mark.toolchain
def test_of_dunes_programs_those_in_the_folders_of_the_chosen_are_run(tmp_path: Path) -> None:
    needs("dune")
    files = {f"{name}/dune": f"(test (name {name}_it))\n" for name in ("one", "two")}
    files |= {f"{name}/{name}_it.ml": 'let () = failwith "no"\n' for name in ("one", "two")}
    folder = lay(tmp_path / "it", {"dune-project": "(lang dune 2.0)\n"} | files)
    report = run(folder)
    assert statuses(report) == {"one_it": "failed", "two_it": "failed"}
    assert statuses(run(folder, only=chosen(report, "two_it"))) == {"two_it": "failed"}


TESTNG = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>x</groupId><artifactId>x</artifactId><version>1</version>
  <properties>
    <maven.compiler.source>11</maven.compiler.source>
    <maven.compiler.target>11</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
    <dependency><groupId>org.testng</groupId><artifactId>testng</artifactId><version>6.x</version></dependency>
  </dependencies>
</project>
"""
ROWS = """package x;
import static org.testng.Assert.assertEquals;
import org.testng.annotations.*;
public class RowsTest {
  @DataProvider public Object[][] sums() { return new Object[][] {{1, 2, 3}, {2, 2, 5}, {0, 0, 0}, {0, 0, 0}}; }
  @Test(dataProvider = "sums") public void adds(int a, int b, int sum) { assertEquals(a + b, sum); }
  @Test public void passes() {}
}
"""


@pytest.mark.toolchain
def test_rows_of_testngs_data_providers_are_called_by_their_values(tmp_path: Path) -> None:
    needs("maven")
    if not Path("/usr/share/maven-repo/org/testng").exists():
        pytest.skip("TestNG is not installed: scripts/toolchains gets it")
    folder = lay(tmp_path / "it", {"pom.xml": TESTNG, "src/test/java/x/RowsTest.java": ROWS})
    targets = detect(folder, command="mvn -o -s /etc/maven/settings-debian.xml test")
    report = run(folder, targets, timeout_s=300)
    assert statuses(report) == {
        "x.RowsTest#adds(1, 2, 3)": "passed",
        "x.RowsTest#adds(2, 2, 5)": "failed",
        "x.RowsTest#adds(0, 0, 0)": "passed",
        "x.RowsTest#adds(0, 0, 0) #2": "passed",
        "x.RowsTest#passes": "passed",
    }
    assert red(report) == {"x.RowsTest#adds(2, 2, 5)": ("src/test/java/x/RowsTest.java", 6, "5", "4")}
    (test,) = chosen(report, "x.RowsTest#adds(2, 2, 5)")["maven"]
    assert runner("maven").rerun_command(targets[0], test)[-3] == "-Dtest=x.RowsTest#adds"


SWITCHED = """cmake_minimum_required(VERSION 3.16)
project(it NONE)
option(IT_BUILD_TESTS "Build the tests" OFF)
option(IT_FUZZ_TESTS "Build the fuzzers" OFF)
option(BUILD_TESTING "Nobody asks for it here")
option(IT_TESTS "On already" ON)
#option(IT_UNIT_TESTS "Not there" OFF)
if(IT_BUILD_TESTS AND IT_TESTS)
  enable_testing()
  add_test(NAME one COMMAND ${CMAKE_COMMAND} -E true)
endif()
if(IT_FUZZ_TESTS OR IT_UNIT_TESTS)
  message(FATAL_ERROR "not these")
endif()
"""
OPTIONS = """option('tests', type: 'boolean', value: false, description: 'make them')
option('unit-tests', type: 'feature', value: 'disabled')
option('docs', type: 'boolean', value: false)
option('test', type: 'boolean', value: true)
"""


def test_the_set_up_of_a_build_that_leaves_its_tests_out_says_how_they_are_made(tmp_path: Path) -> None:
    folder = lay(
        tmp_path,
        {
            "a/CMakeLists.txt": SWITCHED,
            "b/meson.build": "project('it', 'c')\ntest('one', exe)\n",
            "b/meson_options.txt": OPTIONS,
        },
    )
    assert {target.root: target.setup[0] for target in detect(folder)} == {
        "a": "cmake -S . -B build -DIT_BUILD_TESTS=ON",
        "b": "meson setup build -Dtests=true -Dunit-tests=enabled",
    }


@pytest.mark.toolchain
def test_tests_that_a_build_leaves_out_are_made_in_ours_and_not_in_the_projects(tmp_path: Path) -> None:
    needs("ctest")
    folder = lay(tmp_path / "it", {"CMakeLists.txt": SWITCHED})
    assert statuses(run(folder)) == {"one": "passed"}
    output_of("cmake", "-S", str(folder), "-B", str(folder / "build"))
    assert run(folder).status is ReportStatus.NO_TESTS


def test_a_build_whose_parent_is_not_there_cannot_run_and_did_not_crash(tmp_path: Path) -> None:
    output = "[FATAL] Non-resolvable parent POM for x:y:1: Cannot access central in offline mode @ line 20, column 11"
    files = {"pom.xml": "<project/>", "src/test/java/ATest.java": "", "mvnw": f"#!/bin/sh\necho '{output}'\nexit 1\n"}
    folder = lay(tmp_path / "it", files)
    (folder / "mvnw").chmod(0o755)
    report = run(folder)
    assert report.status is ReportStatus.ERROR
    assert "Non-resolvable parent POM" in report.notes[0]
